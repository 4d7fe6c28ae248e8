//! Owns the import of pages of another store's log. A page is taken as it is, except for the numbers that are specific
//! to a log and an index. So a dataset on flash is copied without its values being taken apart. Never knows where the
//! pages come from.
//!
//! The pages of some shipments ([`Shipment`]) become one unit. When it is written, the index gets an entry for each live record.

use crate::counters::Counter;
use crate::log::compression::ZSTD_LEVEL;
use crate::log::fill::{UNIT_PAGES, place_of};
use crate::log::page::{Corrupt, Dictionary, SHIPMENT_PAGES_MAX, Scratch, Shipment, Shipped, VERSION, stamp};
use crate::log::record_kind::RecordKind;
use crate::log::segment::{SegmentStream, Unit};
use crate::mem::hash::KeyHash;
use crate::mem::index::OwnedWord;
use crate::mem::tier::Admission;
use crate::mem::word::Word;
use crate::narrow::low16;
use crate::store::Store;
use flash::io::{PAGE_BYTES, PageBuf};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use value::Kind;

/// The capability by which a replica announces that it accepts pages, with the version of their format.
pub const PAGES_CAPA: &str = "pages2";
const _: () = assert!(VERSION == 2 && SHIPMENT_PAGES_MAX == UNIT_PAGES);
/// A store with more dictionaries imports no pages, because dictionaries stay in RAM for ever.
const DICTIONARIES_MAX: usize = 18;
/// After this many failed writes of a unit, each to another place, the import fails.
const WRITES_MAX: u32 = 4;
/// The index is prefetched for so many records at once.
const PREFETCHED: usize = 16;
/// How often to check whether there is room.
const LOOK: Duration = Duration::from_millis(2);

/// Takes in pages.
pub struct PageImport {
    store: Arc<Store>,
    buf: PageBuf,
    /// Number of pages in `buf`.
    pages: usize,
    records: Vec<Arrived>,
    /// The number of each dictionary in this store, by its number in the sending store.
    dictionaries: HashMap<u32, u32>,
    /// Added to the sequence numbers of imported records, so that these records are newer than the records that were
    /// here before, and keep their order.
    later: u64,
    scratch: Scratch,
}

/// A record of the unit that is being filled.
struct Arrived {
    hash: KeyHash,
    /// `None`: the record is dead.
    live: Option<LiveRecord>,
    /// Index of its first page within the unit.
    page: usize,
    pages: usize,
    bytes: u32,
}

impl Arrived {
    fn table_id(&self) -> Option<u32> {
        self.live.as_ref().map(|live| live.table_id)
    }
}

struct LiveRecord {
    table_id: u32,
    kind: Kind,
    expiry: Option<u64>,
}

/// Why pages are not taken in.
#[derive(Debug)]
pub enum Refusal {
    /// Flash has no room for the pages. There may still be room in RAM for values that are sent one by one.
    NoRoom,
    /// These are not pages of a store, or they do not suit this store.
    Unfit(String),
    /// The caller gave up.
    GivenUp,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            Refusal::NoRoom => "there is no room for them",
            Refusal::Unfit(text) => text,
            Refusal::GivenUp => "the load was aborted",
        };
        write!(f, "pages of the primary's flash cannot be imported: {why}")
    }
}

impl From<Corrupt> for Refusal {
    fn from(corrupt: Corrupt) -> Refusal {
        Refusal::Unfit(corrupt.to_string())
    }
}

impl Store {
    /// Whether the store can import pages of another store, or send its own. It cannot after SWAPDB, because a page
    /// names the table id of each record.
    pub fn exchanges_pages(&self) -> bool {
        let is_unswapped = (0..self.databases()).all(|db| self.table_id(db) as usize == db);
        self.has_flash()
            && self.blocking.get().is_some()
            && is_unswapped
            && self.compression.count() <= DICTIONARIES_MAX
    }

