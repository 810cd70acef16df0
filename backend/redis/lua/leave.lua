-- Removes consumers that hold nothing: the named ones, and any that nobody has used for long.
-- With what it holds pending a consumer would take its messages along.
-- KEYS: stream. ARGV: group, idle time in ms after which one is forgotten, names.
redis.replicate_commands()
local own = {}
for i = 3, #ARGV do
  own[ARGV[i]] = true
end
local removed = 0
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local about = {}
  for i = 1, #consumer, 2 do
    about[consumer[i]] = consumer[i + 1]
  end
  if about['pending'] == 0 and (own[about['name']] or about['idle'] > tonumber(ARGV[2])) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], about['name'])
    removed = removed + 1
  end
end
return removed
