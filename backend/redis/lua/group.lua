-- Makes a group behind what its workers have done, or at 0 if the stream is another one by now: not there, or with
-- newest IDs below one that was delivered from it.
-- KEYS: stream, what weir knows of it. ARGV: group, position ($: behind what is there), newest ID that was delivered, 1 if weir had made the stream.
-- Returns {position taken}.
redis.replicate_commands()
local stream, about, position, seen = KEYS[1], KEYS[2], ARGV[2], ARGV[3]

local info = redis.pcall('XINFO', 'STREAM', stream)
local registered = redis.call('HEXISTS', about, 'group:' .. ARGV[1]) == 1
local others = false -- whether another program may have made the stream
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then
    if position == '$' then
      position = info[i + 1]
    elseif less(info[i + 1], seen) then
      position = '0'
    end
  end
  -- The group was there: the stream may be another one, which somebody else has made.
  if info[i] == 'first-entry' and registered and info[i + 1] and info[i + 1][1] ~= redis.call('HGET', about, 'made') then
    others = true
  end
end
if info.err then
  position = '0'
end
-- First, because nothing is to be changed beside a group that is there.
redis.call('XGROUP', 'CREATE', stream, ARGV[1], position, 'MKSTREAM')
if info.err and ARGV[4] == '1' then
  redis.call('HSET', about, 'made', '0-0')
elseif others then
  redis.call('HDEL', about, 'made')
end
return {position}
