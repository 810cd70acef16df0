-- Moves a pending entry to the dead letters, if it is still held.
-- KEYS: stream, retry hash, dead letters.
-- ARGV: group, ID, consumer, count, attempts to write down, reason, error, who had it,
--       the fields to write instead of the entry's: their number, name, value, ...
-- Returns {ID there, error, time in ms}, nothing if somebody else holds it, or {'fields'} if they are asked for: the
-- entry is gone, or has more of them than a script can pass on.
redis.replicate_commands()
local stream, retry, dead = KEYS[1], KEYS[2], KEYS[3]
local group, id, consumer, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local p = redis.call('XPENDING', stream, group, id, id, 1)[1]
local note = redis.call('HGET', retry, id) or ''
if not p or p[2] ~= consumer or p[4] ~= count or string.sub(note, 1, 1) == '!' then
  return {}
end
local text = ARGV[7]
if text == '' then
  text = string.match(note, '^%d+ (.*)$') or ''
end
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
local fields = {}
local entry = redis.call('XRANGE', stream, id, id)[1]
if ARGV[9] then
  for i = 10, 9 + tonumber(ARGV[9]) do
    fields[#fields + 1] = ARGV[i]
  end
elseif entry then
  fields = entry[2]
else
  return {'fields'}
end
if #fields > 7900 then -- unpack gives out at 8000
  return {'fields'}
end
for _, extra in ipairs({
  {'weir-dead-stream', stream}, {'weir-dead-group', group}, {'weir-dead-id', id},
  {'weir-dead-attempts', ARGV[5]}, {'weir-dead-reason', ARGV[6]}, {'weir-dead-error', text},
  {'weir-dead-consumer', ARGV[8]}, {'weir-dead-at', now},
}) do
  fields[#fields + 1] = extra[1]
  fields[#fields + 1] = extra[2]
end
-- No entry has this ID, so these change nothing: who may not acknowledge must not store the letter, again and again. The first
-- finds out whether there is memory for it, which a script that has begun to write is not asked any more.
local refused = redis.pcall('XADD', dead, '0-0', 'data', '')
if not string.find(refused.err, 'The ID specified in XADD', 1, true) then
  return refused
end
redis.call('XACK', stream, group, '0-0')
-- The letter first, the acknowledgement last: a script that fails is not undone.
local letter = redis.call('XADD', dead, '*', unpack(fields))
redis.call('XACK', stream, group, id)
redis.pcall('HDEL', retry, id) -- a note that is left does no harm
return {letter, text, now}
