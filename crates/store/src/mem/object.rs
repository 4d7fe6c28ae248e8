//! Owns the layout of an object: one allocation for header, key and value. Never knows the index or flash.
//!
//! ```text
//! header   8 bytes  |63 length 34|33 raw|32 counted|31 clock 8|7 kind 5|4 boxed|3 fresh|2 writing|1 expiry|0 place|
//! place    8 bytes  if the place bit is set: the cold word of its copy on flash, or 0 if it has none
//! expiry   8 bytes  if the expiry bit is set: milliseconds since 1970
//! key length        1 byte below 255, else 255 and 4 bytes
//! key
//! value             `length` bytes, or a boxed value: its address and what it was last counted as (8 bytes each, unaligned)
//! ```
//! The clock is the second of the last access (24 bits, as in Redis). While the object is being written to flash, this field
//! contains the write's number instead. A counted object was restored with an access frequency, which this field contains until
//! the next access. A fresh object was read from flash, and no look-up has counted it since.

use crate::mem::arena::{Arena, Cells, rounded};
use crate::narrow::{low8, low32, to_usize};
use std::marker::PhantomData;
use std::ptr::NonNull;
use value::{Boxed, Kind};

/// The bound of a value's length. It is above Redis's largest string (512 MB).
pub const VALUE_BYTES_MAX: usize = (1 << 30) - 1;
const KEY_SHORT_MAX: usize = 254;
/// The field of a place when there is no copy.
const NO_PLACE: u64 = 0;

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
    const COUNTED: u64 = 1 << 32;
    const RAW: u64 = 1 << 33;
    const LENGTH_SHIFT: u32 = 34;
}

/// The value area of an object with a boxed value: the pointer, and the size last counted.
type BoxedArea = (*mut Boxed, usize);

/// The address of a live object. Private: the types below contain one, and define who may use it and for how long.
#[derive(Clone, Copy)]
struct Raw(NonNull<u8>);

/// An object outside of any entry: it was just made, or just taken out of its entry. Its holder owns the memory and must free it
/// or give it to an entry. There is never a second `Object` for the same memory.
#[must_use = "an object that is dropped is leaked"]
pub struct Object(Raw);

/// An object, for reading. It is borrowed from its entry, and so from the table of a locked stripe. References from it cannot
/// outlive the lock or the entry's next change.
#[derive(Clone, Copy)]
pub struct ObjectRef<'t>(Raw, PhantomData<&'t Boxed>);

/// An object, for changing. It is borrowed from the entry exclusively, so no other reference to the object or its value
/// exists meanwhile.
pub struct ObjectMut<'t>(Raw, PhantomData<&'t mut Boxed>);

/// The fields of a new object.
pub struct Parts<'a> {
    pub key: &'a [u8],
    pub kind: Kind,
    pub raw: bool,
    pub expiry: Option<u64>,
    /// The cold word of a copy on flash, or room for one.
    pub place: Option<u64>,
    pub clock: u32,
    /// The key's stripe.
    pub stripe: u16,
}

