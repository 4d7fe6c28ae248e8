//! Owns the state that a handler leaves for its next run when it met a cold value: the reads it needs, and its progress.
//! Never knows which command runs.

use super::list::List;
use super::visit::Visit;
use crate::effects::{Effects, Why};
use crate::keyspace::commit::Noted;
use crate::log::parts::{PartName, place_of_number};
use crate::log::read::ReadError;
use crate::log::run::Run;
use crate::log::segment::rot::Lost;
use crate::mem::hash::KeyHash;
use crate::mem::word::{PageAddress, Word};
use crate::store::Store;
use crate::stripe::wait::Ready;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::HashMap;
use value::{AbsentPart, Kind};

/// The handler needs a value that is on flash. [`Resume::cold`] contains the needed reads.
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

/// A read of one value, of one key's name, or of a run of pages, from flash. While a `ColdRead` exists, its pages are not reused.
pub struct ColdRead {
    store: *const Store,
    pub(crate) hash: KeyHash,
    pub(crate) table_id: u32,
    pub(crate) word: Word,
    /// The key, if its value is wanted. `None`: only the name is wanted (SCAN).
    pub(crate) name: Option<SmallVec<[u8; 40]>>,
    /// The part, if only a part of the key's value is wanted.
    pub(crate) part: Option<PartName>,
    /// Only a copy of the record is wanted: the value stays cold.
    pub(crate) copies: bool,
    /// The pages of a run are wanted, for [`super::Keyspace::list`].
    pub(crate) run: Option<Run>,
    /// No command waits for this read: see `lane/warm`.
    pub(crate) warms: bool,
}

impl ColdRead {
    pub(crate) fn new(store: &Store, hash: KeyHash, table_id: u32, word: Word, name: Option<&[u8]>) -> ColdRead {
        store.segments.reader_begins(word.place().page);
        ColdRead {
            store,
            hash,
            table_id,
            word,
            name: name.map(SmallVec::from_slice),
            part: None,
            copies: false,
            run: None,
            warms: false,
        }
    }

    /// What is lost if the read fails.
    pub(crate) fn lost(&self) -> Lost {
        match self.part {
            Some(name) => Lost::collection(name.id),
            None => Lost::key(self.word.place().page, self.table_id, self.hash.high),
        }
    }

    /// A read of a part of a value. `hash` is the hash of the value's key.
    pub(super) fn of_part(
        store: &Store,
        hash: KeyHash,
        table_id: u32,
        kind: Kind,
        id: u64,
        part: AbsentPart,
    ) -> ColdRead {
        let word = Word::cold(hash, place_of_number(part.place), kind, false, false);
        let mut read = ColdRead::new(store, hash, table_id, word, None);
        read.part = Some(PartName { id, number: part.number });
        read
    }

    pub(super) fn of_run(store: &Store, run: Run) -> ColdRead {
        let place = PageAddress { page: run.page, step: 0 };
        let nobody = KeyHash { high: 0, low: 0, slot: 0 };
        let mut read = ColdRead::new(store, nobody, 0, Word::cold(nobody, place, Kind::String, false, false), None);
        read.run = Some(run);
        read
    }

    /// Makes this a read that no command waits for.
    pub(crate) fn warming(mut self) -> ColdRead {
        self.warms = true;
        self
    }

    /// Makes this a read of a copy: see [`crate::keyspace::direct::RecordCopy`].
    pub(crate) fn copying(mut self) -> ColdRead {
        self.copies = true;
        self
    }

    /// Whether only the key's name is wanted.
    pub(crate) fn is_for_name(&self) -> bool {
        self.name.is_none() && self.part.is_none() && !self.copies && self.run.is_none() && !self.warms
    }

    /// The identity under which the handler finds the record after the read.
    pub(crate) fn record_at(&self) -> RecordAt {
        RecordAt { high: self.hash.high, table_id: self.table_id, place: self.word.place(), part: self.part }
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity::new(self.hash, self.word)
    }
}

impl Drop for ColdRead {
    fn drop(&mut self) {
        // SAFETY: only sessions and lanes of the store's server make cold reads. All of them hold an Arc of the store
        // longer than any command lives.
        unsafe { &*self.store }.segments.reader_ends(self.word.place().page);
    }
}

/// What the index entry tells about a cold key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    high: u64,
    low: u64,
    slot: u16,
}

impl Identity {
    pub(super) fn new(hash: KeyHash, word: Word) -> Identity {
        Identity { high: hash.high, low: word.0 >> 40, slot: hash.stripe_u16() }
    }
}

/// A record of an entry, or of a part of its value, at one place on flash. A record on flash never changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RecordAt {
    high: u64,
    table_id: u32,
    place: PageAddress,
    part: Option<PartName>,
}

pub(crate) struct Named {
    pub name: Box<[u8]>,
    pub expiry: Option<u64>,
}

impl Named {
    /// For a record that cannot be read: it counts as expired, so no walk over all keys shows it.
    pub fn unknown() -> Named {
        Named { name: Box::default(), expiry: Some(0) }
    }
}

/// The state that survives the re-runs of one command. Cleared between commands; its memory is kept.
#[derive(Default)]
pub struct Resume {
    /// The reads that the handler that returned [`Cold`] needs.
    pub cold: Vec<ColdRead>,
    pub(crate) names: HashMap<Identity, Named>,
    /// The progress of [`super::Keyspace::visit`], and the records that were read for it.
    pub(crate) visit: Option<Box<Visit>>,
    /// The progress of [`super::Keyspace::list`].
    pub(crate) list: Option<Box<List>>,
    pub(super) random: Option<u64>,
    /// Why a value could not be read at once. Set when a command inside a transaction or script returns [`Cold`].
    pub failed: Option<ReadError>,
    /// A cold key with an expiry counts as not expired and is not read, because the command removes the key and its
    /// record cannot be read.
    pub removes_unread: bool,
    /// Changed keys that have waiters. Not cleared: the code that serves the waiters takes them.
    pub ready: Vec<Ready>,
    /// In the force-demote mode, the stripes whose values must leave RAM. Not cleared: [`crate::Lane::force_demote`] takes them.
    pub touched: Vec<usize>,
    /// Effects that are not published yet. Not cleared: they are published before the stripes are unlocked.
    pub(crate) effects: Effects,
    /// Changes of the running command that are not committed yet.
    pub(super) noted: Noted,
    /// Boxed values that the running command has changed. Their sizes are counted after the command.
    pub(super) edited: Vec<(KeyHash, u32)>,
    /// Values that the running command has read at once while RAM was full. They leave RAM after the command.
    pub(super) passing: Vec<(KeyHash, u32, usize)>,
    /// The reason for the changes of the running commands.
    pub why: Why,
    /// The client of these commands. 0: no client. Not cleared with the rest.
    pub client: u64,
    /// The handler's own progress, for KEYS and SCAN.
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
        self.list = None;
        self.state = None;
        self.random = None;
        self.failed = None;
        self.removes_unread = false;
        self.bytes = Vec::new();
        self.count = 0;
    }

    /// Whether the command runs in slices, and may take long.
    pub fn is_in_slices(&self) -> bool {
        self.list.is_some() || self.visit.is_some()
    }

    /// Whether a command in many steps has made progress since the last call. If so, the cold values that it meets now are not
    /// those it met before.
    pub fn has_advanced(&mut self) -> bool {
        let advanced =
            [self.visit.as_mut().map(|visit| &mut visit.advanced), self.list.as_mut().map(|list| &mut list.advanced)];
        advanced.into_iter().flatten().any(std::mem::take)
    }
}
