return unpack({}, 1, 1e9)
