//! Owns dictionaries: the common content of records, trained from a sample. With a dictionary, a frame of a few small records
//! compresses as well as megabytes would.
//! Never knows pages. The caller decides which dictionaries are in use, and for how long.

use base::random::mix;
use zstd_safe::{CDict, DDict};

use super::Record;
use super::record::Bases;
use crate::narrow::low32;

/// Size of a trained dictionary. 16, 32 and 64 KiB bring 101-byte near-duplicates to 11.8, 11.3 and 11.1 bytes, 655-byte
/// hashes to 66, 63 and 61, and take 124, 157 and 272 KB of RAM digested at level 1: the next doubling is not worth it.
pub const DICTIONARY_BYTES: usize = 32 << 10;

const MAGIC: [u8; 4] = *b"FKD1";
const HEADER_BYTES: usize = 16;
/// Maximum size of a dictionary that is read back, against hostile bytes.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;
/// Where zstd keeps a dictionary's own id.
const ZSTD_ID: std::ops::Range<usize> = 4..8;

/// A trained dictionary, digested for both directions. Shared by all workers.
pub struct Dictionary {
    id: u32,
    bytes: Vec<u8>,
    writing: CDict<'static>,
    reading: DDict<'static>,
}

impl Dictionary {
    /// `id` is not 0, and is stored in every page that needs the dictionary.
    /// `None` when `bytes` is not a dictionary.
    pub fn new(id: u32, bytes: Vec<u8>, level: i32) -> Option<Dictionary> {
        assert!(id != 0);
        let writing = CDict::try_create(&bytes, level)?;
        let reading = DDict::try_create(&bytes)?;
        Some(Dictionary { id, bytes, writing, reading })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn with_id(self, id: u32) -> Dictionary {
        assert!(id != 0);
        Dictionary { id, ..self }
    }

    /// Whether both have the same content, whatever their numbers are.
    pub fn is_same(&self, other: &Dictionary) -> bool {
        self.bytes == other.bytes
    }

    /// Resident bytes: the dictionary itself and its two digested forms.
    pub fn ram_bytes(&self) -> usize {
        self.bytes.capacity() + self.writing.sizeof() + self.reading.sizeof()
    }

    /// For recovery: `| "FKD1" | crc32c of the rest u32 | id u32 | bytes u32 | the dictionary |`.
    pub fn serialize(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.bytes.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(
            &u32::try_from(self.bytes.len()).expect("a dictionary has at most a megabyte").to_le_bytes(),
        );
        out.extend_from_slice(&self.bytes);
        let crc = base::crc::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// What [`Dictionary::serialize`] wrote; bytes behind it (the rest of a page) are ignored.
    pub fn deserialize(bytes: &[u8], level: i32) -> Option<Dictionary> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let content = rest.get(..word(12) as usize)?;
        let crc = base::crc::crc32c_append(base::crc::crc32c(&header[8..]), content);
        let valid = header[..4] == MAGIC && crc == word(4) && word(8) != 0 && content.len() <= DICTIONARY_BYTES_MAX;
        if !valid {
            return None;
        }
        Dictionary::new(word(8), content.to_vec(), level)
    }

    pub(super) fn for_writing(&self) -> &CDict<'static> {
        &self.writing
    }

    pub(super) fn for_reading(&self) -> &DDict<'static> {
        &self.reading
    }
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dictionary({}, {} bytes)", self.id, self.bytes.len())
    }
}

/// Keeps an even sample of all records offered, within a fixed number of bytes. Deterministic: the same
/// records in the same order leave the same sample.
pub struct Trainer {
    bytes_max: usize,
    /// The number of records offered. The n-th is in the sample if `mix(n) & mask == 0`: neighbours get unrelated
    /// numbers, so that a periodic pattern in the stream does not distort the sample.
    offered: u64,
    mask: u64,
    samples: Vec<u8>,
    /// (n, encoded bytes) of each sample.
    taken: Vec<(u64, usize)>,
}

/// Maximum bytes sampled of one record. The start of a longer record is enough.
const SAMPLE_BYTES_MAX: usize = 4096;
/// Minimum number of samples. ZDICT makes no useful dictionary from fewer.
const SAMPLES_MIN: usize = 32;

impl Trainer {
    /// Holds at most `bytes_max`, 1–2 MiB for a dictionary of the default size.
    pub fn new(bytes_max: usize) -> Trainer {
        assert!(bytes_max >= 2 * SAMPLE_BYTES_MAX);
        Trainer { bytes_max, offered: 0, mask: 0, samples: Vec::new(), taken: Vec::new() }
    }

    /// Cheap for the records not taken.
    pub fn offer(&mut self, record: &Record<'_>) {
        let n = self.offered;
        self.offered += 1;
        if mix(n) & self.mask != 0 {
            return;
        }
        let before = self.samples.len();
        let value = &record.value[..record.value.len().min(SAMPLE_BYTES_MAX)];
        let key = &record.key[..record.key.len().min(SAMPLE_BYTES_MAX)];
        let bases = Bases { seq: record.seq, expiry_s: low32(record.expiry_ms.unwrap_or(0) / 1000) };
        Record { key, value, ..*record }.encode(bases, &mut self.samples);
        self.samples.truncate(before + SAMPLE_BYTES_MAX);
        self.taken.push((n, self.samples.len() - before));
        while self.samples.len() > self.bytes_max {
            self.thin_out();
        }
    }

    /// Bytes sampled so far; of little use below a tenth of the maximum.
    pub fn sampled_bytes(&self) -> usize {
        self.samples.len()
    }

    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// A dictionary of at most `bytes`, or `None` when there are too few samples or they have nothing in common.
    /// Takes 30 to 250 ms for 1 MiB of samples: not for a worker's thread.
    pub fn train(&self, id: u32, bytes: usize, level: i32) -> Option<Dictionary> {
        if self.taken.len() < SAMPLES_MIN {
            return None;
        }
        let sizes: Vec<usize> = self.taken.iter().map(|&(_, bytes)| bytes).collect();
        let mut trained = Vec::with_capacity(bytes);
        zstd_safe::train_from_buffer(&mut trained, &self.samples, &sizes).ok()?;
        // Zero means "not stated": pages name their dictionary, so that frames save four bytes each.
        trained.get_mut(ZSTD_ID)?.fill(0);
        Dictionary::new(id, trained, level)
    }

    /// Halves the sample.
    fn thin_out(&mut self) {
        self.mask = self.mask << 1 | 1;
        let (mut from, mut to) = (0, 0);
        let (mask, samples) = (self.mask, &mut self.samples);
        self.taken.retain(|&(n, bytes)| {
            let keep = mix(n) & mask == 0;
            if keep {
                samples.copy_within(from..from + bytes, to);
                to += bytes;
            }
            from += bytes;
            keep
        });
        self.samples.truncate(to);
    }
}
