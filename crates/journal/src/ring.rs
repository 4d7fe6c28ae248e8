//! Owns the ring: a file that is mapped into memory. Records are copied into it before their commands unlock their
//! stripes, so a killed process loses none of them. Never knows a device or a frame.
//!
//! An *entry* is a piece of a record. Entries lie one behind the other; one that does not fit before the end of the ring begins at its
//! start. An *offset* counts the ring's bytes over all laps. All integers are little-endian:
//!
//! ```text
//!   the file:  0      1024    1088    4096
//!              | head | start | start | entries … |
//!              |      | 64    | 64    |
//!
//!   a start:   0        8          16      20
//!              | offset | position | crc32c | the entries from here on may be needed; of two, the later one counts
//!
//!   an entry:  0          8       16
//!              | position | check | the piece … | to a multiple of 8 |
//!              | u64      | u64   |
//! ```
//!
//! CRC and check begin with the log id and the *epoch*, which is random and new at each start of the process. An entry's check is a hash
//! of its position and of the piece's length and CRC. So bytes of an earlier lap, of an earlier start, or of another journal are never taken for
//! entries.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use crate::head::{HEAD_BYTES, Head, Kind};
use crate::map::Map;
use crate::record::{Piece, Record};

/// Where the entries begin in the file.
pub(crate) const ENTRIES_AT: usize = 4096;
const STARTS_AT: [usize; 2] = [1024, 1088];
const ENTRY_HEADER_BYTES: usize = 16;
/// At most this much memory is prefetched for the next entry.
const EXPECTED_BYTES_MAX: usize = 1 << 10;
const _: () = assert!(HEAD_BYTES <= STARTS_AT[0] && STARTS_AT[1] + 20 <= ENTRIES_AT);

/// The smallest ring: every piece fits several times.
pub(crate) const RING_BYTES_MIN: u64 = 128 << 10;

pub(crate) struct Ring {
    map: Map,
    /// Bytes of entries that the ring can hold.
    room: u64,
    seed: u64,
    /// Entries before this offset may be overwritten.
    released: u64,
    /// Entries before this offset have been taken.
    taken: u64,
    /// `taken`, counted from the start of its lap.
    taken_in_lap: usize,
    /// The position of the entry at `taken`.
    taken_position: u64,
    /// The offset of the next entry.
    head: u64,
    /// `head`, counted from the start of its lap. A division for each record would cost as much as the record's header.
    head_in_lap: usize,
    /// The last entry before this offset was the last of its lap, although a smaller entry would have fitted behind it.
    skipped: u64,
}

/// The first of the entries that may still be needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub offset: u64,
    pub position: u64,
}

impl Ring {
    /// The size of the file of a ring with this many bytes.
    pub fn file_bytes(ring_bytes: u64) -> u64 {
        ENTRIES_AT as u64 + ring_bytes
    }

    fn new(map: Map, head: &Head, position: u64) -> Ring {
        Ring {
            map,
            room: head.data_bytes,
            seed: seed(head),
            released: 0,
            taken: 0,
            taken_in_lap: 0,
            taken_position: position,
            head: 0,
            head_in_lap: 0,
            skipped: u64::MAX,
        }
    }

    /// The ring that a process has left in `file`, and where its entries begin. There is no start if the process died
    /// while it was emptying the ring.
    pub fn left_in(file: &File, head: &Head) -> io::Result<(Ring, Option<Start>)> {
        let map = Map::of(file, Ring::file_bytes(head.data_bytes) as usize)?;
        let seed = seed(head);
        let start = STARTS_AT
            .iter()
            .filter_map(|&at| read_start(seed, &map[at..]))
            .max_by_key(|start| (start.offset, start.position));
        Ok((Ring::new(map, head, 0), start))
    }

    /// Empties the ring in `file`, durably. Its next entry will have `position`.
    pub fn empty(file: &File, head: &Head, position: u64) -> io::Result<Ring> {
        assert_eq!(head.kind, Kind::Ring);
        let seed = seed(head);
        let mut page = vec![0; ENTRIES_AT];
        head.write(&mut page);
        write_start(seed, Start { offset: 0, position }, &mut page[STARTS_AT[0]..]);
        file.write_all_at(&page, 0)?;
        file.sync_data()?;
        let map = Map::of(file, Ring::file_bytes(head.data_bytes) as usize)?;
        Ok(Ring::new(map, head, position))
    }

    /// Bytes of entries that must not be overwritten now.
    pub fn used_bytes(&self) -> u64 {
        self.head - self.released
    }

    pub fn bytes(&self) -> u64 {
        self.room
    }

