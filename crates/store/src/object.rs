//! Owns the layout of an object: one allocation for header, key and value. Never knows the index or flash.
//!
//! ```text
//! header   8 bytes  |63 length 34|33 raw|32 spare|31 clock 8|7 kind 5|4 boxed|3 fresh|2 writing|1 expiry|0 place|
//! place    8 bytes  if the place bit is set: the cold word this object had, or will have, on flash
//! expiry   8 bytes  if the expiry bit is set: milliseconds since 1970
//! key length        1 byte below 255, else 255 and 4 bytes
//! key
//! value             `length` bytes, or a boxed value: its address and what it was last counted as (8 bytes each, unaligned)
//! ```
//! The clock is the second of the last access (24 bits, as Redis keeps it); while the object is being written
//! to flash it holds the write's number instead. A fresh object was read from flash, and no look-up has counted it since.

use crate::arena::{Arena, Cells, rounded};
use std::ptr::NonNull;
use value::{Boxed, Kind};

/// Redis's largest string, and a little room for a packed collection's bookkeeping.
pub const VALUE_BYTES_MAX: usize = (1 << 30) - 1;
const KEY_SHORT_MAX: usize = 254;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header(u64);

impl Header {
    const PLACE: u64 = 1;
    const EXPIRY: u64 = 1 << 1;
    const WRITING: u64 = 1 << 2;
    const FRESH: u64 = 1 << 3;
    const BOXED: u64 = 1 << 4;
    const KIND_SHIFT: u32 = 5;
    const CLOCK_SHIFT: u32 = 8;
    const CLOCK: u64 = 0xff_ffff << Self::CLOCK_SHIFT;
    const RAW: u64 = 1 << 33;
    const LENGTH_SHIFT: u32 = 34;
}

/// What stands for a boxed value in its object.
type BoxedArea = (*mut Boxed, usize);

/// A live object of the arena. Copyable like the pointer it is: whoever holds the stripe's lock may use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object(NonNull<u8>);

/// What a new object is made of.
pub struct Parts<'a> {
    pub key: &'a [u8],
    pub kind: Kind,
    pub raw: bool,
    pub expiry: Option<u64>,
    /// The cold word of a copy on flash, or room for one.
    pub place: Option<u64>,
    pub clock: u32,
    /// Of the key.
    pub stripe: u16,
}

