-- Settles deliveries that are still held: by the same consumer, with the same count.
-- KEYS: stream, retry hash.
-- ARGV: group, verb, then for each lease: ID, consumer, count, idle in ms, new count, due in ms (0: at once), error.
-- Verbs: 'ack', 'extend', 'nack'. Returns the IDs of the leases that are lost.
redis.replicate_commands()
local stream, retry, group, verb = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local lost = {}
for i = 3, #ARGV, 7 do
  local id, consumer, count = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local p = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if not p or p[2] ~= consumer or p[4] ~= count then
    lost[#lost + 1] = id
  elseif verb == 'ack' then
    redis.call('XACK', stream, group, id)
    redis.call('HDEL', retry, id)
  else
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', ARGV[i + 3], 'RETRYCOUNT', ARGV[i + 4], 'JUSTID')
    if verb == 'nack' and (ARGV[i + 5] ~= '0' or ARGV[i + 6] ~= '') then
      redis.call('HSET', retry, id, ARGV[i + 5] .. ' ' .. ARGV[i + 6])
    end
  end
end
return lost
