-- Appends entries of a source, all of them or none, unless some are there already, and notes that weir made the stream
-- if the first of them is its first.
-- KEYS: stream, place of the source, what weir knows of the stream, what is kept back, who watches.
-- ARGV: window in ms, number of the first entry in the source, then for each entry its delay in ms, the number of its
--       fields and values, and these.
-- Returns the number of the first entry of the source that is not there, the ID of the one before it, and
-- whether nothing was stored (1) or the entries (0). The place is kept as '<number> <ID>'.
redis.replicate_commands()
local at = tonumber(ARGV[2])
local number, last = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.+)$')
if number and tonumber(number) > at then
  -- Written again as it is, and so replicated behind the entries: from 7.2 on a WAIT covers only what its own connection
  -- has written, which need not be the one that stored the entries. Servers without KEEPTTL cover all in any case.
  redis.pcall('SET', KEYS[2], number .. ' ' .. last, 'XX', 'KEEPTTL')
  return {number, last, 1}
end
if not number then
  redis.call('SET', KEYS[2], '', 'XX') -- changes nothing: who may not keep the place must not store the entries
end
local new = isNew(KEYS[1])
local i, next, first = 3, at, nil
while i <= #ARGV do
  local delay, n = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  if delay > 0 then
    last = keepBack(KEYS[4], KEYS[3], KEYS[5], delay, ARGV, i + 2, i + 1 + n)
  else
    last = redis.call('XADD', KEYS[1], '*', unpack(ARGV, i + 2, i + 1 + n))
    first = first or last
  end
  i, next = i + n + 2, next + 1
end
-- The entries first: if there is no memory for them, the place must not be left behind.
number = string.format('%.0f', next)
redis.call('SET', KEYS[2], number .. ' ' .. last, 'PX', ARGV[1])
if new and first then
  redis.pcall('HSET', KEYS[3], 'made', first) -- who may not note it has stored the entries
end
return {number, last, 0}
