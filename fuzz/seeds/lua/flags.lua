#!lua flags=no-writes,allow-oom
return redis.sha1hex('') .. redis.REDIS_VERSION
