-- Removes consumers that hold nothing: the named ones, and any of weir's that has been silent for long.
-- With what it holds pending a consumer would take its messages along.
-- KEYS: stream, weir's consumers. ARGV: group, idle time in ms after which one is forgotten, names.
redis.replicate_commands()
local own = {}
for i = 3, #ARGV do
  own[ARGV[i]] = true
end
local removed = 0
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then -- without the stream, or the group, nobody holds anything
  if not (string.find(consumers.err, 'NOGROUP', 1, true) or string.find(consumers.err, 'no such key', 1, true)) then
    return consumers
  end
  consumers = {}
end
for _, consumer in ipairs(consumers) do
  local about = {}
  for i = 1, #consumer, 2 do
    about[consumer[i]] = consumer[i + 1]
  end
  local name = about['name']
  local gone = own[name] or about['idle'] > tonumber(ARGV[2]) and redis.call('HEXISTS', KEYS[2], name) == 1
  own[name] = nil
  if about['pending'] == 0 and gone then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name)
    redis.call('HDEL', KEYS[2], name)
    removed = removed + 1
  end
end
for name in pairs(own) do -- what never got anything is no consumer on old servers
  redis.call('HDEL', KEYS[2], name)
end
return removed
