//! Owns the generation of random scripts. Never knows a reply.
//!
//! Intended differences are left out: Redis 7.0 prints fractions with 17 digits, keeps cjson's settings from one script
//! to the next, and crashes on an error table without a text.

use crate::Random;

/// Scripts around one command, whose words are the script's arguments.
const CALLS: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "redis.setresp(3) return redis.call(unpack(ARGV))",
    "local r = redis.pcall(unpack(ARGV)) return {type(r), r}",
    "local r = redis.pcall(unpack(ARGV)) return type(r) == 'table' and r.err or cjson.encode(r)",
    "local r = redis.pcall(unpack(ARGV)) return cmsgpack.pack(r)",
    "local ok, r = pcall(redis.call, unpack(ARGV)) return {tostring(ok), type(r)}",
    "redis.call(unpack(ARGV)) return redis.call(unpack(ARGV))",
    "redis.call('SELECT', 1) return redis.pcall(unpack(ARGV))",
    "local r for i = 1, 3 do r = redis.pcall(unpack(ARGV)) end return r",
    "#!lua flags=no-writes\nreturn redis.call(unpack(ARGV))",
    "#!lua\nreturn redis.call(unpack(ARGV))",
    "redis.set_repl(redis.REPL_ALL) return redis.call(unpack(ARGV))",
    "return coroutine.wrap(function() return redis.call(unpack(ARGV)) end)()",
];

/// Commands for those scripts: their replies have a defined order.
pub const INNER: &[&str] = &[
    "GET <key>",
    "GET <any>",
    "SET <key> <value>",
    "APPEND <key> <value>",
    "INCRBY <key> <integer>",
    "MGET <key> *<key>",
    "EXISTS <any> *<any>",
    "DEL <key>",
    "TYPE <any>",
    "HSET <hash> <field> <value>",
    "HGET <hash> <field>",
    "HMGET <hash> <field> *<field>",
    "HLEN <hash>",
    "RPUSH <list> <element>",
    "LRANGE <list> <index> <index>",
    "LLEN <list>",
    "SETRANGE <key> <offset> <value>",
    "GETRANGE <key> <integer> <integer>",
    "ECHO <value>",
    "PING",
    "SELECT <junk>",
    "MULTI",
    "CONFIG GET maxmemory",
    "SUBSCRIBE x",
    "OBJECT <junk> <any>",
    "<junk> <value>",
];

