-- Sends a dead letter back to a stream.
-- KEYS: dead letters, stream, what weir knows of it. ARGV: ID of the letter, the group that is to have it (empty: all).
-- Returns the new entry's ID, nothing if there is no such letter, or two elements if the group is gone and others are there.
redis.replicate_commands()
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then
  return {}
end
redis.call('XDEL', KEYS[1], '0-0') -- who may not remove the letter must not send it either
local group = ARGV[2]
local new = redis.call('EXISTS', KEYS[2]) == 0

-- Whether the group is there or can be made as its first claim would make it.
local function ready()
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[2])
  if groups.err then -- no such stream
    groups = {}
  end
  for _, info in ipairs(groups) do
    for i = 1, #info, 2 do
      if info[i] == 'name' and info[i + 1] == group then
        return true
      end
    end
  end
  if #groups > 0 then
    return false
  end
  redis.call('XGROUP', 'CREATE', KEYS[2], group, '0', 'MKSTREAM')
  redis.call('HSET', KEYS[3], 'group:' .. group, '1')
  return true
end

if group ~= '' and not ready() then
  return {'', ''}
end
local time = redis.call('TIME')
local fields, redrives = {}, 0
for i = 1, #letter[2], 2 do
  local name, value = letter[2][i], letter[2][i + 1]
  if name == 'weir-redrives' then
    redrives = tonumber(value) or 0
  elseif name ~= 'enqueue_ts' and name ~= 'weir-deadline' and name ~= 'weir-redrive-group' and string.sub(name, 1, 10) ~= 'weir-dead-' then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
fields[#fields + 1] = 'enqueue_ts'
fields[#fields + 1] = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
fields[#fields + 1] = 'weir-redrives'
fields[#fields + 1] = string.format('%d', redrives + 1)
if group ~= '' then
  fields[#fields + 1] = 'weir-redrive-group'
  fields[#fields + 1] = group
end
-- The message first, the letter last: a script that fails is not undone.
local id = redis.call('XADD', KEYS[2], '*', unpack(fields))
redis.call('XDEL', KEYS[1], ARGV[1])
if new then
  redis.pcall('HSET', KEYS[3], 'made', id) -- who may not note it has sent the message
end
return {id}
