local f = loadstring('return ...') return {f(1), pcall(f, nil), xpcall(f, f), select('#', 1, 2), next({1})}
