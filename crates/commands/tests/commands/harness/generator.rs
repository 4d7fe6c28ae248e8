//! Owns random commands, sound and hostile, from a seed: the same commands for the same seed, in every test that compares what
//! they do in two places. Never knows where they run.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

/// Upper case stands for itself, `a|b` for one of them, `?` before it for perhaps, `*` for any number.
const TEMPLATES: &[&str] = &[
    "GET k",
    "SET k v",
    "SET k v ?so ?so ?so",
    "SETNX k v",
    "SETEX k r v",
    "PSETEX k r v",
    "GETSET k v",
    "GETDEL k",
    "GETEX k ?so ?so",
    "MGET k *k",
    "MSET k v *kv",
    "MSETNX k v *kv",
    "APPEND k v",
    "STRLEN k",
    "SETRANGE k o v",
    "GETRANGE k i i",
    "SUBSTR k i i",
    "INCR k",
    "DECR k",
    "INCRBY k i",
    "DECRBY k i",
    "INCRBYFLOAT k n",
    "LCS k k ?lo ?lo ?lo",
    "HSET k f v *fv",
    "HSET k f v *fv",
    "HMSET k f v *fv",
    "HSETNX k f v",
    "HGET k f",
    "HMGET k f *f",
    "HGETALL k",
    "HKEYS k",
    "HVALS k",
    "HLEN k",
    "HSTRLEN k f",
    "HEXISTS k f",
    "HDEL k f *f",
    "HINCRBY k f i",
    "HINCRBYFLOAT k f n",
    "SADD S m *m",
    "SADD S m *m",
    "SADD S m *m",
    "SREM S m *m",
    "SREM S m",
    "SCARD S",
    "SMEMBERS S",
    "SISMEMBER S m",
    "SMISMEMBER S m *m",
    "SMOVE S S m",
    "SINTER S *S",
    "SUNION S *S",
    "SDIFF S *S",
    "SINTERSTORE S S *S",
    "SUNIONSTORE S S *S",
    "SDIFFSTORE S S *S",
    "SINTERCARD i S *S ?io",
    "SINTERCARD 2 S S ?io",
    "SPOP S 1000",
    "SPOP S i x",
    "SPOP nosuch ?i",
    "SRANDMEMBER S 1000",
    "SRANDMEMBER nosuch ?i",
    "SRANDMEMBER S x",
    "SSCAN S 0 MATCH 1* COUNT 1000",
    "SSCAN S x ?so",
    "OBJECT ENCODING S",
    "EXPIRE S 100000",
    "TTL S",
    "DEL S",
    "COPY S S ?co",
    "RENAME S S",
    "ZADD Z q m *qm",
    "ZADD Z q m *qm",
    "ZADD Z q m *qm",
    "ZADD Z ?zo ?zo q m *qm",
    "ZADD Z ?zo ?zo q m",
    "ZADD Z INCR ?zo q m",
    "ZINCRBY Z q m",
    "ZREM Z m *m",
    "ZCARD Z",
    "ZSCORE Z m",
    "ZMSCORE Z m *m",
    "ZRANK Z m",
    "ZREVRANK Z m",
    "ZCOUNT Z w w",
    "ZRANGE Z i i ?ro ?ro",
    "ZRANGE Z w w BYSCORE ?ro ?ro",
    "ZRANGE Z 0 -1 WITHSCORES",
    "ZREVRANGE Z i i ?ro",
    "ZRANGEBYSCORE Z w w ?ro ?ro",
    "ZREVRANGEBYSCORE Z w w ?ro ?ro",
    "ZRANGESTORE Z Z i i ?ro",
    "ZRANGESTORE Z Z w w BYSCORE ?ro",
    "ZREMRANGEBYRANK Z i i",
    "ZREMRANGEBYSCORE Z w w",
    "ZPOPMIN Z ?i",
    "ZPOPMAX Z ?i",
    "ZMPOP 2 Z Z MIN ?po",
    "ZMPOP i Z Z MAX ?po",
    "BZPOPMIN Z 0.001",
    "BZPOPMAX Z Z 0.001",
    "BZMPOP 0.001 2 Z Z MIN ?po",
    "BZMPOP x i Z MAX ?po",
    "ZUNION 2 X X ?uo ?uo",
    "ZINTER 2 X X ?uo ?uo",
    "ZDIFF 2 X X ?uo",
    "ZUNION i X X X ?uo",
    "ZUNIONSTORE Z 2 X X ?uo ?uo",
    "ZINTERSTORE Z 3 X X X ?uo ?uo",
    "ZDIFFSTORE Z 2 X X ?uo",
    "ZUNIONSTORE Z i X X",
    "ZINTERCARD 2 X X ?io",
    "ZRANDMEMBER Z 1000",
    "ZRANDMEMBER nosuch ?i ?ro",
    "ZSCAN Z 0 MATCH m* COUNT 1000",
    "ZSCAN Z x ?so",
    "OBJECT ENCODING Z",
    "DEL Z",
    "COPY Z Z ?co",
    "ZADD L 0 m *0m",
    "ZADD L 0 m *0m",
    "ZREM L m",
    "ZRANGEBYLEX L y y ?ro",
    "ZREVRANGEBYLEX L y y ?ro",
    "ZRANGE L y y BYLEX ?ro ?ro",
    "ZRANGESTORE L L y y BYLEX ?ro",
    "ZLEXCOUNT L y y",
    "ZREMRANGEBYLEX L y y",
    "GEOADD G P m *Pm",
    "GEOADD G P m *Pm",
    "GEOADD G ?gao ?gao P m *Pm",
    "GEODIST G m m ?u",
    "GEOHASH G m *m",
    "GEOPOS G m *m",
    "GEOSEARCH G from by ?go ?go ?go",
    "GEOSEARCH G from by ?go ?go ?go",
    "GEOSEARCH G from by ASC COUNT 3 WITHDIST WITHCOORD WITHHASH",
    "GEOSEARCHSTORE G G from by ?go ?go",
    "GEOSEARCHSTORE Z G from by STOREDIST",
    "GEORADIUS G Q R u ?go ?go ?go",
    "GEORADIUS_RO G Q R u ?go ?go",
    "GEORADIUSBYMEMBER G m R u ?go ?go",
    "GEORADIUSBYMEMBER_RO G m R u ?go ?go",
    "ZREM G m *m",
    "ZRANGE G 0 -1 WITHSCORES",
    "DEL k *k",
    "UNLINK k *k",
    "EXISTS k *k",
    "TYPE k",
    "TOUCH k *k",
    "EXPIREAT k t ?eo ?eo",
    "PEXPIREAT k t ?eo ?eo",
    "EXPIRE k gone ?eo",
    "EXPIRE k 100000",
    "PEXPIRE k 100000000",
    "PEXPIRE k gone",
    "EXPIRETIME k",
    "PEXPIRETIME k",
    "PERSIST k",
    "RENAME k k",
    "RENAMENX k k",
    "COPY k k ?co ?co",
    "MOVE k d",
    "SELECT d",
    "SWAPDB d d",
    "DBSIZE",
    "KEYS p",
    "OBJECT ENCODING k",
    "OBJECT REFCOUNT nosuch",
    "OBJECT FREQ k",
    "OBJECT so k",
    "HRANDFIELD nosuch i ?so",
    "HSCAN nosuch i ?so",
    "FLUSHDB ?fo ?fo",
];

