//! Owns the parts of a large value: runs of bytes that are in memory, on flash, or both. Never knows where on flash
//! they are, or what the bytes mean.
//!
//! A collection consists of chunks. If it is too large to move as one value, each chunk moves to flash and back alone.
//! The *skeleton*, which holds the chunks together, stays in memory. The store moves the parts by their numbers.
//! Commands name what they will touch, and run when all of it is in memory.

use crate::input::{Input, put_number};
use crate::{Boxed, Corrupt};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// Receives from a collection what happens to the copies of its parts on flash.
pub trait FlashCopies: Send + Sync {
    /// The collection's number, which identifies its parts on flash.
    fn id(&self) -> u64;
    /// Called when nothing refers to this copy any more.
    fn died(&self, place: u64);
}

/// `None` until something of the collection has been on flash.
pub(crate) type FlashCopiesOf = Option<Arc<dyn FlashCopies>>;

/// A part that is on flash only: its number and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbsentPart {
    pub number: u64,
    pub place: u64,
    pub bytes: usize,
}

/// The parts that a command needs and that are not in memory.
pub type Absent = Vec<AbsentPart>;

/// A run of bytes of a collection.
///
/// ```text
/// state  |63  bytes of an absent part  37|36  place, or number of the write  3|2 used|1  tier  0|
///                               |37 stays|                                                          while it is being written
/// ```
#[derive(Debug)]
pub(crate) struct Part {
    bytes: Vec<u8>,
    state: Cell<u64>,
}

const TIER: u64 = 3;
/// In memory, without a copy on flash.
const DIRTY: u64 = 0;
/// Like dirty; a copy is being written to flash.
const WRITING: u64 = 1;
/// In memory and on flash.
const CLEAN: u64 = 2;
/// On flash only.
const ABSENT: u64 = 3;
/// Used since the last sweep.
const USED: u64 = 1 << 2;
const PLACE_SHIFT: u32 = 3;
const PLACE_BITS: u32 = 34;
const PLACE: u64 = ((1 << PLACE_BITS) - 1) << PLACE_SHIFT;
const BYTES_SHIFT: u32 = PLACE_SHIFT + PLACE_BITS;
/// A part that is being written stays in memory after the write, even if it was not used meanwhile.
const STAYS: u64 = 1 << BYTES_SHIFT;
/// A larger part does not leave memory.
const PART_BYTES_MAX: usize = (1 << (64 - BYTES_SHIFT)) - 1;

impl Default for Part {
    fn default() -> Part {
        Part::of(Vec::new())
    }
}

impl Clone for Part {
    /// The copy has nothing on flash.
    fn clone(&self) -> Part {
        Part::of(crate::fit::fitted(self.bytes()))
    }
}

impl Part {
    pub fn of(bytes: Vec<u8>) -> Part {
        Part { bytes, state: Cell::new(DIRTY) }
    }

    #[inline]
    fn tier(&self) -> u64 {
        self.state.get() & TIER
    }

    pub fn is_absent(&self) -> bool {
        self.tier() == ABSENT
    }

