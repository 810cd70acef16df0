-- Returns whether the next entry of a stream is its first, so that whoever appends it makes the stream.
local function isNew(stream)
  if redis.call('XLEN', stream) > 0 then
    return false
  end
  local info = redis.pcall('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      return info[i + 1] == '0-0' -- made by a worker
    end
  end
  return true
end
