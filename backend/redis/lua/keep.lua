-- Keeps back the message whose fields are those of a list from one index to another, and wakes who watches if it is
-- the first to become due. Returns its name. A member is a number, 16 digits wide so that what is due together stays in
-- its order, and the packed fields.
local function keepBack(later, about, wake, delay, list, from, to)
  local fields = {}
  for i = from, to do
    fields[#fields + 1] = list[i]
  end
  local time = redis.call('TIME')
  local due = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + delay)
  local packed, number, member = cmsgpack.pack(fields), nil, nil
  repeat
    number = string.format('%.0f', redis.call('HINCRBY', about, 'later', 1))
    member = string.rep('0', 16 - #number) .. number .. packed
  until redis.call('ZADD', later, 'NX', due, member) == 1 -- the count may have been deleted
  -- Who may not look, or wake anybody, has kept the message back: it may come a little later.
  if redis.pcall('ZRANK', later, member) == 0 then
    redis.pcall('XADD', wake, 'MAXLEN', 1, '*', 'due', due)
  end
  return 'later-' .. number
end
