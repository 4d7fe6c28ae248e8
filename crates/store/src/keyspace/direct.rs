//! Owns reading a value from flash while its stripe is locked. Commands inside a transaction or script that has started need
//! this, because they cannot stop for a cold value.
//! Never waits for anything except the one read.

use crate::counters::Counter;
use crate::effects::Effects;
use crate::keyspace::commit::Leave;
use crate::keyspace::{ColdRead, Named};
use crate::log::page::{Page, Record, Scratch};
use crate::log::parts::{PARTS_UID, PartName, number_of_place, place_of_number};
use crate::log::read::ReadError;
use crate::log::record_kind::RecordKind;
use crate::log::run::Run;
use crate::log::segment::rot::Lost;
use crate::mem::hash::{Key, KeyHash};
use crate::mem::object::{Object, Parts, clock_at};
use crate::mem::word::{PageAddress, Word};
use crate::store::Store;
use crate::stripe::Database;
use flash::io::{PAGE_BYTES, PageBuf};
use std::sync::Arc;
use value::{AbsentPart, Boxed, Kind};

/// Reads the value of a cold entry into RAM. If RAM is full, returns the object's address: the object must leave RAM again
/// after the command. An expired entry is removed.
pub(crate) fn install(
    store: &Store,
    database: &mut Database,
    key: &Key<'_>,
    table_id: u32,
    word: Word,
    now_ms: u64,
    effects: &mut Effects,
) -> Result<Option<usize>, ReadError> {
    let (hash, name) = (key.hash, key.name);
    let lost = Lost::key(word.place().page, table_id, hash.high);
    let (expiry, object) = read(store, word, (lost, Some(name)), |page, scratch| {
        let record = page
            .find(hash.high, table_id, name, &|id| store.dictionary(id), scratch)
            .map_err(ReadError::Corrupt)?
            .ok_or(ReadError::Missing)?;
        if store.removes(record.expiry_ms, now_ms) {
            return Ok((record.expiry_ms, None));
        }
        Ok((record.expiry_ms, Some(object(store, key, &record, word, now_ms)?)))
    })?;
    let slot = database.find_cold(hash, word).expect("the stripe has been locked since the entry was seen");
    let Some(mut object) = object else {
        debug_assert!(expiry.is_some());
        store.commit_leave(Leave::expired(table_id, Some(key.name), now_ms), database, slot, Some(effects));
        return Ok(None);
    };
    let stays = word.is_referenced() || store.tier.has_room(&store.arena);
    object.mark_fresh();
    let address = object.view().address();
    database.warm(store, slot, hash, object, u8::from(stays));
    store.counters.add(Counter::FlashValueReads, 1);
    if stays {
        store.counters.add(Counter::Promotions, 1);
    }
    Ok((!stays).then_some(address))
}

fn object(store: &Store, key: &Key<'_>, record: &Record<'_>, word: Word, now_ms: u64) -> Result<Object, ReadError> {
    let tag = RecordKind::from_byte(record.kind).ok_or(ReadError::Missing)?;
    let parts = Parts {
        key: key.name,
        stripe: key.hash.stripe_u16(),
        kind: tag.kind,
        raw: tag.raw,
        expiry: record.expiry_ms,
        place: Some(word.with_referenced(true).0),
        clock: clock_at(now_ms),
    };
    Ok(match tag.boxed {
        true => {
            let value = Boxed::decode(tag.kind, record.value).map_err(|_| ReadError::Missing)?;
            Object::new_boxed(&store.arena, &parts, value)
        }
        false => Object::new(&store.arena, &parts, &[record.value]),
    })
}

/// Reads a part of a value into RAM. The caller holds the stripe's lock.
pub(crate) fn install_part(store: &Store, value: &mut Boxed, part: AbsentPart) -> Result<(), ReadError> {
    let Some(id) = value.shelf_id() else { return Ok(()) };
    let (name, place) = (PartName { id, number: part.number }, place_of_number(part.place));
    let word = Word::cold(KeyHash { high: 0, low: 0, slot: 0 }, place, value.kind(), false, false);
    read(store, word, (Lost::collection(id), None), |page, scratch| {
        let bytes = part_bytes(store, page, name, scratch)?;
        value.fill(part.number, part.place, bytes).map_err(|_| ReadError::Missing)
    })?;
    store.counters.add(Counter::FlashPartReads, 1);
    Ok(())
}

/// Puts a part that was read from `place` into RAM, if the value still expects the part at this place.
pub(crate) fn fill_part(
    store: &Store,
    page: &Page<'_>,
    name: PartName,
    place: PageAddress,
    scratch: &mut Scratch,
) -> Result<(), ReadError> {
    let bytes = part_bytes(store, page, name, scratch)?;
    let filled = store.with_split(name.id, |value| value.fill(name.number, number_of_place(place), bytes));
    store.counters.add(Counter::FlashPartReads, 1);
    filled.unwrap_or(Ok(())).map_err(|_| ReadError::Missing)
}

fn part_bytes<'s, 'b: 's>(
    store: &Store,
    page: &Page<'b>,
    name: PartName,
    scratch: &'s mut Scratch,
) -> Result<&'s [u8], ReadError> {
    let name = name.to_bytes();
    let hash = store.hasher.hash(&name);
    let record = page
        .find(hash.high, PARTS_UID, &name, &|id| store.dictionary(id), scratch)
        .map_err(ReadError::Corrupt)?
        .ok_or(ReadError::Missing)?;
    Ok(record.value)
}

