//! Owns the index file of a checkpoint, which says which keys have their values on flash, and where. Never knows what
//! an entry's bits mean, nor what a row or the table contains.
//!
//! ```text
//! chunk …        | count u32 | stripe u16 | table_id u16 | crc32c u32 | count × (high u64, word u64) |
//! row …          | 0 u32 | stripe u16 | table_id u16 | crc32c u32 | bytes u32 | a key whose value is in parts, see `store::checkpoint_index` |
//! table          | what the store must know before the first entry, see `store::checkpoint_index` |
//! trailer, 40    | "FLINTIDX" | format u32 | crc32c of the table u32 | table bytes u64 | entries u64 | zero u32 | crc32c u32 |
//! ```
//! Integers are little-endian. Chunks and rows come in any order. Their CRCs cover their first eight bytes and what
//! follows the CRC. The trailer's number of entries counts the entries of chunks, and rows. Files of format 1 have no
//! rows, and the tables of formats 1 and 2 do not contain the cut. The table comes last because it must be made after
//! the last entry is known; a reader finds it through the trailer.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use flash::sequential::{Rest, SequentialWriter};

/// A key's hash, and its word.
pub type Pair = (u64, u64);

/// For each stripe and table_id: some entries.
pub type Entries = Vec<(u16, u16, Vec<Pair>)>;

const MAGIC: [u8; 8] = *b"FLINTIDX";
const FORMAT: u32 = 3;
const CHUNK_HEADER_BYTES: usize = 12;
const PAIR_BYTES: usize = 16;
const TRAILER_BYTES: usize = 40;
/// A row has this in the place of a chunk's count. No chunk is empty.
const ROW: u32 = 0;
const ROW_HEADER_BYTES: usize = CHUNK_HEADER_BYTES + 4;
/// A chunk has at most this many entries.
const PAIRS_MAX: usize = 1 << 14;
/// A table that claims to be larger is damaged.
const TABLE_BYTES_MAX: u64 = 4 << 30;
const BUFFER_BYTES: usize = 256 << 10;

/// A part of the index of one stripe and one table id.
#[derive(Debug, PartialEq, Eq)]
pub enum Rows {
    Pairs(Vec<Pair>),
    /// A row, as [`IndexWriter::put_row`] got it.
    Row(Vec<u8>),
}

impl Rows {
    /// Bytes that they take in the file, without their headers.
    pub fn bytes(&self) -> u64 {
        match self {
            Rows::Pairs(pairs) => size_of_val(&pairs[..]) as u64,
            Rows::Row(row) => row.len() as u64,
        }
    }
}

/// Writes an index file.
pub struct IndexWriter {
    file: SequentialWriter,
    entries: u64,
    chunk: Vec<u8>,
}

impl IndexWriter {
    /// `file` is empty. `rest`: see [`SequentialWriter::new`].
    pub fn new(file: File, rest: Rest) -> IndexWriter {
        IndexWriter { file: SequentialWriter::new(file, rest), entries: 0, chunk: Vec::new() }
    }

