//! Owns the files of an archive: copies of a journal's records that outlive the journal's own files. Never knows which
//! files are made, nor when they are deleted.
//!
//! Each file has the records of one [`Stretch`] of the journal. The file's name contains the stretch, so a list of the
//! directory shows what the archive has. A file is written under another name, and renamed when it is on the device. So
//! a file with its final name is complete.
//!
//! ```text
//! head, 44 bytes | "FLINTKVA" | format u32 | zero u32 | log id, 16 bytes | start u64 | crc32c u32 of all before |
//! record …       | position after it u64 | time u64, ms | logical database u32 | bytes u32 | RESP |
//! trailer, 36    | u64::MAX | end u64 | until u64, ms | records u64 | crc32c u32 of all before |
//! ```
//! Integers are little-endian.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{Record, manifest};

const MAGIC: [u8; 8] = *b"FLINTKVA";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 44;
const RECORD_HEAD_BYTES: usize = 24;
const TRAILER_BYTES: usize = 36;
/// This value stands in the place of a record's position when the trailer follows.
const TRAILER: u64 = u64::MAX;
const ENDING: &str = ".records";
const BUFFER_BYTES: usize = 256 << 10;

/// The part of a journal that one file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stretch {
    /// The positions before its first record and after its last one.
    pub start: u64,
    pub end: u64,
    /// All later records of the journal have this time or a later one, in milliseconds since 1970.
    pub until_ms: u64,
}

impl Stretch {
    /// The file's name. Names sort by position.
    pub fn name(&self) -> String {
        format!("{:020}-{:020}-{}{ENDING}", self.start, self.end, self.until_ms)
    }

    /// `None`: this is not the name of an archive's file.
    pub fn of_name(name: &str) -> Option<Stretch> {
        let mut numbers = name.strip_suffix(ENDING)?.split('-').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let stretch = Stretch { start: next()?, end: next()?, until_ms: next()? };
        (stretch.name() == name && stretch.start <= stretch.end).then_some(stretch)
    }
}

/// The stretches that the archive in a directory has, in the order of positions. A missing directory has none.
pub fn list(folder: &Path) -> io::Result<Vec<Stretch>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        found.extend(entry?.file_name().to_str().and_then(Stretch::of_name));
    }
    found.sort_unstable();
    Ok(found)
}

/// Writes one file.
pub struct Writer {
    folder: PathBuf,
    file: BufWriter<File>,
    start: u64,
    crc: u32,
    bytes: u64,
    records: u64,
}