/// The value of an object.
pub enum Value<'a> {
    /// The bytes of a string or of a packed collection.
    Inline(Kind, &'a [u8]),
    Boxed(&'a Boxed),
}

impl Object {
    /// An object whose value is the concatenation of `value`.
    pub(crate) fn new(arena: &Arena, parts: &Parts<'_>, value: &[&[u8]]) -> Object {
        let length = value.iter().map(|part| part.len()).sum();
        let object = Raw::blank(arena, parts, length, false);
        let mut at = 0;
        for part in value {
            // SAFETY: the object has room for the sum of the parts.
            unsafe { copy(part, object.value_ptr().add(at)) };
            at += part.len();
        }
        Object(object)
    }

    pub(crate) fn new_boxed(arena: &Arena, parts: &Parts<'_>, value: Boxed) -> Object {
        let object = Raw::blank(arena, parts, size_of::<BoxedArea>(), true);
        let raw = Box::into_raw(Box::new(value));
        // SAFETY: this is the value area of a boxed object, at any alignment.
        unsafe { object.value_ptr().cast::<BoxedArea>().write_unaligned((raw, 0)) };
        object.account(arena);
        Object(object)
    }

    /// Takes the object over from an entry.
    ///
    /// # Safety
    /// `address` is what [`Object::into_address`] returned, the arena still is there, and nobody takes the object over or
    /// reads it through this address again unless the caller gives it up with [`Object::into_address`].
    #[inline]
    pub unsafe fn from_address(address: usize) -> Object {
        // SAFETY: the caller's promise.
        Object(unsafe { Raw::at(address) })
    }

    /// Gives the object up to an entry, which holds its address.
    #[inline]
    pub fn into_address(self) -> usize {
        self.0.address()
    }

    #[inline]
    pub fn view(&self) -> ObjectRef<'_> {
        ObjectRef(self.0, PhantomData)
    }

    #[cfg(test)]
    fn edit(&mut self) -> ObjectMut<'_> {
        ObjectMut(self.0, PhantomData)
    }

    /// Marks the object as just read from flash.
    pub fn mark_fresh(&mut self) {
        self.0.set(Header::FRESH, true);
    }

    /// Frees the object, which must be of this arena (a store has only one). Returns a boxed value, so that the caller
    /// can drop it where this blocks no other thread.
    pub(crate) fn free(self, arena: &Arena) -> Option<Box<Boxed>> {
        let raw = self.0;
        let boxed = raw.is_boxed().then(|| {
            arena.count_boxed(-(raw.counted() as isize));
            // SAFETY: written in new_boxed; this object, its only holder, is given up here.
            unsafe { Box::from_raw(raw.value_ptr().cast::<*mut Boxed>().read_unaligned()) }
        });
        // SAFETY: allocated by this arena; the size is what its header says.
        unsafe { arena.free(raw.0, raw.bytes()) };
        boxed
    }

    /// Moves the object to another cell.
    pub(crate) fn moved(self, arena: &Arena, stripe: u16) -> Object {
        let bytes = self.0.bytes();
        let to = arena.alloc(bytes, stripe);
        // SAFETY: both are objects of `bytes`; the old one is given up without dropping a boxed value.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.0.as_ptr(), to.as_ptr(), bytes);
            arena.free(self.0.0, bytes);
        }
        Object(Raw(to))
    }

    /// Replaces the bytes `at` of an inline value; the object may move.
    pub fn splice(self, arena: &Arena, stripe: u16, at: std::ops::Range<usize>, with: &[&[u8]]) -> Object {
        let old = self.0.length();
        assert!(!self.0.is_boxed());
        assert!(at.start <= at.end && at.end <= old);
        let added: usize = with.iter().map(|part| part.len()).sum();
        let new = old - at.len() + added;
        assert!(new <= VALUE_BYTES_MAX);
        let (key_at, key) = self.0.key_span();
        let offset = key_at + key;
        let grown = if new > old { self.resized(arena, stripe, offset + old, offset + new) } else { self };
        // SAFETY: the object has room for the larger of both sizes.
        unsafe {
            let value = grown.0.0.as_ptr().add(offset);
            std::ptr::copy(value.add(at.end), value.add(at.start + added), old - at.end);
            let mut to = at.start;
            for part in with {
                copy(part, value.add(to));
                to += part.len();
            }
        }
        let fitted = if new < old { grown.resized(arena, stripe, offset + old, offset + new) } else { grown };
        let header = fitted.0.header().0 & ((1 << Header::LENGTH_SHIFT) - 1);
        fitted.0.set_header(header | (new as u64) << Header::LENGTH_SHIFT);
        fitted
    }

    /// Moves the object to a cell for `new` bytes if its own does not fit that size. The header is as before.
    fn resized(self, arena: &Arena, stripe: u16, old: usize, new: usize) -> Object {
        use crate::mem::arena::CELL_BYTES_MAX;
        if rounded(old) == rounded(new) {
            return self;
        }
        // SAFETY: the object was allocated with a size that rounds as `old` does; the smaller size is copied.
        unsafe {
            if old > CELL_BYTES_MAX && new > CELL_BYTES_MAX {
                return Object(Raw(arena.realloc_large(self.0.0, old, new)));
            }
            let to = arena.alloc(new, stripe);
            std::ptr::copy_nonoverlapping(self.0.0.as_ptr(), to.as_ptr(), old.min(new));
            arena.free(self.0.0, old);
            Object(Raw(to))
        }
    }

    /// The same key and value with other fields; the old object is freed, a boxed value moves over.
    pub fn with_fields(self, arena: &Arena, stripe: u16, expiry: Option<u64>, place: Option<u64>) -> Object {
        let (view, from) = (self.view(), self.0);
        let (key, kind, raw, clock) = (view.key(), view.kind(), view.is_raw(), view.clock());
        let parts = Parts { key, kind, raw, expiry, place, clock, stripe };
        let length = self.0.length();
        let object = Raw::blank(arena, &parts, length, from.is_boxed());
        // SAFETY: both value areas have `length` bytes; the old object is freed without dropping a boxed value.
        unsafe {
            std::ptr::copy_nonoverlapping(from.value_ptr(), object.value_ptr(), length);
            arena.free(from.0, from.bytes());
        }
        Object(object)
    }
}