    pub fn put(&mut self, stripe: u16, table_id: u16, pairs: &[Pair]) -> io::Result<()> {
        for some in pairs.chunks(PAIRS_MAX) {
            put_chunk(stripe, table_id, some, &mut self.chunk);
            let crc = chunk_crc(&self.chunk);
            self.chunk[8..CHUNK_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            self.file.write_all(&self.chunk)?;
            self.entries += some.len() as u64;
        }
        Ok(())
    }

    /// Writes a row, which is not empty.
    pub fn put_row(&mut self, stripe: u16, table_id: u16, row: &[u8]) -> io::Result<()> {
        let bytes = u32::try_from(row.len()).map_err(|_| io::Error::other("a collection has too many parts"))?;
        self.chunk.clear();
        self.chunk.extend_from_slice(&ROW.to_le_bytes());
        self.chunk.extend_from_slice(&stripe.to_le_bytes());
        self.chunk.extend_from_slice(&table_id.to_le_bytes());
        let crc = base::crc::crc32c_append(
            base::crc::crc32c_append(base::crc::crc32c(&self.chunk), &bytes.to_le_bytes()),
            row,
        );
        self.chunk.extend_from_slice(&crc.to_le_bytes());
        self.chunk.extend_from_slice(&bytes.to_le_bytes());
        self.file.write_all(&self.chunk)?;
        self.file.write_all(row)?;
        self.entries += 1;
        Ok(())
    }

    /// Writes the table, and makes the file durable. Returns its size.
    pub fn finish(mut self, table: &[u8]) -> io::Result<u64> {
        self.file.write_all(table)?;
        let mut trailer = Vec::with_capacity(TRAILER_BYTES);
        trailer.extend_from_slice(&MAGIC);
        trailer.extend_from_slice(&FORMAT.to_le_bytes());
        trailer.extend_from_slice(&base::crc::crc32c(table).to_le_bytes());
        trailer.extend_from_slice(&(table.len() as u64).to_le_bytes());
        trailer.extend_from_slice(&self.entries.to_le_bytes());
        trailer.extend_from_slice(&[0; 4]);
        trailer.extend_from_slice(&base::crc::crc32c(&trailer).to_le_bytes());
        self.file.write_all(&trailer)?;
        self.file.finish()
    }
}

/// A chunk without its checksum.
fn put_chunk(stripe: u16, table_id: u16, pairs: &[Pair], chunk: &mut Vec<u8>) {
    chunk.clear();
    chunk.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
    chunk.extend_from_slice(&stripe.to_le_bytes());
    chunk.extend_from_slice(&table_id.to_le_bytes());
    chunk.extend_from_slice(&[0; 4]);
    for (high, word) in pairs {
        chunk.extend_from_slice(&high.to_le_bytes());
        chunk.extend_from_slice(&word.to_le_bytes());
    }
}

fn chunk_crc(chunk: &[u8]) -> u32 {
    base::crc::crc32c_append(base::crc::crc32c(&chunk[..8]), &chunk[CHUNK_HEADER_BYTES..])
}

/// An index file that was opened: its table was read.
pub struct Index {
    file: BufReader<File>,
    pub table: Vec<u8>,
    pub entries: u64,
    /// Bytes of all chunks and rows.
    bytes: u64,
}

impl Index {
    /// Reads the table. The messages of the errors do not name the file.
    pub fn open(path: &Path) -> io::Result<Index> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut trailer = [0; TRAILER_BYTES];
        let at = size.checked_sub(TRAILER_BYTES as u64).ok_or_else(|| damaged("it is too short"))?;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut trailer)?;
        let short = |at: usize| u32::from_le_bytes(trailer[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(trailer[at..at + 8].try_into().expect("eight bytes"));
        if trailer[..8] != MAGIC {
            return Err(damaged("its end is not that of an index"));
        }
        if base::crc::crc32c(&trailer[..36]) != short(36) {
            return Err(damaged("the checksum of its end is wrong"));
        }
        if !(1..=FORMAT).contains(&short(8)) {
            let text = format!(
                "its format is {}, but this release reads only formats 1 to {FORMAT}: use the newer release",
                short(8)
            );
            return Err(io::Error::other(text));
        }
        let (table_bytes, entries) = (long(16), long(24));
        let bytes = at.checked_sub(table_bytes).filter(|_| table_bytes <= TABLE_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| damaged("the size of its table is wrong"))?;
        file.seek(SeekFrom::Start(bytes))?;
        let mut table = vec![0; table_bytes as usize];
        file.read_exact(&mut table)?;
        if base::crc::crc32c(&table) != short(12) {
            return Err(damaged("the checksum of its table is wrong"));
        }
        file.seek(SeekFrom::Start(0))?;
        Ok(Index { file: BufReader::with_capacity(BUFFER_BYTES, file), table, entries, bytes })
    }

    /// Reads all entries and rows. `each` gets a stripe, a table id, and some of their entries or a row. An error of
    /// `each` is returned unchanged.
    pub fn read<E: From<io::Error>>(&mut self, each: &mut dyn FnMut(u16, u16, Rows) -> Result<(), E>) -> Result<(), E> {
        let (mut left, mut entries, mut chunk) = (self.bytes, 0, Vec::new());
        while left > 0 {
            let (stripe, table_id, rows) = self.part(left, &mut chunk)?;
            each(stripe, table_id, rows)?;
            left -= chunk.len() as u64;
            entries += entries_of(&chunk);
        }
        match entries == self.entries {
            true => Ok(()),
            false => Err(damaged("entries are missing").into()),
        }
    }

    /// Like [`Index::read`], for a damaged index: reads all parts that are sound.
    pub fn read_sound(&mut self, each: &mut dyn FnMut(u16, u16, Rows) -> io::Result<()>) -> io::Result<Damage> {
        let (mut at, mut entries, mut chunk) = (0, 0, Vec::new());
        let mut places: Vec<Range<u64>> = Vec::new();
        while at < self.bytes {
            match self.part(self.bytes - at, &mut chunk) {
                Ok((stripe, table_id, rows)) => {
                    each(stripe, table_id, rows)?;
                    at += chunk.len() as u64;
                    entries += entries_of(&chunk);
                    continue;
                }
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                Err(_) => {}
            }
            // The length of the damaged part is not known, so each of the following bytes may begin the next sound
            // part.
            match places.last_mut().filter(|place| place.end == at) {
                Some(place) => place.end += 1,
                None => places.push(at..at + 1),
            }
            at += 1;
            self.seek(at)?;
        }
        self.seek(0)?;
        Ok(Damage { places, missing: self.entries.saturating_sub(entries) })
    }

    /// Reads a damaged place.
    pub fn read_place(&mut self, place: &Range<u64>) -> io::Result<Vec<u8>> {
        self.seek(place.start)?;
        let mut bytes = vec![0; (place.end - place.start) as usize];
        self.file.read_exact(&mut bytes)?;
        self.seek(0)?;
        Ok(bytes)
    }

    /// Goes to a place, which is often near the last one.
    fn seek(&mut self, at: u64) -> io::Result<()> {
        let now = self.file.stream_position()?;
        self.file.seek_relative(at as i64 - now as i64)
    }

    /// Reads the next part into `chunk`. `left`: the bytes of all parts from here on.
    fn part(&mut self, left: u64, chunk: &mut Vec<u8>) -> io::Result<(u16, u16, Rows)> {
        let mut count = [0; 4];
        if left < CHUNK_HEADER_BYTES as u64 {
            return Err(damaged("a part of it is cut off"));
        }
        self.file.read_exact(&mut count)?;
        let is_row = u32::from_le_bytes(count) == ROW;
        let pairs = u32::from_le_bytes(count) as usize;
        let mut bytes = match is_row {
            true => ROW_HEADER_BYTES,
            false => CHUNK_HEADER_BYTES + pairs.min(PAIRS_MAX + 1) * PAIR_BYTES,
        };
        let is_cut = |bytes: usize| bytes as u64 > left;
        if pairs > PAIRS_MAX || is_cut(bytes) {
            return Err(damaged("the length of a part of it is wrong"));
        }
        chunk.resize(bytes, 0);
        chunk[..4].copy_from_slice(&count);
        self.file.read_exact(&mut chunk[4..])?;
        if is_row {
            let row = u32::from_le_bytes(chunk[CHUNK_HEADER_BYTES..].try_into().expect("four bytes"));
            bytes += row as usize;
            if row == 0 || is_cut(bytes) {
                return Err(damaged("the length of a part of it is wrong"));
            }
            chunk.resize(bytes, 0);
            self.file.read_exact(&mut chunk[ROW_HEADER_BYTES..])?;
        }
        if chunk_crc(chunk).to_le_bytes() != chunk[8..CHUNK_HEADER_BYTES] {
            return Err(damaged("the checksum of a part of it is wrong"));
        }
        let rows = match is_row {
            true => Rows::Row(chunk[ROW_HEADER_BYTES..].to_vec()),
            false => Rows::Pairs(pairs_of(&chunk[CHUNK_HEADER_BYTES..])),
        };
        let short = |at: usize| u16::from_le_bytes([chunk[at], chunk[at + 1]]);
        Ok((short(4), short(6), rows))
    }
}

/// Number of entries in a part.
fn entries_of(chunk: &[u8]) -> u64 {
    let count = u32::from_le_bytes(*chunk.first_chunk().expect("a part has a header"));
    count.max(1).into()
}

/// The damage of an index.
#[derive(Debug, PartialEq, Eq)]
pub struct Damage {
    /// The places that contain no sound part.
    pub places: Vec<Range<u64>>,
    /// How many entries the sound parts lack.
    pub missing: u64,
}

/// A part whose checksum is wrong, as its header describes it.
#[derive(Debug, PartialEq, Eq)]
pub enum Torn<'b> {
    Pairs { stripe: u16, table_id: u16, pairs: Vec<Pair>, crc: u32 },
    Row { stripe: u16, table_id: u16, row: &'b [u8] },
}

/// The parts of a damaged place. `None`: their lengths do not add up, so a header is damaged.
pub fn torn(mut place: &[u8]) -> Option<Vec<Torn<'_>>> {
    let mut parts = Vec::new();
    while !place.is_empty() {
        let short = |at: usize| place.get(at..at + 2).map(|two| u16::from_le_bytes([two[0], two[1]]));
        let long = |at: usize| place.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four));
        let (count, stripe, table_id) = (long(0)?, short(4)?, short(6)?);
        let bytes = match count {
            ROW => ROW_HEADER_BYTES + long(CHUNK_HEADER_BYTES)? as usize,
            count if count as usize > PAIRS_MAX => return None,
            count => CHUNK_HEADER_BYTES + count as usize * PAIR_BYTES,
        };
        let (part, behind) = place.split_at_checked(bytes)?;
        parts.push(match count {
            ROW => Torn::Row { stripe, table_id, row: &part[ROW_HEADER_BYTES..] },
            _ => Torn::Pairs { stripe, table_id, pairs: pairs_of(&part[CHUNK_HEADER_BYTES..]), crc: long(8)? },
        });
        place = behind;
    }
    Some(parts)
}