/// Scripts with two keys and two arguments.
const LUA: &[&str] = &[
    "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], KEYS[3], 'unseen'}",
    "return #ARGV[1] + #KEYS",
    "return ARGV[1] .. KEYS[1]",
    "return tonumber(ARGV[1])",
    "return {1.9, -1.9, true, false, 'x'}",
    "return {{{ARGV[1]}}, {}, {ok = ARGV[2]}}",
    "return {err = ARGV[1]}",
    "return {ok = ARGV[1]}",
    "return redis.error_reply(ARGV[1])",
    "return redis.status_reply(ARGV[1])",
    "return redis.sha1hex(ARGV[1])",
    "error(ARGV[1])",
    "error({err = ARGV[1]})",
    "return undeclared",
    "undeclared = 1",
    "rawset(_G, 'x', 1)",
    "return nil + 1",
    "return ARGV[1] < 1",
    "return #nil",
    "return string.rep(ARGV[1], 3)",
    "return string.upper(ARGV[1]) .. string.reverse(ARGV[2])",
    "return {string.find(ARGV[1], ARGV[2], 1, true)}",
    "return {string.find(ARGV[1], '(%a+)(%d*)')}",
    "return {string.gsub(ARGV[1], '%W', '.')}",
    "return {string.byte(ARGV[1], 1, -1)}",
    "return string.format('%q|%5s|%-5s|%d', ARGV[1], 'a', 'b', #ARGV[2])",
    "return string.format('%d', ARGV[1])",
    "local t = {} for word in string.gmatch(ARGV[1], '%w+') do t[#t + 1] = word end return t",
    "local t = {ARGV[1], ARGV[2], 'm'} table.sort(t) return t",
    "return table.concat({1, 2, ARGV[1]}, ',')",
    "return table.concat({1, {}, 3})",
    "return {unpack({1, 2, 3}, 2)}",
    "return {unpack(ARGV, 1, 9999)}",
    "return {select('#', ARGV[1], nil), select(-1, 1, 2)}",
    "return {math.floor(3.7), math.max(1, 5), math.abs(-3), math.fmod(7, 3)}",
    "return {pcall(error, ARGV[1])}",
    "return {pcall(function() return ARGV[1], 2 end)}",
    "return {xpcall(function() error('x') end, function(text) return 'caught ' .. text end)}",
    "local c = coroutine.create(function(a) local b = coroutine.yield(a) return b end) \
     return {coroutine.resume(c, ARGV[1]), {coroutine.resume(c, ARGV[2])}, {coroutine.resume(c)}}",
    "return loadstring('return ...')(ARGV[1])",
    "return {loadstring(ARGV[1])}",
    "return tostring(setmetatable({}, {__tostring = function() return ARGV[1] end}))",
    "return setmetatable({}, {__index = function(_, key) return key end}).missing",
    "return bit.tohex(#ARGV[1] * 12345, -6)",
    "return {bit.band(#ARGV[1], 5), bit.bor(1, 4), bit.bxor(7, #ARGV[2]), bit.bnot(0), bit.tobit(2 ^ 33 + 5)}",
    "return {bit.lshift(1, #ARGV[1]), bit.arshift(-256, 4), bit.rol(305419896, 12), bit.bswap(#ARGV[1])}",
    "return bit.tohex(tonumber(ARGV[1]) or 0)",
    "return bit.band(ARGV[1])",
    "return cjson.encode({ARGV[1], ARGV[2], {1, 2, {}}, false})",
    "return cjson.encode(ARGV[1])",
    "return cjson.encode({[1] = 1, [3] = 3})",
    "return cjson.encode({[1] = 1, [#ARGV[1] + 20] = 3})",
    "return cjson.encode(0 / 0)",
    "return cjson.encode({[ARGV[1]] = 1})",
    "return cjson.encode(cjson.decode(ARGV[1]))",
    "return cjson.decode(ARGV[1])",
    "return cjson.decode('[' .. ARGV[1] .. ',\"' .. ARGV[2] .. '\"]')",
    "return cjson.decode('{\"a\":[1,2,{\"b\":\"\\\\u00e9\\\\ud83d\\\\ude00\"}],\"c\":null}').a[3].b",
    "return cjson.decode(cjson.encode(ARGV[1])) == ARGV[1]",
    "return cjson.decode(string.rep('[', 1001))",
    "return cmsgpack.pack(ARGV[1], #ARGV[1], -#ARGV[2], true, {1, {a = ARGV[2]}})",
    "return {cmsgpack.unpack(cmsgpack.pack(ARGV[1], 300, -70000, 2 ^ 40, {1, 2}))}",
    "return {cmsgpack.unpack(ARGV[1])}",
    "return {cmsgpack.unpack_one(ARGV[1])}",
    "return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), #ARGV[1] % 5, #ARGV[2] % 5)}",
    "return struct.pack('>I2i4sc0', #ARGV[1], -#ARGV[2], ARGV[1], ARGV[2])",
    "return {struct.unpack('<I2', ARGV[1])}",
    "return {struct.unpack('>hbB', ARGV[1])}",
    "return {struct.unpack('Bc0', ARGV[1])}",
    "return {struct.unpack('s', ARGV[1])}",
    "return struct.size('!8bdhi' .. 'I3')",
    "return struct.pack(ARGV[1], 1, 2)",
    "return {struct.unpack(ARGV[1], ARGV[2])}",
    "return redis.call",
    "return {double = 1, ok = 'x'}",
    "return {map = {a = ARGV[1]}}",
    "return {set = {a = true}}",
    "return {big_number = '12345678901234567890'}",
    "return {verbatim_string = {format = 'txt', string = ARGV[1]}}",
    "redis.setresp(3) return {true, false, {double = 2}, redis.call('GET', 'nosuch')}",
    "return redis.acl_check_cmd(ARGV[1])",
    "return redis.log(redis.LOG_DEBUG, ARGV[1])",
    "redis.call('SET', KEYS[1], ARGV[1]) redis.call('APPEND', KEYS[1], ARGV[2]) return redis.call('GET', KEYS[1])",
    "local v = redis.call('GET', KEYS[1]) if v then redis.call('SET', KEYS[2], v) end return v",
    "for i = 1, 20 do redis.call('RPUSH', KEYS[2], i) end return redis.call('LRANGE', KEYS[2], 0, -1)",
    "redis.call('SET', KEYS[1], 'half') error('in the middle')",
    "#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 'x')",
    "#!lua flags=nosuch\nreturn 1",
    "x y",
    "return 'unfinished",
    "",
];

/// A script around a command with these words.
pub fn around(random: &mut Random, inner: Vec<Vec<u8>>, keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let script = random.of(CALLS);
    with_arguments(random, script, keys, inner)
}

pub fn lua(random: &mut Random, keys: &[Vec<u8>], args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let script = random.of(LUA);
    with_arguments(random, script, keys, args)
}

fn with_arguments(random: &mut Random, script: &str, keys: &[Vec<u8>], args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let command = random.of(&["EVAL", "EVAL", "EVAL", "EVAL_RO"]);
    let mut words = vec![command.into(), script.into(), keys.len().to_string().into_bytes()];
    words.extend(keys.iter().cloned());
    words.extend(args);
    words
}