    /// The bytes. The part must be in memory.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let state = self.state.get();
        assert!(state & TIER != ABSENT, "a command has named what it touches");
        if state & USED == 0 {
            self.state.set(state | USED);
        }
        &self.bytes
    }

    /// The bytes, without counting as use. The part must be in memory.
    pub fn peek(&self) -> &[u8] {
        assert!(!self.is_absent(), "whoever peeks has read what is absent");
        &self.bytes
    }

    /// Where the part is, if it is on flash only.
    pub fn absent(&self, number: u64) -> Option<AbsentPart> {
        let state = self.state.get();
        let (place, bytes) = ((state & PLACE) >> PLACE_SHIFT, (state >> BYTES_SHIFT) as usize);
        self.is_absent().then_some(AbsentPart { number, place, bytes })
    }

    /// The bytes, for a change. An existing copy on flash, or one that is being written, becomes invalid.
    #[inline]
    pub fn edit(&mut self, flash_copies: &FlashCopiesOf) -> &mut Vec<u8> {
        let state = self.state.get();
        assert!(state & TIER != ABSENT, "a command has named what it touches");
        if state & TIER == CLEAN {
            self.forget_copy(flash_copies);
        }
        self.state.set(DIRTY | USED);
        &mut self.bytes
    }

    /// The number of bytes, wherever they are.
    #[inline]
    pub fn len(&self) -> usize {
        if self.is_absent() { (self.state.get() >> BYTES_SHIFT) as usize } else { self.bytes.len() }
    }

    /// The size of its allocation.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Called when the collection drops this part: reports the copy on flash as dead.
    pub fn forget_copy(&self, flash_copies: &FlashCopiesOf) {
        if let (Some(place), Some(flash_copies)) = (self.place(), flash_copies) {
            flash_copies.died(place);
            self.state.set(DIRTY);
        }
    }

    /// The place of its copy on flash.
    fn place(&self) -> Option<u64> {
        let state = self.state.get();
        matches!(state & TIER, CLEAN | ABSENT).then_some((state & PLACE) >> PLACE_SHIFT)
    }

    /// Records the part as needed if it is not in memory.
    #[inline]
    pub fn want(&self, number: u64, out: &mut Absent) {
        out.extend(self.absent(number));
    }

    fn set(&self, tier: u64, place: u64) {
        debug_assert!(place < 1 << PLACE_BITS);
        self.state.set(tier | place << PLACE_SHIFT | self.state.get() & USED);
    }

    /// Appends the place of the part on flash, or its bytes if it is in memory only. See `skeleton`.
    pub fn save(&self, out: &mut Vec<u8>) {
        put_number(out, self.place().map_or(0, |place| place + 1));
        put_number(out, self.len() as u64);
        if self.place().is_none() {
            out.extend_from_slice(&self.bytes);
        }
    }

    /// Decodes what [`Part::save`] wrote. The part is then either on flash only, or in memory only.
    pub fn load(input: &mut Input<'_>) -> Result<Part, Corrupt> {
        let (place, len) = (input.number()?, usize::try_from(input.number()?).map_err(|_| Corrupt)?);
        let Some(place) = place.checked_sub(1) else { return Ok(Part::of(crate::fit::fitted(input.take(len)?))) };
        if place >= 1 << PLACE_BITS || len == 0 || len > PART_BYTES_MAX {
            return Err(Corrupt);
        }
        let state = ABSENT | place << PLACE_SHIFT | (len as u64) << BYTES_SHIFT;
        Ok(Part { bytes: Vec::new(), state: Cell::new(state) })
    }

    /// Removes the part from memory; from now on it is on flash only. Returns the bytes of memory freed.
    fn leave(&mut self) -> usize {
        let bytes = std::mem::take(&mut self.bytes);
        let place = self.place().expect("a clean part has a copy");
        self.state.set(ABSENT | place << PLACE_SHIFT | (bytes.len() as u64) << BYTES_SHIFT);
        bytes.capacity()
    }
}

/// A collection whose parts have numbers that can be walked in order.
pub(crate) trait Parts {
    fn flash_copies(&self) -> &FlashCopiesOf;
    fn set_flash_copies(&mut self, flash_copies: Arc<dyn FlashCopies>);
    fn part(&self, number: u64) -> Option<&Part>;
    fn part_mut(&mut self, number: u64) -> Option<&mut Part>;
    /// The first part number that is at least `from`.
    fn next_part(&self, from: u64) -> Option<u64>;
    /// Whether bytes from flash can be the content of this absent part.
    fn accepts(&self, number: u64, bytes: &[u8]) -> bool;
    /// Called when a part's memory has changed by this many bytes.
    fn grown(&mut self, number: u64, by: isize);
}

/// A chunk of a list or stream. Chunks move within their sequence, so flash knows each by a number. Numbers ascend
/// along the sequence.
pub(crate) trait Numbered {
    fn number(&self) -> u64;
    fn part(&self) -> &Part;
    fn part_mut(&mut self) -> &mut Part;
    /// Whether bytes from flash can be the content of this absent chunk.
    fn accepts(&self, bytes: &[u8]) -> bool;
}

/// A collection whose parts are a sequence of numbered chunks.
pub(crate) trait InChunks {
    type Chunk: Numbered;
    fn chunks(&self) -> &VecDeque<Self::Chunk>;
    fn chunks_mut(&mut self) -> &mut VecDeque<Self::Chunk>;
    fn flash_copies(&self) -> &FlashCopiesOf;
    fn flash_copies_mut(&mut self) -> &mut FlashCopiesOf;
    /// The memory of its chunks.
    fn chunk_bytes_mut(&mut self) -> &mut usize;

