//! Owns the random commands of all tests that compare two servers or stores: [`Commands`], valid and hostile, for FlintKV
//! and a real Redis, and [`Writes`], which change data, for the effects of changes. Never knows a reply, and never where
//! the commands run: a node can run all of them, a store without a server only the commands on data.

mod scripts;
mod streams;
mod template;
mod writes;
mod zsets;

use crate::Random;
pub use template::{Template, fill};
pub use writes::Writes;

/// Low limits, so that collections change their encoding all the time.
pub const SETTINGS: &str = "CONFIG SET hash-max-listpack-entries 6 hash-max-listpack-value 64 set-max-intset-entries 12 \
                            list-max-listpack-size 6 stream-node-max-entries 5 zset-max-listpack-entries 6";

const TEMPLATES: &[&str] = &[
    // Strings.
    "GET <key>",
    "GET <key>",
    "GET <key>",
    "SET <key> <value>",
    "SET <key> <value>",
    "SET <key> <value>",
    "SET <key> <value> ?<set-option> ?<set-option> ?<set-option>",
    "SETNX <key> <value>",
    "SETEX <key> <seconds> <value>",
    "PSETEX <key> <seconds> <value>",
    "GETSET <key> <value>",
    "GETDEL <key>",
    "GETEX <key> ?<set-option> ?<set-option>",
    "MGET <key> *<key>",
    "MSET <key> <value> *<key-value>",
    "MSETNX <key> <value> *<key-value>",
    "APPEND <key> <value>",
    "STRLEN <key>",
    "SETRANGE <key> <offset> <value>",
    "GETRANGE <key> <integer> <integer>",
    "SUBSTR <key> <integer> <integer>",
    "INCR <key>",
    "DECR <key>",
    "INCRBY <key> <integer>",
    "DECRBY <key> <integer>",
    "INCRBYFLOAT <key> <float>",
    "LCS <key> <key> ?<lcs-option> ?<lcs-option> ?<lcs-option>",
    // Hashes.
    "HSET <hash> <field> <value> *<field-value>",
    "HSET <hash> <field> <value> *<field-value>",
    "HMSET <hash> <field> <value> *<field-value>",
    "HSETNX <hash> <field> <value>",
    "HGET <hash> <field>",
    "HMGET <hash> <field> *<field>",
    "HGETALL <hash>",
    "HKEYS <hash>",
    "HVALS <hash>",
    "HLEN <hash>",
    "HSTRLEN <hash> <field>",
    "HEXISTS <hash> <field>",
    "HDEL <hash> <field> *<field>",
    "HINCRBY <hash> <field> <integer>",
    "HINCRBYFLOAT <hash> <field> <float>",
    // Sets.
    "SADD <set> <member> *<member>",
    "SADD <set> <member> *<member>",
    "SADD <set> <member> *<member>",
    "SREM <set> <member> *<member>",
    "SCARD <set>",
    "SMEMBERS <set>",
    "SISMEMBER <set> <member>",
    "SMISMEMBER <set> <member> *<member>",
    "SMOVE <set> <set> <member>",
    "SINTER <set> *<set>",
    "SUNION <set> *<set>",
    "SDIFF <set> *<set>",
    "SINTERSTORE <set> <set> *<set>",
    "SUNIONSTORE <set> <set> *<set>",
    "SDIFFSTORE <set> <set> *<set>",
    "SINTERCARD 2 <set> <set> ?<limit-option>",
    "SINTERCARD <integer> <set> *<set> ?<limit-option>",
    "SPOP <set> 100000",
    "SPOP nosuch ?<integer>",
    "SPOP <set> <integer> x",
    "SRANDMEMBER <set> 100000",
    "SRANDMEMBER <set> x",
    "SRANDMEMBER nosuch ?<integer>",
    "SSCAN <set> junk ?<scan-option>",
    "SSCAN <set> 0 <scan-option>",
    "SSCAN <set> 0 MATCH 1* COUNT 100000",
    // Lists.
    "RPUSH <list> <element> *<element>",
    "RPUSH <list> <element> *<element>",
    "LPUSH <list> <element> *<element>",
    "LPUSH <list> <element> *<element>",
    "RPUSHX <list> <element> *<element>",
    "LPUSHX <list> <element> *<element>",
    "LPOP <list> ?<count>",
    "RPOP <list> ?<count>",
    "LLEN <list>",
    "LINDEX <list> <index>",
    "LSET <list> <index> <element>",
    "LRANGE <list> <index> <index>",
    "LRANGE <list> 0 -1",
    "LTRIM <list> <index> <index>",
    "LREM <list> <count> <element>",
    "LINSERT <list> <before> <element> <element>",
    "LPOS <list> <element> ?<lpos-option> ?<lpos-option> ?<lpos-option>",
    "LMOVE <list> <list> <end> <end>",
    "RPOPLPUSH <list> <list>",
    "LMPOP 2 <list> <list> <end> ?<count-option>",
    "LMPOP <integer> <list> *<list> <end> ?<count-option>",
    "OBJECT ENCODING <list>",
    // Bitmaps.
    "SETBIT <bits> <bit> <bool>",
    "SETBIT <bits> <bit> 1",
    "GETBIT <bits> <bit>",
    "BITCOUNT <bits>",
    "BITCOUNT <bits> <integer> <integer> ?<unit>",
    "BITCOUNT <bits> <place> <place> ?<unit>",
    "BITPOS <bits> <bool> ?<place> ?<place> ?<unit>",
    "BITPOS <bits> <bool> <place> <integer> ?<unit>",
    "BITOP <bit-operation> <bits> <bits> *<bits>",
    "BITOP NOT <bits> <bits>",
    "BITFIELD <bits> <bit-step> *<bit-step>",
    "BITFIELD <bits> OVERFLOW <overflow> <bit-step> *<bit-step>",
    "BITFIELD_RO <bits> *<bit-read>",
    "BITFIELD_RO <bits> <bit-step>",
    "GET <bits>",
    "SET <bits> <value>",
    // HyperLogLogs.
    "PFADD <hll> *<counted>",
    "PFADD <hll> *<counted>",
    "PFADD <hll> *<counted>",
    "PFCOUNT <hll>",
    "PFCOUNT <hll> *<hll>",
    "PFMERGE <hll> *<hll>",
    "PFDEBUG <hll-view> <hll>",
    "GET <hll>",
    "SET <hll> <hll-bytes>",
    "SETRANGE <hll> <hll-offset> <hll-patch>",
    // Sorting.
    "SORT <sorted> ?<sort-limit> ?<sort-option> ?<sort-option>",
    "SORT <sorted> ALPHA ?<sort-limit> ?<sort-option> ?<sort-option>",
    "SORT <list> ALPHA <sort-get> ?<sort-get> ?<sort-limit> ?<sort-option>",
    "SORT <list> BY <sort-by> ?<sort-get> ?<sort-get> ?<sort-limit> ?<sort-order> ?<sort-store>",
    "SORT <set> BY <sort-by> GET # ?<sort-get> ?<sort-order> ?<sort-store>",
    "SORT_RO <list> ?<sort-limit> ?<sort-option> ?<sort-store>",
    "SORT <sorted> ALPHA STORE <list>",
    "MSET weight1 <value> weight2 <float> weight3 1 weight5 -1 weight7 x weight10 5",
    "HSET hweight1 age <integer> age* <float>",
    // Keys.
    "DEL <key> *<key>",
    "UNLINK <any>",
    "EXISTS <any> *<any>",
    "TYPE <any>",
    "TOUCH <any> *<any>",
    "RENAME <any> <any>",
    "RENAMENX <any> <any>",
    "COPY <any> <any> ?<copy-option> ?<copy-option>",
    "MOVE <any> <db>",
    "OBJECT ENCODING <any>",
    "OBJECT REFCOUNT nosuch",
    "OBJECT FREQ <any>",
    "OBJECT IDLETIME <any>",
    "OBJECT <junk> <any>",
    "DBSIZE",
    "KEYS <pattern>",
    "SELECT <db>",
    "SWAPDB <db> <db>",
    "FLUSHDB ?<flush-option>",
    "FLUSHALL ?<flush-option>",
    "SCAN <cursor> <junk>",
    "SCAN junk ?<scan-option>",
    "HSCAN <hash> junk ?<scan-option>",
    "HSCAN <hash> 0 <scan-option> <junk>",
    "HSCAN <hash> 0 MATCH f1* COUNT 100000",
    "HRANDFIELD <hash> <junk>",
    "HRANDFIELD nosuch ?<integer>",
    // Expiry.
    "EXPIRE <any> <seconds> ?<expire-option>",
    "PEXPIRE <any> <seconds>",
    "EXPIREAT <any> <second> ?<at-option>",
    "PEXPIREAT <any> <second> ?<at-option> ?<at-option>",
    "EXPIRE <any> <gone> ?<at-option>",
    "PEXPIRE <any> <gone>",
    "TTL <any>",
    "PTTL <any>",
    "EXPIRETIME <any>",
    "PEXPIRETIME <any>",
    "PERSIST <any>",
];

