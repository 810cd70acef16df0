-- Removes the oldest entries: those that every group has acknowledged, and with a limit more.
-- KEYS: stream, record of trims, what weir knows of the stream.
-- ARGV: most entries to keep (0: no limit), most to look at in one step, most to remove in one step (about),
--       1: only if weir made the stream, how long to keep in ms what is acknowledged, 1: MINID may be used.
-- Returns {removed, of these not acknowledged, whether there is more to do, who made the stream (1 weir, 2 somebody else)}.
redis.replicate_commands()
local stream, record = KEYS[1], KEYS[2]
local keep, most, chunk = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('XLEN', stream) == 0 then -- who made it shows with its first entry
  return {0, 0, 0, 0}
end
local owner = redis.call('HEXISTS', KEYS[3], 'made') == 1 and 1 or 2
if owner == 2 and ARGV[4] == '1' then
  return {0, 0, 0, owner}
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
  if oldest and less(bound, oldest[1]) then -- XGROUP SETID has sent it back
    oldest = nil
  end
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
  if not behind then
    return redis.call('XTRIM', stream, 'MAXLEN', '=', 0), true
  end
  local n = ARGV[6] == '1' and redis.pcall('XTRIM', stream, 'MINID', '=', behind[1])
  if type(n) == 'number' then
    return n, true
  end
  -- There is no MINID, or it may not be used.
  local ids = redis.call('XRANGE', stream, '-', last, 'COUNT', most)
  redis.call('XTRIM', stream, 'MAXLEN', '=', redis.call('XLEN', stream) - #ids)
  return #ids, ids[#ids][1] == last
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

local function ms(id)
  return tonumber(string.match(id, '%d+'))
end

-- The newest entry that is not younger than a time; nil if there is none.
local function upTo(time)
  local entry = redis.call('XREVRANGE', stream, string.format('%d', time), '-', 'COUNT', 1)[1]
  return entry and entry[1]
end

local length = redis.call('XLEN', stream)
if last and tonumber(ARGV[5]) > 0 then
  local time = redis.call('TIME')
  local limit = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[5]
  if ms(last) > limit then
    last = upTo(limit)
  end
end
local rest = 0
if last and length > chunk then -- in steps, by time as if the entries were spread evenly
  local from = ms(redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1])
  local step = upTo(from + math.floor((ms(last) - from) * chunk / length))
  if step and less(step, last) then
    last, rest = step, 1
  end
end
local removed = 0
if last then
  local all
  removed, all = removeUpTo(last)
  note(last, removed, 0)
  if not all or rest == 1 then
    return {removed, 0, 1, owner}
  end
end

length = redis.call('XLEN', stream)
if keep == 0 or length <= keep then
  return {removed, 0, 0, owner}
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
return {removed + #batch, dropped, length - #batch > keep and 1 or 0, owner}
