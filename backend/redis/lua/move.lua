-- Makes entries of the messages that are due, the first to become due first.
-- KEYS: stream, what is kept back, what weir knows of the stream, who watches. ARGV: most messages, most bytes (about).
-- Returns {moved, ms until the next is due (0: some are, -1: there is none), whether there ever was one}.
redis.replicate_commands()
local stream, later = KEYS[1], KEYS[2]
if redis.call('EXISTS', later) == 0 then
  return {0, -1, redis.call('EXISTS', KEYS[4])}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What somebody else put there is delivered as it is: it must not keep the others waiting.
local function fieldsOf(member, due)
  local good, fields = pcall(cmsgpack.unpack, string.sub(member, 17))
  good = good and type(fields) == 'table' and #fields > 0 and #fields % 2 == 0 and #fields <= 7900
  for i = 1, good and #fields or 0 do
    good = good and type(fields[i]) == 'string'
  end
  if not good then
    return {'data', member, 'enqueue_ts', due}
  end
  for i = 1, #fields, 2 do
    if fields[i] == 'enqueue_ts' and fields[i + 1] == '' then
      fields[i + 1] = due
    end
  end
  return fields
end

local moved, size, new = 0, 0, false
while moved < tonumber(ARGV[1]) and size < tonumber(ARGV[2]) do
  local found = redis.call('ZRANGEBYSCORE', later, '-inf', string.format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, 1)
  local member = found[1]
  if not member then
    break
  end
  if moved == 0 then
    new = isNew(stream)
    -- A script that has written may go on when the memory is full. Moving frees what it takes, and is the only way out.
    redis.call('ZREM', later, '')
  end
  -- The entry first, the message kept back last: a script that fails is not undone.
  local id = redis.call('XADD', stream, '*', unpack(fieldsOf(member, string.format('%.0f', tonumber(found[2])))))
  redis.call('ZREM', later, member)
  if new then
    redis.pcall('HSET', KEYS[3], 'made', id) -- who may not note it has moved the message
    new = false
  end
  moved, size = moved + 1, size + #member
end
local first = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
if not first[1] then
  return {moved, -1, 1}
end
return {moved, math.max(0, tonumber(first[2]) - now), 1}