/// Commands that need a server around the data.
const OF_SERVER: &[&str] = &[
    // Scripts and functions.
    "<call>",
    "<call>",
    "<call>",
    "<lua>",
    "<lua>",
    "<lua>",
    "EVAL <value> <integer> *<key>",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
    "EVALSHA <junk> <integer> *<key>",
    "SCRIPT LOAD <value>",
    "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db <junk>",
    "SCRIPT FLUSH ?<flush-option>",
    "SCRIPT KILL",
    "SCRIPT <junk> <junk>",
    "FUNCTION DELETE <junk>",
    "FUNCTION LIST ?<junk> ?<junk>",
    "FUNCTION LOAD <value>",
    "FUNCTION RESTORE <value> ?<junk>",
    "FUNCTION <junk>",
    "FCALL <junk> <integer> *<key>",
    // Connection and server.
    "PING",
    "PING <value>",
    "ECHO <value>",
    "HELLO <protocol>",
    "HELLO 3 <junk>",
    "RESET",
    "CLIENT SETNAME <name>",
    "CLIENT GETNAME",
    "CLIENT ID",
    "CLIENT NO-EVICT <junk>",
    "CLIENT REPLY <junk>",
    "CLIENT <junk> <junk>",
    "AUTH <junk>",
    "AUTH <junk> <junk>",
    "COMMAND COUNT",
    "COMMAND GETKEYS MSET <key> <value> *<key-value>",
    "COMMAND GETKEYS GET",
    "COMMAND <junk>",
    "CONFIG GET hash-max-listpack-*",
    "CONFIG GET <junk>",
    "CONFIG <junk>",
    "CONFIG SET <junk> <junk>",
    "TIME",
    "MEMORY USAGE <any>",
    "MEMORY <junk> <junk>",
    "SLOWLOG LEN",
    "SLOWLOG <junk>",
    "LATENCY <junk>",
    "<junk> <value> *<value>",
    "<junk>",
];

