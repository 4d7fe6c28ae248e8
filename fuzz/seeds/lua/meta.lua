return setmetatable({}, {__index = _G, __tostring = print})['string']
