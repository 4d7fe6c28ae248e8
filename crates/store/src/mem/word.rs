//! Owns the layout of the second half of an index entry. Never follows the pointer it may hold.
//!
//! ```text
//! hot:  |63        52|51 50|49   |48    47|46              3|2    |1     |0|
//!       | low hash 12| 0   |boxed| freq 2 | object address  |dirty|expiry|1|
//! cold: |63        40|39        11|10      6|5     3|2  |1     |0|
//!       | low hash 24| page 29    | step 5  | kind 3|ref|expiry|0|
//! ```
//! The other half of the entry is the upper 64 bits of the hash. So 88 keyed bits identify a cold key; a hot key is compared
//! as a whole. 29 bits of 4 KiB pages are 2 TiB of flash per database.

use crate::mem::hash::KeyHash;
use crate::narrow::low8;
use value::Kind;

/// The place of a record: its first page, and the step (see `page::step_pages`) that gives the number of pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageAddress {
    pub page: u32,
    pub step: u8,
}

impl PageAddress {
    /// The place of a key whose value is lost ([`crate::Keyspace::lose`]): no record is there. All other places have
    /// lower steps.
    pub const LOST: PageAddress = PageAddress { page: 0, step: 31 };

    #[inline]
    pub fn is_lost(self) -> bool {
        self.step == PageAddress::LOST.step
    }
}

pub const PAGE_BITS: u32 = 29;
/// The maximum frequency, as in S3-FIFO. So the clock hand finds a victim after at most four rounds.
pub const FREQUENCY_MAX: u8 = 3;