/// These commands would block, and their connection with them. So they come rarely and with a short timeout, or inside
/// a transaction, where they do not block.
const BLOCKING: &[&str] = &[
    "BLPOP <list> *<list> <timeout>",
    "BRPOP <list> *<list> <timeout>",
    "BLMOVE <list> <list> <end> <end> <timeout>",
    "BRPOPLPUSH <list> <list> <timeout>",
    "BLMPOP <timeout> 2 <list> <list> <end> ?<count-option>",
    "BLMPOP <timeout> <integer> <list> *<list> <end> ?<count-option>",
];

/// No hexadecimal numbers: a real Redis accepts them for INCRBYFLOAT (`strtold`), FlintKV refuses them.
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "5",
    "-5",
    "100",
    "-100",
    "x",
    "",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "+1",
    " 1",
    "1 ",
    "01",
    "-0",
    "1.5",
    "1e3",
    "4611686018427387904",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "0y",
    "18446744073709551615",
    "00",
    "--1",
    "1\0",
];
const FLOATS: &[&str] = &[
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
    "",
    "infinity",
    "3.0e0",
    "1e308",
    "-1e308",
    "12345678901234567890123",
    "1,5",
    "1.0\0",
];

const JUNK: &[&str] = &[
    "foo",
    "HELP2",
    "",
    "\"",
    "a b",
    "line\r\nbreak",
    "\u{e9}\u{301}",
    "0",
    "-1",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "18446744073709551616",
    "NX",
    "9223372036854775807",
];