impl<'t> ObjectRef<'t> {
    /// # Safety
    /// `address` is what [`Object::into_address`] returned. For as long as `'t` the arena is there, the object is not
    /// freed, and nobody has it for changing: in short, `'t` is a borrow of the entry that holds it.
    #[inline]
    pub unsafe fn at(address: usize) -> ObjectRef<'t> {
        // SAFETY: the caller's promise.
        ObjectRef(unsafe { Raw::at(address) }, PhantomData)
    }

    /// What is in a cell that [`Arena::belongs`] to a stripe. It may be an object that has just left its entry: only an entry
    /// that holds its address makes it the value of its key.
    ///
    /// # Safety
    /// For as long as `'t` the caller has that stripe's lock, nothing that was taken out of the stripe is being freed without
    /// the lock, and the caller frees and changes nothing in the stripe.
    pub unsafe fn in_cell(cell: NonNull<u8>) -> ObjectRef<'t> {
        ObjectRef(Raw(cell), PhantomData)
    }

    #[inline]
    pub fn address(self) -> usize {
        self.0.address()
    }

    #[inline]
    pub fn key(self) -> &'t [u8] {
        let (at, length) = self.0.key_span();
        // SAFETY: the key's bytes are initialised, and nobody changes them for as long as 't.
        unsafe { std::slice::from_raw_parts(self.0.0.as_ptr().add(at), length) }
    }

    #[inline]
    pub fn inline(self) -> Option<&'t [u8]> {
        // SAFETY: an inline value's bytes are initialised, and nobody changes them for as long as 't.
        (!self.is_boxed()).then(|| unsafe { std::slice::from_raw_parts(self.0.value_ptr(), self.0.length()) })
    }

    #[inline]
    pub fn boxed(self) -> Option<&'t Boxed> {
        // SAFETY: as boxed() of the raw object; nobody changes the value for as long as 't.
        self.0.boxed().map(|value| unsafe { value.as_ref() })
    }

    #[inline]
    pub fn value(self) -> Value<'t> {
        match self.boxed() {
            Some(boxed) => Value::Boxed(boxed),
            None => Value::Inline(self.kind(), self.inline().expect("not boxed")),
        }
    }

    /// When the first part of the value expires.
    #[inline]
    pub fn next_deadline(self) -> Option<u64> {
        self.boxed()?.next_deadline()
    }

    /// Whether the value is in parts.
    pub fn is_in_parts(self) -> bool {
        self.boxed().is_some_and(|value| value.shelf_id().is_some())
    }

    /// Objects that lie near this one, with their stripes: see [`Arena::neighbours`].
    pub fn neighbours(self, arena: &Arena, out: &mut Cells) {
        // SAFETY: a live object of this arena.
        unsafe { arena.neighbours(self.0.0, self.0.bytes(), out) }
    }

    /// Bytes of memory of the object: its cell, and a boxed value as it was last counted.
    #[inline]
    pub fn ram_bytes(self) -> usize {
        self.0.ram_bytes()
    }

    /// Bytes of the object as asked of the arena.
    #[inline]
    pub fn bytes(self) -> usize {
        self.0.bytes()
    }

    #[inline]
    pub fn kind(self) -> Kind {
        self.0.kind()
    }

    #[inline]
    pub fn is_boxed(self) -> bool {
        self.0.is_boxed()
    }

    #[inline]
    pub fn is_raw(self) -> bool {
        self.0.is_raw()
    }

    #[inline]
    pub fn is_writing(self) -> bool {
        self.0.is_writing()
    }

    #[inline]
    pub fn is_written_by(self, write: u32) -> bool {
        self.0.is_written_by(write)
    }

    #[inline]
    pub fn clock(self) -> u32 {
        self.0.clock()
    }

    /// The access frequency that the object was restored with, if there was no access since.
    pub fn restored_frequency(self) -> Option<u8> {
        self.0.restored_frequency()
    }

    /// Seconds since the last access. 0 for an object being written, whose clock field contains the write's number.
    #[inline]
    pub fn idle_seconds(self, clock: u32) -> u64 {
        self.0.idle_seconds(clock)
    }

    #[inline]
    pub fn place(self) -> Option<u64> {
        self.0.place()
    }

    /// False: it certainly has no copy on flash.
    #[inline]
    pub fn knows_place(self) -> bool {
        self.place().is_some_and(|place| place != NO_PLACE)
    }

    #[inline]
    pub fn expiry(self) -> Option<u64> {
        self.0.expiry()
    }
}

