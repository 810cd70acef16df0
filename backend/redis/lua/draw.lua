-- Reports what was read of a stream and takes a share of the room that the streams of a budget leave.
-- KEYS: budget. ARGV: stream; producer; spent before the reading; pending, lag (-1: unknown), behind, workers (-1), finished
-- (-1), stored, as read; limit; need; want; kept; lifetime in ms; not due yet.
-- The hash budget: "s:<stream>" -> "spent base short until pending lag behind workers finished stored delayed before", "p:<producer>" ->
-- "<messages> <expires> <stream>"; times in ms. A stream holds at most base + spent and its shares: spent grows by what a
-- share has lost when it is replaced or expires, base is set by each reading. finished is without what had been before.
-- Returns {given, taken by others, sums of pending, lag, behind, workers, finished, stored, delayed}. As ledger.Draw in package weir.
local stream, me, before = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, need, want, kept = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local lifetime, lasts, shortLasts, forgotten = tonumber(ARGV[14]), 10000, 1000, 120000
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

-- What ends later than anything lasts is of before the clock was set back.
local function lives(ends)
  return ends > now and ends <= now + math.max(forgotten, lifetime)
end

local streams, shares, mine, grown = {}, {}, 0, {}
local function account(name)
  if not streams[name] then
    streams[name] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  end
  return streams[name]
end

local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local kind, name = string.sub(all[i], 1, 2), string.sub(all[i], 3)
  if kind == 's:' then
    local a = account(name)
    local n = 0
    for number in string.gmatch(all[i + 1], '%S+') do
      n = n + 1
      a[n] = tonumber(number)
    end
  end
end
for i = 1, #all, 2 do
  local kind, name = string.sub(all[i], 1, 2), string.sub(all[i], 3)
  if kind == 'p:' then
    local n, expires, of = string.match(all[i + 1], '^(%d+) (%d+) (.*)$')
    n = tonumber(n)
    if name == me then
      mine = n
    elseif lives(tonumber(expires)) then
      shares[#shares + 1] = {n, of}
    else
      redis.call('HDEL', KEYS[1], all[i])
      account(of)[1] = account(of)[1] + n
      grown[of] = true
    end
  end
end
local left = 0 -- finished by streams that are forgotten
for name, a in pairs(streams) do
  if not lives(a[4]) and name ~= stream then
    left = left + math.max(0, a[9])
    redis.call('HDEL', KEYS[1], 's:' .. name)
    streams[name] = nil
  end
end

local own, landed = account(stream), math.max(0, mine - kept)
local lag = tonumber(ARGV[5])
local depth = tonumber(ARGV[4]) + (lag >= 0 and lag or tonumber(ARGV[6])) + tonumber(ARGV[15])
own[1] = own[1] + landed
own[2] = depth - before - landed
local finished, counted = tonumber(ARGV[8]), own[4] > 0 and own[9] >= 0
own[4] = now + lasts
for i = 5, 10 do
  own[i] = tonumber(ARGV[i - 1])
end
own[11] = tonumber(ARGV[15])
if finished >= 0 then
  if not counted or finished < own[12] then -- it is new, or was made again
    own[12] = finished
  end
  own[12] = own[12] - left
  own[9] = finished - own[12]
end

local promised, live, total, stored, reserved = {[stream] = kept}, 1, kept, 0, 0
for _, s in ipairs(shares) do
  if streams[s[2]] then
    promised[s[2]] = (promised[s[2]] or 0) + s[1]
    total, live = total + s[1], live + 1
  end
end
local taken, count = total - kept, 0
for _ in pairs(streams) do
  count = count + 1
end
local even, sums = math.floor(limit / count), {0, 0, 0, 0, 0, 0, 0}
local function holds(name, a)
  return math.max(0, a[1] + a[2]) + (promised[name] or 0)
end
for name, a in pairs(streams) do
  local there = math.max(0, a[1] + a[2])
  total, stored = total + there, stored + there
  if name ~= stream and lives(a[3]) then
    reserved = reserved + math.max(0, even - holds(name, a))
  end
  for i = 1, 7 do
    local n = a[i + 4]
    if i == 3 and a[6] >= 0 then
      n = n + a[6] -- behind counts where the lag of another is unknown
    end
    if sums[i] < 0 or n < 0 then
      sums[i] = -1
    else
      sums[i] = sums[i] + n
    end
  end
end

local free = limit - total
local usable = math.max(free - reserved, math.min(free, even - holds(stream, own)))
local fair, given = math.floor((limit - stored) / (2 * live)), 0
if need > 0 and usable >= need then
  given = math.min(usable, math.max(need, math.min(fair, math.max(want, math.floor(fair / 8)))))
end
own[3] = given < need and now + shortLasts or 0
grown[stream] = true
for name in pairs(grown) do
  local a = streams[name]
  if a then -- otherwise it is forgotten
    for i = 1, 12 do
      a[i] = string.format('%.0f', a[i])
    end
    redis.call('HSET', KEYS[1], 's:' .. name, table.concat(a, ' '))
  end
end
redis.call('HSET', KEYS[1], 'p:' .. me, string.format('%.0f %.0f %s', kept + given, now + lifetime, stream))
redis.call('PEXPIRE', KEYS[1], forgotten)
return {given, taken, sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]}
