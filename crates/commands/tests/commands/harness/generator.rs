//! Owns random commands, valid and hostile, from a seed. The same seed gives the same commands in every test that
//! compares two places. Never knows where the commands run.

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

/// An upper-case word stands for itself, `a|b` for one of the words. `?` before a word makes it optional, `*` repeats
/// it any number of times.
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
        // The centre of a search may be at the very edge of the map.
        "Q" if random.one_in(10) => {
            random.of(&["180 85.05112878", "-180 -85.05112878", "0 0", "179.9999 0.1", "-179.99 0", "10 85", "10 -85"])
        }
        "Q" => return word("P", random, words),
        "P" => match random.below(12) {
            0 => random.of(&["181 0", "0 86", "x 0", "0 x", "inf 0", "nan 1", "1"]),
            // Positions all over the map, and many in one region. No two are the same, because the order of equal ones
            // is arbitrary.
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
        // Sources of ZUNION may also be sets.
        "X" => random.of(&["z1", "z2", "z3", "z4", "s1", "s2", "nosuch", "z5", "z6"]),
        // Few different scores, whose sums are exact.
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
    // FLUSH is rare, because an empty dataset leaves little to compare.
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
    // Now and then a word is lost or doubled. Not for commands of which 7.2 takes more arguments, or whose reply one
    // argument more or less makes random.
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

/// All write commands, without hostile arguments except wrong types. They use the same keys often enough that commands
/// build on each other. `$` starts a kind of word ([`Writes::word`]), `{a|b}` is one of the alternatives (`_` is a
/// space), and `*9:a,b` repeats both up to nine times.
const WRITES: &[&str] = &[
    // Strings, bitmaps, HyperLogLogs.
    "SET $k $v {|EX_1|PX_$ms|PXAT_$at|EXAT_$ats|KEEPTTL} {|NX|XX} {|GET}",
    "SET $k $v",
    "SET $k $n",
    "SETEX $k {1|100000} $v",
    "PSETEX $k $ms $v",
    "SETNX $k $v",
    "MSET *4:$k,$v",
    "MSETNX *2:$k,$v",
    "GETSET $k $v",
    "GETDEL $k",
    "GETEX $k {|PX_$ms|EX_100000|PXAT_$at|EXAT_$ats|PERSIST|PERSIST}",
    "APPEND $k $v",
    "SETRANGE $k {0|3|40} $v",
    "{INCR|DECR} $k",
    "{INCRBY|DECRBY} $k $n",
    "INCRBYFLOAT $k {0.1|-2.5|1e3|3}",
    "SETBIT $b {0|7|100|1000} {0|1}",
    "BITOP {AND|OR|XOR} $b $b $b",
    "BITOP NOT $b $b",
    "BITFIELD $b {SET_u8_#1_200|INCRBY_i16_8_300|OVERFLOW_FAIL_INCRBY_u4_0_9|GET_u8_0} {|SET_u4_100_7}",
    "PFADD $p *9:$m",
    "PFMERGE $p $p $p",
    "PFCOUNT $p {|$p}",
    "PFDEBUG {TODENSE|GETREG} $p",
    // Lists.
    "{LPUSH|RPUSH} $l *9:$v",
    "{LPUSH|RPUSH} $l *30:$m",
    "{LPUSHX|RPUSHX} $l *3:$v",
    "{LPOP|RPOP} $l {|1|3}",
    "LSET $l {0|1|-1} $v",
    "LINSERT $l {BEFORE|AFTER} $m $v",
    "LREM $l {0|1|-2} $m",
    "LTRIM $l {0|1} {-1|-2|60}",
    "LMOVE $l $l {LEFT|RIGHT} {LEFT|RIGHT}",
    "RPOPLPUSH $l $l",
    "LMPOP 2 $l $l {LEFT|RIGHT} {|COUNT_3}",
    "{BLPOP|BRPOP} $l $l $wait",
    "BLMOVE $l $l {LEFT|RIGHT} {LEFT|RIGHT} $wait",
    "BRPOPLPUSH $l $l $wait",
    "BLMPOP $wait 2 $l $l {LEFT|RIGHT} {|COUNT_3}",
    "SORT {$l|$s|$z} ALPHA {|BY_nosort|BY_*} {|LIMIT_1_5} {|DESC} {|GET_#_GET_*} STORE {$l|$k}",
    // Sets.
    "SADD $s *9:$m",
    "SADD $s *40:$m",
    "SADD $s *9:$n",
    "SREM $s *9:$m",
    "SPOP $s",
    "SPOP $s {0|1|3|100}",
    "SMOVE $s $s $m",
    "{SINTERSTORE|SUNIONSTORE|SDIFFSTORE} $s $s $s",
    // Sorted sets and positions.
    "ZADD $z *9:$q,$m",
    "ZADD $z *40:$q,$m",
    "ZADD $z {NX|XX|GT|LT} {|CH} *3:$q,$m",
    "ZADD $z {|XX|NX} INCR $q $m",
    "ZINCRBY $z $q $m",
    "ZREM $z *9:$m",
    "{ZPOPMIN|ZPOPMAX} $z {|1|3}",
    "ZMPOP 2 $z $z {MIN|MAX} {|COUNT_3}",
    "{BZPOPMIN|BZPOPMAX} $z $z $wait",
    "BZMPOP $wait 2 $z $z {MIN|MAX} {|COUNT_3}",
    "ZREMRANGEBYSCORE $z {-inf|0|(1} {1|(2.5}",
    "ZREMRANGEBYRANK $z {0|-2} {0|1|-1}",
    "ZREMRANGEBYLEX $z {-|[m1|(m3} {[m4|(m5}",
    "ZRANGESTORE $z $z {0_5|1_-1|-inf_2_BYSCORE|[m1_+_BYLEX} {|REV}",
    "{ZUNIONSTORE|ZINTERSTORE} $z 2 $z $z {|WEIGHTS_2_-1} {|AGGREGATE_MAX}",
    "ZDIFFSTORE $z 2 $z $z",
    "GEOADD $g {|CH} *3:$lon,$lat,$m",
    "GEOADD $g *9:$lon,$lat,$m",
    "GEOSEARCHSTORE {$g|$z} $g FROMLONLAT 1 1 BYRADIUS 9000 km {|COUNT_2_ANY} {|STOREDIST}",
    "GEORADIUS $g 1 1 9000 km {|COUNT_2_ANY} {STORE|STOREDIST} {$g|$z}",
    "GEORADIUSBYMEMBER $g $m 9000 km {STORE|STOREDIST} {$g|$z}",
    // Hashes.
    "HSET $h *9:$f,$v",
    "HSET $h *40:$f,$v",
    "HSET $h *60:$f,$v",
    "HMSET $h *3:$f,$v",
    "HSETNX $h $f $v",
    "HDEL $h *9:$f",
    "HINCRBY $h $f $n",
    "HINCRBYFLOAT $h $f {0.1|-2.5|1e3|3}",
    "HEXPIRE $h {0|1|100000|100000} {|NX|XX|GT|LT} FIELDS 3 $f $f $f",
    "HPEXPIRE $h $ms {|NX|XX|GT|LT} FIELDS 3 $f $f $f",
    "HEXPIREAT $h $ats FIELDS 2 $f $f",
    "HPEXPIREAT $h $at FIELDS 2 $f $f",
    "HPEXPIRE $h {1|60} FIELDS 4 $f $f $f $f",
    "HPERSIST $h FIELDS 2 $f $f",
    // Streams: `$x` get their ids from the clock, `$y` from the command.
    "XADD $x {|NOMKSTREAM|MAXLEN_~_30|MAXLEN_=_20|MAXLEN_9|MINID_~_$i|MAXLEN_~_2_LIMIT_6} {$tick-*|*|*|*} *3:$f,$v",
    "XADD $y {|NOMKSTREAM|MAXLEN_~_30|MAXLEN_=_20|MAXLEN_9|MINID_$i|MINID_~_$i} {$next|$next|$step-*} *3:$f,$v",
    "XADD {$x_*|$y_$next} *9:$f,$v",
    "XADD {$x_*|$y_$next} *3:$f,$v",
    "XADD {$x_*|$y_$next} $f $v",
    "XTRIM {$x|$y} {MAXLEN_~_20|MAXLEN_=_9|MINID_~_$i|MINID_$i}",
    "XDEL {$x|$y} $i $i $i",
    "XSETID {$x_$tick-99|$y_$next} {|ENTRIESADDED_900} {|MAXDELETEDID_$i}",
    "XGROUP CREATE {$x|$y} $gr {0|$|$i} {|MKSTREAM} {|ENTRIESREAD_2}",
    "XGROUP CREATE {$x|$y} $gr {0|$} MKSTREAM",
    "XGROUP CREATE {$x|$y} $gr 0 MKSTREAM",
    "XGROUP SETID {$x|$y} $gr {0|$|$i} {|ENTRIESREAD_2}",
    "XGROUP DESTROY {$x|$y} $gr",
    "XGROUP CREATECONSUMER {$x|$y} $gr $co",
    "XGROUP DELCONSUMER {$x|$y} $gr $co",
    "XREADGROUP GROUP $gr $co {|COUNT_2} {|BLOCK_$block} {|NOACK} STREAMS {$x|$y} {>|>|>|0|$i}",
    "XREADGROUP GROUP $gr $co {|COUNT_3} {|BLOCK_$block} STREAMS $x $y > {>|0}",
    "XACK {$x|$y} $gr $i $i $i $i",
    "XCLAIM {$x|$y} $gr $co {0|3} $i $i $i {|FORCE} {|JUSTID} {|IDLE_5|TIME_9|RETRYCOUNT_4} {|LASTID_$i}",
    "XAUTOCLAIM {$x|$y} $gr $co {0|3} {0|$i} {|COUNT_2} {|JUSTID}",
    // Keys of any type, databases.
    "{DEL|UNLINK} $a",
    "EXPIRE $a {0|1|100000|100000|100000|100000} {|NX|XX|GT|LT}",
    "PEXPIRE $a $ms {|NX|XX|GT|LT}",
    "EXPIREAT $a $ats {|NX|GT}",
    "PEXPIREAT $a $at {|NX|GT}",
    "PERSIST $a",
    "RENAME {$k_$k|$l_$l|$s_$s|$z_$z|$h_$h|$x_$x|$y_$y|$a_$a}",
    "RENAMENX {$k_$k|$l_$l|$s_$s|$z_$z|$h_$h|$x_$x|$y_$y}",
    "COPY {$k_$k|$l_$l|$s_$s|$z_$z|$h_$h|$x_$x|$y_$y|$a_$a} {|DB_$db} {|REPLACE}",
    "MOVE $a $db",
    "RESTORE $a {0|$ms} $dump {|REPLACE} {|IDLETIME_5}",
    "RESTORE-ASKING $a $at $dump ABSTTL {|REPLACE}",
    "SWAPDB $db $db",
    "FLUSHDB {|ASYNC|SYNC}",
    "FLUSHALL",
];

/// Read commands in between: they meet what has expired.
const READS: &[&str] = &[
    "GET $k",
    "LRANGE $l 0 -1",
    "SMEMBERS $s",
    "ZRANGE $z 0 -1",
    "HGETALL $h",
    "HGET $h $f",
    "HLEN $h",
    "XRANGE {$x|$y} - +",
    "EXISTS $a $a",
    "TYPE $a",
    "RANDOMKEY",
    "SCAN 0",
];

/// Makes random write commands. The seed and the clock decide which.
pub struct Writes {
    pub random: Random,
    steps: u64,
    now_ms: u64,
    ids: Ids,
    /// Serialised values of every type.
    dumps: Vec<Vec<u8>>,
}

impl Writes {
    pub fn new(seed: u64) -> Writes {
        Writes { random: Random::new(seed), steps: 0, now_ms: 0, ids: Ids::default(), dumps: dumps() }
    }

    /// One of these templates, filled in.
    pub fn of(&mut self, templates: &[&str], now_ms: u64) -> Vec<Vec<u8>> {
        self.now_ms = now_ms;
        self.steps += 1;
        let template = self.random.of(templates);
        self.fill(template)
    }

    pub fn command(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        let random = &mut self.random;
        let template = if random.one_in(8) { random.of(READS) } else { random.of(WRITES) };
        // FLUSH and SWAPDB are rare, because an empty dataset leaves little to compare.
        if template.starts_with("FLUSH") && !random.one_in(12) || template.starts_with("SWAPDB") && !random.one_in(8) {
            return self.command(now_ms);
        }
        self.of(&[template], now_ms)
    }

    fn fill(&mut self, template: &str) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        for part in template.split(' ') {
            if let Some(choices) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                let choices: Vec<&str> = choices.split('|').collect();
                let choice = self.random.of(&choices);
                choice.split('_').filter(|word| !word.is_empty()).for_each(|kind| self.word(kind, &mut words));
            } else if let Some((most, kinds)) = part.strip_prefix('*').and_then(|part| part.split_once(':')) {
                for _ in 0..=self.random.below(most.parse().expect("a number")) {
                    kinds.split(',').for_each(|kind| self.word(kind, &mut words));
                }
            } else {
                self.word(part, &mut words);
            }
        }
        words
    }

    fn word(&mut self, kind: &str, words: &mut Vec<Vec<u8>>) {
        let (random, now_ms) = (&mut self.random, self.now_ms);
        let kinds = ["$k", "$b", "$p", "$l", "$s", "$z", "$g", "$h", "$x", "$y"];
        let text = match kind {
            "$a" => {
                let kind = random.of(&kinds);
                return self.word(kind, words);
            }
            // Now and then a key of another type.
            kind if kinds.contains(&kind) && random.one_in(40) => "k1".to_owned(),
            kind if kinds.contains(&kind) => format!("{}{}", &kind[1..], random.below(4)),
            "$v" => match random.below(8) {
                0 => return words.push(vec![random.below(256) as u8; random.below(90)]),
                1..4 => random.below(1000).to_string(),
                _ => format!("value-{}", random.below(1_000_000)),
            },
            "$n" => (random.below(200) as i64 - 50).to_string(),
            "$m" => format!("m{}", random.below(100)),
            "$q" => random.of(&["0", "1", "-1", "2.5", "3", "0.25", "7", "10", "1e3", "-inf", "0.1"]).to_owned(),
            "$f" => format!("f{}", random.below(100)),
            "$lon" | "$lat" => format!("{:.3}", random.below(170_000) as f64 / 1000.0 - 85.0),
            // Times that pass while a test runs, and times that do not.
            "$ms" => random.of(&["1", "60", "150", "100000000", "100000000", "100000000"]).to_owned(),
            "$at" => match random.below(6) {
                0 => "1".to_owned(),
                1..3 => (now_ms + random.below(150) as u64).to_string(),
                _ => (now_ms + 100_000_000).to_string(),
            },
            "$ats" => random.of(&["1", "4000000000", "4000000000", "4000000000"]).to_owned(),
            "$step-*" => format!("{}-*", self.steps),
            "$tick-*" => format!("{now_ms}-*"),
            "$tick-99" => format!("{now_ms}-99"),
            "$next" => self.ids.add(format!("{}-{}", self.steps, random.below(3))),
            "*" => {
                self.ids.add(format!("{now_ms}-0"));
                "*".to_owned()
            }
            "$i" if !random.one_in(4) => self.ids.of(random),
            "$i" if random.one_in(2) => format!("{}-{}", now_ms - random.below(200) as u64, random.below(2)),
            "$i" => format!("{}-{}", self.steps.saturating_sub(random.below(300) as u64), random.below(3)),
            "$gr" => format!("group{}", random.below(2)),
            "$co" => random.of(&["ann", "bob", "cid"]).to_owned(),
            "$db" => random.of(&["0", "0", "1", "2"]).to_owned(),
            "$wait" => random.of(&["0.001", "0.02"]).to_owned(),
            "$block" => random.of(&["1", "20"]).to_owned(),
            "$dump" => return words.push(self.dumps[random.below(self.dumps.len())].clone()),
            literal => literal.to_owned(),
        };
        words.push(text.into_bytes());
    }
}