fn word(kind: &str, random: &mut Random, words: &mut Vec<Vec<u8>>) {
    let integers = [
        "0",
        "1",
        "-1",
        "5",
        "-5",
        "100",
        "x",
        "",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "+1",
        " 1",
        "01",
        "-0",
        "1.5",
        "4611686018427387904",
        "-100",
        "2147483648",
    ];
    let text = match kind {
        "k" => random.of(&["a", "b", "c", "d", "e", ""]),
        "S" => random.of(&["s1", "s2", "s3", "s4", "s5", "s6", "a"]),
        "Z" => random.of(&["z1", "z2", "z3", "z4", "z5", "z6", "a"]),
        "L" => random.of(&["l1", "l2", "l3"]),
        "G" => random.of(&["g1", "g2", "g3", "g4", "a"]),
        // A place to look from may be at the very edge.
        "Q" if random.one_in(10) => {
            random.of(&["180 85.05112878", "-180 -85.05112878", "0 0", "179.9999 0.1", "-179.99 0", "10 85", "10 -85"])
        }
        "Q" => return word("P", random, words),
        "P" => match random.below(12) {
            0 => random.of(&["181 0", "0 86", "x 0", "0 x", "inf 0", "nan 1", "1"]),
            // All over the map, and many in one region; no two the same, or their order would be anyone's.
            n => {
                let (longitudes, latitudes) = if n < 6 { (3600, 1700) } else { (40, 40) };
                let mut degrees = |range: usize| (random.below(range * 97) as f64 / 97.0 - range as f64 / 2.0) / 10.0;
                let position = [degrees(longitudes), degrees(latitudes)].map(|number| format!("{number:.6}"));
                return words.extend(position.map(String::into_bytes));
            }
        },
        "u" => random.of(&["m", "km", "KM", "ft", "mi", "km", "parsec"]),
        "R" => random.of(&["0", "1", "100", "1000", "5000", "20000", "1e6", "2.5", "-1", "x", "inf", "300000"]),
        "from" => match random.below(8) {
            0 => return word("fromoption", random, words),
            1..4 => {
                words.push(b"FROMMEMBER".to_vec());
                return word("m", random, words);
            }
            _ => {
                words.push(b"fromlonlat".to_vec());
                return word("Q", random, words);
            }
        },
        "fromoption" => random.of(&["FROMMEMBER", "FROMLONLAT 1 1 FROMMEMBER m1", "FROMLONLAT 1", "ASC"]),
        "by" => match random.below(8) {
            0 => random.of(&[
                "BYRADIUS 1 m BYBOX 1 1 m",
                "BYRADIUS",
                "BYBOX 1 m",
                "BYBOX x 1 m",
                "BYBOX 1 -1 km",
                "DESC",
            ]),
            1..5 => {
                words.push(b"BYRADIUS".to_vec());
                word("R", random, words);
                return word("u", random, words);
            }
            _ => {
                words.push(b"bybox".to_vec());
                word("R", random, words);
                word("R", random, words);
                return word("u", random, words);
            }
        },
        "gao" => random.of(&["NX", "XX", "CH", "nx", "ch", "GT", "foo"]),
        "go" => random.of(&[
            "ASC",
            "DESC",
            "WITHDIST",
            "WITHCOORD",
            "withhash",
            "COUNT 3",
            "COUNT 100",
            "COUNT 2 ANY",
            "ANY",
            "COUNT 0",
            "COUNT x",
            "COUNT",
            "STORE g2",
            "STOREDIST z2",
            "STOREDIST",
            "foo",
        ]),
        // What ZUNION takes: sets, too.
        "X" => random.of(&["z1", "z2", "z3", "z4", "s1", "s2", "nosuch", "z5", "z6"]),
        // Few scores, and such as have exact sums.
        "q" => random.of(&["0", "1", "-1", "2.5", "3", "0.25", "7", "10", "1e3", "inf", "-inf", "x", "nan", "", " 1"]),
        "w" => {
            random.of(&["-inf", "+inf", "inf", "(1", "1", "(2.5", "5", "(-1", "x", "", "(", " 1", "1 ", "1e400", "nan"])
        }
        "y" => random.of(&["-", "+", "[m1", "(m3", "[m5", "(1", "[0", "[", "(", "b", "", "-x", "[m", "(zz"]),
        "m" => match random.below(4) {
            0 => return words.push(format!("m{}", random.below(9)).into_bytes()),
            1 => return words.push(vec![b'x'; 30 + random.below(20)]),
            2 => random.of(&integers),
            _ => return words.push((random.below(12) * 70_000).to_string().into_bytes()),
        },
        "io" => random.of(&["LIMIT 1", "LIMIT 0", "LIMIT -1", "LIMIT x", "LIMIT", "limit 3", "foo 1"]),
        "f" => return words.push(format!("f{}", random.below(12)).into_bytes()),
        "v" => match random.below(8) {
            0 => return words.push(vec![random.below(256) as u8; random.below(30)]),
            1 => random.of(&integers),
            2 => random.of(&["3.14", "-0", "1e3", "inf", "nan", "0.1", "123456789.123456789"]),
            3 => return words.push(random.below(1000).to_string().into_bytes()),
            _ => random.of(&["abc", "abcabc", "xaybzc", "hello world", "12345678901234567890123456789012345678901234"]),
        },
        "i" => random.of(&integers),
        "r" => random.of(&["100000", "1000000", "0", "-1", "x", "9223372036854775", "9223372036854775807"]),
        "o" => random.of(&["0", "1", "5", "20", "-1", "x", "536870912", "9223372036854775807"]),
        "n" => random.of(&[
            "0.1",
            "-0.1",
            "1e-5",
            "3",
            "1e5",
            "inf",
            "-inf",
            "nan",
            "x",
            "1e400",
            "1e5000",
            "-1e-400",
            "1e-5000",
            ".5",
            "5.",
            "123456789012345678",
            "0.30000000000000004",
            " 1",
            "1 ",
            "+1",
            "-0",
            "1e-17",
        ]),
        "t" => random.of(&[
            "1",
            "0",
            "-1",
            "33177117420",
            "33177117421",
            "9223372036854775807",
            "-9223372036854775808",
            "x",
        ]),
        "d" => random.of(&["0", "1", "0", "1", "0", "1", "15", "16", "-1", "x", "99999999999"]),
        "p" => random.of(&["*", "a", "[a-c]", "[^a]", "?", "", "\\a", "[", "**", "*b*", "[c-a]", "?*"]),
        "gone" => random.of(&["0", "-1", "-5", "x", "9223372036854775807", "-9223372036854775808"]),
        "so" => random.of(&[
            "NX",
            "xx",
            "Get",
            "KEEPTTL",
            "PERSIST",
            "EXAT 33177117420",
            "PXAT 33177117420000",
            "EXAT 1",
            "EX 0",
            "PX x",
            "EX",
            "PXAT -1",
            "WITHVALUES",
            "COUNT 0",
            "MATCH *",
            "EXAT 9223372036854775807",
            "foo",
        ]),
        "lo" => random.of(&[
            "LEN",
            "IDX",
            "idx",
            "WITHMATCHLEN",
            "MINMATCHLEN 2",
            "MINMATCHLEN -1",
            "MINMATCHLEN x",
            "MINMATCHLEN",
        ]),
        "zo" => random.of(&["NX", "XX", "GT", "LT", "CH", "INCR", "gt", "foo"]),
        "ro" => random.of(&[
            "REV",
            "WITHSCORES",
            "withscores",
            "LIMIT 0 2",
            "LIMIT 1 -1",
            "LIMIT -1 5",
            "LIMIT 2 0",
            "LIMIT x 1",
            "LIMIT 1",
            "LIMIT 9223372036854775807 9223372036854775807",
            "foo",
        ]),
        "po" => random.of(&["COUNT 1", "COUNT 3", "COUNT 0", "COUNT x", "COUNT 100", "COUNT", "foo"]),
        "uo" => random.of(&[
            "WEIGHTS 2 3",
            "WEIGHTS 1 -1 0.5",
            "WEIGHTS inf 0",
            "WEIGHTS 1",
            "WEIGHTS x 1",
            "AGGREGATE MIN",
            "AGGREGATE MAX",
            "aggregate sum",
            "AGGREGATE",
            "AGGREGATE AVG",
            "WITHSCORES",
            "foo",
        ]),
        "eo" => random.of(&["NX", "XX", "GT", "LT", "gt", "foo"]),
        "co" => random.of(&["REPLACE", "DB 0", "DB 1", "DB 16", "DB x", "DB", "foo"]),
        "fo" => random.of(&["SYNC", "ASYNC", "foo"]),
        literal => literal,
    };
    if kind.len() == 2 && kind.ends_with('o') {
        words.extend(text.split(' ').map(|word| word.as_bytes().to_vec()));
    } else {
        words.push(text.as_bytes().to_vec());
    }
}