impl<'t> ObjectMut<'t> {
    /// # Safety
    /// As for [`ObjectRef::at`], but nobody else has the object even for reading: `'t` is an exclusive borrow of its entry.
    #[inline]
    pub unsafe fn at(address: usize) -> ObjectMut<'t> {
        // SAFETY: the caller's promise.
        ObjectMut(unsafe { Raw::at(address) }, PhantomData)
    }

    #[inline]
    pub fn view(&self) -> ObjectRef<'_> {
        ObjectRef(self.0, PhantomData)
    }

    #[inline]
    pub fn inline_mut(self) -> Option<&'t mut [u8]> {
        // SAFETY: an inline value's bytes are initialised; 't is an exclusive borrow, and this one ends with `self`.
        (!self.0.is_boxed()).then(|| unsafe { std::slice::from_raw_parts_mut(self.0.value_ptr(), self.0.length()) })
    }

    #[inline]
    pub fn boxed_mut(&mut self) -> Option<&mut Boxed> {
        // SAFETY: as boxed() of the raw object; the borrow of `self` makes this the only reference to the value.
        self.0.boxed().map(|mut value| unsafe { value.as_mut() })
    }

    #[inline]
    pub fn into_boxed_mut(self) -> Option<&'t mut Boxed> {
        // SAFETY: as boxed_mut(); `self`, which has the object for 't, ends here.
        self.0.boxed().map(|mut value| unsafe { value.as_mut() })
    }

    /// Updates the counted memory of a boxed value. Call it after a change of the value.
    #[inline]
    pub fn account(&mut self, arena: &Arena) {
        self.0.account(arena);
    }

    #[inline]
    pub fn mark_raw(&mut self) {
        self.0.mark_raw();
    }

    /// Marks the object as used at `clock`; `None`: only looked at. Returns whether it was read from flash since the last call.
    #[inline]
    pub fn used(&mut self, clock: Option<u32>) -> bool {
        self.0.used(clock)
    }

    /// Marks that write number `write` carries a copy of this object to flash.
    #[inline]
    pub fn begin_write(&mut self, write: u32) {
        self.0.begin_write(write);
    }

    /// Removes the mark of the write, because the value changes or the write is complete.
    #[inline]
    pub fn end_write(&mut self, clock: u32) {
        self.0.end_write(clock);
    }

    #[inline]
    pub fn set_clock(&mut self, clock: u32) {
        self.0.set_clock(clock);
    }

    /// Keeps an access frequency until the next access.
    pub fn keep_frequency(&mut self, frequency: u8) {
        self.0.keep_frequency(frequency);
    }

    /// Sets the place on flash. The object must have the field.
    #[inline]
    pub fn set_place(&mut self, place: u64) {
        self.0.set_place(place);
    }

    /// Marks the copy on flash as not valid: it is no copy of this value any more.
    #[inline]
    pub fn forget_place(&mut self) {
        if self.0.is(Header::PLACE) {
            self.0.set_place(NO_PLACE);
        }
    }

    /// Replaces the expiry. The object must already have one.
    #[inline]
    pub fn replace_expiry(&mut self, expiry: u64) {
        self.0.replace_expiry(expiry);
    }

    /// Overwrites the value in place if the new one takes the same cell and the object has just these fields.
    #[inline]
    pub fn overwrite(&mut self, value: &[u8], kind: Kind, expiry: Option<u64>, clock: u32) -> bool {
        self.0.overwrite(value, kind, expiry, clock)
    }
}

