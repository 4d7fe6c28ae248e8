//! Owns values that change places: what one server dumps the other restores, also with a byte changed. Never knows what
//! else is done to them.

use crate::Pair;
use flintkv_tests::shown;
use resp::client::Value;
use value::rdb::{self, Type};

/// The newest format that Redis 7.0 reads.
const VERSION: u16 = 10;
const BAD: &str = "(error) ERR Bad data format";

impl Pair {
    /// Each server gets what the other has dumped, and then what that becomes where a byte is another.
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
            // Redis keeps sorted sets that are in no order, and streams that say what they do not hold.
            let is_kept = [Type::ZSetListpack, Type::Stream2].iter().any(|&kind| theirs[0] == kind as u8);
            if self.restored(key, &payload, &payload, true) && !is_kept {
                self.same_value(key);
            }
            self.restored(key, &theirs, &for_redis, false);
        }
    }

    /// Whether both replies are the same. Where they may differ it is FlintKV alone that refuses: Redis takes a value with
    /// more bytes behind it, one that reaches into its checksum, and streams whose ids contradict each other.
    fn restored(&mut self, key: &[u8], ours: &[u8], theirs: &[u8], may_differ: bool) -> bool {
        let words: [&[u8]; 5] = [b"RESTORE", key, b"0", ours, b"REPLACE"];
        let ours = shown(&self.ours.call(&words));
        let theirs = shown(&self.theirs.call(&[b"RESTORE", key, b"0", theirs, b"REPLACE"]));
        let words = words.map(<[u8]>::to_vec);
        self.remember(&words);
        let is_stricter = may_differ && ours == BAD && theirs == "OK";
        if ours != theirs && !is_stricter {
            self.fail(&words, &format!("FlintKV: {ours}\nRedis:   {theirs}"));
        }
        ours == theirs
    }
}
