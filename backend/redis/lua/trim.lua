-- Removes the oldest entries: those that every group has acknowledged, and with a limit more.
-- KEYS: stream, record of trims. ARGV: most entries to keep (0: no limit), most to remove in one step.
-- Returns {removed, of these not acknowledged, whether there is more to do}.
redis.replicate_commands()
local stream, record = KEYS[1], KEYS[2]
local keep, most = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call('EXISTS', stream) == 0 then
  return {0, 0, 0}
end

local groups = {}
for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local group = {}
  for i = 1, #info, 2 do
    group[info[i]] = info[i + 1]
  end
  groups[#groups + 1] = group
end

-- The newest entry up to which this group is done; nil if its first one is not.
local function done(group)
  local bound = group['last-delivered-id']
  local oldest = redis.call('XPENDING', stream, group['name'], '-', '+', 1)[1]
  if oldest then
    bound = oldest[1]
  end
  for _, entry in ipairs(redis.call('XREVRANGE', stream, bound, '-', 'COUNT', 2)) do
    if not oldest or entry[1] ~= bound then
      return entry[1]
    end
  end
end

-- Removes everything up to and with last. Returns how many there were and whether that was all.
local function removeUpTo(last)
  local behind = redis.call('XRANGE', stream, last, '+', 'COUNT', 2)[2]
  local n
  if behind then
    n = redis.pcall('XTRIM', stream, 'MINID', '=', behind[1])
  else
    n = redis.pcall('XTRIM', stream, 'MAXLEN', '=', 0)
  end
  if type(n) == 'number' then
    return n, true
  end
  -- Before 6.2 there is no MINID.
  local ids = {}
  for _, entry in ipairs(redis.call('XRANGE', stream, '-', last, 'COUNT', most)) do
    ids[#ids + 1] = entry[1]
  end
  redis.call('XDEL', stream, unpack(ids))
  return #ids, ids[#ids] == last
end

local function note(last, removed, dropped)
  redis.call('HSET', record, 'last', last)
  redis.call('HINCRBY', record, 'removed', removed)
  if dropped > 0 then
    redis.call('HSET', record, 'dropped_last', last)
    redis.call('HINCRBY', record, 'dropped', dropped)
  end
end

local last
for i, group in ipairs(groups) do
  local bound = done(group)
  if not bound then
    last = nil
    break
  end
  if i == 1 or less(bound, last) then
    last = bound
  end
end
local removed = 0
if last then
  local all
  removed, all = removeUpTo(last)
  note(last, removed, 0)
  if not all then
    return {removed, 0, 1}
  end
end

local length = redis.call('XLEN', stream)
if keep == 0 or length <= keep then
  return {removed, 0, 0}
end

-- What is beyond the limit goes though somebody has not acknowledged it.
local function open(id)
  for _, group in ipairs(groups) do
    if less(group['last-delivered-id'], id) or redis.call('XPENDING', stream, group['name'], id, id, 1)[1] then
      return true
    end
  end
  return #groups == 0
end

local dropped, batch = 0, redis.call('XRANGE', stream, '-', '+', 'COUNT', math.min(most, length - keep))
for _, entry in ipairs(batch) do
  if open(entry[1]) then
    dropped = dropped + 1
  end
end
redis.call('XTRIM', stream, 'MAXLEN', '=', length - #batch)
note(batch[#batch][1], #batch, dropped)
return {removed + #batch, dropped, length - #batch > keep and 1 or 0}