    /// The index of the chunk with this number.
    fn numbered(&self, number: u64) -> Option<usize> {
        let at = self.chunks().partition_point(|chunk| chunk.number() < number);
        (self.chunks().get(at)?.number() == number).then_some(at)
    }
}

impl<T: InChunks> Parts for T {
    fn flash_copies(&self) -> &FlashCopiesOf {
        InChunks::flash_copies(self)
    }

    fn set_flash_copies(&mut self, flash_copies: Arc<dyn FlashCopies>) {
        *self.flash_copies_mut() = Some(flash_copies);
    }

    fn part(&self, number: u64) -> Option<&Part> {
        Some(self.chunks()[self.numbered(number)?].part())
    }

    fn part_mut(&mut self, number: u64) -> Option<&mut Part> {
        let at = self.numbered(number)?;
        Some(self.chunks_mut()[at].part_mut())
    }

    fn next_part(&self, from: u64) -> Option<u64> {
        let at = self.chunks().partition_point(|chunk| chunk.number() < from);
        Some(self.chunks().get(at)?.number())
    }

    fn accepts(&self, number: u64, bytes: &[u8]) -> bool {
        self.numbered(number).is_some_and(|at| self.chunks()[at].accepts(bytes))
    }

    fn grown(&mut self, _: u64, by: isize) {
        let bytes = self.chunk_bytes_mut();
        *bytes = bytes.wrapping_add_signed(by);
    }
}

/// What to do with a part that has no copy on flash and was not used lately.
pub enum Fate {
    /// It is being written; the write has this number.
    Written(u32),
    /// It stays for now.
    Stays,
    /// It stays, and the sweep ends here.
    Stop,
}

/// How far a sweep came, and what it freed.
#[derive(Debug, Default, Clone, Copy)]
pub struct Swept {
    /// Where to continue. `None`: the sweep has reached the end.
    pub next: Option<u64>,
    pub freed: usize,
    pub left: usize,
    pub stopped: bool,
}

/// How many parts had a damaged copy: see [`Boxed::forget_copies`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub in_memory: u64,
    pub absent: u64,
}

/// How the store moves the parts.
impl Boxed {
    fn parts(&self) -> &dyn Parts {
        match self {
            Boxed::Hash(table) => table.parts(),
            Boxed::Set(table) => table.parts(),
            Boxed::ZSet(tree) => tree,
            Boxed::List(list) => list,
            Boxed::Stream(stream) => &**stream,
        }
    }

    fn parts_mut(&mut self) -> &mut dyn Parts {
        match self {
            Boxed::Hash(table) => table.parts_mut(),
            Boxed::Set(table) => table.parts_mut(),
            Boxed::ZSet(tree) => tree,
            Boxed::List(list) => list,
            Boxed::Stream(stream) => &mut **stream,
        }
    }

    /// The collection's number, if parts of it are or were on flash.
    #[inline]
    pub fn shelf_id(&self) -> Option<u64> {
        self.parts().flash_copies().as_ref().map(|flash_copies| flash_copies.id())
    }

    /// Lets the parts move individually from now on.
    pub fn split(&mut self, flash_copies: Arc<dyn FlashCopies>) {
        self.parts_mut().set_flash_copies(flash_copies);
    }

    /// Records all parts that are not in memory.
    pub fn absent(&self, out: &mut Absent) {
        let parts = self.parts();
        if parts.flash_copies().is_none() {
            return;
        }
        let mut from = 0;
        while let Some(number) = parts.next_part(from) {
            parts.part(number).expect("its number").want(number, out);
            from = number + 1;
        }
    }

    /// Handles damage of the copies at these places. A part that is in memory forgets its copy; the bytes of an absent
    /// part are lost.
    pub fn forget_copies(&self, is_damaged: &mut dyn FnMut(u64) -> bool) -> Forgotten {
        let (mut forgotten, mut from) = (Forgotten::default(), 0);
        let parts = self.parts();
        while let Some(number) = parts.next_part(from) {
            from = number + 1;
            let part = parts.part(number).expect("its number");
            if !part.place().is_some_and(&mut *is_damaged) {
                continue;
            }
            if part.is_absent() {
                forgotten.absent += 1;
            } else {
                part.forget_copy(parts.flash_copies());
                forgotten.in_memory += 1;
            }
        }
        forgotten
    }