/// The latest ids that entries of streams may have.
#[derive(Default)]
struct Ids(Vec<String>);

impl Ids {
    const KEPT: usize = 40;

    fn add(&mut self, id: String) -> String {
        self.0.push(id.clone());
        if self.0.len() > Self::KEPT {
            self.0.remove(0);
        }
        id
    }

    fn of(&self, random: &mut Random) -> String {
        if self.0.is_empty() { "0-1".to_owned() } else { self.0[random.below(self.0.len())].clone() }
    }
}

fn dumps() -> Vec<Vec<u8>> {
    let mut here = super::Harness::new();
    let lines = [
        "SET k text",
        "RPUSH k a b c 1 2 3",
        "SADD k 1 2 3",
        "SADD k m1 m2 m3 5",
        "HSET k f1 v1 f2 v2",
        "ZADD k 1 m1 2.5 m2",
        "XADD k 1-1 f1 v1",
    ];
    let dump = |line: &str| {
        here.run("DEL k");
        here.run(line);
        match resp::client::parse_value(&here.reply(&[b"DUMP", b"k"])).expect("a reply").expect("a whole reply").0 {
            resp::client::Value::Bulk(bytes) => bytes,
            other => panic!("a serialised value: {other:?}"),
        }
    };
    lines.map(dump).into()
}