// The methods read and write through the pointer. Nothing outside of this file has a `Raw`: it lies in one of the types
// above, whose lifetime or ownership says that the object is there and who else may touch it. That is the one promise behind
// every `unsafe` block here.
impl Raw {
    /// # Safety
    /// `address` is that of a live object.
    #[inline]
    unsafe fn at(address: usize) -> Raw {
        let ptr = std::ptr::with_exposed_provenance_mut::<u8>(address);
        debug_assert!(!ptr.is_null());
        // SAFETY: no object lies at address 0.
        Raw(unsafe { NonNull::new_unchecked(ptr) })
    }

    #[inline]
    fn address(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    #[inline]
    fn account(self, arena: &Arena) {
        let Some(value) = self.boxed() else { return };
        // SAFETY: the caller has the object for changing, or owns it.
        let now = size_of::<Boxed>() + unsafe { value.as_ref() }.mem_bytes();
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

    #[inline]
    fn ram_bytes(self) -> usize {
        rounded(self.bytes()) + self.counted()
    }

    fn counted(self) -> usize {
        if !self.is_boxed() {
            return 0;
        }
        // SAFETY: written in new_boxed.
        unsafe { self.value_ptr().cast::<usize>().add(1).read_unaligned() }
    }

    /// Makes an object with header and key. The caller must write the value's bytes.
    #[inline]
    fn blank(arena: &Arena, parts: &Parts<'_>, length: usize, boxed: bool) -> Raw {
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
                at.write(low8(parts.key.len() as u64));
                at = at.add(1);
            } else {
                at.write(255);
                at.add(1).cast::<u32>().write_unaligned(long_length(parts.key));
                at = at.add(5);
            }
            copy(parts.key, at);
        }
        Raw(ptr)
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
    fn kind(self) -> Kind {
        Kind::from_u8((self.header().0 >> Header::KIND_SHIFT & 7) as u8).expect("only this module writes it")
    }

    #[inline]
    fn is_boxed(self) -> bool {
        self.is(Header::BOXED)
    }

    #[inline]
    fn is_raw(self) -> bool {
        self.is(Header::RAW)
    }

    #[inline]
    fn mark_raw(self) {
        self.set(Header::RAW, true);
    }

    #[inline]
    fn take_fresh(self) -> bool {
        let is_fresh = self.is(Header::FRESH);
        if is_fresh {
            self.set(Header::FRESH, false);
        }
        is_fresh
    }

    #[inline]
    fn is_writing(self) -> bool {
        self.is(Header::WRITING)
    }

    #[inline]
    fn begin_write(self, write: u32) {
        let header = self.header().0 & !(Header::CLOCK | Header::COUNTED) | Header::WRITING;
        self.set_header(header | u64::from(write) << Header::CLOCK_SHIFT & Header::CLOCK);
    }

    #[inline]
    fn is_written_by(self, write: u32) -> bool {
        self.is_writing() && (self.header().0 & Header::CLOCK) >> Header::CLOCK_SHIFT == u64::from(write & 0xff_ffff)
    }

    #[inline]
    fn end_write(self, clock: u32) {
        if self.is_writing() {
            let header = self.header().0 & !(Header::CLOCK | Header::WRITING);
            self.set_header(header | u64::from(clock) << Header::CLOCK_SHIFT & Header::CLOCK);
        }
        // A changed value no longer counts as just read.
        self.take_fresh();
    }

    #[inline]
    fn clock(self) -> u32 {
        ((self.header().0 & Header::CLOCK) >> Header::CLOCK_SHIFT) as u32
    }

    #[inline]
    fn idle_seconds(self, clock: u32) -> u64 {
        if self.is_writing() || self.is(Header::COUNTED) {
            0
        } else {
            u64::from(clock.wrapping_sub(self.clock()) & 0xff_ffff)
        }
    }

    fn keep_frequency(self, frequency: u8) {
        if !self.is_writing() {
            self.set_clock(frequency.into());
            self.set(Header::COUNTED, true);
        }
    }

    fn restored_frequency(self) -> Option<u8> {
        self.is(Header::COUNTED).then(|| low8(self.clock().into()))
    }

    #[inline]
    fn set_clock(self, clock: u32) {
        let header = self.header().0;
        self.put_header(header, at_clock(header, clock));
    }

    #[inline]
    fn used(self, clock: Option<u32>) -> bool {
        let header = self.header().0;
        let wanted = clock.map_or(header, |clock| at_clock(header, clock)) & !Header::FRESH;
        self.put_header(header, wanted);
        header & Header::FRESH != 0
    }

    /// Usually the header is right already: the cache line then stays clean.
    #[inline]
    fn put_header(self, header: u64, wanted: u64) {
        if wanted != header {
            self.set_header(wanted);
        }
    }

    #[inline]
    fn place(self) -> Option<u64> {
        // SAFETY: the place follows the header when its bit is set.
        self.is(Header::PLACE).then(|| unsafe { self.0.cast::<u64>().add(1).read() })
    }

    #[inline]
    fn set_place(self, place: u64) {
        assert!(self.is(Header::PLACE));
        // SAFETY: as in place().
        unsafe { self.0.cast::<u64>().add(1).write(place) }
    }

    #[inline]
    fn expiry(self) -> Option<u64> {
        let header = self.header().0;
        if header & Header::EXPIRY == 0 {
            return None;
        }
        // SAFETY: the expiry follows header and place when its bit is set.
        Some(unsafe { self.0.cast::<u64>().add(1 + (header & Header::PLACE) as usize).read() })
    }

    #[inline]
    fn replace_expiry(self, expiry: u64) {
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
    fn value_ptr(self) -> *mut u8 {
        let (at, length) = self.key_span();
        // SAFETY: the value follows the key inside the allocation.
        unsafe { self.0.as_ptr().add(at + length) }
    }

    #[inline]
    fn length(self) -> usize {
        (self.header().0 >> Header::LENGTH_SHIFT) as usize
    }

    #[inline]
    fn bytes(self) -> usize {
        let (at, key) = self.key_span();
        at + key + self.length()
    }

    /// The address of a boxed value. None: the value is inline.
    #[inline]
    fn boxed(self) -> Option<NonNull<Boxed>> {
        // SAFETY: written in new_boxed, from a Box, which is never null.
        self.is_boxed()
            .then(|| unsafe { NonNull::new_unchecked(self.value_ptr().cast::<*mut Boxed>().read_unaligned()) })
    }

    #[inline]
    fn overwrite(self, value: &[u8], kind: Kind, expiry: Option<u64>, clock: u32) -> bool {
        let header = self.header().0;
        if header & (Header::BOXED | Header::RAW) != 0 || (header & Header::EXPIRY != 0) != expiry.is_some() {
            return false;
        }
        let (at, key) = self.key_span();
        let offset = at + key;
        let (old, new) = (self.length(), value.len());
        if (old != new && rounded(offset + old) != rounded(offset + new)) || kind != self.kind() {
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
}

/// The clock of an access at this time. A header keeps its low 24 bits.
#[inline]
pub(crate) fn clock_at(now_ms: u64) -> u32 {
    low32(now_ms / 1000)
}

/// The header with this clock, unless the field holds the number of a write or a restored frequency.
#[inline]
fn at_clock(header: u64, clock: u32) -> u64 {
    match header & (Header::WRITING | Header::COUNTED) {
        0 => header & !Header::CLOCK | u64::from(clock) << Header::CLOCK_SHIFT & Header::CLOCK,
        _ => header,
    }
}

#[inline]
fn fixed_bytes(header: u64) -> usize {
    8 + 8 * to_usize((header & Header::PLACE) + (header >> 1 & 1))
}

/// The length of a long key. Not inlined, so that making an object with a short key stays small.
#[cold]
#[inline(never)]
fn long_length(key: &[u8]) -> u32 {
    u32::try_from(key.len()).expect("a key is shorter than 4 GiB")
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
    fn an_object_without_a_copy_knows_no_place() {
        let arena = Arena::new(1);
        let without = Object::new(&arena, &parts(b"key"), &[b"value"]);
        assert!(!without.view().knows_place());
        let mut with = Object::new(&arena, &Parts { place: Some(6), expiry: Some(7), ..parts(b"key") }, &[b"value"]);
        assert!(with.view().knows_place());
        with.edit().forget_place();
        assert!(!with.view().knows_place());
        assert_eq!((with.view().expiry(), with.view().key()), (Some(7), &b"key"[..]));
        for object in [without, with] {
            assert!(object.free(&arena).is_none());
        }
    }

    #[test]
    fn a_16_byte_key_with_500_bytes_takes_528() {
        let arena = Arena::new(1);
        let object = Object::new(&arena, &parts(&[b'k'; 16]), &[&[b'v'; 500]]);
        assert_eq!(object.view().bytes(), 525);
        assert_eq!(arena.used_bytes(), 528);
        object.free(&arena);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn a_write_hides_the_clock() {
        let arena = Arena::new(1);
        let mut object = Object::new(&arena, &Parts { place: Some(6), ..parts(b"key") }, &[b"value"]);
        assert_eq!(object.view().idle_seconds(12), 3);
        object.edit().begin_write(7777);
        assert_eq!(object.view().idle_seconds(12), 0, "the write's number is not a time");
        object.edit().end_write(12);
        assert_eq!(object.view().idle_seconds(13), 1);
        object.free(&arena);
    }

    /// Its length would be cut to 32 bits, and the object would be read and freed as one that has another size.
    #[test]
    #[cfg_attr(miri, ignore = "4 GiB that are never touched cost nothing, except there")]
    #[should_panic(expected = "a key is shorter than 4 GiB")]
    fn a_key_whose_length_takes_more_than_32_bits_is_refused() {
        let key = vec![0; (1 << 32) + 1];
        let _ = Object::new(&Arena::new(1), &parts(&key), &[b"value"]);
    }

    #[test]
    fn fields_keys_and_values_come_back() {
        let arena = Arena::new(1);
        for key_bytes in [0, 1, 254, 255, 70_000] {
            let key = vec![b'k'; key_bytes];
            for (expiry, place) in [(None, None), (Some(5), None), (None, Some(6)), (Some(5), Some(6))] {
                let object = Object::new(&arena, &Parts { expiry, place, ..parts(&key) }, &[b"val", b"ue"]);
                assert_eq!((object.view().key(), object.view().inline()), (&key[..], Some(&b"value"[..])));
                assert_eq!((object.view().expiry(), object.view().place(), object.view().clock()), (expiry, place, 9));
                let other = object.with_fields(&arena, 0, place, expiry);
                assert_eq!((other.view().expiry(), other.view().place()), (place, expiry));
                assert_eq!((other.view().key(), other.view().inline()), (&key[..], Some(&b"value"[..])));
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
        for step in 0..if cfg!(miri) { 60 } else { 3000usize } {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            let random = (seed >> 33) as usize;
            let from = random % (model.len() + 1);
            let to = from + (random >> 8) % (model.len() - from + 1).min(900);
            let added = vec![step as u8; (random >> 16) % if model.len() > 9000 { 3 } else { 600 }];
            object = object.splice(&arena, 0, from..to, &[&added, b"x"]);
            model.splice(from..to, added.iter().copied().chain([b'x']));
            assert_eq!(object.view().inline().unwrap(), model);
            assert_eq!(object.view().key(), b"key");
            assert_eq!(arena.used_bytes(), rounded(object.view().bytes()));
        }
        object.free(&arena);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn an_overwrite_needs_the_same_cell() {
        let arena = Arena::new(1);
        let mut object = Object::new(&arena, &parts(b"key"), &[&[1; 100]]);
        object.edit().begin_write(77);
        assert!(object.view().is_written_by(77) && !object.view().is_written_by(78));
        assert!(object.edit().overwrite(&[2; 99], Kind::String, None, 1));
        assert!(!object.view().is_writing());
        assert_eq!(object.view().inline().unwrap(), [2; 99]);
        assert!(!object.edit().overwrite(&[2; 120], Kind::String, None, 1));
        assert!(!object.edit().overwrite(&[2; 99], Kind::String, Some(1), 1));
        object.free(&arena);
    }
}
