//! Owns what a handler that met a cold value leaves for its next run: what to read, and what is known since.
//! Never knows which command it is.

use super::visit::Visit;
use crate::effects::{Effects, Why};
use crate::keyspace::commit::Noted;
use crate::log::parts::{PartName, place_of_number};
use crate::log::read::ReadError;
use crate::mem::hash::KeyHash;
use crate::mem::word::{Place, Word};
use crate::store::Store;
use crate::stripe::wait::Ready;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::HashMap;
use value::{AbsentPart, Kind};

/// A value that is needed is on flash. What to read is in [`Resume::cold`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold;

/// Why a value cannot be changed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoEdit {
    Cold,
    OtherKind,
}

impl From<Cold> for NoEdit {
    fn from(_: Cold) -> NoEdit {
        NoEdit::Cold
    }
}

/// One value, or one key's name, to be read from flash. While it exists its pages are not reused.
pub struct ColdRead {
    store: *const Store,
    pub(crate) hash: KeyHash,
    pub(crate) uid: u32,
    pub(crate) word: Word,
    /// The key, when its value is wanted; `None` when only its name is (SCAN).
    pub(crate) name: Option<SmallVec<[u8; 40]>>,
    /// A part of that key's value is wanted, not an entry's value.
    pub(crate) part: Option<PartName>,
    /// The record is wanted as it is, and nothing of it is to come into RAM.
    pub(crate) copies: bool,
}

impl ColdRead {
    pub(crate) fn new(store: &Store, hash: KeyHash, uid: u32, word: Word, name: Option<&[u8]>) -> ColdRead {
        store.segments.reader_begins(word.place().page);
        ColdRead { store, hash, uid, word, name: name.map(SmallVec::from_slice), part: None, copies: false }
    }

    /// Of a part of a value, whose key has this hash.
    pub(super) fn of_part(store: &Store, hash: KeyHash, uid: u32, kind: Kind, id: u64, part: AbsentPart) -> ColdRead {
        let word = Word::cold(hash, place_of_number(part.place), kind, false, false);
        let mut read = ColdRead::new(store, hash, uid, word, None);
        read.part = Some(PartName { id, number: part.number });
        read
    }

    /// Of the record, as it is: see [`crate::keyspace::direct::RecordCopy`].
    pub(super) fn copying(mut self) -> ColdRead {
        self.copies = true;
        self
    }

    /// By which the record is found again when it has been read.
    pub(crate) fn record_at(&self) -> RecordAt {
        RecordAt { high: self.hash.high, uid: self.uid, place: self.word.place(), part: self.part }
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity::new(self.hash, self.word)
    }
}

impl Drop for ColdRead {
    fn drop(&mut self) {
        // SAFETY: a cold read is made by a session or lane of the store's server, all of which hold an Arc of the
        // store for longer than any command.
        unsafe { &*self.store }.segments.reader_ends(self.word.place().page);
    }
}

/// What is known of a cold key without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    high: u64,
    low: u64,
    slot: u16,
}

impl Identity {
    pub(super) fn new(hash: KeyHash, word: Word) -> Identity {
        Identity { high: hash.high, low: word.0 >> 40, slot: hash.stripe() as u16 }
    }
}

/// A record of an entry, or of a part of its value, at one place on flash. What lies there never changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RecordAt {
    high: u64,
    uid: u32,
    place: Place,
    part: Option<PartName>,
}

pub(crate) struct Named {
    pub name: Box<[u8]>,
    pub expiry: Option<u64>,
}

/// What survives the re-runs of one command. Cleared between commands, its memory kept.
#[derive(Default)]
pub struct Resume {
    /// What the handler that returned [`Cold`] needs.
    pub cold: Vec<ColdRead>,
    pub(crate) names: HashMap<Identity, Named>,
    /// How far [`super::Keyspace::visit`] has come, and what was read for it.
    pub(crate) visit: Option<Box<Visit>>,
    pub(super) random: Option<u64>,
    /// Why a value could not be read at once: what a [`Cold`] inside a transaction or script means.
    pub failed: Option<ReadError>,
    /// Keys that were changed while somebody waits for them. Not cleared but taken, by who serves those.
    pub ready: Vec<Ready>,
    /// In the all-cold mode, stripes with values that are to leave RAM. Not cleared but taken, by [`crate::Lane::chill`].
    pub touched: Vec<usize>,
    /// What has been changed and not been told yet. Not cleared but told, before the stripes are unlocked.
    pub(crate) effects: Effects,
    /// What the running command has changed and not committed.
    pub(super) noted: Noted,
    /// Boxed values that the running command has changed: the bytes they take are counted when it has run.
    pub(super) edited: Vec<(KeyHash, u32)>,
    /// Values that the running command has read at once while RAM was full: they leave RAM when it has run.
    pub(super) passing: Vec<(KeyHash, u32, usize)>,
    /// Why the commands that run change something.
    pub why: Why,
    /// Whose commands these are; 0: nobody's. Stays when the rest is cleared.
    pub client: u64,
    /// For the handler's own progress (KEYS).
    pub cursor: u64,
    pub bytes: Vec<u8>,
    pub count: u64,
    pub state: Option<Box<dyn Any>>,
}

impl Resume {
    pub fn clear(&mut self) {
        self.cold.clear();
        if !self.names.is_empty() {
            self.names = HashMap::new();
        }
        self.visit = None;
        self.state = None;
        self.random = None;
        self.failed = None;
        self.cursor = 0;
        self.bytes = Vec::new();
        self.count = 0;
    }

    /// Whether a command in many steps has come further since this was last asked. Then the cold values that it meets now are
    /// others than those it met before.
    pub fn has_advanced(&mut self) -> bool {
        self.visit.as_mut().is_some_and(|visit| std::mem::take(&mut visit.advanced))
    }
}
