local t = {} for i = 1, 99 do t[i] = i * 7 % 13 end table.sort(t, function(a, b) return true end) return t