/// The value of an object.
pub enum Value<'a> {
    /// A string's bytes, or a packed collection's.
    Inline(Kind, &'a [u8]),
    Boxed(&'a Boxed),
}

// The methods read and write through the pointer: an `Object` is only ever taken from an index entry whose stripe
// is locked, or was just made. That is the one promise behind every `unsafe` block of this file.
impl Object {
    /// An object whose value is the concatenation of `value`.
    pub fn new(arena: &Arena, parts: &Parts<'_>, value: &[&[u8]]) -> Object {
        let length = value.iter().map(|part| part.len()).sum();
        let object = Object::blank(arena, parts, length, false);
        let mut at = 0;
        for part in value {
            // SAFETY: the object has room for the sum of the parts.
            unsafe { copy(part, object.value_ptr().add(at)) };
            at += part.len();
        }
        object
    }

    pub fn new_boxed(arena: &Arena, parts: &Parts<'_>, value: Boxed) -> Object {
        let object = Object::blank(arena, parts, size_of::<BoxedArea>(), true);
        let raw = Box::into_raw(Box::new(value));
        // SAFETY: this is the value area of a boxed object, at any alignment.
        unsafe { object.value_ptr().cast::<BoxedArea>().write_unaligned((raw, 0)) };
        object.account(arena);
        object
    }

    /// Counts the memory of a boxed value as it is now. To be called when it has changed.
    #[inline]
    pub fn account(self, arena: &Arena) {
        let Some(value) = self.boxed() else { return };
        let now = size_of::<Boxed>() + value.mem_bytes();
        // SAFETY: written in new_boxed.
        let counted = unsafe { self.value_ptr().cast::<usize>().add(1) };
        // SAFETY: as above; the second half of the area.
        let before = unsafe { counted.read_unaligned() };
        if now != before {
            arena.count_boxed(now as isize - before as isize);
            // SAFETY: as above.
            unsafe { counted.write_unaligned(now) };
        }
    }

    /// Bytes of memory of the object: its cell, and a boxed value as it was last counted.
    #[inline]
    pub fn ram_bytes(self) -> usize {
        rounded(self.bytes()) + self.counted()
    }

    fn counted(self) -> usize {
        if !self.is_boxed() {
            return 0;
        }
        // SAFETY: written in new_boxed.
        unsafe { self.value_ptr().cast::<usize>().add(1).read_unaligned() }
    }

    /// Header and key; the value's bytes are the caller's to write.
    fn blank(arena: &Arena, parts: &Parts<'_>, length: usize, boxed: bool) -> Object {
        assert!(length <= VALUE_BYTES_MAX);
        let mut header = (length as u64) << Header::LENGTH_SHIFT
            | u64::from(parts.clock) << Header::CLOCK_SHIFT & Header::CLOCK
            | (parts.kind as u64) << Header::KIND_SHIFT;
        if parts.raw {
            header |= Header::RAW;
        }
        if boxed {
            header |= Header::BOXED;
        }
        if parts.expiry.is_some() {
            header |= Header::EXPIRY;
        }
        if parts.place.is_some() {
            header |= Header::PLACE;
        }
        let ptr = arena.alloc(value_offset(header, parts.key.len()) + length, parts.stripe);
        // SAFETY: freshly allocated with room for all of it.
        unsafe {
            ptr.cast::<u64>().write(header);
            let mut at = ptr.as_ptr().add(8);
            for field in [parts.place, parts.expiry].into_iter().flatten() {
                at.cast::<u64>().write(field);
                at = at.add(8);
            }
            if parts.key.len() <= KEY_SHORT_MAX {
                at.write(parts.key.len() as u8);
                at = at.add(1);
            } else {
                at.write(255);
                at.add(1).cast::<u32>().write_unaligned(parts.key.len() as u32);
                at = at.add(5);
            }
            copy(parts.key, at);
        }
        Object(ptr)
    }

    #[inline]
    pub fn from_address(address: usize) -> Object {
        let ptr = std::ptr::with_exposed_provenance_mut(address);
        Object(NonNull::new(ptr).expect("a hot word holds an address"))
    }

    #[inline]
    pub fn address(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Frees the object. A boxed value comes back, for the caller to drop where that stalls nobody.
    pub fn free(self, arena: &Arena) -> Option<Box<Boxed>> {
        let boxed = self.is_boxed().then(|| {
            arena.count_boxed(-(self.counted() as isize));
            // SAFETY: written in new_boxed; this object, its only holder, is given up here.
            unsafe { Box::from_raw(self.value_ptr().cast::<*mut Boxed>().read_unaligned()) }
        });
        // SAFETY: allocated by this arena; the size is what its header says.
        unsafe { arena.free(self.0, self.bytes()) };
        boxed
    }

    /// The same object in another cell.
    pub fn moved(self, arena: &Arena, stripe: u16) -> Object {
        let bytes = self.bytes();
        let to = arena.alloc(bytes, stripe);
        // SAFETY: both are objects of `bytes`; the old one is given up without dropping a boxed value.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.as_ptr(), to.as_ptr(), bytes);
            arena.free(self.0, bytes);
        }
        Object(to)
    }

    /// Objects that lie near this one, with their stripes: see [`Arena::neighbours`].
    pub fn neighbours(self, arena: &Arena, out: &mut Cells) {
        // SAFETY: a live object of this arena.
        unsafe { arena.neighbours(self.0, self.bytes(), out) }
    }

    /// The object in a cell that [`Arena::belongs`] to a locked stripe. It may be one that has just left its entry:
    /// only an entry that holds its address makes it the value of its key.
    pub fn in_cell(cell: NonNull<u8>) -> Object {
        cell.as_ptr().expose_provenance();
        Object(cell)
    }

    #[inline]
    fn header(self) -> Header {
        // SAFETY: every object begins with its header.
        Header(unsafe { self.0.cast::<u64>().read() })
    }

    #[inline]
    fn set_header(self, header: u64) {
        // SAFETY: as above, under the stripe's lock.
        unsafe { self.0.cast::<u64>().write(header) }
    }

    #[inline]
    fn is(self, bit: u64) -> bool {
        self.header().0 & bit != 0
    }

    fn set(self, bit: u64, on: bool) {
        let header = self.header().0;
        self.set_header(if on { header | bit } else { header & !bit });
    }

    #[inline]
    pub fn kind(self) -> Kind {
        Kind::from_u8((self.header().0 >> Header::KIND_SHIFT) as u8 & 7).expect("only this module writes it")
    }

    #[inline]
    pub fn is_boxed(self) -> bool {
        self.is(Header::BOXED)
    }

    pub fn is_raw(self) -> bool {
        self.is(Header::RAW)
    }

    pub fn mark_raw(self) {
        self.set(Header::RAW, true);
    }

    /// The object was just read from flash.
    pub fn mark_fresh(self) {
        self.set(Header::FRESH, true);
    }

    /// Whether the object was read from flash since this was asked last.
    #[inline]
    pub fn take_fresh(self) -> bool {
        let is_fresh = self.is(Header::FRESH);
        if is_fresh {
            self.set(Header::FRESH, false);
        }
        is_fresh
    }

    pub fn is_writing(self) -> bool {
        self.is(Header::WRITING)
    }

    /// Notes that write number `write` carries a copy of this object to flash.
    pub fn begin_write(self, write: u32) {
        let header = self.header().0 & !Header::CLOCK | Header::WRITING;
        self.set_header(header | u64::from(write) << Header::CLOCK_SHIFT & Header::CLOCK);
    }

    pub fn is_written_by(self, write: u32) -> bool {
        self.is_writing() && (self.header().0 & Header::CLOCK) >> Header::CLOCK_SHIFT == u64::from(write & 0xff_ffff)
    }

    /// The value changes, or the write is over: what is on its way to flash is no copy of it any more.
    pub fn end_write(self, clock: u32) {
        if self.is_writing() {
            let header = self.header().0 & !(Header::CLOCK | Header::WRITING);
            self.set_header(header | u64::from(clock) << Header::CLOCK_SHIFT & Header::CLOCK);
        }
        // A changed value is not the one that was read.
        self.take_fresh();
    }

    pub fn clock(self) -> u32 {
        ((self.header().0 & Header::CLOCK) >> Header::CLOCK_SHIFT) as u32
    }

    /// Seconds since the last access. What is on its way to flash has the write's number where its clock was: 0.
    pub fn idle_seconds(self, clock: u32) -> u64 {
        if self.is_writing() { 0 } else { u64::from(clock.wrapping_sub(self.clock()) & 0xff_ffff) }
    }

    #[inline]
    pub fn set_clock(self, clock: u32) {
        let header = self.header().0;
        let wanted = header & !Header::CLOCK | u64::from(clock) << Header::CLOCK_SHIFT & Header::CLOCK;
        // Usually equal already: the cache line then stays clean.
        if wanted != header && header & Header::WRITING == 0 {
            self.set_header(wanted);
        }
    }

    pub fn place(self) -> Option<u64> {
        // SAFETY: the place follows the header when its bit is set.
        self.is(Header::PLACE).then(|| unsafe { self.0.cast::<u64>().add(1).read() })
    }

    /// There must be room for it.
    pub fn set_place(self, place: u64) {
        assert!(self.is(Header::PLACE));
        // SAFETY: as in place().
        unsafe { self.0.cast::<u64>().add(1).write(place) }
    }

    #[inline]
    pub fn expiry(self) -> Option<u64> {
        let header = self.header().0;
        if header & Header::EXPIRY == 0 {
            return None;
        }
        // SAFETY: the expiry follows header and place when its bit is set.
        Some(unsafe { self.0.cast::<u64>().add(1 + (header & Header::PLACE) as usize).read() })
    }

    /// There must be one already.
    pub fn replace_expiry(self, expiry: u64) {
        let header = self.header().0;
        assert!(header & Header::EXPIRY != 0);
        // SAFETY: as in expiry().
        unsafe { self.0.cast::<u64>().add(1 + (header & Header::PLACE) as usize).write(expiry) }
    }

    #[inline]
    fn key_span(self) -> (usize, usize) {
        let header = self.header().0;
        let at = fixed_bytes(header);
        // SAFETY: the key's length stands at `at`.
        unsafe {
            match self.0.as_ptr().add(at).read() {
                255 => (at + 5, self.0.as_ptr().add(at + 1).cast::<u32>().read_unaligned() as usize),
                short => (at + 1, short as usize),
            }
        }
    }

    #[inline]
    pub fn key<'a>(self) -> &'a [u8] {
        let (at, length) = self.key_span();
        // SAFETY: the key's bytes are initialised; the caller holds the stripe's lock for as long as it uses them.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(at), length) }
    }

    #[inline]
    fn value_ptr(self) -> *mut u8 {
        let (at, length) = self.key_span();
        // SAFETY: the value follows the key inside the allocation.
        unsafe { self.0.as_ptr().add(at + length) }
    }

    #[inline]
    fn length(self) -> usize {
        (self.header().0 >> Header::LENGTH_SHIFT) as usize
    }

    /// Bytes of the object as asked of the arena.
    #[inline]
    pub fn bytes(self) -> usize {
        let (at, key) = self.key_span();
        at + key + self.length()
    }

    #[inline]
    pub fn inline<'a>(self) -> Option<&'a [u8]> {
        // SAFETY: an inline value's bytes are initialised; lifetime as in key().
        (!self.is_boxed()).then(|| unsafe { std::slice::from_raw_parts(self.value_ptr(), self.length()) })
    }

    pub fn inline_mut<'a>(self) -> Option<&'a mut [u8]> {
        // SAFETY: as inline(); the caller's `&mut` to the stripe makes it the only reference.
        (!self.is_boxed()).then(|| unsafe { std::slice::from_raw_parts_mut(self.value_ptr(), self.length()) })
    }

    pub fn boxed<'a>(self) -> Option<&'a Boxed> {
        // SAFETY: written in new_boxed; lifetime as in key().
        self.is_boxed().then(|| unsafe { &*self.value_ptr().cast::<*const Boxed>().read_unaligned() })
    }

    pub fn boxed_mut<'a>(self) -> Option<&'a mut Boxed> {
        // SAFETY: as inline_mut().
        self.is_boxed().then(|| unsafe { &mut *self.value_ptr().cast::<*mut Boxed>().read_unaligned() })
    }

    #[inline]
    pub fn value<'a>(self) -> Value<'a> {
        match self.boxed() {
            Some(boxed) => Value::Boxed(boxed),
            None => Value::Inline(self.kind(), self.inline().expect("not boxed")),
        }
    }

    /// Overwrites the value in place if the new one takes the same cell and the object has just these fields.
    #[inline]
    pub fn overwrite(self, value: &[u8], kind: Kind, expiry: Option<u64>, clock: u32) -> bool {
        let header = self.header().0;
        if header & (Header::BOXED | Header::RAW) != 0 || (header & Header::EXPIRY != 0) != expiry.is_some() {
            return false;
        }
        let (at, key) = self.key_span();
        let offset = at + key;
        if rounded(offset + value.len()) != rounded(offset + self.length()) || kind != self.kind() {
            return false;
        }
        // SAFETY: the cell holds any size of the same class.
        unsafe { copy(value, self.0.as_ptr().add(offset)) };
        let kept = header & (Header::PLACE | Header::EXPIRY) | (kind as u64) << Header::KIND_SHIFT;
        self.set_header(
            kept | (value.len() as u64) << Header::LENGTH_SHIFT
                | u64::from(clock) << Header::CLOCK_SHIFT & Header::CLOCK,
        );
        if let Some(expiry) = expiry {
            self.replace_expiry(expiry);
        }
        true
    }

    /// Replaces the bytes `at` of an inline value; the object may move.
    pub fn splice(self, arena: &Arena, stripe: u16, at: std::ops::Range<usize>, with: &[&[u8]]) -> Object {
        let old = self.length();
        assert!(!self.is_boxed());
        assert!(at.start <= at.end && at.end <= old);
        let added: usize = with.iter().map(|part| part.len()).sum();
        let new = old - at.len() + added;
        assert!(new <= VALUE_BYTES_MAX);
        let (key_at, key) = self.key_span();
        let offset = key_at + key;
        let grown = if new > old { self.resized(arena, stripe, offset + old, offset + new) } else { self };
        // SAFETY: the object has room for the larger of both sizes.
        unsafe {
            let value = grown.0.as_ptr().add(offset);
            std::ptr::copy(value.add(at.end), value.add(at.start + added), old - at.end);
            let mut to = at.start;
            for part in with {
                copy(part, value.add(to));
                to += part.len();
            }
        }
        let fitted = if new < old { grown.resized(arena, stripe, offset + old, offset + new) } else { grown };
        let header = fitted.header().0 & ((1 << Header::LENGTH_SHIFT) - 1);
        fitted.set_header(header | (new as u64) << Header::LENGTH_SHIFT);
        fitted
    }

    /// Moves the object to a cell for `new` bytes if its own does not fit that size. The header is as before.
    fn resized(self, arena: &Arena, stripe: u16, old: usize, new: usize) -> Object {
        use crate::arena::CELL_BYTES_MAX;
        if rounded(old) == rounded(new) {
            return self;
        }
        // SAFETY: the object was allocated with a size that rounds as `old` does; the smaller size is copied.
        unsafe {
            if old > CELL_BYTES_MAX && new > CELL_BYTES_MAX {
                return Object(arena.realloc_large(self.0, old, new));
            }
            let to = arena.alloc(new, stripe);
            std::ptr::copy_nonoverlapping(self.0.as_ptr(), to.as_ptr(), old.min(new));
            arena.free(self.0, old);
            Object(to)
        }
    }

    /// The same key and value with other fields; the old object is freed, a boxed value moves over.
    pub fn with_fields(self, arena: &Arena, stripe: u16, expiry: Option<u64>, place: Option<u64>) -> Object {
        let (key, kind, raw, clock) = (self.key(), self.kind(), self.is_raw(), self.clock());
        let parts = Parts { key, kind, raw, expiry, place, clock, stripe };
        let length = self.length();
        let object = Object::blank(arena, &parts, length, self.is_boxed());
        // SAFETY: both value areas have `length` bytes; the old object is freed without dropping a boxed value.
        unsafe {
            std::ptr::copy_nonoverlapping(self.value_ptr(), object.value_ptr(), length);
            arena.free(self.0, self.bytes());
        }
        object
    }
}

#[inline]
fn fixed_bytes(header: u64) -> usize {
    8 + 8 * ((header & Header::PLACE) + (header >> 1 & 1)) as usize
}

fn value_offset(header: u64, key: usize) -> usize {
    fixed_bytes(header) + if key <= KEY_SHORT_MAX { 1 } else { 5 } + key
}

/// # Safety
/// `to` has room for `from`, and they do not overlap.
#[inline]
unsafe fn copy(from: &[u8], to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(key: &[u8]) -> Parts<'_> {
        Parts { key, kind: Kind::String, raw: false, expiry: None, place: None, clock: 9, stripe: 0 }
    }

    #[test]
    fn a_16_byte_key_with_500_bytes_takes_528() {
        let arena = Arena::new(1);
        let object = Object::new(&arena, &parts(&[b'k'; 16]), &[&[b'v'; 500]]);
        assert_eq!(object.bytes(), 525);
        assert_eq!(arena.used_bytes(), 528);
        object.free(&arena);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn a_write_hides_the_clock() {
        let arena = Arena::new(1);
        let object = Object::new(&arena, &Parts { place: Some(6), ..parts(b"key") }, &[b"value"]);
        assert_eq!(object.idle_seconds(12), 3);
        object.begin_write(7777);
        assert_eq!(object.idle_seconds(12), 0, "the write's number is no time");
        object.end_write(12);
        assert_eq!(object.idle_seconds(13), 1);
        object.free(&arena);
    }

    #[test]
    fn fields_keys_and_values_come_back() {
        let arena = Arena::new(1);
        for key_bytes in [0, 1, 254, 255, 70_000] {
            let key = vec![b'k'; key_bytes];
            for (expiry, place) in [(None, None), (Some(5), None), (None, Some(6)), (Some(5), Some(6))] {
                let object = Object::new(&arena, &Parts { expiry, place, ..parts(&key) }, &[b"val", b"ue"]);
                assert_eq!((object.key(), object.inline()), (&key[..], Some(&b"value"[..])));
                assert_eq!((object.expiry(), object.place(), object.clock()), (expiry, place, 9));
                let other = object.with_fields(&arena, 0, place, expiry);
                assert_eq!((other.expiry(), other.place()), (place, expiry));
                assert_eq!((other.key(), other.inline()), (&key[..], Some(&b"value"[..])));
                other.free(&arena);
            }
        }
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn splices_equal_a_vectors() {
        let arena = Arena::new(1);
        let mut object = Object::new(&arena, &parts(b"key"), &[b"start"]);
        let mut model = b"start".to_vec();
        let mut seed = 3u64;
        for step in 0..3000usize {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            let random = (seed >> 33) as usize;
            let from = random % (model.len() + 1);
            let to = from + (random >> 8) % (model.len() - from + 1).min(900);
            let added = vec![step as u8; (random >> 16) % if model.len() > 9000 { 3 } else { 600 }];
            object = object.splice(&arena, 0, from..to, &[&added, b"x"]);
            model.splice(from..to, added.iter().copied().chain([b'x']));
            assert_eq!(object.inline().unwrap(), model);
            assert_eq!(object.key(), b"key");
            assert_eq!(arena.used_bytes(), rounded(object.bytes()));
        }
        object.free(&arena);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn an_overwrite_needs_the_same_cell() {
        let arena = Arena::new(1);
        let object = Object::new(&arena, &parts(b"key"), &[&[1; 100]]);
        object.begin_write(77);
        assert!(object.is_written_by(77) && !object.is_written_by(78));
        assert!(object.overwrite(&[2; 99], Kind::String, None, 1));
        assert!(!object.is_writing());
        assert_eq!(object.inline().unwrap(), [2; 99]);
        assert!(!object.overwrite(&[2; 120], Kind::String, None, 1));
        assert!(!object.overwrite(&[2; 99], Kind::String, Some(1), 1));
        object.free(&arena);
    }
}
