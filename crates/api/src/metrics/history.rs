//! Owns the file with one database's past values. Never knows what a column means, and never reads the clock.
//!
//! ```text
//! header   4096 bytes  magic "FKVHIST\n", version u32, columns u32, CRC-32C u32 of the columns' names, CRC-32C u32 of these 20 bytes
//! ring 0   3600 records, one a second: an hour
//! ring 1   8640 records, one in ten seconds: a day
//! ring 2   15120 records, one a minute: ten days and a half
//! record   time_ms u64, columns × f32, CRC-32C u32 of both      (little-endian)
//! ```
//! A record's time gives its position, so nothing else has to be written, and nothing has to be repaired after a crash.
//! A record is valid if its CRC is right and its time is the wanted one. Torn, old and missing records are gaps.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"FKVHIST\n";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    pub step_ms: u64,
    pub slots: u64,
}

pub const RINGS: [Ring; 3] = [
    Ring { step_ms: 1_000, slots: 3_600 },
    Ring { step_ms: 10_000, slots: 8_640 },
    Ring { step_ms: 60_000, slots: 15_120 },
];

impl Ring {
    pub fn slot_ms(self, at_ms: u64) -> u64 {
        at_ms / self.step_ms * self.step_ms
    }
}

pub struct History {
    file: File,
    path: Option<PathBuf>,
    columns: usize,
}

impl History {
    /// A file with another version or other columns is renamed to `*.old`.
    pub fn open(path: &Path, names: &[&str]) -> io::Result<History> {
        let expected = header(names);
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = open()?;
        let mut found = [0; 24];
        let is_new = file.metadata()?.len() == 0;
        if !is_new && (file.read_exact_at(&mut found, 0).is_err() || found != expected) {
            let mut old = path.as_os_str().to_owned();
            old.push(".old");
            fs::rename(path, old)?;
            file = open()?;
        }
        let history = History { file, path: Some(path.to_path_buf()), columns: names.len() };
        history.format(&expected)?;
        Ok(history)
    }

    /// Without a folder: lost with the process.
    pub fn in_memory(names: &[&str]) -> io::Result<History> {
        let file = rustix::fs::memfd_create("flintkv-history", rustix::fs::MemfdFlags::CLOEXEC)?;
        let history = History { file: file.into(), path: None, columns: names.len() };
        history.format(&header(names))?;
        Ok(history)
    }

    /// The file has its full size from the start, with holes where nothing was written.
    fn format(&self, header: &[u8; 24]) -> io::Result<()> {
        self.file.write_all_at(header, 0)?;
        self.file.set_len(HEADER_BYTES + RINGS.iter().map(|ring| ring.slots).sum::<u64>() * self.record_bytes() as u64)
    }

    /// For a deleted database.
    pub fn delete(self) -> io::Result<()> {
        self.path.map_or(Ok(()), fs::remove_file)
    }

    fn record_bytes(&self) -> usize {
        8 + 4 * self.columns + 4
    }

    fn offset(&self, ring: usize, slot_ms: u64) -> u64 {
        let before: u64 = RINGS[..ring].iter().map(|ring| ring.slots).sum();
        let Ring { step_ms, slots } = RINGS[ring];
        HEADER_BYTES + (before + slot_ms / step_ms % slots) * self.record_bytes() as u64
    }

    /// `slot_ms` is a multiple of the ring's step. NaN is a gap.
    pub fn write(&self, ring: usize, slot_ms: u64, values: &[f64]) -> io::Result<()> {
        assert_eq!(values.len(), self.columns);
        let mut record = Vec::with_capacity(self.record_bytes());
        record.extend(slot_ms.to_le_bytes());
        values.iter().for_each(|&value| record.extend((value as f32).to_le_bytes()));
        record.extend(base::crc::crc32c(&record).to_le_bytes());
        self.file.write_all_at(&record, self.offset(ring, slot_ms))
    }