    /// Begins an import. Only one import may run at a time.
    pub fn page_import(self: &Arc<Store>) -> PageImport {
        PageImport {
            store: Arc::clone(self),
            buf: PageBuf::new(UNIT_PAGES),
            pages: 0,
            records: Vec::new(),
            dictionaries: HashMap::new(),
            later: self.sequence.next(),
            scratch: Scratch::new(),
        }
    }
}

impl PageImport {
    /// Takes a dictionary that the following pages need: see [`Dictionary::serialize`].
    pub fn dictionary(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let sent = Dictionary::deserialize(bytes, ZSTD_LEVEL)
            .ok_or_else(|| Refusal::Unfit("a dictionary is damaged".to_owned()))?;
        let there = sent.id();
        let here = self.store.compression.adopt(sent, DICTIONARIES_MAX);
        let here = here.ok_or_else(|| Refusal::Unfit("there are too many dictionaries".to_owned()))?;
        self.dictionaries.insert(there, here);
        Ok(())
    }

    /// Takes a shipment and returns its number of keys. While there is no room now but will be later, waits and calls
    /// `pause` repeatedly; if `pause` returns false, the import is given up.
    pub fn take(&mut self, shipment: &[u8], pause: &mut dyn FnMut() -> bool) -> Result<u64, Refusal> {
        let shipment = Shipment::new(shipment)?;
        if shipment.pages() == 0 {
            return Ok(0);
        }
        let most = self
            .store
            .segments
            .open_rest(SegmentStream::Fresh)
            .map_or(UNIT_PAGES, |rest| UNIT_PAGES.min(rest as usize));
        if self.pages + shipment.pages() > most {
            self.write(pause)?;
        }
        let PageImport { store, buf, pages, records, dictionaries, later, scratch } = self;
        let (mut keys, mut bytes, mut unfit) = (0, 0, None);
        let (mut newest, mut oldest) = (0, u64::MAX);
        shipment.unpack(
            &mut buf[*pages * PAGE_BYTES..],
            &|id| dictionaries.get(&id).and_then(|&id| store.dictionary(id)),
            &|id| dictionaries.get(&id).copied(),
            *later,
            scratch,
            &mut |record, Shipped { page, pages: on, bytes: stored, is_live }| {
                let hash = store.hasher.hash(record.key);
                (newest, oldest) = (record.seq.max(newest), record.seq.min(oldest));
                let kind = RecordKind::from_byte(record.kind).filter(|kind| !kind.part);
                let live = match kind {
                    _ if !is_live => None,
                    Some(tag) if (record.db as usize) < store.databases() => {
                        keys += 1;
                        bytes += (record.key.len() + record.value.len()) as u64;
                        Some(LiveRecord { table_id: record.db, kind: tag.kind, expiry: record.expiry_ms })
                    }
                    Some(_) => {
                        unfit = Some("a key is in a logical database that does not exist here: raise databases");
                        None
                    }
                    None => {
                        unfit = Some("a record is not the value of a key");
                        None
                    }
                };
                records.push(Arrived { hash, live, page: *pages + page, pages: on, bytes: stored });
                low16(hash.high)
            },
        )?;
        store.sequence.pass(later.wrapping_add(newest), oldest);
        store.counters.add(Counter::TakenRecords, keys);
        store.counters.add(Counter::RecordBytes, bytes);
        store.counters.add(Counter::RecordStoredBytes, (shipment.pages() * PAGE_BYTES) as u64);
        *pages += shipment.pages();
        unfit.map_or(Ok(keys), |unfit| Err(Refusal::Unfit(unfit.to_owned())))
    }

    /// Writes the remaining pages and enters their records into the index.
    pub fn finish(mut self, pause: &mut dyn FnMut() -> bool) -> Result<(), Refusal> {
        self.write(pause)
    }