const HOT: u64 = 1;
const EXPIRY: u64 = 1 << 1;
const DIRTY: u64 = 1 << 2;
const REFERENCED: u64 = 1 << 2;
const ADDRESS: u64 = ((1 << 47) - 1) & !7;
const FREQUENCY_SHIFT: u32 = 47;
/// The object's value is boxed. The object says it too, but the clock hand passes most objects without touching them.
const BOXED: u64 = 1 << 49;
const HOT_HASH_SHIFT: u32 = 52;
const KIND_SHIFT: u32 = 3;
const STEP_SHIFT: u32 = 6;
const PAGE_SHIFT: u32 = 11;
pub const COLD_HASH_SHIFT: u32 = 40;
const _: () = assert!(PAGE_SHIFT + PAGE_BITS == COLD_HASH_SHIFT);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    #[inline]
    pub fn hot(hash: KeyHash, address: usize, is_boxed: bool, frequency: u8, has_expiry: bool, dirty: bool) -> Word {
        debug_assert_eq!(address as u64 & !ADDRESS, 0);
        Word(
            (hash.low >> HOT_HASH_SHIFT) << HOT_HASH_SHIFT
                | u64::from(frequency) << FREQUENCY_SHIFT
                | address as u64
                | if is_boxed { BOXED } else { 0 }
                | if dirty { DIRTY } else { 0 }
                | if has_expiry { EXPIRY } else { 0 }
                | HOT,
        )
    }

    pub fn cold(hash: KeyHash, place: PageAddress, kind: Kind, has_expiry: bool, referenced: bool) -> Word {
        debug_assert!(place.page < 1 << PAGE_BITS && place.step < 32);
        Word(
            (hash.low >> COLD_HASH_SHIFT) << COLD_HASH_SHIFT
                | u64::from(place.page) << PAGE_SHIFT
                | u64::from(place.step) << STEP_SHIFT
                | (kind as u64) << KIND_SHIFT
                | if referenced { REFERENCED } else { 0 }
                | if has_expiry { EXPIRY } else { 0 },
        )
    }

    #[inline]
    pub fn is_hot(self) -> bool {
        self.0 & HOT != 0
    }

    #[inline]
    pub fn has_expiry(self) -> bool {
        self.0 & EXPIRY != 0
    }

    /// Whether the hash bits of this entry agree with `hash`. For a cold entry agreement means that the keys are equal.
    #[inline]
    pub fn agrees(self, hash: KeyHash) -> bool {
        let shift = if self.is_hot() { HOT_HASH_SHIFT } else { COLD_HASH_SHIFT };
        self.0 >> shift == hash.low >> shift
    }

    #[inline]
    pub fn address(self) -> usize {
        debug_assert!(self.is_hot());
        (self.0 & ADDRESS) as usize
    }

    #[inline]
    pub fn is_boxed(self) -> bool {
        debug_assert!(self.is_hot());
        self.0 & BOXED != 0
    }

    #[must_use]
    pub fn with_boxed(self, is_boxed: bool) -> Word {
        Word(self.0 & !BOXED | if is_boxed { BOXED } else { 0 })
    }

    #[must_use]
    pub fn with_address(self, address: usize) -> Word {
        debug_assert_eq!(address as u64 & !ADDRESS, 0);
        Word(self.0 & !ADDRESS | address as u64)
    }

    #[must_use]
    pub fn with_expiry(self, has_expiry: bool) -> Word {
        Word(self.0 & !EXPIRY | if has_expiry { EXPIRY } else { 0 })
    }

    #[inline]
    pub fn is_dirty(self) -> bool {
        debug_assert!(self.is_hot());
        self.0 & DIRTY != 0
    }

    #[inline]
    pub fn frequency(self) -> u8 {
        low8(self.0 >> FREQUENCY_SHIFT) & FREQUENCY_MAX
    }

    #[inline]
    #[must_use]
    pub fn with_frequency(self, frequency: u8) -> Word {
        Word(self.0 & !(u64::from(FREQUENCY_MAX) << FREQUENCY_SHIFT) | u64::from(frequency) << FREQUENCY_SHIFT)
    }

    /// The word after one more access.
    #[inline]
    #[must_use]
    pub fn touched(self) -> Word {
        let frequency = self.frequency();
        if frequency < FREQUENCY_MAX { self.with_frequency(frequency + 1) } else { self }
    }

    #[must_use]
    pub fn with_dirty(self, dirty: bool) -> Word {
        Word(self.0 & !DIRTY | if dirty { DIRTY } else { 0 })
    }

    pub fn place(self) -> PageAddress {
        debug_assert!(!self.is_hot());
        PageAddress {
            page: (self.0 >> PAGE_SHIFT & ((1 << PAGE_BITS) - 1)) as u32,
            step: (self.0 >> STEP_SHIFT & 31) as u8,
        }
    }

    #[must_use]
    pub fn with_place(self, place: PageAddress) -> Word {
        let mask = ((1u64 << (PAGE_BITS + 5)) - 1) << STEP_SHIFT;
        Word(self.0 & !mask | u64::from(place.page) << PAGE_SHIFT | u64::from(place.step) << STEP_SHIFT)
    }

    pub fn kind(self) -> Kind {
        debug_assert!(!self.is_hot());
        Kind::from_u8((self.0 >> KIND_SHIFT & 7) as u8).expect("only this module writes it")
    }

    pub fn is_referenced(self) -> bool {
        debug_assert!(!self.is_hot());
        self.0 & REFERENCED != 0
    }

    #[must_use]
    pub fn with_referenced(self, referenced: bool) -> Word {
        Word(self.0 & !REFERENCED | if referenced { REFERENCED } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_come_back() {
        let hash = KeyHash { high: 7, low: 0xfedc_ba98_7654_3210, slot: 3 };
        let address = 0x7fff_ffff_fff8;
        let hot = Word::hot(hash, address, false, 2, true, true);
        assert!(hot.is_hot() && hot.is_dirty() && hot.has_expiry() && hot.agrees(hash));
        assert_eq!(hot.address(), address);
        assert_eq!(hot.frequency(), 2);
        assert!(
            !hot.is_boxed() && hot.with_boxed(true).is_boxed() && !hot.with_boxed(true).with_boxed(false).is_boxed()
        );
        let boxed = Word::hot(hash, address, true, 3, false, false);
        assert!(boxed.is_boxed() && boxed.agrees(hash) && !boxed.is_dirty() && !boxed.has_expiry());
        assert_eq!((boxed.address(), boxed.frequency()), (address, 3));
        assert_eq!(hot.with_frequency(3).with_dirty(false).address(), address);

        let place = PageAddress { page: (1 << 29) - 1, step: 23 };
        let cold = Word::cold(hash, place, Kind::Stream, false, true);
        assert!(!cold.is_hot() && !cold.has_expiry() && cold.is_referenced() && cold.agrees(hash));
        assert_eq!((cold.place(), cold.kind()), (place, Kind::Stream));
        let moved = cold.with_place(PageAddress { page: 5, step: 0 }).with_referenced(false);
        assert_eq!((moved.place().page, moved.kind()), (5, Kind::Stream));
        assert!(moved.agrees(hash) && !moved.is_referenced());
        assert!(!cold.agrees(KeyHash { low: hash.low ^ 1 << 40, ..hash }));
        assert!(!hot.agrees(KeyHash { low: hash.low ^ 1 << 52, ..hash }));
        let lost = Word::cold(hash, PageAddress::LOST, Kind::String, true, false);
        assert!(lost.place().is_lost() && !cold.place().is_lost() && lost.agrees(hash));
    }
}
