return {cmsgpack.unpack(cmsgpack.pack({1, 'a', {b = 2.5}}, nil, -300))}
