//! Owns random commands that change data, without hostile arguments except wrong types. They build on each other, and
//! every command that writes is among them. Never knows where the commands run.

use super::{Template, fill};
use crate::Random;

/// All write commands. They use the same keys often enough that commands build on each other. `$` starts a kind of word.
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
    "SORT {$l|$s|$z} {ALPHA|ALPHA|} {|BY_nosort|BY_*} {|LIMIT_1_5} {|DESC} {|GET_#_GET_*} STORE {$l|$k}",
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
    "XSETID {$x_$tick-99|$y_$next} {|ENTRIESADDED_900|ENTRIESADDED_9223372036854775807} {|MAXDELETEDID_$i}",
    "XGROUP CREATE {$x|$y} $gr {0|$|$i} {|MKSTREAM} {|ENTRIESREAD_2|ENTRIESREAD_9223372036854775807}",
    "XGROUP CREATE {$x|$y} $gr {0|$} MKSTREAM",
    "XGROUP CREATE {$x|$y} $gr 0 MKSTREAM",
    "XGROUP SETID {$x|$y} $gr {0|$|$i} {|ENTRIESREAD_2|ENTRIESREAD_9223372036854775807}",
    "XGROUP DESTROY {$x|$y} $gr",
    "XGROUP CREATECONSUMER {$x|$y} $gr $co",
    "XGROUP DELCONSUMER {$x|$y} $gr $co",
    "XREADGROUP GROUP $gr $co {|COUNT_2} {|BLOCK_$block} {|NOACK} STREAMS {$x|$y} {>|>|>|0|$i}",
    "XREADGROUP GROUP $gr $co {|COUNT_3} {|BLOCK_$block} STREAMS $x $y > {>|0}",
    "XREADGROUP GROUP $gr $co {|COUNT_2} {|NOACK} STREAMS $x {$x|$y} {>|0} {>|$i}",
    "XACK {$x|$y} $gr $i $i $i $i",
    "XCLAIM {$x|$y} $gr $co {0|3} $i $i $i {|FORCE} {|JUSTID} {|IDLE_5|TIME_9|RETRYCOUNT_4|RETRYCOUNT_9223372036854775807} {|LASTID_$i}",
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

/// What DUMP of Redis 7.0 gives for a value of each type, which FlintKV and Redis restore alike: a string, a list, a set of integers, a
/// set, a hash, a sorted set, and a stream with a group.
const DUMPS: &[&[u8]] = &[
    b"\0\x04text\x0a\0\x7c\xf3\x26m\xca\xb5\xa51",
    b"\x12\x01\x02\x16\x16\0\0\0\x06\0\x81a\x02\x81b\x02\x81c\x02\x01\x01\x02\x01\x03\x01\xff\x0a\0\x92\xf8\xc1R:\x0e\x16\
      \xdf",
    b"\x0b\x0e\x02\0\0\0\x03\0\0\0\x01\0\x02\0\x03\0\x0a\0\xa5\x02\x5c\xe2mnM\x1b",
    b"\x02\x04\x02m3\xc0\x05\x02m2\x02m1\x0a\x002mh\xb6\xd4\x0e\xb5\xc8",
    b"\x10\x17\x17\0\0\0\x04\0\x82f1\x03\x82v1\x03\x82f2\x03\x82v2\x03\xff\x0a\0\x03\xf8L\x0c\x15\xd4\xa2\xbc",
    b"\x11\x16\x16\0\0\0\x04\0\x82m1\x03\x01\x01\x82m2\x03\x832.5\x04\xff\x0a\0\xdd\x92o\x09\x5f\x85L\x7b",
    b"\x13\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x1f\x1f\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x82f1\x03\0\x01\x02\x01\0\
      \x01\0\x01\x82v1\x03\x04\x01\xff\x01\x01\x01\x01\x01\0\0\x01\x01\x06group0\x01\x01\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\0\
      \0\0\0\x01\xc46\x0a\x22\xa2\x01\0\0\x01\x01\x03ann\xc46\x0a\x22\xa2\x01\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\
      \x0a\0\xec\xddx\xd1\x8aq\x94Q",
];

/// Read commands between the writes: they access keys and fields that have expired.
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
}

impl Writes {
    pub fn new(seed: u64) -> Writes {
        Writes { random: Random::new(seed), steps: 0, now_ms: 0, ids: Ids::default() }
    }

    /// One of these templates, filled in.
    pub fn of(&mut self, templates: &[&str], now_ms: u64) -> Vec<Vec<u8>> {
        self.now_ms = now_ms;
        self.steps += 1;
        let template = self.random.of(templates);
        fill(self, template)
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

    /// [`Writes::command`] without what Redis has only since 7.4: expiry times of fields.
    pub fn command_of_redis_7_0(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        loop {
            let words = self.command(now_ms);
            let name = words[0].to_ascii_lowercase();
            if !(name.starts_with(b"h") && name.windows(6).any(|part| part == b"expire")) {
                return words;
            }
        }
    }
}

impl Template for Writes {
    fn random(&mut self) -> &mut Random {
        &mut self.random
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
            "$dump" => return words.push(random.of(DUMPS).to_vec()),
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
