//! Owns the sizes of keys and values, and how well they compress. Never knows where they come from.

use rdb::Piece;
use value::rdb::stream::{Version, write};
use value::rdb::{Decoded, Parts};

/// Values are compressed together, as on flash.
const PAGE_BYTES: usize = 16 << 10;
/// The bytes that a member of a collection takes besides its own.
const MEMBER_BYTES: u64 = 2;
const EXPIRY_BYTES: u64 = 8;

#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// The version of the server that has the keys, or that has written them.
    pub version: String,
    /// The number of all keys, including those that were not sampled.
    pub keys: u64,
    pub sampled: u64,
    pub largest_bytes: u64,
    /// The number of sampled keys whose sizes come from the server's MEMORY USAGE.
    pub estimated: u64,
    name_bytes: u64,
    /// The size of the values in RAM in FlintKV.
    value_bytes: u64,
    /// The compressed size of the sampled values and names.
    packed_bytes: u64,
    unpacked_bytes: u64,
    page: Vec<u8>,
    /// The size so far of the value that is being added.
    adding_bytes: u64,
}

impl Sample {
    pub fn new(version: String, keys: u64) -> Sample {
        Sample { version, keys, ..Sample::default() }
    }

    /// Begins a key whose value follows in parts.
    pub fn begin(&mut self, name: &[u8]) {
        self.page.extend_from_slice(name);
        self.name_bytes += name.len() as u64;
        self.adding_bytes = 0;
    }

    pub fn string(&mut self, text: &[u8]) {
        self.page.extend_from_slice(text);
        self.adding_bytes += text.len() as u64;
    }

    pub fn piece(&mut self, piece: &Piece) {
        match piece {
            Piece::Value(value) => self.value(value),
            Piece::Stream(..) => unreachable!("streams are not wanted in parts"),
            Piece::Fields(pairs, expiries) => {
                self.members(pairs);
                self.adding_bytes += EXPIRY_BYTES * expiries.iter().filter(|&&at_ms| at_ms > 0).count() as u64;
            }
        }
    }

    pub fn value(&mut self, value: &Decoded) {
        match value {
            Decoded::String(text) => self.string(text),
            Decoded::List(parts) | Decoded::Set(parts) | Decoded::Hash(parts) => self.members(parts),
            Decoded::ZSet(parts, scores) => {
                self.members(parts);
                scores.iter().for_each(|score| self.string(&score.to_le_bytes()));
            }
            Decoded::Stream(stream, _) => {
                let mut bytes = Vec::new();
                write(stream, Version::V3, &mut bytes);
                self.string(&bytes);
            }
        }
    }

    fn members(&mut self, parts: &Parts) {
        parts.iter().for_each(|part| self.string(part));
        self.adding_bytes += parts.len() as u64 * MEMBER_BYTES;
    }

    pub fn end(&mut self) {
        self.sampled += 1;
        self.value_bytes += self.adding_bytes;
        self.largest_bytes = self.largest_bytes.max(self.adding_bytes);
        if self.page.len() >= PAGE_BYTES {
            self.pack();
        }
    }

    /// Adds a key that was not fetched, with the size that the server reports. It counts as incompressible.
    pub fn estimate(&mut self, name: &[u8], value_bytes: u64) {
        self.name_bytes += name.len() as u64;
        self.value_bytes += value_bytes;
        self.largest_bytes = self.largest_bytes.max(value_bytes);
        self.unpacked_bytes += value_bytes;
        self.packed_bytes += value_bytes;
        self.sampled += 1;
        self.estimated += 1;
    }

    /// Ends the sample.
    pub fn finish(&mut self) {
        self.pack();
        self.keys = self.keys.max(self.sampled);
    }

    fn pack(&mut self) {
        self.unpacked_bytes += self.page.len() as u64;
        self.packed_bytes += lz4_flex::block::compress(&self.page).len().min(self.page.len()) as u64;
        self.page.clear();
    }

    /// On average, rounded up.
    pub fn name_bytes(&self) -> u64 {
        self.name_bytes.div_ceil(self.sampled.max(1))
    }

    /// On average, rounded up.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes.div_ceil(self.sampled.max(1))
    }

    /// Compressed size ÷ original size.
    pub fn compression(&self) -> f64 {
        if self.unpacked_bytes == 0 { 1.0 } else { self.packed_bytes as f64 / self.unpacked_bytes as f64 }
    }

    pub fn dataset_bytes(&self) -> u64 {
        self.keys * (self.name_bytes() + self.value_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::random::SplitMix64;

    #[test]
    fn sizes_are_averages_and_compression_is_that_of_pages() {
        let mut text = Sample::default();
        let mut noise = Sample::default();
        for number in 0..100u64 {
            text.begin(b"key");
            text.string(&b"abcdefgh".repeat(100));
            text.end();
            noise.begin(b"four");
            noise.string(&SplitMix64(number).bytes(1000));
            noise.end();
        }
        text.begin(b"key");
        text.string(&[b'x'; 1800]);
        text.end();
        text.finish();
        noise.finish();
        assert_eq!((text.name_bytes(), text.value_bytes(), text.largest_bytes, text.keys), (3, 810, 1800, 101));
        assert!(text.compression() < 0.05, "{}", text.compression());
        assert_eq!((noise.value_bytes(), noise.dataset_bytes()), (1000, 100_400));
        assert!((0.99..=1.0).contains(&noise.compression()), "{}", noise.compression());
        assert_eq!(Sample::default().compression(), 1.0);
        // A value that was not fetched counts with its full size, as if it did not compress.
        let before = text.compression();
        text.estimate(b"giant", 101 * 810);
        let compression = text.compression();
        assert!((compression - (before + 1.0) / 2.0).abs() < 0.01, "{compression}");
        assert_eq!((text.estimated, text.sampled, text.largest_bytes, text.value_bytes()), (1, 102, 81_810, 1605));
    }
}
