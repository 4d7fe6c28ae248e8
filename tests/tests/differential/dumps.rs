//! Owns values that move between the servers: each server restores what the other one dumped, also with a changed byte.
//! Never knows other commands.

use crate::Pair;
use flintkv_tests::one_line;
use resp::client::Value;
use value::rdb::{self, Type};

/// The newest format that Redis 7.0 reads.
const VERSION: u16 = 10;
const BAD: &str = "(error) ERR Bad data format";

impl Pair {
    /// Each server restores what the other dumped, and then the same payload with a changed byte.
    pub fn moved(&mut self, key: &[u8], faults: &[u64]) {
        let dump: [&[u8]; 2] = [b"DUMP", key];
        let (Value::Bulk(ours), Value::Bulk(theirs)) = (self.ours.call(&dump), self.theirs.call(&dump)) else {
            return self.same(vec![b"DUMP".to_vec(), key.to_vec()]);
        };
        self.done += 1;
        let is_new = [Type::SetListpack, Type::Stream3].iter().any(|&kind| ours[0] == kind as u8);
        let mut for_redis = if is_new { theirs.clone() } else { ours };
        rdb::reseal(&mut for_redis, VERSION);
        self.restored(key, &theirs, &for_redis, false);
        self.same_value(key);
        for &fault in faults {
            let mut payload = theirs.clone();
            let at = fault as usize % (payload.len() - 10);
            payload[at] = match fault >> 32 & 3 {
                0 => (fault >> 40) as u8,
                1 => payload[at] ^ 1 << (fault >> 40 & 7),
                2 => payload[at].wrapping_add(1),
                _ => 0xff,
            };
            if payload != theirs {
                self.restored(key, &payload, &payload, false);
            }
            rdb::reseal(&mut payload, VERSION);
            // Redis accepts unordered sorted sets, and streams that declare what they do not contain.
            let is_kept = [Type::ZSetListpack, Type::Stream2].iter().any(|&kind| theirs[0] == kind as u8);
            if self.restored(key, &payload, &payload, true) && !is_kept {
                self.same_value(key);
            }
            self.restored(key, &theirs, &for_redis, false);
        }
    }

    /// Whether both replies are the same. With `may_differ`, FlintKV alone may refuse: Redis accepts values with extra
    /// bytes after them, values that reach into the checksum, and streams whose ids contradict each other.
    fn restored(&mut self, key: &[u8], ours: &[u8], theirs: &[u8], may_differ: bool) -> bool {
        let words: [&[u8]; 5] = [b"RESTORE", key, b"0", ours, b"REPLACE"];
        let ours = one_line(&self.ours.call(&words));
        let theirs = one_line(&self.theirs.call(&[b"RESTORE", key, b"0", theirs, b"REPLACE"]));
        let words = words.map(<[u8]>::to_vec);
        self.remember(&words);
        let is_stricter = may_differ && ours == BAD && theirs == "OK";
        if ours != theirs && !is_stricter {
            self.fail(&words, &format!("FlintKV: {ours}\nRedis:   {theirs}"));
        }
        ours == theirs
    }
}