    fn write(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<(), Refusal> {
        if self.pages == 0 {
            return Ok(());
        }
        self.buf.set_pages(self.pages);
        let written = self.write_unit(pause);
        self.buf.set_pages(UNIT_PAGES);
        self.pages = 0;
        let mut records = std::mem::take(&mut self.records);
        let unit = written?;
        let settled = records.chunks(PREFETCHED).try_for_each(|some| {
            some.iter().for_each(|record| self.store.prefetch_stripe(record.hash));
            // Nearly all are of one logical database, whose number is the table's id: see `exchanges_pages`.
            if let Some(table_id) = some.iter().find_map(Arrived::table_id) {
                let of_table = some.iter().filter(|record| record.table_id() == Some(table_id));
                self.store.prefetch(of_table.map(|record| record.hash), table_id as usize);
            }
            some.iter().try_for_each(|record| self.enter_record(unit, record))
        });
        self.store.segments.unit_written(unit);
        records.clear();
        self.records = records;
        settled
    }

    fn write_unit(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<Unit, Refusal> {
        let store = Arc::clone(&self.store);
        let mut failed = 0;
        loop {
            let unit = self.room(pause)?;
            let first = store.segments.page(unit, 0);
            stamp(&mut self.buf, store.segments.stamp(first));
            store.counters.add(Counter::FlashWrites, 1);
            store.counters.add(Counter::FlashWriteBytes, self.buf.len() as u64);
            let (path, offset) = store.segments.location(first);
            let files = store.blocking.get().expect("a store that imports pages has flash");
            let Err(error) = files.write(path, offset, &self.buf) else { return Ok(unit) };
            store.counters.add(Counter::WriteErrors, 1);
            tracing::error!(path, offset, "flash write failed ({error}): the store stops writing to this segment");
            store.segments.retire(unit);
            store.segments.unit_written(unit);
            failed += 1;
            if failed == WRITES_MAX {
                return Err(Refusal::Unfit(format!("writing to flash fails: {error}")));
            }
        }
    }

    /// Waits for room in RAM and on flash.
    fn room(&self, pause: &mut dyn FnMut() -> bool) -> Result<Unit, Refusal> {
        #[expect(clippy::cast_possible_truncation, reason = "the buffer has UNIT_PAGES pages")]
        let (store, pages) = (&self.store, self.pages as u32);
        loop {
            match store.admission() {
                Admission::Open => {
                    if let Some(unit) = store.segments.take_unit(SegmentStream::Fresh, pages) {
                        return Ok(unit);
                    }
                    // The lanes do not know that this import waits, so ask for the log's space to be computed here.
                    store.segments.weigh(true);
                    if store.segments.is_full() {
                        return Err(Refusal::NoRoom);
                    }
                }
                Admission::Slow => {}
                Admission::Full => return Err(Refusal::NoRoom),
            }
            if !pause() {
                return Err(Refusal::GivenUp);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Enters a record of a written unit into the index, if it is live.
    fn enter_record(&self, unit: Unit, record: &Arrived) -> Result<(), Refusal> {
        let store = &*self.store;
        #[expect(clippy::cast_possible_truncation, reason = "the buffer has UNIT_PAGES pages")]
        let page = record.page as u32;
        let place = place_of(store.segments.page(unit, page), record.pages);
        let Some(LiveRecord { table_id, kind, expiry }) = record.live else {
            store.segments.wrote(place, record.bytes, None);
            return Ok(());
        };
        store.segments.wrote(place, record.bytes, expiry);
        let mut stripe = store.stripe(record.hash.stripe());
        let database = stripe.database_mut(table_id);
        if database.table.find(record.hash.high, |entry| entry.word().agrees(record.hash)).is_some() {
            return Err(Refusal::Unfit("a key comes twice".to_owned()));
        }
        store.segments.born(place);
        database.expires += usize::from(expiry.is_some());
        let word = Word::cold(record.hash, place, kind, expiry.is_some(), false);
        database.table.insert(record.hash.high, OwnedWord::cold(word));
        store.cold.fetch_add(1, Relaxed);
        Ok(())
    }
}
