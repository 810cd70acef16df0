-- Decides what becomes of pending entries, and counts a delivery for those that are handed out.
-- KEYS: stream, retry hash, leases of weir's consumers.
-- ARGV: group, consumer, least idle time in ms where the holder's lease is not known (-1: they are the consumer's already),
--       reclaim_after in ms, delivery limit (0: none), IDs.
-- Returns for each entry that was taken {ID, kind, count, fields, last error}; kinds:
--   'd' delivered, count included   'x' at the limit, still pending and the consumer's   'c' the same, large fields left out
--   'l' lost: acknowledged, for its data is gone   'o' acknowledged, for it was sent back to another group
redis.replicate_commands()
local stream, retry, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local least, reclaim, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken = {}

-- These change nothing: who may not do all of this must not count deliveries that nobody gets.
redis.call('XACK', stream, group, '0-0')
redis.call('HDEL', retry, '')

-- From now on somebody has it again; of the note the error stays, if it may be written.
local function handOut(id, note, text)
  local changed = string.sub(note, 1, 1) == '!'
  if not text or text == '' or changed and type(redis.pcall('HSET', retry, id, '0 ' .. text)) == 'table' then
    redis.call('HDEL', retry, id)
  end
end

local function mine(p)
  if least < 0 then
    return p[2] == consumer
  end
  return p[3] >= (tonumber(redis.call('HGET', KEYS[3], p[2]) or '') or least)
end

local function elsewhere(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'weir-redrive-group' then
      return fields[i + 1] ~= group
    end
  end
end

-- What only moves within the server is not sent if it is large. The name of the data is: without it an entry is
-- another program's.
local function small(fields)
  local kept, kind = {}, #fields > 200 and 'c' or 'x'
  for i = 1, math.min(#fields, 200), 2 do
    local name, value = fields[i], fields[i + 1]
    if #value > 1024 then
      kind, value = 'c', name == 'data' and ''
    end
    if value then
      kept[#kept + 1] = name
      kept[#kept + 1] = value
    end
  end
  return kept, kind
end

for i = 6, #ARGV do
  local id = ARGV[i]
  local p = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if p and mine(p) then
    local note = redis.call('HGET', retry, id) or '0 '
    local due, text = string.match(note, '^!?(%d+) (.*)$')
    local left = (tonumber(due) or 0) - now
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if not entry then
      redis.call('XACK', stream, group, id)
      taken[#taken + 1] = {id, 'l', p[4], {}, ''}
    elseif elsewhere(entry[2]) then
      redis.call('XACK', stream, group, id)
      redis.call('HDEL', retry, id)
      taken[#taken + 1] = {id, 'o', p[4], {}, ''}
    elseif left > 0 then
      -- Not due: pending again so that it is found when it is, at the latest after reclaim_after.
      redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', math.max(0, reclaim - left), 'RETRYCOUNT', p[4], 'JUSTID')
    elseif limit > 0 and p[4] >= limit then
      redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', 0, 'RETRYCOUNT', p[4], 'JUSTID')
      handOut(id, note, text)
      local kept, kind = small(entry[2])
      taken[#taken + 1] = {id, kind, p[4], kept, text or ''}
    else
      redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', 0, 'RETRYCOUNT', p[4] + 1, 'JUSTID')
      handOut(id, note, text)
      taken[#taken + 1] = {id, 'd', p[4] + 1, entry[2], text or ''}
    end
  end
end
return taken
