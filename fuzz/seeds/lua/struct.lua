return {struct.unpack('>I4hs', struct.pack('>I4hs', 7, -2, 'text'))}
