#!lua name=lib
redis.register_function('f', function(keys, args) return args[1] end)
redis.register_function{function_name='g', callback=function() return 1 end, flags={'no-writes'}}
