redis.setresp(3) local d = redis.call('double') return {double = 1.5, map = {a = 1}, d}
