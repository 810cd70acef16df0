-- IDs are compared as text: their numbers may be larger than a double holds.
local function less(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  if am ~= bm then
    return #am < #bm or #am == #bm and am < bm
  end
  return #as < #bs or #as == #bs and as < bs
end