    /// Copies the record into the ring, if it fits. `position` is that of the record.
    pub fn append(&mut self, position: u64, record: &Record) -> bool {
        if self.end_of(record) > self.released + self.room {
            return false;
        }
        let mut position = position;
        for piece in record.pieces() {
            let bytes = piece.bytes();
            self.put(position, bytes, |out| {
                piece.write(out);
                bytes
            });
            position += bytes as u64;
        }
        true
    }

    /// Like [`Ring::append`], for a record of one piece: `write` writes the piece and returns its length. Returns this
    /// length, or `None` if a piece of the maximum length would not fit.
    #[inline]
    pub fn append_piece(
        &mut self,
        position: u64,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Option<usize> {
        let (offset, _) = self.next_place(bytes_max);
        let fits = offset + entry_bytes(bytes_max) <= self.released + self.room;
        fits.then(|| self.put(position, bytes_max, write))
    }

    /// Where an entry with a piece of this length goes: its offset, and its place in the lap.
    #[inline]
    fn next_place(&self, piece_bytes: usize) -> (u64, usize) {
        let behind = self.room - self.head_in_lap as u64;
        if entry_bytes(piece_bytes) <= behind { (self.head, self.head_in_lap) } else { (self.head + behind, 0) }
    }

    #[inline]
    fn put(&mut self, position: u64, bytes_max: usize, write: impl FnOnce(&mut [u8]) -> usize) -> usize {
        let (offset, in_lap) = self.next_place(bytes_max);
        if offset != self.head {
            self.skipped = self.head;
        }
        let at = ENTRIES_AT + in_lap;
        let entry = &mut self.map[at..at + ENTRY_HEADER_BYTES + bytes_max];
        let (header, piece) = entry.split_first_chunk_mut::<ENTRY_HEADER_BYTES>().expect("it has a header");
        let piece_bytes = write(piece);
        header[..8].copy_from_slice(&position.to_le_bytes());
        header[8..].copy_from_slice(&check(self.seed, position, piece).to_le_bytes());
        let bytes = entry_bytes(piece_bytes);
        self.head = offset + bytes;
        self.head_in_lap = self.behind(in_lap, bytes);
        // Prefetch the place of the next entry, because records are often as long as the last one. Otherwise unlocking
        // would wait for the memory.
        self.map.expect_write(ENTRIES_AT + self.head_in_lap, (bytes as usize).min(EXPECTED_BYTES_MAX));
        piece_bytes
    }

    /// The place in the lap behind an entry of this length.
    #[inline]
    fn behind(&self, in_lap: usize, entry_bytes: u64) -> usize {
        let end = in_lap + entry_bytes as usize;
        if end as u64 == self.room { 0 } else { end }
    }

    /// The offset at which the record's last entry would end.
    fn end_of(&self, record: &Record) -> u64 {
        record.pieces().fold(self.head, |head, piece| self.skip_to(head, piece.bytes()) + entry_bytes(piece.bytes()))
    }

    /// The offset of an entry with a piece of this length, if the entry before ends at `offset`.
    fn skip_to(&self, offset: u64, piece_bytes: usize) -> u64 {
        let behind = self.room - offset % self.room;
        if entry_bytes(piece_bytes) <= behind { offset } else { offset + behind }
    }

    /// Calls `each` with the pieces of the next entries, until these are at least `bytes_max` bytes. Returns the
    /// position behind them.
    pub fn take(&mut self, bytes_max: u64, mut each: impl FnMut(&[u8])) -> u64 {
        let end = self.taken_position + bytes_max;
        while self.taken < self.head && self.taken_position < end {
            // This process has written the entry, so its check need not be compared.
            if self.taken == self.skipped {
                self.taken += self.room - self.taken_in_lap as u64;
                self.taken_in_lap = 0;
            }
            let entry = &self.map[ENTRIES_AT + self.taken_in_lap..];
            assert_eq!(u64_at(entry, 0), self.taken_position, "the ring has the records in order");
            let piece = Piece::bytes_of(&entry[ENTRY_HEADER_BYTES..]).expect("whole pieces");
            each(piece);
            let bytes = entry_bytes(piece.len());
            self.taken += bytes;
            self.taken_position += piece.len() as u64;
            self.taken_in_lap = self.behind(self.taken_in_lap, bytes);
        }
        self.taken_position
    }

    /// The offset up to which entries have been taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    pub fn is_taken(&self) -> bool {
        self.taken == self.head
    }

    /// Entries before `start`, which have been taken, are not needed any more and may be overwritten.
    pub fn release(&mut self, start: Start) {
        assert!(self.released <= start.offset && start.offset <= self.taken);
        // Overwrite the start that does not count now.
        let at = STARTS_AT[usize::from(self.map_start() == 0)];
        write_start(self.seed, start, &mut self.map[at..]);
        self.released = start.offset;
    }