impl Writer {
    /// Begins a file in a directory that only this writer writes to.
    pub fn create(folder: &Path, log_id: [u8; 16], start: u64) -> io::Result<Writer> {
        let options = File::options().write(true).create(true).truncate(true).mode(0o600).clone();
        let file = BufWriter::with_capacity(BUFFER_BYTES, options.open(draft(folder))?);
        let mut writer = Writer { folder: folder.to_owned(), file, start, crc: 0, bytes: 0, records: 0 };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&FORMAT.to_le_bytes());
        head.extend_from_slice(&[0; 4]);
        head.extend_from_slice(&log_id);
        head.extend_from_slice(&start.to_le_bytes());
        head.extend_from_slice(&base::crc::crc32c(&head).to_le_bytes());
        writer.write(&head)?;
        Ok(writer)
    }

    /// Adds the next record. `end`: the position after it.
    pub fn put(&mut self, end: u64, record: &Record) -> io::Result<()> {
        let bytes = u32::try_from(record.resp.len()).map_err(|_| io::Error::other("a record is larger than 4 GB"))?;
        let mut head = [0; RECORD_HEAD_BYTES];
        head[..8].copy_from_slice(&end.to_le_bytes());
        head[8..16].copy_from_slice(&record.time_ms.to_le_bytes());
        head[16..20].copy_from_slice(&record.db.to_le_bytes());
        head[20..].copy_from_slice(&bytes.to_le_bytes());
        self.write(&head)?;
        self.write(record.resp)?;
        self.records += 1;
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Puts the file on the device and names it.
    pub fn finish(mut self, end: u64, until_ms: u64) -> io::Result<Stretch> {
        let mut trailer = Vec::with_capacity(TRAILER_BYTES - 4);
        for number in [TRAILER, end, until_ms, self.records] {
            trailer.extend_from_slice(&number.to_le_bytes());
        }
        self.write(&trailer)?;
        self.file.write_all(&self.crc.to_le_bytes())?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        let stretch = Stretch { start: self.start, end, until_ms };
        fs::rename(draft(&self.folder), self.folder.join(stretch.name()))?;
        manifest::sync(&self.folder)?;
        Ok(stretch)
    }

    /// Gives the file up and removes it.
    pub fn discard(self) {
        // Best effort: the next file is written under the same unfinished name.
        let _ = fs::remove_file(draft(&self.folder));
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = base::crc::crc32c_append(self.crc, bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

fn draft(folder: &Path) -> PathBuf {
    folder.join("next.new")
}

/// Reads one file. The messages of its errors do not name the file.
pub struct Reader {
    file: BufReader<File>,
    stretch: Stretch,
    /// Number of bytes behind what was read.
    left: u64,
    crc: u32,
    position: u64,
    records: u64,
    resp: Vec<u8>,
}

impl Reader {
    /// Opens a file, and checks that it contains this stretch of this journal.
    pub fn open(folder: &Path, stretch: Stretch, log_id: [u8; 16]) -> io::Result<Reader> {
        let file = File::open(folder.join(stretch.name()))?;
        let left = file.metadata()?.len();
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        let position = stretch.start;
        let mut reader = Reader { file, stretch, left, crc: 0, position, records: 0, resp: Vec::new() };
        let head: [u8; HEAD_BYTES] = reader.take()?;
        if head[..8] != MAGIC || u32_of(&head[40..]) != base::crc::crc32c(&head[..40]) {
            return Err(damaged("its header is not that of an archive file"));
        }
        match u32_of(&head[8..]) {
            FORMAT => {}
            other => {
                return Err(damaged(&format!("its format is {other}, but this release reads only format {FORMAT}")));
            }
        }
        if head[16..32] != log_id {
            return Err(damaged("it has records of another journal"));
        }
        if u64_of(&head[32..]) != stretch.start {
            return Err(damaged("it has other positions than its name says"));
        }
        Ok(reader)
    }

    /// The next record, and the position after it. After `None` the whole file was sound.
    /// Before that, a returned record may be damaged: read a file to its end before its records are used.
    pub fn next_record(&mut self) -> io::Result<Option<(u64, Record<'_>)>> {
        let end = u64_of(&self.take::<8>()?);
        if end == TRAILER {
            return self.end().map(|()| None);
        }
        let head: [u8; RECORD_HEAD_BYTES - 8] = self.take()?;
        let bytes = u32_of(&head[12..]);
        if u64::from(bytes) > self.left || end <= self.position || end > self.stretch.end {
            return Err(damaged(&format!("the record after position {} is damaged", self.position)));
        }
        self.resp.resize(bytes as usize, 0);
        self.file.read_exact(&mut self.resp)?;
        self.crc = base::crc::crc32c_append(self.crc, &self.resp);
        self.left -= u64::from(bytes);
        self.position = end;
        self.records += 1;
        let record = Record { db: u32_of(&head[8..]), time_ms: u64_of(&head), resp: &self.resp };
        Ok(Some((end, record)))
    }

    fn end(&mut self) -> io::Result<()> {
        let numbers: [u8; TRAILER_BYTES - 12] = self.take()?;
        let crc = self.crc;
        let is_sound = u32_of(&self.take::<4>()?) == crc
            && u64_of(&numbers) == self.stretch.end
            && u64_of(&numbers[8..]) == self.stretch.until_ms
            && u64_of(&numbers[16..]) == self.records
            && self.left == 0;
        if is_sound { Ok(()) } else { Err(damaged("its checksum or its end is wrong")) }
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.left = self.left.checked_sub(N as u64).ok_or_else(|| damaged("it is cut off"))?;
        self.file.read_exact(&mut bytes)?;
        self.crc = base::crc::crc32c_append(self.crc, &bytes);
        Ok(bytes)
    }
}

/// Reads a file from the first byte to the last. `read` is called with the number of bytes read since the last call,
/// and may stop the reading with an error. Returns the number of records.
pub fn verify(
    folder: &Path,
    stretch: Stretch,
    log_id: [u8; 16],
    read: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let mut reader = Reader::open(folder, stretch, log_id)?;
    let mut left = reader.left;
    while reader.next_record()?.is_some() {
        read(left - reader.left)?;
        left = reader.left;
    }
    Ok(reader.records)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"))
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [u8; 16] = *b"0123456789abcdef";

    fn one(folder: &Path) -> Stretch {
        let mut writer = Writer::create(folder, LOG, 10).unwrap();
        assert!(writer.is_empty());
        writer.put(40, &Record { db: 2, time_ms: 77, resp: b"one" }).unwrap();
        writer.put(90, &Record { db: 0, time_ms: 78, resp: b"" }).unwrap();
        writer.finish(90, 80).unwrap()
    }

    /// A position, a logical database, a time and RESP.
    type Read = (u64, u32, u64, Vec<u8>);

    fn read(folder: &Path, stretch: Stretch) -> io::Result<Vec<Read>> {
        let mut reader = Reader::open(folder, stretch, LOG)?;
        let mut found = Vec::new();
        while let Some((end, record)) = reader.next_record()? {
            found.push((end, record.db, record.time_ms, record.resp.to_vec()));
        }
        Ok(found)
    }

    #[test]
    fn a_stretch_is_read_back_and_its_name_tells_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(list(&folder.join("none")).unwrap().is_empty());
        let stretch = one(folder);
        assert_eq!(stretch.name(), "00000000000000000010-00000000000000000090-80.records");
        fs::write(folder.join("00000000000000000010-90-80.records"), b"").unwrap();
        fs::write(folder.join("next.new"), b"").unwrap();
        assert_eq!(list(folder).unwrap(), [stretch]);
        assert_eq!(read(folder, stretch).unwrap(), [(40, 2, 77, b"one".to_vec()), (90, 0, 78, Vec::new())]);
        let mut bytes = 0;
        let records = verify(folder, stretch, LOG, &mut |more| {
            bytes += more;
            Ok(())
        });
        assert_eq!((records.unwrap(), bytes > 40), (2, true));
        let other = Reader::open(folder, stretch, [7; 16]).err().unwrap();
        assert_eq!(other.to_string(), "it has records of another journal");
    }

    #[test]
    fn no_flipped_bit_and_no_missing_byte_goes_unnoticed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let stretch = one(folder);
        let path = folder.join(stretch.name());
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            assert!(read(folder, stretch).is_err(), "bit {bit}");
        }
        for bytes in 0..whole.len() {
            fs::write(&path, &whole[..bytes]).unwrap();
            assert!(read(folder, stretch).is_err(), "cut off at {bytes}");
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert!(read(folder, stretch).is_err(), "a byte more");
        // The name is part of what is checked.
        let renamed = Stretch { until_ms: 81, ..stretch };
        fs::write(folder.join(renamed.name()), &whole).unwrap();
        assert!(read(folder, renamed).is_err());
    }

    /// These bytes must stay readable.
    #[test]
    fn the_format_is_frozen() {
        let folder = tempfile::tempdir().unwrap();
        let stretch = one(folder.path());
        let bytes = fs::read(folder.path().join(stretch.name())).unwrap();
        assert_eq!(bytes[..32], *b"FLINTKVA\x01\0\0\0\0\0\0\x000123456789abcdef");
        assert_eq!(bytes[32..40], 10u64.to_le_bytes());
        let record = b"\x28\0\0\0\0\0\0\0\x4d\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0one";
        assert_eq!(bytes[44..][..record.len()], *record);
        assert_eq!(bytes.len(), HEAD_BYTES + record.len() + RECORD_HEAD_BYTES + TRAILER_BYTES);
    }
}