    /// Records the parts with elements that have expired.
    pub fn want_due(&self, now_ms: u64, out: &mut Absent) {
        if let Boxed::Hash(table) = self {
            table.want_due(now_ms, out);
        }
    }

    /// Sweeps at most `count` parts from number `from` on. A part with a copy on flash leaves memory. For any other
    /// part, `write` gets the number and the bytes. `of_all`: include parts that were used since the last sweep, which
    /// otherwise stay.
    pub fn sweep(&mut self, from: u64, count: usize, of_all: bool, write: &mut dyn FnMut(u64, &[u8]) -> Fate) -> Swept {
        let mut swept = Swept::default();
        let parts = self.parts_mut();
        let mut at = from;
        for _ in 0..count {
            let Some(number) = parts.next_part(at) else { return swept };
            at = number + 1;
            let part = parts.part_mut(number).expect("its number");
            let state = part.state.get();
            part.state.set(state & !USED);
            match state & TIER {
                _ if state & USED != 0 && !of_all => {}
                CLEAN => {
                    let freed = part.leave();
                    parts.grown(number, -(freed as isize));
                    swept.freed += freed;
                    swept.left += 1;
                }
                DIRTY if !part.bytes.is_empty() && part.bytes.len() <= PART_BYTES_MAX => {
                    match write(number, &part.bytes) {
                        Fate::Written(write) => part.set(WRITING, u64::from(write)),
                        Fate::Stays => {}
                        Fate::Stop => {
                            swept.stopped = true;
                            swept.next = Some(number);
                            return swept;
                        }
                    }
                }
                _ => {}
            }
        }
        swept.next = Some(at);
        swept
    }

    /// Gives parts that are in memory only a copy on flash, at most `count` parts from number `from` on. The parts stay
    /// in memory. `write` is as for [`Boxed::sweep`].
    pub fn copy(&mut self, from: u64, count: usize, write: &mut dyn FnMut(u64, &[u8]) -> Fate) -> Swept {
        let mut swept = Swept::default();
        let parts = self.parts_mut();
        let mut at = from;
        for _ in 0..count {
            let Some(number) = parts.next_part(at) else { return swept };
            let part = parts.part_mut(number).expect("its number");
            if part.tier() == DIRTY && !part.bytes.is_empty() && part.bytes.len() <= PART_BYTES_MAX {
                match write(number, &part.bytes) {
                    Fate::Written(write) => {
                        part.set(WRITING, u64::from(write));
                        part.state.set(part.state.get() | STAYS);
                    }
                    Fate::Stays => {}
                    Fate::Stop => {
                        swept.stopped = true;
                        swept.next = Some(number);
                        return swept;
                    }
                }
            }
            at = number + 1;
        }
        swept.next = Some(at);
        swept
    }

    /// Visits the places of all copies on flash.
    pub fn copies(&self, visit: &mut dyn FnMut(u64)) {
        let (parts, mut from) = (self.parts(), 0);
        while let Some(number) = parts.next_part(from) {
            parts.part(number).and_then(Part::place).into_iter().for_each(&mut *visit);
            from = number + 1;
        }
    }

    /// Called when a write has succeeded. The copy belongs to this part, unless the part has changed in the meantime
    /// (false). A part that was not used in the meantime leaves memory, unless it was only to get a copy.
    pub fn part_written(&mut self, number: u64, write: u32, place: u64) -> bool {
        let parts = self.parts_mut();
        let Some(part) = parts.part_mut(number).filter(|part| part.is_written_by(write)) else { return false };
        let stays = part.state.get() & (USED | STAYS) != 0;
        part.set(CLEAN, place);
        if !stays {
            let freed = part.leave();
            parts.grown(number, -(freed as isize));
        }
        true
    }

    /// Called when a write has failed: the part is in memory as before.
    pub fn part_unwritten(&mut self, number: u64, write: u32) {
        if let Some(part) = self.parts_mut().part_mut(number)
            && part.is_written_by(write)
        {
            part.set(DIRTY, 0);
        }
    }

