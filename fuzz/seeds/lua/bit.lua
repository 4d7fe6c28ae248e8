return {bit.tohex(-2147483648, -8), bit.bor(1, 2), bit.rol(5, 33), bit.bswap(1)}