    /// Continues with an empty ring whose next entry has `position`, because the records before went to the overflow.
    pub fn restart(&mut self, position: u64) {
        assert!(self.is_taken());
        self.taken_position = position;
        self.release(Start { offset: self.head, position });
    }

    /// Which of the two starts counts.
    fn map_start(&self) -> usize {
        let starts =
            STARTS_AT.map(|at| read_start(self.seed, &self.map[at..]).map(|start| (start.offset, start.position)));
        usize::from(starts[1] > starts[0])
    }

    /// Calls `each` with the pieces from `start` on, and their positions.
    pub fn pieces<B>(&self, start: Start, mut each: impl FnMut(u64, &[u8]) -> ControlFlow<B>) -> ControlFlow<B> {
        let Start { mut offset, mut position } = start;
        let end = offset + self.room;
        // The piece may be torn, if the process was killed while copying it.
        let is_whole = |&(at, piece): &(u64, &[u8])| at < end && Piece::read(piece).is_some();
        while let Some((at, piece)) = self.entry_at(offset, position).filter(is_whole) {
            each(position, piece)?;
            offset = at + entry_bytes(piece.len());
            position += piece.len() as u64;
        }
        ControlFlow::Continue(())
    }

    /// The piece of the entry behind `offset`, which has `position`, and the entry's own offset.
    fn entry_at(&self, offset: u64, position: u64) -> Option<(u64, &[u8])> {
        let behind = self.room - offset % self.room;
        [offset, offset + behind].into_iter().find_map(|offset| {
            let at = (offset % self.room) as usize;
            let bytes = &self.map[ENTRIES_AT + at..];
            let header = bytes.first_chunk::<ENTRY_HEADER_BYTES>()?;
            let piece = Piece::bytes_of(&bytes[ENTRY_HEADER_BYTES..])?;
            let is_it =
                header[..8] == position.to_le_bytes() && header[8..] == check(self.seed, position, piece).to_le_bytes();
            is_it.then_some((offset, piece))
        })
    }
}

fn entry_bytes(piece_bytes: usize) -> u64 {
    (ENTRY_HEADER_BYTES + piece_bytes).next_multiple_of(8) as u64
}

fn seed(head: &Head) -> u64 {
    mix(mix(u64_at(&head.log_id, 0) ^ head.epoch) ^ u64_at(&head.log_id, 8))
}

/// The check covers the piece's own CRC, which covers the rest of the piece. A hash of two words takes a twentieth of
/// the instructions of a CRC over them, and its 64 bits are stronger.
#[inline]
fn check(seed: u64, position: u64, piece: &[u8]) -> u64 {
    mix(mix(seed ^ position) ^ u64_at(piece, 0))
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): each bit of the argument changes half of the result's.
#[inline]
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn write_start(seed: u64, start: Start, out: &mut [u8]) {
    out[..8].copy_from_slice(&start.offset.to_le_bytes());
    out[8..16].copy_from_slice(&start.position.to_le_bytes());
    let crc = base::crc::crc32c_append(seed as u32, &out[..16]);
    out[16..20].copy_from_slice(&crc.to_le_bytes());
}