    /// Whether this place holds the part's copy.
    pub fn has_copy(&self, number: u64, place: u64) -> bool {
        self.parts().part(number).and_then(Part::place) == Some(place)
    }

    /// Called when the part's copy has moved. False: it was not the part's copy any more.
    pub fn copy_moved(&mut self, number: u64, from: u64, to: u64) -> bool {
        let Some(part) = self.parts_mut().part_mut(number) else { return false };
        if part.place() != Some(from) {
            return false;
        }
        part.state.set(part.state.get() & !PLACE | to << PLACE_SHIFT);
        true
    }

    /// Loads the bytes of an absent part, read from this place. Does nothing if the part is not there any more.
    pub fn fill(&mut self, number: u64, place: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        let parts = self.parts_mut();
        let is_it = |part: &Part| part.is_absent() && part.place() == Some(place);
        if !parts.part(number).is_some_and(is_it) {
            return Ok(());
        }
        if !parts.accepts(number, bytes) {
            return Err(Corrupt);
        }
        let part = parts.part_mut(number).expect("seen above");
        part.bytes = crate::fit::fitted(bytes);
        let gained = part.bytes.capacity();
        part.state.set(CLEAN | USED | place << PLACE_SHIFT);
        parts.grown(number, gained as isize);
        Ok(())
    }
}

impl Part {
    fn is_written_by(&self, write: u32) -> bool {
        let state = self.state.get();
        state & TIER == WRITING && (state & PLACE) >> PLACE_SHIFT == u64::from(write)
    }
}

/// For tests: counts the copies on flash.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Mutex;

    /// Acts as the store for one collection.
    #[derive(Default)]
    pub struct Flash {
        copies: Mutex<HashMap<u64, (u64, Vec<u8>)>>,
        next: Mutex<u64>,
    }

    impl FlashCopies for Flash {
        fn id(&self) -> u64 {
            7
        }
        fn died(&self, place: u64) {
            assert!(self.copies.lock().unwrap().remove(&place).is_some(), "a copy dies once");
        }
    }

    impl Flash {
        pub fn len(&self) -> usize {
            self.copies.lock().unwrap().len()
        }

        pub fn copy(&self, place: u64) -> Vec<u8> {
            self.copies.lock().unwrap()[&place].1.clone()
        }

        /// The same copies on flash, for another collection.
        pub fn twin(&self) -> Arc<Flash> {
            let (copies, next) = (self.copies.lock().unwrap().clone(), *self.next.lock().unwrap());
            Arc::new(Flash { copies: Mutex::new(copies), next: Mutex::new(next) })
        }

        /// Puts bytes on flash and returns their place.
        pub fn put(&self, number: u64, bytes: Vec<u8>) -> u64 {
            let mut next = self.next.lock().unwrap();
            *next += 1;
            self.copies.lock().unwrap().insert(*next, (number, bytes));
            *next
        }

        /// Sweeps the value twice, so that every part that can leave memory does.
        pub fn send(self: &Arc<Flash>, value: &mut Boxed) {
            if value.shelf_id().is_none() {
                value.split(self.clone());
            }
            for _ in 0..3 {
                let (mut from, mut writes) = (0, Vec::new());
                loop {
                    let swept = value.sweep(from, 10, false, &mut |number, bytes| {
                        writes.push((number, bytes.to_vec()));
                        Fate::Written(writes.len() as u32)
                    });
                    let Some(next) = swept.next else { break };
                    from = next;
                }
                for (at, (number, bytes)) in writes.into_iter().enumerate() {
                    let place = self.put(number, bytes);
                    assert!(value.part_written(number, at as u32 + 1, place));
                }
            }
        }

        /// Loads the wanted parts. Returns how many there were.
        pub fn bring(&self, value: &mut Boxed, want: impl Fn(&Boxed, &mut Absent)) -> usize {
            let mut brought = 0;
            loop {
                let mut absent = Absent::new();
                want(value, &mut absent);
                absent.sort_unstable_by_key(|part| part.number);
                absent.dedup();
                if absent.is_empty() {
                    return brought;
                }
                for part in absent {
                    let (number, bytes) = self.copies.lock().unwrap()[&part.place].clone();
                    assert_eq!((number, bytes.len()), (part.number, part.bytes));
                    value.fill(number, part.place, &bytes).unwrap();
                    brought += 1;
                }
            }
        }
    }
}
