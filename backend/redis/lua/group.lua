-- Makes a group behind what its workers have done, or at 0 if the stream is another one by now: not there, or with
-- newest IDs below one that was delivered from it.
-- KEYS: stream. ARGV: group, position, newest ID that was delivered.
-- Returns {position taken}.
redis.replicate_commands()
local stream, position, seen = KEYS[1], ARGV[2], ARGV[3]

local info = redis.pcall('XINFO', 'STREAM', stream)
if info.err then
  position = '0'
end
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' and less(info[i + 1], seen) then
    position = '0'
  end
end
redis.call('XGROUP', 'CREATE', stream, ARGV[1], position, 'MKSTREAM')
return {position}