/// Reads a part, only to see whether that is possible.
pub(crate) fn try_part(store: &Store, kind: Kind, id: u64, part: AbsentPart) -> Result<(), ReadError> {
    let word = Word::cold(KeyHash { high: 0, low: 0, slot: 0 }, place_of_number(part.place), kind, false, false);
    let name = PartName { id, number: part.number };
    read(store, word, (Lost::collection(id), None), |page, scratch| part_bytes(store, page, name, scratch).map(|_| ()))
}

/// The bytes of a part, if it is in this page.
pub(crate) fn part_copy(
    store: &Store,
    page: &Page<'_>,
    name: PartName,
    scratch: &mut Scratch,
) -> Result<Box<[u8]>, ReadError> {
    part_bytes(store, page, name, scratch).map(Box::from)
}

/// A copy of a record on flash. It is only for reading and does not enter the store.
pub(crate) struct RecordCopy {
    /// The key, or a part's name.
    pub name: Box<[u8]>,
    pub expiry: Option<u64>,
    pub tag: RecordKind,
    pub value: Box<[u8]>,
}

/// Finds the record of `cold` in its page, and what its kind says.
pub(crate) fn find<'s, 'b: 's>(
    store: &Store,
    page: &Page<'b>,
    cold: &ColdRead,
    scratch: &'s mut Scratch,
) -> Result<(Record<'s>, RecordKind), ReadError> {
    let (high, table_id) = match cold.part {
        Some(name) => (store.hasher.hash(&name.to_bytes()).high, PARTS_UID),
        None => (cold.hash.high, cold.table_id),
    };
    let mut is_it = |record: &Record<'_>| {
        record.db == table_id
            && match cold.part {
                Some(name) => record.key == name.to_bytes(),
                None => {
                    let found = store.hasher.hash(record.key);
                    found.high == high && cold.word.agrees(found)
                }
            }
    };
    let record = page
        .find_by(high, &mut is_it, &|id| store.dictionary(id), scratch)
        .map_err(ReadError::Corrupt)?
        .ok_or(ReadError::Missing)?;
    let tag = RecordKind::from_byte(record.kind).ok_or(ReadError::Missing)?;
    Ok((record, tag))
}

/// Copies the record of `cold` from its page.
pub(crate) fn copy(
    store: &Store,
    page: &Page<'_>,
    cold: &ColdRead,
    scratch: &mut Scratch,
) -> Result<RecordCopy, ReadError> {
    let (record, tag) = find(store, page, cold, scratch)?;
    Ok(RecordCopy { name: record.key.into(), expiry: record.expiry_ms, tag, value: record.value.into() })
}

/// Like [`copy`], but reads the page while the caller waits with the stripe locked.
pub(crate) fn copy_now(store: &Store, cold: &ColdRead) -> Result<RecordCopy, ReadError> {
    read(store, cold.word, (cold.lost(), None), |page, scratch| copy(store, page, cold, scratch))
}

/// Reads the name of a cold entry's key.
pub(crate) fn name(store: &Store, hash: KeyHash, table_id: u32, word: Word) -> Result<Named, ReadError> {
    read(store, word, (Lost::key(word.place().page, table_id, hash.high), None), |page, scratch| {
        let mut is_it = |record: &Record<'_>| {
            let found = store.hasher.hash(record.key);
            record.db == table_id && found.high == hash.high && word.agrees(found)
        };
        let record = page
            .find_by(hash.high, &mut is_it, &|id| store.dictionary(id), scratch)
            .map_err(ReadError::Corrupt)?
            .ok_or(ReadError::Missing)?;
        Ok(Named { name: record.key.into(), expiry: record.expiry_ms })
    })
}

/// Reads the pages of a run while the caller waits. `None`: they cannot be read.
pub(crate) fn read_run(store: &Store, run: Run) -> Option<PageBuf> {
    let mut buf = PageBuf::new(run.pages as usize);
    let (path, offset) = store.segments.location(run.page);
    store.counters.add(Counter::FlashReads, 1);
    store.counters.add(Counter::FlashReadBytes, buf.len() as u64);
    let files = store.blocking.get().expect("values are cold only where there is flash to read");
    files.read(path, offset, &mut buf).ok()?;
    Some(buf)
}

fn read<T>(
    store: &Store,
    word: Word,
    // What is lost if it fails, and the key's name if it is known.
    (lost, name): (Lost, Option<&[u8]>),
    take: impl FnOnce(&Page<'_>, &mut Scratch) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let place = word.place();
    if place.is_lost() {
        return Err(ReadError::Lost);
    }
    // The stripe is locked and its entry points to the segment, so the segment cannot be freed.
    let mut buf = PageBuf::new(store.segments.read_pages(place) as usize);
    let (path, offset) = store.segments.location(place.page);
    store.counters.add(Counter::ReadsUnderLock, 1);
    store.counters.add(Counter::FlashReads, 1);
    store.counters.add(Counter::FlashReadBytes, (buf.pages() * PAGE_BYTES) as u64);
    let files = store.blocking.get().expect("values are cold only where there is flash to read");
    let result = files.read(path, offset, &mut buf).map_err(|error| ReadError::Io(Arc::new(error))).and_then(|()| {
        let page = Page::open(&buf, store.segments.stamp(place.page)).map_err(ReadError::Corrupt)?;
        take(&page, &mut Scratch::new())
    });
    if let Err(error) = &result {
        store.found_lost(place, &buf, lost, name, error);
    }
    result
}