/// The first letters of the keys of each type. Strings have three, depending on how commands use them.
const PREFIXES: &[char] = &['s', 'h', 'm', 'l', 'b', 'p', 'x', 'z'];
const ALL: &[&[&str]] = &[TEMPLATES, OF_SERVER, streams::TEMPLATES, zsets::TEMPLATES];
const ON_DATA: &[&[&str]] = &[TEMPLATES, streams::TEMPLATES, zsets::TEMPLATES];

pub struct Commands {
    pub random: Random,
    /// The number of keys of each kind: with enough of them, the RAM limit makes most of them cold.
    keys: usize,
    /// The number of hash tags, for a database that is divided into shards, and the tag of almost all keys of this batch. 0: none.
    tags: usize,
    tag: usize,
    /// All keys have the batch's tag: what runs in a script.
    is_strict: bool,
    families: &'static [&'static [&'static str]],
}

impl Commands {
    pub fn new(seed: u64, keys: usize) -> Commands {
        Commands { random: Random::new(seed), keys, tags: 0, tag: 0, is_strict: false, families: ALL }
    }

    /// For a store without a server: [`Commands::command`] and [`Commands::single`] give only commands on data.
    pub fn on_data(seed: u64, keys: usize) -> Commands {
        Commands { random: Random::new(seed), keys, tags: 0, tag: 0, is_strict: false, families: ON_DATA }
    }

    /// Almost all keys of a batch have the same one of so many hash tags.
    pub fn tagged(seed: u64, keys: usize, tags: usize) -> Commands {
        Commands { tags, ..Commands::new(seed, keys) }
    }

    fn with_tag(&mut self, key: String) -> Vec<u8> {
        if self.tags == 0 || !self.is_strict && self.random.one_in(40) {
            return key.into_bytes();
        }
        let tag = if !self.is_strict && self.random.one_in(40) { self.random.below(self.tags) } else { self.tag };
        format!("{key}{{{tag}}}").into_bytes()
    }

    /// A command, or the commands of a transaction.
    pub fn next_batch(&mut self) -> Vec<Vec<Vec<u8>>> {
        if self.tags > 0 {
            self.tag = self.random.below(self.tags);
        }
        if self.random.one_in(50) {
            return self.transaction();
        }
        let blocks = self.random.one_in(1000);
        let command = if blocks { self.blocking(&["0.001"]) } else { self.command() };
        with_consumer(command)
    }

    /// A command, preceded by the one that creates the consumer that it names.
    pub fn single(&mut self) -> Vec<Vec<Vec<u8>>> {
        let command = if self.random.one_in(60) { self.blocking(&["0.001", "x"]) } else { self.command() };
        with_consumer(command)
    }

    fn transaction(&mut self) -> Vec<Vec<Vec<u8>>> {
        let mut all = vec![vec![b"MULTI".to_vec()]];
        for _ in 0..self.random.below(6) {
            let blocks = self.random.one_in(3);
            let command = match blocks {
                true => self.blocking(&["0", "0.001", "1000", "-1", "x", "inf", "1e300", "9223372036854775807", ""]),
                false => self.command(),
            };
            // RESET would end the transaction, so the next commands could block. 7.2 treats COMMAND differently.
            if command[0] != b"RESET" && command[0] != b"COMMAND" {
                all.extend(with_consumer(command));
            }
        }
        let end = if self.random.one_in(10) { "DISCARD" } else { "EXEC" };
        all.push(vec![end.as_bytes().to_vec()]);
        all
    }

    fn blocking(&mut self, timeouts: &[&str]) -> Vec<Vec<u8>> {
        let timeout = self.random.of(timeouts);
        let templates = self.random.of(&[BLOCKING, streams::BLOCKING, zsets::BLOCKING]);
        let template = self.random.of(templates);
        // The timeouts of streams are in milliseconds.
        let timeout = match timeout {
            "0.001" if template.starts_with('X') => "1",
            // Redis 7.0 does not notice that this overflows.
            "9223372036854775807" if template.starts_with('X') => "0",
            timeout => timeout,
        };
        let template = template.replace("<timeout>", timeout);
        fill(self, &template)
    }

