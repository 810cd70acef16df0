-- Settles deliveries that are still held: by the same consumer, with the same count, and not given back.
-- KEYS: stream, retry hash (not there while it cannot be used together with the stream; not for 'nack').
-- ARGV: group, verb, then for each lease: ID, consumer, count, idle in ms, new count,
--       delay in ms (0: the idle time alone says when), error.
-- Verbs: 'ack', 'extend', 'nack'. Returns the IDs of the leases that are lost.
-- A note in the retry hash is '<due in ms> <last error>', behind a '!' while nobody has the delivery.
redis.replicate_commands()
local stream, retry, group, verb = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lost = {}
for i = 3, #ARGV, 7 do
  local id, consumer, count = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local p = redis.call('XPENDING', stream, group, id, id, 1)[1]
  local note = retry and redis.call('HGET', retry, id) or ''
  -- A lease without a delivery is what a scan took over and nobody was told of.
  if not p or p[2] ~= consumer or p[4] ~= count or count > 0 and string.sub(note, 1, 1) == '!' then
    lost[#lost + 1] = id
    if not p and retry then
      redis.call('HDEL', retry, id) -- it is done, maybe by an ack of which the rest was refused
    end
  elseif verb == 'ack' then
    redis.call('XACK', stream, group, id)
    if retry then
      redis.call('HDEL', retry, id)
    end
  else
    local kept = redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', ARGV[i + 3], 'RETRYCOUNT', ARGV[i + 4], 'JUSTID')
    if verb == 'nack' and #kept == 0 then -- the entry is gone, and with it the delivery (7.0)
      redis.call('HDEL', retry, id)
      lost[#lost + 1] = id
    elseif verb == 'nack' then
      local delay, text = tonumber(ARGV[i + 5]), ARGV[i + 6]
      local due = delay > 0 and now + delay or 0
      if text == '' then
        text = string.match(note, '^!?%d+ (.*)$') or ''
      end
      redis.call('HSET', retry, id, string.format('!%d ', due) .. text)
    end
  end
end
return lost