pub fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let template = TEMPLATES[random.below(TEMPLATES.len())];
    // Emptied too often there would be little to compare.
    if template.starts_with("FLUSH") && !random.one_in(20) {
        return command(random);
    }
    let mut words = Vec::new();
    for part in template.split(' ') {
        if let Some(kind) = part.strip_prefix('?') {
            if random.one_in(3) {
                word(kind, random, &mut words);
            }
        } else if let Some(kinds) = part.strip_prefix('*') {
            for _ in 0..random.below(4) {
                kinds.split("").filter(|kind| !kind.is_empty()).for_each(|kind| word(kind, random, &mut words));
            }
        } else {
            word(part, random, &mut words);
        }
    }
    // Now and then a word is lost or one is doubled; not where 7.2 takes more, or where one more or less makes the reply
    // random.
    let kept: [&[u8]; 6] = [b"HRANDFIELD", b"ZRANK", b"ZREVRANK", b"SPOP", b"SRANDMEMBER", b"ZRANDMEMBER"];
    if words.len() > 1 && !kept.contains(&&words[0][..]) && random.one_in(40) {
        let at = 1 + random.below(words.len() - 1);
        if random.one_in(2) {
            words.remove(at);
        } else {
            words.insert(at, words[at].clone());
        }
    }
    words
}

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
