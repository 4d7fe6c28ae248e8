local r = redis.call('set', 'k', 1.5)
return {r, redis.pcall('error'), redis.call('map'), redis.call('null')}
