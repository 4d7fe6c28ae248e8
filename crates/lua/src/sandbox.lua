-- Replacements for Lua's functions that could reach past the sandbox.
local globals, locked, as_text, is_killed = ...
local error, type, rawget, getmetatable = globals.error, globals.type, globals.rawget, globals.getmetatable
local pcall, xpcall, loadstring = globals.pcall, globals.xpcall, globals.loadstring
local collectgarbage, concat, coroutine = globals.collectgarbage, globals.table.concat, globals.coroutine
local resume = coroutine.resume

-- A killed script ends even if it catches errors. `pcall` returns an error table as its text, as scripts written for
-- older versions expect.
local function caught(ok, failure, ...)
  if ok then
    return true, failure, ...
  end
  if is_killed() then
    error(failure, 0)
  end
  failure = as_text(failure)
  if type(failure) == 'table' and type(rawget(failure, 'err')) == 'string' then
    failure = rawget(failure, 'err')
  end
  return false, failure
end

local function passed(ok, failure, ...)
  if not ok and is_killed() then
    error(failure, 0)
  end
  return ok, failure, ...
end

local made = {}

function made.pcall(...)
  return caught(pcall(...))
end

function made.xpcall(body, handler)
  return passed(xpcall(body, function(failure)
    if is_killed() then
      return failure
    end
    return handler(as_text(failure))
  end))
end

function made.getmetatable(of)
  local found = getmetatable(of)
  if type(found) ~= 'table' then
    return found
  end
  if locked[of] and not locked[found] then
    return nil
  end
  return locked[found] or found
end

function made.load(pieces, name)
  local parts = {}
  while true do
    local part = pieces()
    if part == nil or part == '' then
      break
    end
    parts[#parts + 1] = part
  end
  return loadstring(concat(parts), name or '=(load)')
end

function made.collectgarbage(what, argument)
  if what == nil or what == 'collect' or what == 'step' or what == 'count' then
    return collectgarbage(what or 'collect', argument)
  end
  return 0
end

made.coroutine = {
  create = coroutine.create,
  status = coroutine.status,
  yield = coroutine.yield,
  running = coroutine.running,
  wrap = coroutine.wrap,
  resume = function(...)
    local function given(ok, failure, ...)
      if ok then
        return true, failure, ...
      end
      if is_killed() then
        error(failure, 0)
      end
      return false, as_text(failure)
    end
    return given(resume(...))
  end,
}

return made
