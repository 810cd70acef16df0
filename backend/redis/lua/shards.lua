-- Raises into how many streams a sharded stream is divided.
-- KEYS: shards. ARGV: the least number.
-- The hash shards: first -> with how many it began; now -> how many there are. Returns both.
local first, now, least = 0, 0, tonumber(ARGV[1])
local found = redis.call('HGETALL', KEYS[1])
for i = 1, #found, 2 do
  if found[i] == 'first' then
    first = tonumber(found[i + 1])
  elseif found[i] == 'now' then
    now = tonumber(found[i + 1])
  end
end
if now < least then
  if first == 0 then
    first = least
  end
  now = least
  redis.call('HSET', KEYS[1], 'first', first, 'now', now)
end
return {first, now}
