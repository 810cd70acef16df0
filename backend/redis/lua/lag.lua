-- Reads what waits for a group: the server's own number if it can be true, and where there is none or it has to be
-- checked, a count of what lies behind the last delivered entry, continued from one call to the next.
-- KEYS: stream, messages that are kept back. ARGV: group; from, to, n: an earlier count (n entries behind from up to to), empty if there is none;
-- the most to count; the longest time to count for in us; 1 to check the server's number. If the key of what is kept back is not
-- given also: how many messages are kept back; those of them that are due; for how long in ms.
-- Returns {what is there (0 nothing, 1 the stream or what will be in it, 2 the group), entries stored, pending, consumers, last-delivered-id,
-- lag (-1: not known), counted, from, to, whether the server's number may be believed for a while (0 no, 1 yes, 2: as before),
-- entries read by the group, ever (-1: not known), messages kept back, those of them that are due, for how long in ms}.
redis.replicate_commands()
local stream = KEYS[1]
local later, due, overdue = KEYS[2] and redis.pcall('ZCARD', KEYS[2]), 0, 0
if not KEYS[2] then
  later, due, overdue = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
elseif type(later) ~= 'number' then -- a user of before there was this
  later = 0
elseif later > 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  due = redis.call('ZCOUNT', KEYS[2], '-inf', string.format('%.0f', now))
  if due > 0 then
    overdue = now - tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
  end
end
local wanted, from, to, n = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local most, budget, check = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local page = 50 -- entries, whatever their size: what is copied between two looks at the clock

local function pairsOf(list)
  local map = {}
  for i = 1, #list, 2 do
    map[list[i]] = list[i + 1]
  end
  return map
end

local info = redis.pcall('XINFO', 'STREAM', stream)
if info.err then
  if string.find(info.err, 'no such key', 1, true) then
    return {later > 0 and 1 or 0, 0, 0, 0, '', -1, 0, '', '', 0, -1, later, due, overdue}
  end
  return info
end
info = pairsOf(info)
local length = info['length']
local group
for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  g = pairsOf(g)
  if g['name'] == wanted then
    group = g
  end
end
if not group then
  return {1, length, 0, 0, '', -1, 0, '', '', 0, -1, later, due, overdue}
end
local last = group['last-delivered-id']
local lag = group['lag'] or -1

local function answer(lag, counted, believed)
  return {2, length, group['pending'], group['consumers'], last, lag, counted, from, to, believed,
    group['entries-read'] or -1, later, due, overdue}
end

-- What the ends of the stream tell for nothing. That nothing waits proves the server's number wrong, but not right: there
-- are servers that say 0 then in any case.
if length == 0 or not less(last, info['last-entry'][1]) then
  from, to = '', ''
  return answer(0, 0, lag > 0 and 0 or 2)
end
local unread = less(last, info['first-entry'][1]) -- all of it
local possible = lag > 0 and lag <= length and (not unread or lag == length)
if possible and (unread or not check) then
  from, to = '', '' -- the server's number is no count to go on from
  return answer(lag, lag, unread and 1 or 2)
end
if unread then
  from, to = '', ''
  return answer(lag >= 0 and length or -1, length, 0)
end

-- TIME stands still in a script from 7.2 on, and os.clock is there from 7.4 on. In between, what was copied has to tell
-- the time: about 3 us for each entry, and 1 us for each kB.
local timer, guessed = rawget(_G, 'os'), 0
local function clock()
  if timer then
    return timer.clock() * 1000000
  end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
local began = clock()
local function spent()
  local taken = clock() - began
  return taken > 0 and taken or guessed
end
local function guess(entries)
  for _, entry in ipairs(entries) do
    guessed = guessed + 3
    for _, text in ipairs(entry[2]) do
      guessed = guessed + #text / 1000
    end
  end
end

-- Counts entries behind one ID, up to and with another or to the end, until enough or out of time.
-- Returns how many, where it stopped, and whether that is all.
local function count(after, upTo, enough)
  local counted = 0
  while counted < enough do
    local entries = redis.call('XRANGE', stream, after, upTo, 'COUNT', page)
    local fresh = #entries
    if fresh > 0 and entries[1][1] == after then
      fresh = fresh - 1
    end
    counted = counted + fresh
    if #entries > 0 then
      after = entries[#entries][1]
    end
    if #entries < page then
      return counted, after, true
    end
    if not timer then
      guess(entries)
    end
    if spent() > budget then
      break
    end
  end
  return counted, after, false
end

if from == '' or less(last, from) or less(to, last) then
  from, to, n = last, last, 0
end
if less(from, last) then -- delivered since
  local gone, at, all = count(from, last, most)
  n = math.max(0, n - gone)
  from = all and last or at
end
local more, at, all = count(to, '+', most - n)
n, to = math.min(n + more, length), at

if all then
  return answer(lag >= 0 and n or -1, n, lag == n and 1 or 0)
end
if possible and lag >= n then
  return answer(lag, n, 1)
end
return answer(-1, n, 0)
