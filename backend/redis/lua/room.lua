-- Reads what waits for a group (lag.lua, here the function waits) and gives the caller a share of the room below its
-- limits. Depth and what all producers may still append never come to more than the limit: a share counts in full
-- until its producer reads again, though a part of it may be in the depth already.
-- KEYS: stream, messages that are kept back, room. ARGV: those of lag.lua; the producer; limit; pause (-1: none); need; want; kept; lifetime in ms;
-- what a group gets that its first claim creates: all, new (what is not stored yet), or nothing if it is not to be created.
-- The hash room: producer -> "<messages> <expires, ms>"; total -> the sum of them; sweep -> when to look for expired
-- ones next, ms: so one reading costs the same with ten producers and with thousands.
-- Returns the answer of lag.lua and {given, taken by others, why no room can be shared out (empty: it can)}.
local answer = waits()
local room, me = KEYS[3], ARGV[8]
local limit, pause = tonumber(ARGV[9]), tonumber(ARGV[10])
local need, want, kept, lifetime = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local sweepEvery, forgotten = 250, 120000 -- ms

local function finish(given, taken, why)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = given, taken, why
  return answer
end

if answer.err then
  return answer
end
local found = redis.pcall('HMGET', room, me, 'total', 'sweep')
if found.err then
  return finish(0, 0, found.err)
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function share(text)
  local n, expires = string.match(text, '^(%d+) (%d+)$')
  return tonumber(n or 0), tonumber(expires or 0)
end

local mine = found[1] and share(found[1]) or 0
local total, sweep = tonumber(found[2] or 0), tonumber(found[3] or 0)
local swept = now >= sweep or sweep > now + 2 * sweepEvery
if swept then
  total, sweep = 0, now + sweepEvery
  local all = redis.call('HGETALL', room)
  for i = 1, #all, 2 do
    local name = all[i]
    if name ~= 'total' and name ~= 'sweep' then
      local n, expires = share(all[i + 1])
      -- One of longer than the hash lasts is of before the clock was set back.
      if expires > now and expires <= now + math.max(forgotten, lifetime) or name == me then
        total = total + n
      else
        redis.pcall('HDEL', room, name)
      end
    end
  end
end
local taken = math.max(0, total - mine)

local stored, pending, lag, counted = answer[2], answer[3], answer[6], answer[7]
if answer[1] < 2 then
  counted = ARGV[15] == 'new' and 0 or stored
  lag = ARGV[15] == '' and -1 or counted
end
local depth, ceiling = pending + (lag >= 0 and lag or counted) + answer[12], limit
if lag >= 0 and pause >= 0 then -- what is not due takes room, and nobody waits for it
  ceiling = math.min(limit, pause + need + answer[12] - answer[13])
end
local live = redis.call('HLEN', room)
live = math.max(1, found[1] and live - 2 or found[2] and live - 1 or 1)
local free, given = ceiling - depth - taken - kept, 0
if need > 0 and free >= need then
  -- Half of the room stays for who comes next.
  local fair = math.floor((ceiling - depth) / (2 * live))
  given = math.min(free, math.max(need, math.min(fair, math.max(want, math.floor(fair / 8)))))
end

local text = string.format('%.0f %.0f', kept + given, now + lifetime)
local done = redis.pcall('HSET', room, me, text, 'total', string.format('%.0f', taken + kept + given),
  'sweep', string.format('%.0f', sweep))
if type(done) == 'table' and done.err then
  return finish(0, 0, done.err)
end
if swept then
  redis.pcall('PEXPIRE', room, forgotten)
end
return finish(given, taken, '')
