//! Owns what a checkpoint stores about each segment, and how segments are restored. Never knows an entry, nor a file.

use super::{About, CLASSES, Expiries, Segment, SegmentState, Segments, class, number_of};
use crate::mem::word::PageAddress;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a checkpoint stores about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedSegment {
    pub generation: u32,
    /// `None`: nothing was written to the segment since it became free.
    pub content: Option<SavedContent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedContent {
    pub sealed_at: u64,
    pub is_bad: bool,
    /// Number of written pages. Pages that were handed out and are not written yet do not count.
    pub written_pages: u32,
    /// For each class: the number of written records, and their bytes on flash.
    pub records: [(u32, u32); CLASSES],
    pub units: Vec<(u16, u16)>,
    pub expiries: Expiries,
}

/// The pages on which records begin that entries of a checkpoint name.
pub struct NamedPages {
    bits: Box<[AtomicU64]>,
    /// See [`Segments::restore`].
    jump: u32,
}

/// The live records that the entries added by one thread name, by segment and class. `None`: no entry may name the
/// segment. Each thread counts on its own, because the cache lines of shared counters would move between the processors
/// for every entry.
pub struct Tally {
    live: Box<[Option<[u32; CLASSES]>]>,
    /// Entries of keys whose values are lost.
    lost: u64,
}

impl NamedPages {
    fn note(&self, page: u32) {
        let (word, bit) = (&self.bits[page as usize / 64], 1 << (page % 64));
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    fn has_any(&self, pages: std::ops::Range<u32>) -> bool {
        pages.into_iter().any(|page| self.bits[page as usize / 64].load(Relaxed) & 1 << (page % 64) != 0)
    }
}

impl Segments {
    /// What a checkpoint must store about the segments whose records its entries name.
    pub fn saved(&self) -> Vec<SavedSegment> {
        (0..self.count()).map(|number| self.get(number).saved()).collect()
    }

    /// Number of segments that were sealed so far.
    pub fn sealed_count(&self) -> u64 {
        self.sealed.load(Relaxed)
    }

    /// Takes over the segments of a checkpoint. Called once, before anything is written. Segments with content belong to the caller
    /// until [`Segments::restored`]. `jump`: added to the generation of free segments, which may have been written after the
    /// checkpoint. It is random, because several restarts may begin with one checkpoint.
    pub fn restore(&self, saved: &[SavedSegment], sealed: u64, jump: u32) -> NamedPages {
        self.sealed.store(sealed, Relaxed);
        let mut heads = self.heads.lock();
        for (number, saved) in (0..self.count()).zip(saved) {
            let segment = self.get(number);
            match &saved.content {
                Some(content) => segment.restore(saved.generation, content, self.segment_pages),
                None => segment.generation.store(saved.generation.wrapping_add(jump), Relaxed),
            }
        }
        heads.free.retain(|&number| self.get(number).state() == SegmentState::Free);
        self.free.store(number_of(heads.free.len()), Relaxed);
        let words = (u64::from(self.count()) * u64::from(self.segment_pages)).div_ceil(64);
        NamedPages { bits: (0..words).map(|_| AtomicU64::new(0)).collect(), jump }
    }

    /// Whether an entry of the checkpoint may name this place.
    pub fn is_restorable(&self, place: PageAddress) -> bool {
        let number = self.of_page(place.page);
        !place.is_lost() && number < self.count() && self.get(number).state() == SegmentState::Collecting
    }

    /// Counts a record that an entry of the checkpoint names.
    pub fn reborn(&self, place: PageAddress, named: &NamedPages) {
        self.born(place);
        named.note(place.page);
    }

    /// Makes the tally of a thread that adds entries of the checkpoint.
    pub fn tally(&self) -> Tally {
        let live = |number| (self.get(number).state() == SegmentState::Collecting).then_some([0; CLASSES]);
        Tally { live: (0..self.count()).map(live).collect(), lost: 0 }
    }

    /// Counts a record that an entry of the checkpoint names, in the thread's tally. False: no entry may name this
    /// place.
    #[inline]
    pub fn tally_reborn(&self, place: PageAddress, named: &NamedPages, tally: &mut Tally) -> bool {
        if place.is_lost() {
            tally.lost += 1;
            return true;
        }
        let Some(Some(live)) = tally.live.get_mut(self.of_page(place.page) as usize) else { return false };
        let (class, times) = class(place);
        live[class] += times;
        named.note(place.page);
        true
    }

    /// Adds a thread's tally to the segments' counts.
    pub fn count_tally(&self, tally: &Tally) {
        self.lost.fetch_add(tally.lost, Relaxed);
        for (number, live) in (0..).zip(&tally.live) {
            let Some(live) = live else { continue };
            let segment = self.get(number);
            for (records, &live) in segment.records.iter().zip(live) {
                records.live.fetch_add(live, Relaxed);
            }
        }
    }

    /// Must be called when all entries were added. Segments that no entry names become free. Units without any named
    /// record are forgotten, because they may never have been written. `holds`: segments that no entry names wait for the next cut to
    /// be durable, because an older checkpoint may name their records.
    pub fn restored(&self, named: &NamedPages, holds: bool) {
        let mut heads = self.heads.lock();
        for number in 0..self.count() {
            let segment = self.get(number);
            if segment.state() != SegmentState::Collecting {
                continue;
            }
            if segment.is_dead() {
                segment.generation.fetch_add(named.jump, Relaxed);
                match holds {
                    true => self.quarantine(number, &mut heads),
                    false => {
                        segment.turn(SegmentState::Collecting, SegmentState::Outside);
                        self.place_freed(number, &mut heads);
                    }
                }
                continue;
            }
            let first = number * self.segment_pages;
            let mut about = segment.about.lock();
            about.units.retain(|&(unit, pages)| {
                let from = first + u32::from(unit);
                named.has_any(from..from + u32::from(pages))
            });
            segment.turn(
                SegmentState::Collecting,
                if segment.is_bad() { SegmentState::Retired } else { SegmentState::Sealed },
            );
        }
    }
}

impl Segment {
    fn saved(&self) -> SavedSegment {
        let about = self.about.lock();
        let content = (!matches!(self.state(), SegmentState::Free | SegmentState::Outside)).then(|| SavedContent {
            sealed_at: self.sealed_at.load(Relaxed),
            is_bad: self.is_bad(),
            written_pages: self.used_pages.load(Relaxed).saturating_sub(self.writers.load(Relaxed)),
            records: std::array::from_fn(|class| {
                (self.records[class].written.load(Relaxed), self.records[class].bytes.load(Relaxed))
            }),
            units: about.units.clone(),
            expiries: about.expiries.clone(),
        });
        SavedSegment { generation: self.generation.load(Relaxed), content }
    }

    /// Restores the segment. Pages that were not written count as if dead records filled them: nothing is added to the
    /// segment any more, and a collection regains these pages.
    fn restore(&self, generation: u32, content: &SavedContent, pages: u32) {
        self.generation.store(generation, Relaxed);
        self.sealed_at.store(content.sealed_at, Relaxed);
        self.bad.store(content.is_bad, Relaxed);
        self.expires.store(content.expiries.first_ms().is_some(), Relaxed);
        for (records, &(written, bytes)) in self.records.iter().zip(&content.records) {
            let whole = |part: u32| {
                let whole = (u64::from(part) * u64::from(pages)).div_ceil(content.written_pages.max(1).into());
                u32::try_from(whole).unwrap_or(u32::MAX)
            };
            records.written.store(whole(written), Relaxed);
            records.bytes.store(whole(bytes), Relaxed);
        }
        self.used_pages.store(pages, Relaxed);
        *self.about.lock() = About { units: content.units.clone(), expiries: content.expiries.clone() };
        self.turn(SegmentState::Free, SegmentState::Collecting);
    }

    /// Resets what is known of the last use.
    pub(super) fn forget(&self) {
        for records in &self.records {
            records.written.store(0, Relaxed);
            records.bytes.store(0, Relaxed);
        }
        self.used_pages.store(0, Relaxed);
        self.tries.store(0, Relaxed);
        self.tests.store(0, Relaxed);
        self.test_due_ms.store(0, Relaxed);
        self.unnamed_at.store(0, Relaxed);
        self.expires.store(false, Relaxed);
        *self.about.lock() = About::default();
    }
}

/// Encodes a table of segments. Integers are little-endian.
///
/// ```text
/// | generation u32 | 0 u8 |                                       nothing was written
/// | generation u32 | 1 u8 | sealed u64 | bad u8 | written pages u32 | 3 × (written u32, bytes u32) |
///                         units u32 | units × (first u16, pages u16) | expiries |
/// ```
pub fn encode(saved: &[SavedSegment], out: &mut Vec<u8>) {
    out.extend_from_slice(&number_of(saved.len()).to_le_bytes());
    for SavedSegment { generation, content } in saved {
        out.extend_from_slice(&generation.to_le_bytes());
        out.push(content.is_some().into());
        let Some(content) = content else { continue };
        out.extend_from_slice(&content.sealed_at.to_le_bytes());
        out.push(content.is_bad.into());
        out.extend_from_slice(&content.written_pages.to_le_bytes());
        for (written, bytes) in content.records {
            out.extend_from_slice(&written.to_le_bytes());
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        out.extend_from_slice(
            &u32::try_from(content.units.len()).expect("each unit has a page of the segment").to_le_bytes(),
        );
        for (first, pages) in &content.units {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&pages.to_le_bytes());
        }
        content.expiries.encode(out);
    }
}

/// Decodes the table of a log with segments of `segment_pages` pages. `None`: the bytes are not such a table.
pub fn decode(input: &mut Input<'_>, segment_pages: u32) -> Option<Vec<SavedSegment>> {
    let count = input.u32()?;
    let mut saved = Vec::new();
    for _ in 0..count {
        let generation = input.u32()?;
        let content = match input.u8()? {
            0 => None,
            1 => Some(decode_content(input, segment_pages)?),
            _ => return None,
        };
        saved.push(SavedSegment { generation, content });
    }
    Some(saved)
}

fn decode_content(input: &mut Input<'_>, segment_pages: u32) -> Option<SavedContent> {
    let (sealed_at, is_bad, written_pages) = (input.u64()?, input.u8()? != 0, input.u32()?);
    let mut records = [(0, 0); CLASSES];
    for class in &mut records {
        *class = (input.u32()?, input.u32()?);
    }
    let mut units = Vec::new();
    for _ in 0..input.u32()? {
        let (first, pages) = (input.u16()?, input.u16()?);
        let fits = pages > 0 && u32::from(first) + u32::from(pages) <= segment_pages;
        units.push(fits.then_some((first, pages))?);
    }
    Some(SavedContent { sealed_at, is_bad, written_pages, records, units, expiries: Expiries::decode(input)? })
}

/// Bytes that are decoded from the front.
pub struct Input<'b>(pub &'b [u8]);

impl<'b> Input<'b> {
    pub fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::segment::{SegmentStream, Unit};

    fn some() -> Vec<SavedSegment> {
        let mut expiries = Expiries::default();
        (0..100).for_each(|number| expiries.add(1_700_000_000_000 + number * 100_000));
        let content = SavedContent {
            sealed_at: 7,
            is_bad: true,
            written_pages: 100,
            records: [(1, 2), (3, 4), (5, 6)],
            units: vec![(0, 64), (64, 1), (65, 63)],
            expiries,
        };
        vec![SavedSegment { generation: 5, content: Some(content) }, SavedSegment { generation: 0, content: None }]
    }

    #[test]
    fn the_table_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        encode(&some(), &mut bytes);
        assert_eq!(decode(&mut Input(&bytes), 128), Some(some()));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&mut Input(&bytes[..cut]), 128), None, "cut at {cut}");
        }
        assert_eq!(decode(&mut Input(&bytes), 127), None, "a unit behind the segment's end");
    }

    #[test]
    fn segments_come_back_with_the_named_records_only() {
        let before = Segments::new(8, 64, 1, 0, 1);
        // Two segments with two units each, and a unit of a third one that is being written.
        let units: Vec<Unit> =
            (0..5).map(|_| before.take_unit(SegmentStream::Fresh, 32).expect("there is room")).collect();
        let place = |unit: &Unit| PageAddress { page: before.page(*unit, 3), step: 0 };
        for unit in &units[..4] {
            before.wrote(place(unit), 500, Some(9_000));
            before.born(place(unit));
            before.unit_written(*unit);
        }
        let saved = before.saved();
        let after = Segments::new(8, 64, 1, 0, 1);
        let named = after.restore(&saved, before.sealed_count(), 1000);
        assert_eq!((after.free_count(), after.next_dead(), after.victim(0, 1.0)), (5, None, None));
        assert!(after.is_restorable(place(&units[0])) && !after.is_restorable(PageAddress { page: 64 * 7, step: 0 }));
        assert!(!after.is_restorable(PageAddress { page: 64 * 8, step: 0 }));
        after.reborn(place(&units[1]), &named);
        after.restored(&named, false);
        // Half of what was written is dead.
        assert_eq!(after.get(0).live_pages_estimate().round(), 32.0);
        assert_eq!(after.get(0).state(), SegmentState::Sealed);
        assert_eq!(after.units(0), [units[1]], "the other unit has no named record");
        assert_eq!(after.stamp(place(&units[1]).page), before.stamp(place(&units[1]).page));
        assert_eq!((after.get(1).state(), after.get(2).state()), (SegmentState::Free, SegmentState::Free));
        assert_eq!(after.free_count(), 7);

        // An older checkpoint may name the records of the others.
        let holding = Segments::new(8, 64, 1, 0, 1);
        holding.set_quarantine(true);
        let named = holding.restore(&saved, before.sealed_count(), 1000);
        holding.reborn(place(&units[1]), &named);
        holding.restored(&named, true);
        assert_eq!((holding.free_count(), holding.quarantined_count()), (5, 2));
        let cut = holding.cut();
        holding.durable(cut);
        assert_eq!((holding.free_count(), holding.quarantined_count()), (7, 0));
        after.died(place(&units[1]));
        assert_eq!(after.next_dead(), Some(0));
        // The generation is far ahead, so a page of this use cannot be taken for one that was written after the
        // checkpoint.
        let opened = after.take_unit(SegmentStream::Fresh, 1).expect("there is room");
        assert!(after.stamp(after.page(opened, 0)).generation > 1000);
    }

    /// After a restart nothing is added to a segment that was being filled: its free pages are regained by collecting it.
    #[test]
    fn a_segment_that_was_being_filled_can_be_collected() {
        let before = Segments::new(8, 64, 1, 0, 1);
        let units: Vec<Unit> =
            (0..2).map(|_| before.take_unit(SegmentStream::Fresh, 16).expect("there is room")).collect();
        let place = PageAddress { page: before.page(units[0], 0), step: 0 };
        before.wrote(place, 500, None);
        before.born(place);
        before.unit_written(units[0]);
        let after = Segments::new(8, 64, 1, 0, 1);
        let named = after.restore(&before.saved(), before.sealed_count(), 2);
        after.reborn(place, &named);
        after.restored(&named, false);
        assert_eq!(after.get(0).live_pages_estimate().round(), 16.0, "the unit that was being written does not count");
        assert_eq!(after.victim(0, 0.5), Some(0));
    }
}
