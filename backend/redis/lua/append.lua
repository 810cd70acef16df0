-- Appends an entry unless its idempotency key is known.
-- KEYS: stream, key of the idempotency key. ARGV: window in ms, fields of the entry.
-- Returns the entry's ID and whether it was there before (1) or not (0).
redis.replicate_commands()
local known = redis.call('GET', KEYS[2])
if known then
  return {known, 1}
end
-- The entry first: if there is no memory for it, the key must not be left behind.
local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2))
redis.call('SET', KEYS[2], id, 'NX', 'PX', ARGV[1])
return {id, 0}
