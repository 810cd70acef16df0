-- Keeps a message back until it is due, unless its idempotency key is known.
-- KEYS: what is kept back, what weir knows of the stream, who watches, key of the idempotency key if there is one.
-- ARGV: window in ms, delay in ms, fields of the entry.
-- Returns the message's name and whether it was there before (1) or not (0).
redis.replicate_commands()
local key = KEYS[4]
local known = key and redis.call('GET', key)
if known then
  -- Written again as it is, and so replicated behind the message: from 7.2 on a WAIT covers only what its own connection
  -- has written, which need not be the one that stored the message. Servers without KEEPTTL cover all in any case.
  redis.pcall('SET', key, known, 'XX', 'KEEPTTL')
  return {known, 1}
end
if key then
  redis.call('SET', key, '', 'XX') -- changes nothing: who may not remember the key must not store the message
end
-- The message first: if there is no memory for it, the key must not be left behind.
local id = keepBack(KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[2]), ARGV, 3, #ARGV)
if key then
  redis.call('SET', key, id, 'NX', 'PX', ARGV[1])
end
return {id, 0}