/// The checksum of a part with these entries.
pub fn sum_of(stripe: u16, table_id: u16, pairs: &[Pair]) -> u32 {
    let mut chunk = Vec::new();
    put_chunk(stripe, table_id, pairs, &mut chunk);
    chunk_crc(&chunk)
}

fn pairs_of(bytes: &[u8]) -> Vec<Pair> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let pair = |bytes: &[u8; PAIR_BYTES]| (number(&bytes[..8]), number(&bytes[8..]));
    bytes.as_chunks().0.iter().map(pair).collect()
}

/// What may be an entry in a damaged place: any 16 bytes, because it is not known where a part begins.
pub fn pairs_in(place: &[u8]) -> impl Iterator<Item = Pair> {
    place.windows(PAIR_BYTES).flat_map(pairs_of)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the index is damaged: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    type Read = Vec<(u16, u16, Rows)>;

    fn all(path: &Path) -> io::Result<(Read, Vec<u8>)> {
        let mut index = Index::open(path)?;
        let mut read = Vec::new();
        index.read::<io::Error>(&mut |stripe, table_id, rows| {
            read.push((stripe, table_id, rows));
            Ok(())
        })?;
        Ok((read, index.table))
    }

    fn written(path: &Path) -> u64 {
        let mut writer = IndexWriter::new(File::create(path).unwrap(), Box::new(|_| {}));
        writer.put(3, 1, &[(1, 2), (3, u64::MAX)]).unwrap();
        writer.put(1023, 0, &[(5, 6)]).unwrap();
        writer.put_row(7, 2, b"the row").unwrap();
        writer.finish(b"the table").unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        assert_eq!(written(&path), fs::metadata(&path).unwrap().len());
        let (read, table) = all(&path).unwrap();
        let pairs = [(3, 1, Rows::Pairs(vec![(1, 2), (3, u64::MAX)])), (1023, 0, Rows::Pairs(vec![(5, 6)]))];
        assert_eq!(read[..2], pairs);
        assert_eq!(read[2..], [(7, 2, Rows::Row(b"the row".to_vec()))]);
        assert_eq!(table, b"the table");

        let many: Vec<Pair> = (0..PAIRS_MAX as u64 + 5).map(|number| (number, number * 7)).collect();
        let mut writer = IndexWriter::new(File::create(&path).unwrap(), Box::new(|_| {}));
        writer.put(9, 2, &many).unwrap();
        writer.finish(&[]).unwrap();
        let (read, table) = all(&path).unwrap();
        let chunks: Vec<Vec<Pair>> = read
            .into_iter()
            .map(|(_, _, rows)| match rows {
                Rows::Pairs(pairs) => pairs,
                Rows::Row(_) => panic!("there is no row"),
            })
            .collect();
        assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [PAIRS_MAX, 5]);
        assert_eq!(chunks.concat(), many);
        assert_eq!(table, []);
    }

    #[test]
    fn a_damaged_part_costs_no_other_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let mut writer = IndexWriter::new(File::create(&path).unwrap(), Box::new(|_| {}));
        (0..10).for_each(|stripe| writer.put(stripe, 0, &[(7, 8), (9, u64::from(stripe))]).unwrap());
        writer.put_row(10, 2, b"the row").unwrap();
        writer.put(11, 0, &[(1, 2)]).unwrap();
        writer.finish(b"the table").unwrap();
        let whole = fs::read(&path).unwrap();
        let part = CHUNK_HEADER_BYTES + 2 * PAIR_BYTES;
        let sound = |damage: &[usize]| {
            let mut bytes = whole.clone();
            damage.iter().for_each(|&at| bytes[at] ^= 0x55);
            fs::write(&path, bytes).unwrap();
            let (mut stripes, mut index) = (Vec::new(), Index::open(&path).unwrap());
            let mut each = |stripe, _, _| {
                stripes.push(stripe);
                Ok(())
            };
            let damage = index.read_sound(&mut each).unwrap();
            (stripes, (damage.places.len(), damage.missing))
        };
        assert_eq!(sound(&[]), ((0..12).collect(), (0, 0)));
        assert_eq!(sound(&[3 * part + 20]).1, (1, 2));
        // A header, and so the length of the part.
        assert_eq!(sound(&[0]), ((1..12).collect(), (1, 2)));
        assert_eq!(sound(&[part, 2 * part + 30, 7 * part]), (vec![0, 3, 4, 5, 6, 8, 9, 10, 11], (2, 6)));
        let row = 10 * part;
        assert_eq!(sound(&[row + 12]).0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11]);
        let last = row + ROW_HEADER_BYTES + 7;
        assert_eq!(sound(&[last + 15]), ((0..11).collect(), (1, 1)));
    }

    #[test]
    fn what_is_left_of_a_damaged_part_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        written(&path);
        let whole = fs::read(&path).unwrap();
        let left = |damage: &[usize]| {
            let mut bytes = whole.clone();
            damage.iter().for_each(|&at| bytes[at] ^= 0x55);
            fs::write(&path, bytes).unwrap();
            let mut index = Index::open(&path).unwrap();
            let damage = index.read_sound(&mut |_, _, _| Ok(())).unwrap();
            let places: Vec<_> = damage.places.iter().map(|place| index.read_place(place).unwrap()).collect();
            // The sound parts can be read again.
            assert_eq!(index.read_sound(&mut |_, _, _| Ok(())).unwrap(), damage);
            places
        };
        let first = CHUNK_HEADER_BYTES + 2 * PAIR_BYTES;
        let row = first + CHUNK_HEADER_BYTES + PAIR_BYTES;
        assert_eq!(left(&[]), Vec::<Vec<u8>>::new());
        // One pair is lost, and the other one is still there.
        let places = left(&[CHUNK_HEADER_BYTES]);
        let pairs = vec![(1 ^ 0x55, 2), (3, u64::MAX)];
        let crc = sum_of(3, 1, &[(1, 2), (3, u64::MAX)]);
        assert_eq!(torn(&places[0]), Some(vec![Torn::Pairs { stripe: 3, table_id: 1, pairs, crc }]));
        assert!(pairs_in(&places[0]).any(|pair| pair == (3, u64::MAX)));
        assert!(!pairs_in(&places[0]).any(|pair| pair == (1, 2)));
        // Two parts that follow each other are one place.
        let places = left(&[first - 1, row + ROW_HEADER_BYTES, first + CHUNK_HEADER_BYTES]);
        let pairs = vec![(5 ^ 0x55, 6)];
        let crc = sum_of(1023, 0, &[(5, 6)]);
        let rest = [
            Torn::Pairs { stripe: 1023, table_id: 0, pairs, crc },
            Torn::Row { stripe: 7, table_id: 2, row: b"!he row" },
        ];
        assert_eq!(torn(&places[0]).unwrap()[1..], rest);
        // A damaged length, from which nothing else follows.
        let places = left(&[0]);
        assert_eq!(torn(&places[0]), None);
        assert_eq!(pairs_in(&places[0]).filter(|pair| [(1, 2), (3, u64::MAX)].contains(pair)).count(), 2);
    }

    /// The bytes of format 3 never change. Format 2 differs from it only in the number of the format.
    #[test]
    fn the_bytes_are_those_of_the_format() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        written(&path);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(&bytes[..8], [2, 0, 0, 0, 3, 0, 1, 0]);
        assert_eq!(&bytes[12..20], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[12 + 32..][..8], [1, 0, 0, 0, 255, 3, 0, 0]);
        let row = &bytes[12 + 32 + 12 + 16..];
        assert_eq!(&row[..8], [0, 0, 0, 0, 7, 0, 2, 0]);
        assert_eq!(&row[12..23], b"\x07\0\0\0the row");
        assert_eq!(&row[23..][..9], b"the table");
        let trailer = &bytes[bytes.len() - TRAILER_BYTES..];
        assert_eq!(&trailer[..12], b"FLINTIDX\x03\0\0\0");
        assert_eq!(&trailer[16..36], [9, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unnoticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        written(&path);
        let mut bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            assert!(all(&path).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            assert!(all(&path).is_err(), "cut at {cut}");
            fs::write(&path, &bytes[cut + 1..]).unwrap();
            assert!(all(&path).is_err(), "{} bytes are missing at the beginning", cut + 1);
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        written(&path);
        let mut bytes = fs::read(&path).unwrap();
        let trailer = bytes.len() - TRAILER_BYTES;
        bytes[trailer + 8] = 4;
        let crc = base::crc::crc32c(&bytes[trailer..trailer + 36]);
        bytes[trailer + 36..].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let said = all(&path).unwrap_err().to_string();
        assert!(said.starts_with("its format is 4, but this release reads only formats 1 to 3"), "{said}");
    }
}