    pub fn command(&mut self) -> Vec<Vec<u8>> {
        let at = self.random.below(self.families.iter().map(|family| family.len()).sum());
        let template = self.families.iter().flat_map(|family| family.iter()).nth(at).expect("there are as many");
        // Some commands are rare: an empty dataset leaves little to compare, and a connection that is reset too often
        // never reaches RESP3.
        let seldom = match template.split(' ').next() {
            Some("FLUSHDB" | "FLUSHALL") => 200,
            Some("RESET" | "SWAPDB") => 20,
            Some("SELECT") => 4,
            _ => 1,
        };
        if !self.random.one_in(seldom) {
            return self.command();
        }
        let mut words = match *template {
            "<call>" => {
                let inner = self.random.of(scripts::INNER);
                self.is_strict = self.tags > 0;
                let inner = fill(self, inner);
                // The keys may or may not be declared.
                let keys = if self.tags > 0 || self.random.one_in(2) { vec![self.any_key()] } else { Vec::new() };
                self.is_strict = false;
                scripts::around(&mut self.random, inner, &keys)
            }
            "<lua>" => {
                let keys = [self.key_of('s'), self.key_of('l')];
                let args = vec![self.value(), self.value()];
                scripts::lua(&mut self.random, &keys, args)
            }
            template => fill(self, template),
        };
        self.spoil(&mut words);
        words
    }

    /// Now and then a word is lost, doubled or replaced by random bytes.
    fn spoil(&mut self, words: &mut Vec<Vec<u8>>) {
        // Without its count, such a command takes random members, and the servers would differ from then on. For
        // others, 7.2 takes more arguments than 7.0.
        let kept: [&[u8]; 5] = [b"SPOP", b"SRANDMEMBER", b"ZRANDMEMBER", b"ZRANK", b"ZREVRANK"];
        let is_lexed = words[0] == b"ZADD" && words[1].starts_with(b"y");
        if words.len() > 1 && !is_lexed && !kept.contains(&&words[0][..]) && self.random.one_in(40) {
            let at = 1 + self.random.below(words.len() - 1);
            match self.random.below(3) {
                0 => drop(words.remove(at)),
                1 => words.insert(at, words[at].clone()),
                _ => words[at] = self.random.of(JUNK).as_bytes().to_vec(),
            }
        }
    }

    pub fn key(&mut self, prefix: char) -> Vec<u8> {
        match self.random.below(40) {
            0..3 if self.is_strict => self.with_tag(prefix.to_string()),
            0 => Vec::new(),
            1 => b"\0\r\n\xff{key}".to_vec(),
            2 => vec![b'l'; 300],
            // A few keys are used repeatedly.
            3..12 => {
                let key = format!("{prefix}{}", self.random.below(8));
                self.with_tag(key)
            }
            _ => {
                let key = format!("{prefix}{}", self.random.below(self.keys));
                self.with_tag(key)
            }
        }
    }

    /// A key of the command's own type; sometimes of another.
    fn key_of(&mut self, usual: char) -> Vec<u8> {
        if self.random.one_in(15) { self.any_key() } else { self.key(usual) }
    }

    /// A key that commands of other types never write, except that it is sometimes a string, which they may replace.
    fn own_key(&mut self, prefix: char) -> Vec<u8> {
        match self.random.below(20) {
            0 => match prefix {
                'y' => b"weight1".to_vec(),
                'g' => b"weight3".to_vec(),
                _ => b"weight5".to_vec(),
            },
            _ => {
                let key = format!("{prefix}{}", self.random.below(self.keys));
                self.with_tag(key)
            }
        }
    }

    pub fn any_key(&mut self) -> Vec<u8> {
        let prefix = PREFIXES[self.random.below(PREFIXES.len())];
        self.key(prefix)
    }

