-- Sends a dead letter back to a stream.
-- KEYS: dead letters, stream. ARGV: ID of the letter.
-- Returns the new entry's ID, or nothing if there is no such letter.
redis.replicate_commands()
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then
  return {}
end
local time = redis.call('TIME')
local fields, redrives = {}, 0
for i = 1, #letter[2], 2 do
  local name, value = letter[2][i], letter[2][i + 1]
  if name == 'weir-redrives' then
    redrives = tonumber(value) or 0
  elseif name ~= 'enqueue_ts' and string.sub(name, 1, 10) ~= 'weir-dead-' then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
fields[#fields + 1] = 'enqueue_ts'
fields[#fields + 1] = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
fields[#fields + 1] = 'weir-redrives'
fields[#fields + 1] = string.format('%d', redrives + 1)
-- The message first, the letter last: a script that fails is not undone.
local id = redis.call('XADD', KEYS[2], '*', unpack(fields))
redis.call('XDEL', KEYS[1], ARGV[1])
return {id}