    /// Calls back for every existing record from `from_ms` to before `to_ms`: its time, and its values' bytes by
    /// column.
    pub fn read(
        &self,
        ring: usize,
        from_ms: u64,
        to_ms: u64,
        mut each: impl FnMut(u64, &dyn Fn(usize) -> f32),
    ) -> io::Result<()> {
        let Ring { step_ms, slots } = RINGS[ring];
        let size = self.record_bytes();
        let first = from_ms.div_ceil(step_ms);
        let count = to_ms.div_ceil(step_ms).saturating_sub(first).min(slots);
        let mut slot = first;
        let mut buffer = Vec::new();
        while slot < first + count {
            // The records that are contiguous before the ring wraps around.
            let in_row = (slots - slot % slots).min(first + count - slot) as usize;
            buffer.resize(in_row * size, 0);
            self.file.read_exact_at(&mut buffer, self.offset(ring, slot * step_ms))?;
            for (nth, record) in buffer.chunks_exact(size).enumerate() {
                let expected_ms = (slot + nth as u64) * step_ms;
                if u64::from_le_bytes(array(record, 0)) == expected_ms
                    && base::crc::crc32c(&record[..size - 4]) == u32::from_le_bytes(array(record, size - 4))
                {
                    each(expected_ms, &|column| f32::from_le_bytes(array(record, 8 + 4 * column)));
                }
            }
            slot += in_row as u64;
        }
        Ok(())
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn header(names: &[&str]) -> [u8; 24] {
    let mut header = [0; 24];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(names.len() as u32).to_le_bytes());
    header[16..20].copy_from_slice(&base::crc::crc32c(names.join("\n").as_bytes()).to_le_bytes());
    let crc = base::crc::crc32c(&header[..20]);
    header[20..].copy_from_slice(&crc.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tempfile::TempDir;

    const NAMES: [&str; 3] = ["ops", "keys", "hit_ratio"];
    const START_MS: u64 = 1_700_000_000_000;

    fn read(history: &History, ring: usize, from_ms: u64, to_ms: u64) -> Vec<(u64, [f32; 3])> {
        let mut found = Vec::new();
        history.read(ring, from_ms, to_ms, |at, value| found.push((at, [value(0), value(1), value(2)]))).unwrap();
        found
    }

    fn values(number: u64) -> [f64; 3] {
        [number as f64, (number * 3) as f64, 0.25]
    }

    fn scratch() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("default");
        (folder, path)
    }

    #[test]
    fn the_header_is_frozen() {
        assert_eq!(header(&NAMES)[..16], *b"FKVHIST\n\x01\0\0\0\x03\0\0\0");
        assert_eq!(u32::from_le_bytes(array(&header(&NAMES), 16)), base::crc::crc32c(b"ops\nkeys\nhit_ratio"));
    }

    #[test]
    fn written_records_survive_a_restart_and_a_pause_is_a_gap() {
        let (_folder, path) = scratch();
        let history = History::open(&path, &NAMES).unwrap();
        for second in [0, 1, 2, 7] {
            history.write(0, START_MS + second * 1000, &values(second)).unwrap();
        }
        drop(history);
        let history = History::open(&path, &NAMES).unwrap();
        let times: Vec<u64> =
            read(&history, 0, START_MS, START_MS + 60_000).iter().map(|(at, _)| (at - START_MS) / 1000).collect();
        assert_eq!(times, [0, 1, 2, 7]);
        assert_eq!(read(&history, 0, START_MS + 7000, START_MS + 7001), [(START_MS + 7000, [7.0, 21.0, 0.25])]);
        assert!(read(&history, 1, START_MS, START_MS + 60_000).is_empty(), "rings do not mix");
    }

    #[test]
    fn a_ring_holds_its_length_and_the_file_never_grows() {
        let (_folder, path) = scratch();
        let history = History::open(&path, &NAMES).unwrap();
        let bytes = fs::metadata(&path).unwrap().len();
        for second in 0..4000 {
            history.write(0, START_MS + second * 1000, &values(second)).unwrap();
        }
        let found = read(&history, 0, START_MS, START_MS + 4_000_000);
        // At most one ring is read: the first 3600 wanted slots, of which the oldest 400 were overwritten.
        assert_eq!(found.len(), 3200);
        assert_eq!(found[0].0, START_MS + 400_000);
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
    }

    #[test]
    fn files_of_other_versions_and_columns_are_kept_aside() {
        let (folder, path) = scratch();
        History::open(&path, &NAMES).unwrap().write(0, START_MS, &values(1)).unwrap();
        let history = History::open(&path, &["ops"]).unwrap();
        let mut count = 0;
        history.read(0, START_MS, START_MS + 1000, |_, _| count += 1).unwrap();
        assert_eq!(count, 0);
        assert!(folder.path().join("default.old").exists());
        let mut newer = header(&["ops"]);
        newer[8] = 2;
        fs::write(&path, newer).unwrap();
        History::open(&path, &["ops"]).unwrap();
        assert_eq!(fs::read(folder.path().join("default.old")).unwrap()[8], 2);
        fs::write(&path, "short").unwrap();
        History::open(&path, &["ops"]).unwrap().write(2, START_MS / 60_000 * 60_000, &[1.0]).unwrap();
    }

    #[test]
    fn history_without_a_folder_works_until_the_end() {
        let history = History::in_memory(&NAMES).unwrap();
        history.write(2, 120_000, &values(9)).unwrap();
        assert_eq!(read(&history, 2, 0, 240_000), [(120_000, [9.0, 27.0, 0.25])]);
        history.delete().unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
        /// Whatever is cut off or overwritten: no panic and no wrong value, and the untouched records remain.
        #[test]
        fn damage_makes_gaps_and_nothing_else(
            written in prop::collection::btree_set(0u64..3600, 1..60),
            damage in prop::collection::vec((0u64..90_000, 1usize..64, any::<u8>()), 0..6),
            cut in prop::option::of(HEADER_BYTES..90_000u64),
        ) {
            let (_folder, path) = scratch();
            let history = History::open(&path, &NAMES).unwrap();
            let origin = START_MS / 3_600_000 * 3_600_000;
            let mut expected = BTreeMap::new();
            for &second in &written {
                history.write(0, origin + second * 1000, &values(second)).unwrap();
                expected.insert(origin + second * 1000, second);
            }
            let mut hurt: Vec<(u64, u64)> = Vec::new();
            for (offset, length, byte) in damage {
                let offset = HEADER_BYTES + offset % 80_000;
                history.file.write_all_at(&vec![byte; length], offset).unwrap();
                hurt.push((offset, offset + length as u64));
            }
            if let Some(cut) = cut {
                history.file.set_len(cut).unwrap();
                hurt.push((cut, u64::MAX));
            }
            let places: BTreeMap<u64, u64> = expected.keys().map(|&at| (at, history.offset(0, at))).collect();
            let size = history.record_bytes() as u64;
            drop(history);
            let history = History::open(&path, &NAMES).unwrap();
            let found: BTreeMap<u64, [f32; 3]> = read(&history, 0, origin, origin + 3_600_000).into_iter().collect();
            for (at, found) in &found {
                let second = expected[at];
                prop_assert_eq!(found, &[second as f32, (second * 3) as f32, 0.25]);
            }
            for (at, place) in places {
                let untouched = hurt.iter().all(|&(start, end)| end <= place || start >= place + size);
                prop_assert!(!untouched || found.contains_key(&at), "{} is gone", at);
            }
        }
    }
}
