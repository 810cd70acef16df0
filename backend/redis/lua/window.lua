-- Takes requests of the window that all processes share. It begins with its first request and expires at its end.
-- KEYS: window. ARGV: the most of a window, how many are wanted, its length in ms.
-- Returns {given, how long the window still lasts in ms}. The fewer are left, the fewer are given at once.
redis.replicate_commands()
local most, want, length = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
local left = redis.call('PTTL', KEYS[1])
if left <= 0 then
  used, left = 0, length
end
left = math.min(left, length)
local given = math.max(0, math.min(most - used, math.max(1, math.min(want, math.floor((most - used) / 16)))))
if given > 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', used + given), 'PX', left)
end
return {given, left}
