-- Appends an entry unless its idempotency key is known, and notes that weir made the stream if it is the first entry.
-- KEYS: stream, what weir knows of it, key of the idempotency key if there is one. ARGV: window in ms, fields of the entry.
-- Returns the entry's ID and whether it was there before (1) or not (0).
redis.replicate_commands()
local stream, about, key = KEYS[1], KEYS[2], KEYS[3]
local known = key and redis.call('GET', key)
if known then
  -- Written again as it is, and so replicated behind the message: from 7.2 on a WAIT covers only what its own connection
  -- has written, which need not be the one that stored the message. Servers without KEEPTTL cover all in any case.
  redis.pcall('SET', key, known, 'XX', 'KEEPTTL')
  return {known, 1}
end
if key then
  redis.call('SET', key, '', 'XX') -- changes nothing: who may not remember the key must not store the entry
end

local new = isNew(stream)
-- The entry first: if there is no memory for it, the key must not be left behind.
local id = redis.call('XADD', stream, '*', unpack(ARGV, 2))
if key then
  redis.call('SET', key, id, 'NX', 'PX', ARGV[1])
end
if new then
  redis.pcall('HSET', about, 'made', id) -- who may not note it has stored the entry
end
return {id, 0}
