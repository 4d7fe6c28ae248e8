//! Owns the state of a collection: the units of the segment that are still to be read, and the live records not yet moved.
//! Never decides which records are live and never moves a record: its caller does.

use crate::log::fill::place_of;
use crate::log::page::{Corrupt, Dictionaries, Page, Record, Scratch, Stamp, scan};
use crate::log::parts::PartName;
use crate::log::record_kind::RecordKind;
use crate::log::segment::{Expiries, Unit};
use crate::mem::hash::KeyHash;
use crate::mem::word::PageAddress;

pub(crate) struct Collect {
    pub segment: u32,
    pub units: Vec<Unit>,
    pub reading: bool,
    /// Records that were read and not yet moved, because there was no room.
    pub backlog: Vec<Gathered>,
    pub why: Purpose,
    /// The device could not read a unit. A later try may.
    pub unread: bool,
    /// A page is damaged. Its records stay, so the segment is not freed.
    pub damaged: bool,
    /// Moved records could not be written. They are still at their old place.
    pub unwritten: bool,
    /// Number of evicted keys.
    pub evicted: u64,
    /// Number of records that were moved and not evicted, because they were used lately.
    pub spared: u64,
    /// The expiry times that were found, for [`Purpose::Expiry`].
    pub expiries: Expiries,
}

/// The purpose of a collection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Room,
    /// To make room: the policy evicts records that were not used, instead of moving them.
    Eviction,
    /// To empty a segment that leaves the shrinking log.
    Shrinking,
    /// To remove expired keys. Records that have not expired stay where they are.
    Expiry,
}

impl Purpose {
    /// Whether a collection for this purpose moves the live records, so that the segment becomes free.
    pub fn moves(self) -> bool {
        self != Purpose::Expiry
    }
}

/// A record copied out of its page.
pub(crate) struct Gathered {
    pub hash: KeyHash,
    pub bytes: Box<[u8]>,
    pub key: usize,
    pub kind: u8,
    pub table_id: u32,
    pub expiry: Option<u64>,
    pub seq: u64,
    pub page: u32,
    pub pages: usize,
}

impl Collect {
    pub fn new(segment: u32, units: Vec<Unit>, why: Purpose) -> Collect {
        Collect {
            segment,
            units,
            reading: false,
            backlog: Vec::new(),
            why,
            unread: false,
            damaged: false,
            unwritten: false,
            evicted: 0,
            spared: 0,
            expiries: Expiries::default(),
        }
    }

    /// Copies the live records of a unit. `is_live` returns the hash of the key of a live record. The unit begins at page `first`.
    /// Returns the number of damaged pages.
    pub fn gather(
        &mut self,
        buf: &[u8],
        (first, stamp): (u32, Stamp),
        dictionaries: &Dictionaries<'_>,
        scratch: &mut Scratch,
        is_live: &mut dyn FnMut(&Record<'_>, PageAddress) -> Option<KeyHash>,
    ) -> Vec<u32> {
        let mut damaged = Vec::new();
        for (at, page) in scan(buf, stamp) {
            let number = first + at;
            let gathered = page.and_then(|page| self.gather_page(&page, number, dictionaries, scratch, is_live));
            if let Err(corrupt) = gathered {
                tracing::error!(segment = self.segment, page = number, "flash page damaged: {corrupt}");
                self.damaged = true;
                damaged.push(number);
            }
        }
        damaged
    }

    fn gather_page(
        &mut self,
        page: &Page<'_>,
        number: u32,
        dictionaries: &Dictionaries<'_>,
        scratch: &mut Scratch,
        is_live: &mut dyn FnMut(&Record<'_>, PageAddress) -> Option<KeyHash>,
    ) -> Result<(), Corrupt> {
        let backlog = &mut self.backlog;
        let begin = backlog.len();
        page.for_each(dictionaries, scratch, &mut |record, pages| {
            let Some(hash) = is_live(record, place_of(number, pages)) else { return };
            // A key may be demoted twice into one page. Only the later record is its value.
            let older = backlog[begin..].iter().position(|other| other.hash == hash && other.table_id == record.db);
            let mut bytes = Vec::with_capacity(record.key.len() + record.value.len());
            bytes.extend_from_slice(record.key);
            bytes.extend_from_slice(record.value);
            let gathered = Gathered {
                hash,
                bytes: bytes.into(),
                key: record.key.len(),
                kind: record.kind,
                table_id: record.db,
                expiry: record.expiry_ms,
                seq: record.seq,
                page: number,
                pages,
            };
            match older {
                Some(older) if backlog[begin + older].seq > record.seq => {}
                Some(older) => backlog[begin + older] = gathered,
                None => backlog.push(gathered),
            }
        })
    }
}

/// The name of the part, if the record is a part.
pub(crate) fn part_name(kind: u8, key: &[u8]) -> Option<PartName> {
    RecordKind::from_byte(kind).filter(|kind| kind.part).and_then(|_| PartName::from_bytes(key))
}
