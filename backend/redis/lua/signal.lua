-- Counts what is pending in a group and publishes the number.
-- KEYS: stream, lag key. ARGV: group, lifetime in ms.
redis.replicate_commands()
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local name, pending
  for i = 1, #group, 2 do
    if group[i] == 'name' then name = group[i + 1] end
    if group[i] == 'pending' then pending = group[i + 1] end
  end
  if name == ARGV[1] then
    redis.call('SET', KEYS[2], pending, 'PX', ARGV[2])
    return pending
  end
end
return redis.error_reply('NOGROUP no group ' .. ARGV[1])
