//! Owns how a change of a consumer group is stated, as commands that repeat it. Never knows which command made the
//! change.
//!
//! When a consumer was last seen and last active follows from the clock of the repeated commands.

use super::ids::IdText;
use crate::number::Digits;
use store::{Key, Keyspace};
use value::stream::Id;

/// A consumer of a group, as commands name it.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    pub key: &'a Key<'a>,
    pub group: &'a [u8],
    pub consumer: &'a [u8],
}

impl<'a> Who<'a> {
    /// States that the consumer was created.
    pub fn created(self, ks: &mut Keyspace<'_>) {
        let words: [&[u8]; 5] = [b"XGROUP", b"CREATECONSUMER", self.key.name, self.group, self.consumer];
        ks.effect(words);
    }

    /// States that the consumer was seen, and perhaps that the group's last id rose. The stated command claims an id
    /// that no entry has.
    pub fn seen(self, ks: &mut Keyspace<'_>, last_id: Option<Id>) {
        let last_id = last_id.map(IdText::new);
        let raised = last_id.iter().flat_map(|id| [b"LASTID", id.as_bytes()]);
        ks.effect(self.claim().into_iter().chain([&b"0-0"[..], b"JUSTID"]).chain(raised));
    }

    /// States that entries have been pending at the consumer since a certain time, even if they were pending at another
    /// one before.
    pub fn given(self, ks: &mut Keyspace<'_>, ids: &[Id], delivered_ms: i64, deliveries: u64, last_id: Option<Id>) {
        let ids: Vec<IdText> = ids.iter().map(|&id| IdText::new(id)).collect();
        let (time, count) = (Digits::new(delivered_ms), Digits::new(deliveries as i64));
        let how: [&[u8]; 6] = [b"TIME", time.as_bytes(), b"RETRYCOUNT", count.as_bytes(), b"FORCE", b"JUSTID"];
        let last_id = last_id.map(IdText::new);
        let raised = last_id.iter().flat_map(|id| [b"LASTID", id.as_bytes()]);
        ks.effect(self.claim().into_iter().chain(ids.iter().map(IdText::as_bytes)).chain(how).chain(raised));
    }

    /// As [`Who::given`], of entries with their numbers of deliveries.
    pub fn given_each(self, ks: &mut Keyspace<'_>, given: &[(Id, u64)], delivered_ms: i64) {
        for alike in given.chunk_by(|a, b| a.1 == b.1) {
            let ids: Vec<Id> = alike.iter().map(|(id, _)| *id).collect();
            self.given(ks, &ids, delivered_ms, alike[0].1, None);
        }
    }

    /// States that entries are not pending any more.
    pub fn acknowledged(self, ks: &mut Keyspace<'_>, ids: &[Id]) {
        let ids: Vec<IdText> = ids.iter().map(|&id| IdText::new(id)).collect();
        let words: [&[u8]; 3] = [b"XACK", self.key.name, self.group];
        ks.effect(words.into_iter().chain(ids.iter().map(IdText::as_bytes)));
    }

    /// States how far the group has read.
    pub fn read_until(self, ks: &mut Keyspace<'_>, last_id: Id, entries_read: Option<u64>) {
        let read = Digits::new(entries_read.map_or(-1, |read| read as i64));
        let id = IdText::new(last_id);
        let words: [&[u8]; 5] = [b"XGROUP", b"SETID", self.key.name, self.group, id.as_bytes()];
        ks.effect(words.into_iter().chain([&b"ENTRIESREAD"[..], read.as_bytes()]));
    }

    fn claim(self) -> [&'a [u8]; 5] {
        [b"XCLAIM", self.key.name, self.group, self.consumer, b"0"]
    }
}