    /// One of BITFIELD's subcommands.
    fn bit_step(&mut self, may_write: bool, words: &mut Vec<Vec<u8>>) {
        let random = &mut self.random;
        let name = if may_write { random.of(&["GET", "SET", "set", "INCRBY", "incrby"]) } else { "get" };
        let encoding = match random.below(12) {
            0 => random.of(&["u64", "i65", "u0", "i0", "x8", "i", "", "i64", "u63", "i1", "u1", "i-1"]).to_owned(),
            n => format!("{}{}", ["i", "u"][n % 2], 1 + random.below(63)),
        };
        let offset = match random.below(12) {
            0 => random.of(&["-1", "#-1", "x", "#", "4294967296", "#9223372036854775807", "", "+1"]).to_owned(),
            n => format!("{}{}", ["", "", "#"][n % 3], random.below(80)),
        };
        words.extend([name.to_owned(), encoding, offset].map(String::into_bytes));
        if name != "GET" && name != "get" {
            words.push(match random.below(3) {
                // Redis saturates numbers below -2^62 at the wrong end.
                0 => random.of(INTEGERS).replace("-9223372036854775808", "7").into_bytes(),
                _ => (random.draw() as i64 >> (2 + random.below(62))).to_string().into_bytes(),
            });
        }
        if random.one_in(10) {
            words.extend([b"OVERFLOW".to_vec(), random.of(&["wrap", "SAT", "FAIL", "x"]).as_bytes().to_vec()]);
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => (0..self.random.below(40)).map(|_| self.random.draw() as u8).collect(),
            1..3 => self.random.of(INTEGERS).as_bytes().to_vec(),
            3 => self.random.of(FLOATS).as_bytes().to_vec(),
            4..7 => self.random.below(1000).to_string().into_bytes(),
            7..10 => self.random.of(&["abc", "abcabc", "xaybzc", "hello world", "", "a\r\nb"]).as_bytes().to_vec(),
            10 => vec![b'x'; [43, 44, 45, 63, 64, 65][self.random.below(6)]],
            11 if self.random.one_in(10) => {
                let bytes = 1000 + self.random.below(30_000);
                self.random.text(bytes)
            }
            _ => {
                let bytes = self.random.below(600);
                self.random.text(bytes)
            }
        }
    }

    fn field(&mut self) -> Vec<u8> {
        match self.random.below(30) {
            0 => Vec::new(),
            1 => vec![b'f'; 70],
            2 => b"\xff\0".to_vec(),
            _ => format!("f{}", self.random.below(14)).into_bytes(),
        }
    }

    /// Few different members, so that sets overlap. Sets of integers only are rare, but they occur.
    fn member(&mut self) -> Vec<u8> {
        match self.random.below(40) {
            0 => self.value(),
            1 => vec![b'm'; 63 + self.random.below(3)],
            2 => self.random.of(INTEGERS).as_bytes().to_vec(),
            3..30 => (self.random.below(16) * 9000).to_string().into_bytes(),
            _ => format!("m{}", self.random.below(14)).into_bytes(),
        }
    }

    /// Few different elements, so that a list contains some of them more than once.
    fn element(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => self.value(),
            1 => vec![b'e'; [63, 64, 65, 127, 128, 4000][self.random.below(6)]],
            _ => self.random.below(12).to_string().into_bytes(),
        }
    }
}

