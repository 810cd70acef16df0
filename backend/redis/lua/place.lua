-- Appends entries of a source, all of them or none, unless some are there already, and notes that weir made the stream
-- if the first of them is its first.
-- KEYS: stream, place of the source, what weir knows of the stream. ARGV: window in ms, number of the first entry in the source,
--       then for each entry the number of its fields and values, and these.
-- Returns the number of the first entry of the source that is not there, the ID of the one before it, and
-- whether nothing was stored (1) or the entries (0). The place is kept as '<number> <ID>'.
redis.replicate_commands()
local at = tonumber(ARGV[2])
local number, last = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.+)$')
if number and tonumber(number) > at then
  return {number, last, 1}
end
local new = isNew(KEYS[1])
local i, next, first = 3, at, nil
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  last = redis.call('XADD', KEYS[1], '*', unpack(ARGV, i + 1, i + n))
  first = first or last
  i, next = i + n + 1, next + 1
end
-- The entries first: if there is no memory for them, the place must not be left behind.
number = string.format('%.0f', next)
redis.call('SET', KEYS[2], number .. ' ' .. last, 'PX', ARGV[1])
if new then
  redis.call('HSET', KEYS[3], 'made', first)
end
return {number, last, 0}