fn read_start(seed: u64, bytes: &[u8]) -> Option<Start> {
    let bytes = bytes.first_chunk::<20>()?;
    let is_whole = bytes[16..] == base::crc::crc32c_append(seed as u32, &bytes[..16]).to_le_bytes();
    is_whole.then(|| Start { offset: u64_at(bytes, 0), position: u64_at(bytes, 8) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    const BYTES: u64 = RING_BYTES_MIN;
    const HEAD: Head = Head { kind: Kind::Ring, number: 0, log_id: [5; 16], data_bytes: BYTES, epoch: 1 };

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(Ring::file_bytes(BYTES)).unwrap();
        file
    }

    fn append(ring: &mut Ring, position: u64, resp: &[u8]) -> Option<u64> {
        let record = Record { db: 0, time_ms: 1, resp };
        ring.append(position, &record).then(|| position + record::stored_bytes(resp.len()))
    }

    /// What a start finds that reads the file as this journal's ring: positions and RESP bytes.
    fn found(file: &File, head: &Head) -> Vec<(u64, Vec<u8>)> {
        let (ring, start) = Ring::left_in(file, head).unwrap();
        let mut found = Vec::new();
        let Some(start) = start else { return found };
        let _ = ring.pieces(start, |position, piece| {
            found.push((position, Piece::read(piece).unwrap().record.resp.to_owned()));
            ControlFlow::<()>::Continue(())
        });
        found
    }

    /// Records of all lengths over many laps, taken and released at random: exactly the records that were not released
    /// are found.
    #[test]
    fn what_is_not_released_is_found_over_many_laps() {
        let mut random = base::random::SplitMix64(seeds::seed(1));
        let file = file();
        let mut ring = Ring::empty(&file, &HEAD, 1000).unwrap();
        let (mut position, mut kept) = (1000, Vec::<(u64, Vec<u8>)>::new());
        let (mut refused, mut position_taken) = (0, 1000);
        for round in 0..3000_u64 {
            let longest = [40, 600, 9000][round as usize % 3];
            let resp = vec![round as u8; random.below(longest) as usize];
            match append(&mut ring, position, &resp) {
                Some(end) => {
                    kept.push((position, resp));
                    position = end;
                }
                None => refused += 1,
            }
            if random.below(4) == 0 || ring.used_bytes() > BYTES / 8 * 7 {
                let mut taken = 0;
                let before = position_taken;
                let end = ring.take(random.below(20_000), |piece| taken += piece.len() as u64);
                assert_eq!(end, before + taken);
                position_taken = end;
                ring.release(Start { offset: ring.taken(), position: end });
                kept.retain(|(position, _)| *position >= end);
            }
            if round % 16 == 0 {
                assert!(found(&file, &HEAD) == kept, "round {round}");
            }
        }
        assert!(position > 20 * BYTES, "many laps: {position}");
        assert!(refused < 1000, "{refused}");
    }

    #[test]
    fn the_last_entry_of_a_lap_may_end_with_the_ring() {
        const PIECE_BYTES: usize = 8192 - ENTRY_HEADER_BYTES;
        assert_eq!(BYTES % entry_bytes(PIECE_BYTES), 0);
        let file = file();
        let mut ring = Ring::empty(&file, &HEAD, 0).unwrap();
        let mut position = 0;
        for at in 0..40_u8 {
            let resp = [at; PIECE_BYTES - record::HEADER_BYTES];
            position = append(&mut ring, position, &resp).unwrap();
            let mut pieces = Vec::new();
            let end = ring.take(u64::MAX >> 1, |piece| pieces.push(Piece::read(piece).unwrap().record.resp.to_owned()));
            assert_eq!((end, pieces), (position, vec![resp.to_vec()]));
            ring.release(Start { offset: ring.taken(), position: end });
        }
    }

    #[test]
    fn a_full_ring_refuses_and_a_record_of_many_pieces_needs_room_for_all() {
        let file = file();
        let mut ring = Ring::empty(&file, &HEAD, 0).unwrap();
        assert_eq!(append(&mut ring, 0, &vec![1; BYTES as usize]), None);
        let mut position = 0;
        while let Some(end) = append(&mut ring, position, &[1; 50_000]) {
            position = end;
        }
        assert_eq!(position, 2 * record::stored_bytes(50_000));
        assert!(append(&mut ring, position, &[1; 10_000]).is_some(), "a smaller one fits");
    }

    #[test]
    fn entries_of_another_journal_or_start_or_lap_do_not_count() {
        let file = file();
        let mut ring = Ring::empty(&file, &HEAD, 0).unwrap();
        let end = append(&mut ring, 0, b"one").unwrap();
        append(&mut ring, end, b"two").unwrap();
        assert_eq!(found(&file, &HEAD).len(), 2);
        assert_eq!(found(&file, &Head { log_id: [6; 16], ..HEAD }), []);
        assert_eq!(found(&file, &Head { epoch: 2, ..HEAD }), []);
        // A new start has the same first record, and the old second one behind it.
        let mut ring = Ring::empty(&file, &Head { epoch: 2, ..HEAD }, 0).unwrap();
        append(&mut ring, 0, b"one").unwrap();
        assert_eq!(found(&file, &Head { epoch: 2, ..HEAD }).len(), 1);
        // An entry that another start would accept at this place, but with another position.
        let mut ring = Ring::empty(&file, &HEAD, 0).unwrap();
        let end = append(&mut ring, 0, b"one").unwrap();
        append(&mut ring, end + 100, b"two").unwrap();
        assert_eq!(found(&file, &HEAD).len(), 1);
    }

    #[test]
    fn a_torn_last_entry_does_not_count() {
        let file = file();
        let mut ring = Ring::empty(&file, &HEAD, 0).unwrap();
        let end = append(&mut ring, 0, b"one").unwrap();
        append(&mut ring, end, b"two").unwrap();
        let second = ENTRIES_AT + entry_bytes(27) as usize;
        for at in [0, 8, 16, 20, 30, 42] {
            ring.map[second + at] ^= 1;
            assert_eq!(found(&file, &HEAD), [(0, b"one".to_vec())], "byte {at}");
            ring.map[second + at] ^= 1;
        }
        assert_eq!(found(&file, &HEAD).len(), 2);
    }
}