impl Template for Commands {
    fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn word(&mut self, kind: &str, words: &mut Vec<Vec<u8>>) {
        let random = &mut self.random;
        // An option may be several words.
        let option = match kind {
            "<set-option>" => random.of(&[
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
                "EX 100000",
                "PXAT -1",
                "EXAT 9223372036854775807",
                "PX 9223372036854775807",
                "foo",
            ]),
            "<lcs-option>" => random.of(&[
                "LEN",
                "IDX",
                "idx",
                "WITHMATCHLEN",
                "MINMATCHLEN 2",
                "MINMATCHLEN -1",
                "MINMATCHLEN x",
                "MINMATCHLEN",
                "bar",
            ]),
            // The two clocks differ. Options that compare the old expiry with the new one get moments that are far
            // apart.
            "<expire-option>" => random.of(&["NX", "XX", "nx", "foo", "NX XX"]),
            "<at-option>" => random.of(&["NX", "XX", "GT", "LT", "gt", "foo"]),
            "<copy-option>" => random.of(&["REPLACE", "DB 0", "DB 1", "DB 16", "DB x", "DB", "foo"]),
            "<lpos-option>" => random.of(&[
                "RANK 1",
                "RANK -1",
                "RANK 2",
                "RANK 0",
                "RANK -9223372036854775808",
                "RANK x",
                "COUNT 0",
                "COUNT 2",
                "COUNT -1",
                "count 9223372036854775807",
                "MAXLEN 0",
                "MAXLEN 3",
                "MAXLEN -1",
                "MAXLEN",
                "foo",
            ]),
            "<sort-limit>" => random.of(&[
                "LIMIT 0 5",
                "LIMIT 1 3",
                "LIMIT 2 -1",
                "limit -5 2",
                "LIMIT 0 0",
                "LIMIT 100000 1",
                "LIMIT 1 9223372036854775807",
                "LIMIT 9223372036854775807 9223372036854775807",
                "LIMIT x 1",
                "LIMIT 1",
            ]),
            "<sort-order>" => random.of(&["ASC", "desc"]),
            "<sort-option>" => random.of(&["ASC", "desc", "ALPHA", "DESC", "foo"]),
            "<sort-get>" => random.of(&[
                "GET #",
                "get weight*",
                "GET hweight*->age",
                "GET *",
                "GET x",
                "GET hweight*->",
                "GET *->*",
                "GET",
            ]),
            "<count-option>" => {
                random.of(&["COUNT 1", "count 3", "COUNT 100000", "COUNT 0", "COUNT -1", "COUNT x", "COUNT", "foo 1"])
            }
            "<flush-option>" => random.of(&["SYNC", "ASYNC", "foo"]),
            "<limit-option>" => random.of(&["LIMIT 1", "LIMIT 0", "limit 3", "LIMIT -1", "LIMIT x", "LIMIT", "foo 1"]),
            "<scan-option>" => random.of(&["COUNT 0", "COUNT x", "COUNT", "MATCH", "TYPE", "COUNT -1", "foo 1"]),
            _ => "",
        };
        if !option.is_empty() {
            words.extend(option.split(' ').map(|word| word.as_bytes().to_vec()));
            return;
        }
        if let Some(text) = streams::word(kind, random) {
            let several = kind == "<trim>" || kind.ends_with("-option>");
            let parts = text.split(|letter| several && letter == ' ');
            return words.extend(parts.map(|word| word.as_bytes().to_vec()));
        }
        if let Some(text) = zsets::word(kind, random) {
            return words.extend(text.split(' ').map(|word| word.as_bytes().to_vec()));
        }
        let text = match kind {
            "<key>" => return words.push(self.key_of('s')),
            "<hash>" => return words.push(self.key_of('h')),
            "<set>" => return words.push(self.key_of('m')),
            "<zset>" => return words.push(self.key_of('z')),
            "<sets>" => {
                let prefix = ['z', 'z', 'm'][random.below(3)];
                return words.push(self.key_of(prefix));
            }
            "<lexed>" => return words.push(self.own_key('y')),
            "<geo>" => return words.push(self.own_key('g')),
            "<distances>" => return words.push(self.own_key('d')),
            "<any>" => return words.push(self.any_key()),
            "<member>" => return words.push(self.member()),
            // Numeric only: the two servers order equal texts differently.
            "<sort-by>" => random.of(&["weight*", "hweight*->age", "nosort", "w*ight", "*", "#", ""]),
            "<sorted>" => {
                let kind = self.random.of(&["<list>", "<set>", "<any>"]);
                return self.word(kind, words);
            }
            "<sort-store>" => {
                words.push(b"STORE".to_vec());
                return words.push(self.key_of('l'));
            }
            "<list>" => return words.push(self.key_of('l')),
            "<element>" => return words.push(self.element()),
            "<value>" => return words.push(self.value()),
            "<field>" => return words.push(self.field()),
            "<stream>" => return words.push(self.key_of('x')),
            "<bits>" => return words.push(self.key_of('b')),
            "<bit-step>" => return self.bit_step(true, words),
            "<bit-read>" => return self.bit_step(false, words),
            "<hll>" => return words.push(self.key_of('p')),
            "<counted>" => {
                // Sometimes many at once, so that some become dense.
                let many = if random.one_in(60) { 300 } else { 1 };
                let more = (0..many).map(|_| random.below(5000).to_string().into_bytes());
                return words.extend(more);
            }
            "<hll-bytes>" => {
                let mut bytes = b"HYLL".to_vec();
                bytes.extend([random.of(&["\x01", "\x01", "\0", "\x02"]).as_bytes(), &[0; 10], b"\x80"].concat());
                match random.below(3) {
                    0 => bytes.extend(b"\x7f\xff"),
                    1 => bytes.extend(b"\x88\x83\x7f\xfa"),
                    _ => bytes.extend((0..random.below(6)).map(|_| random.draw() as u8)),
                }
                // Redis takes the byte after the string for the second byte of a truncated run.
                bytes.push(0);
                return words.push(bytes);
            }
            "<hll-patch>" => random.of(&["\0", "ab\0", "\u{7}\0", "\x7f\x7f\0"]),
            "<key-value>" => {
                words.push(self.key_of('s'));
                return words.push(self.value());
            }
            "<field-value>" => {
                words.push(self.field());
                return words.push(self.value());
            }
            "<integer>" => random.of(INTEGERS),
            // Usually a valid one.
            "<index>" | "<count>" if !random.one_in(8) => {
                random.of(&["0", "1", "2", "3", "7", "-1", "-2", "-3", "-8", "20"])
            }
            "<index>" | "<count>" => random.of(INTEGERS),
            "<before>" => random.of(&["BEFORE", "after", "BEFORE", "AFTER", "beside"]),
            "<end>" => random.of(&["LEFT", "right", "LEFT", "RIGHT", "LEFT", "RIGHT", "up"]),
            "<float>" => random.of(FLOATS),
            "<cursor>" => random.of(&["0", "5", "x", "", "1.5", "18446744073709551615", "18446744073709551616", "--1"]),
            "<seconds>" => random.of(&[
                "100000",
                "1000000",
                "200000",
                "0",
                "-1",
                "x",
                "9223372036854775",
                "9223372036854775807",
                "-9223372036854775808",
                "",
                "1.5",
            ]),
            "<offset>" => random.of(&[
                "0",
                "1",
                "5",
                "20",
                "700",
                "-1",
                "x",
                "536870912",
                "536870913",
                "4294967296",
                "9223372036854775807",
            ]),
            "<bit>" => random.of(&[
                "0",
                "1",
                "7",
                "8",
                "13",
                "63",
                "64",
                "100",
                "333",
                "1000",
                "4095",
                "-1",
                "x",
                "4294967296",
                "#1",
                "",
                "9223372036854775807",
            ]),
            "<bool>" => random.of(&["0", "1", "0", "1", "0", "1", "0", "1", "2", "-1", "x", "", "01"]),
            "<place>" => random.of(&["0", "1", "2", "-1", "-2", "7", "30", "-30", "100", "-100"]),
            "<unit>" => random.of(&["BIT", "BYTE", "bit", "byte", "BIT", "foo"]),
            "<bit-operation>" => random.of(&["AND", "or", "XOR", "and", "NOT", "NAND"]),
            "<overflow>" => random.of(&["WRAP", "sat", "FAIL", "foo"]),
            "<hll-view>" => random.of(&["ENCODING", "decode", "TODENSE", "foo"]),
            "<hll-offset>" => random.of(&["0", "4", "8", "16", "17", "20"]),
            "<second>" => random.of(&[
                "1",
                "0",
                "-1",
                "33177117420",
                "33177117421",
                "33177117420000",
                "9223372036854775807",
                "-9223372036854775808",
                "x",
            ]),
            "<gone>" => random.of(&["0", "-1", "-5", "x", "9223372036854775807", "-9223372036854775808"]),
            "<db>" => random.of(&["0", "1", "0", "1", "0", "1", "15", "16", "-1", "x", "99999999999", ""]),
            "<pattern>" => random.of(&[
                "*", "s1*", "[a-h]?", "[^h]1", "?", "", "\\s1", "[", "**", "*1*2*", "[z-a]*", "h[0-9]", "*\u{ff}*",
                "nosuch",
            ]),
            "<protocol>" => random.of(&["2", "3", "2", "3", "3", "1", "4", "x", "-1", ""]),
            "<name>" => random.of(&["one", "two", "with space", "", "line\nbreak", "three!"]),
            "<junk>" => random.of(JUNK),
            literal => literal,
        };
        words.push(text.as_bytes().to_vec());
    }
}

/// Creates a consumer before it asks for something.
fn with_consumer(command: Vec<Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
    let mut all = streams::consumer_of(&command);
    all.push(command);
    all
}
