//! Owns reading a journal back: which frames are whole, which of them are the journal, and the records in them. Never changes a file.
//!
//! 1. **Scan.** Every page of every file is looked at, except of files that end before the wanted position. A frame is whole if both
//!    CRCs are right. [`recover`] does not read the body of a frame yet if the next frame follows it, since this one was written
//!    before, if a frame calls it durable, and if no other frame has some of its positions: if such a frame is damaged, the journal is,
//!    and whoever reads its records finds that out.
//! 2. **Chain.** From the frame that holds the wanted position on, each next frame begins where the one before ends, and repeats its
//!    CRC. Where a later term begins, the later term goes on, unless it is void (see the crate).
//! 3. **Check.** The chain must reach every position that any frame calls durable. If it does not, a frame is damaged or a file is
//!    missing. What is behind that position is a torn tail, and does not count.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};
use std::{fmt, io, thread};

use flash::DATA_OFFSET;
use flash::io::{PAGE_BYTES, PageBuf, Reader};

use crate::Config;
use crate::frame::{self, Found, HEADER_BYTES, Header};
use crate::record::{Joiner, Piece, Record};
use crate::writer::{File, Frame, FrameState, Needed, Start, Writer};

/// The bytes of one read of the scan.
const READ_BYTES: usize = 1 << 20;
/// Threads that read at once: a device is much slower if it has one read at a time.
const READERS_MAX: usize = 4;
/// With less for each, they cost more than they spare.
const READER_BYTES_MIN: u64 = 1 << 20;
/// Behind a frame as long as this only the next header is read.
const LONG_BYTES: usize = 64 << 10;
/// Frames that each of them has read before the records in them are wanted.
const FRAMES_AHEAD: usize = 2;

/// Why a journal cannot be read. `file` is a path of the reader.
#[derive(Debug)]
pub enum Error {
    Read {
        file: u16,
        offset: u64,
        source: io::Error,
    },
    /// The file begins with a frame of another journal.
    OtherLog {
        file: u16,
        log_id: [u8; 16],
    },
    /// The frame was written by a later release.
    Newer {
        file: u16,
        offset: u64,
        version: u16,
    },
    /// A file of the journal is not there.
    Missing {
        position: u64,
    },
    /// There should be a frame with this position, which was durable.
    Damaged {
        file: u16,
        offset: u64,
        position: u64,
    },
    /// No record begins at the position from which the journal was to be read.
    NoRecord {
        position: u64,
    },
}

/// The frames of a file that are part of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub file: u16,
    pub frames: u64,
    /// The position of the first frame.
    pub start: u64,
    /// The position after the last frame.
    pub end: u64,
}

/// A journal as a crash or a stop has left it.
pub struct Recovered {
    config: Config,
    from: u64,
    chain: Vec<At>,
    /// The highest position that a frame calls durable.
    durable: u64,
    term: u32,
    number: u32,
    files: Vec<File>,
}

/// A whole frame, and where it is.
#[derive(Debug, Clone, Copy)]
struct At {
    file: u16,
    offset: u64,
    header: Header,
    crc: u32,
}

/// Finds the records from `from` on, the position after a record or 0. It must be a position that was durable once. `reader` has
/// `files` paths. Damage of a record may not be found before the records are read.
pub fn recover(reader: &dyn Reader, config: Config, files: u16, from: u64) -> Result<Recovered, Error> {
    recover_extent(reader, config, files, from, Extent::HeadersFrom(from))
}

/// As [`recover`], with every body read: all damage is found.
pub(crate) fn recover_checked(reader: &dyn Reader, config: Config, files: u16, from: u64) -> Result<Recovered, Error> {
    recover_extent(reader, config, files, from, Extent::All)
}

fn recover_extent(
    reader: &dyn Reader,
    config: Config,
    files: u16,
    from: u64,
    extent: Extent,
) -> Result<Recovered, Error> {
    let firsts: Result<Vec<_>, Error> = (0..files).map(|file| first_of(reader, &config, file)).collect();
    let firsts = firsts?;
    let past = |file: u16| firsts[usize::from(file)].filter(|first| is_past(first, &firsts, from));
    let wanted: Vec<u16> = (0..files).filter(|&file| past(file).is_none()).collect();
    let mut scan = Scan::of(reader, &config, files, &wanted, extent)?;
    (0..files).for_each(|file| past(file).iter().for_each(|first| scan.see(file, first)));
    let chain = scan.chain(from)?;
    let end = chain.last().map_or(from, |at| at.header.end());
    if end < scan.durable {
        return Err(scan.why_short(&chain, end));
    }
    // A file with any frame from here on is kept: the chain's, complete copies, since nobody knows which of them the device has, and
    // also torn frames and void terms. If the latter were written over, a second crash could complete them with sectors of the
    // new frames, and bring back records that this recovery has not.
    for file in &mut scan.files {
        file.end = file.end.filter(|&end| end >= from);
    }
    let Scan { durable, term, number, files, .. } = scan;
    Ok(Recovered { config, from, chain, durable, term, number, files })
}

/// The header with which the file begins. `None`: there is none, or none of this journal.
fn first_of(reader: &dyn Reader, config: &Config, file: u16) -> Result<Option<Header>, Error> {
    let mut page = PageBuf::new(1);
    let read = reader.read(file, DATA_OFFSET, &mut page);
    read.map_err(|source| Error::Read { file, offset: DATA_OFFSET, source })?;
    match Header::read(&page) {
        Found::Header(header, ..) if header.log_id == config.log_id => Ok(Some(header)),
        _ => Ok(None),
    }
}

/// How many threads read so many bytes, in so many portions.
fn readers(bytes: u64, portions: usize) -> usize {
    let worth = (bytes / READER_BYTES_MIN).min(READERS_MAX as u64) as usize;
    worth.min(portions).max(1)
}

/// What `one` returns for each of these, by as many threads as are worth it to read so many bytes.
fn at_once<T: Sync, R: Send>(bytes: u64, all: &[T], one: &(dyn Fn(&T) -> R + Sync)) -> Vec<R> {
    let readers = readers(bytes, all.len());
    let own = |nth| all.iter().enumerate().skip(nth).step_by(readers).map(|(at, it)| (at, one(it))).collect::<Vec<_>>();
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..readers).map(|nth| scope.spawn(move || own(nth))).collect();
        let mut done = own(0);
        others.into_iter().for_each(|other| done.extend(other.join().expect("reading does not panic")));
        done
    });
    done.sort_unstable_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// All frames of the file that begins with `first` end before `from`, so nothing but `first` need be read of it.
///
/// A file has frames of one term, and behind them what is left of earlier uses. A later file of the same term begins where the last of
/// these frames ends, at the latest. If it begins before `from`, no frame of this file is in the chain, nor has it a torn frame that
/// a writer must not write over. Its headers say nothing new either: terms, numbers and durable positions grow, and the later file's
/// header has later ones.
///
/// All this holds if `first` is of the file's last use. A crash may have lost the first page of a use that nothing was durable of. The
/// file that is used next is the one with the lowest number, so that one is read.
fn is_past(first: &Header, firsts: &[Option<Header>], from: u64) -> bool {
    let others = || firsts.iter().flatten();
    let has_later =
        others().any(|later| later.term == first.term && later.number > first.number && later.position < from);
    has_later && others().any(|other| other.number < first.number)
}

/// Reads the frames from `from` to `until`, both of which are durable, also while a writer goes on behind them.
pub(crate) fn check(reader: &dyn Reader, config: Config, files: u16, from: u64, until: u64) -> Result<(), Error> {
    let firsts: Result<Vec<_>, Error> = (0..files).map(|file| first_of(reader, &config, file)).collect();
    let firsts = firsts?;
    // Nothing durable is behind a first frame that was never written.
    let is_wanted = |first: &Header| first.position < until && !is_past(first, &firsts, from);
    let wanted: Vec<u16> =
        (0..files).filter(|&file| firsts[usize::from(file)].as_ref().is_some_and(is_wanted)).collect();
    let scan = Scan::of(reader, &config, files, &wanted, Extent::Until(until))?;
    let chain = match from == until {
        true => return Ok(()),
        false => scan.chain(from)?,
    };
    let end = chain.last().map_or(from, |at| at.header.end());
    if end < until { Err(scan.why_short(&chain, end)) } else { Ok(()) }
}

/// What can be read of a damaged journal, and what cannot.
pub struct Salvaged {
    pub before: Recovered,
    pub damage: Error,
    /// The records that begin behind the damage and could be read, but not be repeated, and the time of the last one.
    pub lost_records: u64,
    pub lost_until_ms: u64,
}

/// As [`recover`], of a journal that is damaged: what is before the damage. `None`: it is not damaged.
pub fn salvage(reader: &dyn Reader, config: Config, files: u16, from: u64) -> Result<Option<Salvaged>, Error> {
    let wanted: Vec<u16> = (0..files).collect();
    let scan = Scan::of(reader, &config, files, &wanted, Extent::All)?;
    let (chain, damage) = match scan.chain(from) {
        Ok(chain) => {
            let end = chain.last().map_or(from, |at| at.header.end());
            let damage = (end < scan.durable).then(|| scan.why_short(&chain, end));
            (chain, damage)
        }
        Err(damage) => (Vec::new(), Some(damage)),
    };
    let Some(damage) = damage else { return Ok(None) };
    let end = chain.last().map_or(from, |at| at.header.end());
    let (mut lost_records, mut lost_until_ms) = (0, 0);
    // A frame that was copied into a later term counts once.
    let mut behind: Vec<&At> = scan.frames.iter().filter(|at| at.header.position >= end).collect();
    behind.sort_unstable_by_key(|at| at.header.position);
    let mut counted = end;
    for at in behind {
        if at.header.position < counted {
            continue;
        }
        counted = at.header.end();
        let frame = at.read(reader)?;
        let mut rest = frame[HEADER_BYTES..].get(..at.header.bytes as usize).unwrap_or_default();
        while let Some(piece) = Some(rest).filter(|rest| !rest.is_empty()).and_then(Piece::read) {
            lost_records += u64::from(!piece.continued);
            lost_until_ms = lost_until_ms.max(piece.record.time_ms);
            rest = &rest[piece.bytes()..];
        }
    }
    let Scan { durable, term, number, files, .. } = scan;
    let before = Recovered { config, from, chain, durable, term, number, files };
    Ok(Some(Salvaged { before, damage, lost_records, lost_until_ms }))
}

impl Recovered {
    /// Up to where the journal was durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The position after the last record.
    pub fn end(&self) -> u64 {
        self.chain.last().map_or(self.from, |at| at.header.end())
    }

    /// Of each file that has frames of the journal, in the order of their positions: its number, how many frames, and the positions
    /// of their beginning and end.
    pub(crate) fn held(&self) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for at in &self.chain {
            match held.last_mut().filter(|held| held.file == at.file) {
                Some(held) => {
                    held.frames += 1;
                    held.end = at.header.end();
                }
                None => held.push(Held { file: at.file, frames: 1, start: at.header.position, end: at.header.end() }),
            }
        }
        held
    }

    /// The replication offset after the last record. `None`: there is no frame.
    pub fn replication_offset(&self) -> Option<u64> {
        self.chain.last().map(|at| at.header.replication_offset)
    }

    /// Gives `each` every record, in order, with the position after it.
    pub fn records(&self, reader: &dyn Reader, mut each: impl FnMut(u64, &Record)) -> Result<(), Error> {
        let mut each = |end, record: &Record| {
            each(end, record);
            ControlFlow::Continue(())
        };
        self.join(reader, &mut Joiner::default(), &mut each).map(|_| ())
    }

    /// The records, until `each` breaks. Threads read and check the frames ahead of them. The joiner keeps a last record that is not whole.
    pub(crate) fn join(
        &self,
        reader: &dyn Reader,
        joiner: &mut Joiner,
        each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        thread::scope(|scope| {
            let pages: u64 = self.chain.iter().map(|at| u64::from(at.header.pages)).sum();
            let readers = readers(pages * PAGE_BYTES as u64, self.chain.len());
            let begin = |nth: usize| {
                let (sender, frames) = sync_channel(FRAMES_AHEAD);
                let mut own = self.chain.iter().skip(nth).step_by(readers);
                // It ends when nobody takes its frames.
                scope.spawn(move || own.try_for_each(|at| sender.send(at.read(reader))));
                frames
            };
            self.join_frames((0..readers).map(begin).collect(), joiner, each)
        })
    }

    /// `readers` give the frames of the chain in turns.
    fn join_frames(
        &self,
        readers: Vec<Receiver<Result<PageBuf, Error>>>,
        joiner: &mut Joiner,
        each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        for (at, reader) in self.chain.iter().zip(readers.iter().cycle()) {
            let frame = reader.recv().expect("each reader reads all of its frames")?;
            let damaged = || at.damaged();
            let mut position = at.header.position.max(self.from);
            let skipped = (position - at.header.position) as usize;
            let mut rest = frame[HEADER_BYTES..].get(skipped..at.header.bytes as usize).unwrap_or_default();
            while !rest.is_empty() {
                let no_record = || Error::NoRecord { position: self.from };
                let is_first = position == self.from;
                // The frame was checked. Only whether a record begins at the first position is not known.
                let piece = if is_first { Piece::read(rest) } else { Piece::read_checked(rest) };
                let piece = piece.ok_or_else(|| if is_first { no_record() } else { damaged() })?;
                if is_first && piece.continued {
                    return Err(no_record());
                }
                rest = &rest[piece.bytes()..];
                position += piece.bytes() as u64;
                if joiner.join(position, &piece, each).ok_or_else(damaged)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The writer that goes on where the journal ends. What is not known to be durable is read once more, to be copied.
    pub fn writer(self, reader: &dyn Reader) -> Result<Writer, Error> {
        let copied_from = self.chain.iter().position(|at| at.header.end() > self.durable).unwrap_or(self.chain.len());
        let mut frames = VecDeque::new();
        for at in &self.chain[copied_from..] {
            frames.push_back(Frame {
                position: at.header.position,
                bytes: at.header.bytes,
                stored: None,
                replication_offset: at.header.replication_offset,
                crc: 0,
                buf: Some(at.read(reader)?),
                state: FrameState::Formed,
            });
        }
        let mut needed = Needed::default();
        let uncopied = self.chain[..copied_from].iter().map(|at| &at.header);
        uncopied.for_each(|header| needed.add(header.end(), header.pages.into()));
        let crc_before = self.chain.get(copied_from).map(|at| at.header.crc_before);
        let durable_crc = crc_before.or_else(|| self.chain.last().map(|at| at.crc)).unwrap_or(0);
        let start = Start {
            term: self.term + 1,
            number: self.number,
            durable: self.chain.get(copied_from).map_or_else(|| self.end(), |at| at.header.position),
            durable_crc,
            replication_offset: self.replication_offset().unwrap_or(0),
            needed_from: self.from,
            needed,
            files: self.files,
            frames,
        };
        Ok(Writer::start(self.config, start))
    }
}

impl At {
    fn end_offset(&self) -> u64 {
        self.offset + u64::from(self.header.pages) * PAGE_BYTES as u64
    }

    fn damaged(&self) -> Error {
        Error::Damaged { file: self.file, offset: self.offset, position: self.header.position }
    }

    /// The frame once more, with its records unpacked. It must be what it was.
    fn read(&self, reader: &dyn Reader) -> Result<PageBuf, Error> {
        let frame = self.read_whole(reader)?.ok_or_else(|| self.damaged())?;
        match self.header.is_packed() {
            true => frame::unpacked(&frame, &self.header).ok_or_else(|| self.damaged()),
            false => Ok(frame),
        }
    }

    /// As it is on the device. `None`: it is not whole.
    fn read_whole(&self, reader: &dyn Reader) -> Result<Option<PageBuf>, Error> {
        let mut frame = PageBuf::new(self.header.pages as usize);
        let read = reader.read(self.file, self.offset, &mut frame);
        read.map_err(|source| Error::Read { file: self.file, offset: self.offset, source })?;
        let is_whole = match Header::read(&frame) {
            Found::Header(header, crc, body) => crc == self.crc && Some(body) == frame::body_crc(&frame, &header),
            _ => false,
        };
        Ok(is_whole.then_some(frame))
    }

    /// `next` is the header behind this frame, and was written after it.
    fn is_followed_by(&self, next: &Header) -> bool {
        let header = &self.header;
        (next.log_id, next.number) == (header.log_id, header.number)
            && (next.position, next.crc_before) == (header.end(), self.crc)
    }
}

/// What of the files is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All that tells where the frames behind this position are, and the bodies of those that are in doubt. Other frames are
    /// read: their file may be in use again, and what a crash has left of newer frames in the place of an old one must be seen.
    HeadersFrom(u64),
    All,
    /// Of each file, up to the frame that ends at or behind this position. By one reader: clients have the device meanwhile.
    Until(u64),
}

/// What the files hold.
#[derive(Default)]
struct Scan {
    frames: Vec<At>,
    /// Frames whose bodies were not read.
    unread: Vec<At>,
    /// With a whole header only.
    torn: Vec<At>,
    /// Indexes of `frames`, by position and the CRC of the frame before.
    after: HashMap<(u64, u32), Vec<usize>>,
    /// The highest of all headers, those of torn frames included.
    durable: u64,
    term: u32,
    number: u32,
    files: Vec<File>,
}

impl Scan {
    /// What these of so many files hold.
    fn of(reader: &dyn Reader, config: &Config, files: u16, wanted: &[u16], extent: Extent) -> Result<Scan, Error> {
        let all = || Scan { files: vec![File::default(); files.into()], ..Scan::default() };
        let one = |file: &u16| {
            let mut scan = all();
            scan.file(config, &mut Pages::of(reader, config, *file), extent).map(|()| scan)
        };
        let bytes = if let Extent::Until(_) = extent { 0 } else { wanted.len() as u64 * config.file_bytes };
        let scans = at_once(bytes, wanted, &one);
        let mut scan = all();
        wanted.iter().zip(scans).try_for_each(|(&file, one)| one.map(|one| scan.add(file, one)))?;
        scan.read_unread(reader)?;
        for (nth, frame) in scan.frames.iter().enumerate() {
            scan.after.entry((frame.header.position, frame.header.crc_before)).or_default().push(nth);
        }
        Ok(scan)
    }

    /// Nobody would find out that a frame is torn which is not durable; and of two frames with the same positions one may be torn,
    /// because its write failed or its term was given up.
    fn read_unread(&mut self, reader: &dyn Reader) -> Result<(), Error> {
        let shared = self.shared_positions();
        let is_certain = |at: &At| at.header.end() <= self.durable && !shared.contains(&(at.file, at.offset));
        let (certain, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unread).into_iter().partition(is_certain);
        self.frames.extend(certain);
        let bytes = others.iter().map(|at| u64::from(at.header.pages) * PAGE_BYTES as u64).sum();
        let whole = at_once(bytes, &others, &|at| at.read_whole(reader).map(|frame| frame.is_some()));
        for (at, is_whole) in others.into_iter().zip(whole) {
            if is_whole? { &mut self.frames } else { &mut self.torn }.push(at);
        }
        Ok(())
    }

    /// The places of all frames that have a position which another frame has too.
    fn shared_positions(&self) -> HashSet<(u16, u64)> {
        let mut all: Vec<&At> = self.frames.iter().chain(&self.unread).chain(&self.torn).collect();
        all.sort_unstable_by_key(|at| at.header.position);
        let mut shared = HashSet::new();
        // Of the frames before, the one that ends last.
        let mut longest: Option<&At> = None;
        for at in all {
            if let Some(before) = longest.filter(|before| before.header.end() > at.header.position) {
                shared.extend([(before.file, before.offset), (at.file, at.offset)]);
            }
            if longest.is_none_or(|before| before.header.end() <= at.header.end()) {
                longest = Some(at);
            }
        }
        shared
    }

    /// Adds what another scan has found in a file that this one has not seen.
    fn add(&mut self, file: u16, other: Scan) {
        self.frames.extend(other.frames);
        self.unread.extend(other.unread);
        self.torn.extend(other.torn);
        self.durable = self.durable.max(other.durable);
        self.term = self.term.max(other.term);
        self.number = self.number.max(other.number);
        self.files[usize::from(file)] = other.files[usize::from(file)];
    }

    /// What a header says, even if its frame is torn.
    fn see(&mut self, file: u16, header: &Header) {
        self.durable = self.durable.max(header.durable);
        self.term = self.term.max(header.term);
        self.number = self.number.max(header.number);
        let state = &mut self.files[usize::from(file)];
        state.number = state.number.max(header.number);
    }

    fn file(&mut self, config: &Config, pages: &mut Pages, extent: Extent) -> Result<(), Error> {
        let file = pages.file;
        let mut offset = DATA_OFFSET;
        while offset < pages.end {
            let (header, crc, body) = match Header::read(pages.at(offset, PAGE_BYTES, READ_BYTES)?) {
                Found::Header(header, ..) if header.log_id != config.log_id && offset == DATA_OFFSET => {
                    return Err(Error::OtherLog { file, log_id: header.log_id });
                }
                Found::Header(header, crc, body) if header.log_id == config.log_id => (header, crc, body),
                Found::Newer(version) if offset == DATA_OFFSET => return Err(Error::Newer { file, offset, version }),
                _ => {
                    offset += PAGE_BYTES as u64;
                    continue;
                }
            };
            self.see(file, &header);
            let state = &mut self.files[usize::from(file)];
            state.end = state.end.max(Some(header.end()));
            let at = At { file, offset, header, crc };
            let bytes = header.pages as usize * PAGE_BYTES;
            if matches!(extent, Extent::HeadersFrom(from) if header.end() > from) && pages.have_next_of(&at)? {
                self.unread.push(at);
                offset += bytes as u64;
                continue;
            }
            let fits = bytes as u64 <= pages.end - offset;
            let is_whole = fits && Some(body) == frame::body_crc(pages.at(offset, bytes, READ_BYTES)?, &header);
            if is_whole {
                self.frames.push(at);
            } else {
                self.torn.push(at);
            }
            if matches!(extent, Extent::Until(until) if is_whole && header.end() >= until) {
                break;
            }
            offset += if is_whole { bytes } else { PAGE_BYTES } as u64;
        }
        Ok(())
    }

    fn next_of(&self, at: &At) -> impl Iterator<Item = &At> {
        let next = self.after.get(&(at.header.end(), at.crc));
        next.into_iter().flatten().map(|&index| &self.frames[index])
    }

    /// The copy with which the frame's term began is whole, from this frame on.
    fn is_complete(&self, at: &At) -> bool {
        let mut at = at;
        while at.header.end() < at.header.copied_to {
            match self.next_of(at).find(|next| next.header.term == at.header.term) {
                Some(next) => at = next,
                None => return false,
            }
        }
        true
    }

    /// The frames of the journal, from the one that holds or ends at `from`.
    fn chain(&self, from: u64) -> Result<Vec<At>, Error> {
        let holds = |at: &&At| at.header.position <= from && from <= at.header.end() && self.is_complete(at);
        let first = self.frames.iter().filter(holds).max_by_key(|at| (at.header.term, at.header.position));
        let Some(mut at) = first else {
            // Nothing of a new journal was ever durable.
            return if from == 0 && self.durable == 0 { Ok(Vec::new()) } else { Err(self.why_none(from)) };
        };
        let mut chain = vec![*at];
        loop {
            let term = at.header.term;
            let goes_on = |next: &&At| next.header.term == term || next.header.term > term && self.is_complete(next);
            match self.next_of(at).filter(goes_on).max_by_key(|next| next.header.term) {
                Some(next) => at = next,
                None => return Ok(chain),
            }
            chain.push(*at);
        }
    }

    /// Why no frame holds `from`.
    fn why_none(&self, from: u64) -> Error {
        let next = self.frames.iter().filter(|at| at.header.position > from).min_by_key(|at| at.header.position);
        match next {
            // Behind the last frame before it in this use of the file, if there is one.
            Some(next) if next.offset > DATA_OFFSET => {
                let is_before = |at: &&At| at.header.number == next.header.number && at.offset < next.offset;
                let before = self.frames.iter().filter(is_before).map(At::end_offset).max();
                Error::Damaged { file: next.file, offset: before.unwrap_or(DATA_OFFSET), position: from }
            }
            _ => Error::Missing { position: from },
        }
    }

    /// Why the chain does not reach what was durable.
    fn why_short(&self, chain: &[At], end: u64) -> Error {
        let Some(last) = chain.last() else { return Error::Missing { position: end } };
        let is_later = |at: &&At| at.header.position >= end && at.header.term >= last.header.term;
        let next = self
            .frames
            .iter()
            .chain(&self.torn)
            .filter(is_later)
            .min_by_key(|at| (at.header.number, at.header.position));
        let number = last.header.number;
        match next {
            // Later frames of the same file, or of the next one: the frame behind the last one is damaged.
            Some(next) if next.header.number <= number + 1 => {
                let is_first_of_next = next.header.number > number && next.offset > DATA_OFFSET;
                let (file, offset) =
                    if is_first_of_next { (next.file, DATA_OFFSET) } else { (last.file, last.end_offset()) };
                Error::Damaged { file, offset, position: end }
            }
            _ => Error::Missing { position: end },
        }
    }
}

/// The pages of a file, read in large pieces.
struct Pages<'r> {
    reader: &'r dyn Reader,
    file: u16,
    end: u64,
    buf: PageBuf,
    /// Where `buf` begins. Nothing is read yet: at the end.
    start: u64,
}

impl<'r> Pages<'r> {
    fn of(reader: &'r dyn Reader, config: &Config, file: u16) -> Pages<'r> {
        let end = DATA_OFFSET + config.file_bytes;
        Pages { reader, file, end, buf: PageBuf::new(1), start: end }
    }

    /// The next frame follows this one in the file.
    fn have_next_of(&mut self, at: &At) -> Result<bool, Error> {
        let end = at.end_offset();
        if end >= self.end {
            return Ok(false);
        }
        let is_long = end - at.offset >= LONG_BYTES as u64;
        let next = self.at(end, PAGE_BYTES, if is_long { PAGE_BYTES } else { READ_BYTES })?;
        Ok(matches!(Header::read(next), Found::Header(next, ..) if at.is_followed_by(&next)))
    }

    /// `bytes` bytes from `offset` on, which the file has. If they are not read yet, so many as `ahead` says are.
    fn at(&mut self, offset: u64, bytes: usize, ahead: usize) -> Result<&[u8], Error> {
        let is_there = self.start <= offset && offset + bytes as u64 <= self.start + self.buf.len() as u64;
        if !is_there {
            let wanted = bytes.max(ahead).min((self.end - offset) as usize);
            self.buf = PageBuf::new(wanted / PAGE_BYTES);
            let read = self.reader.read(self.file, offset, &mut self.buf);
            read.map_err(|source| Error::Read { file: self.file, offset, source })?;
            self.start = offset;
        }
        Ok(&self.buf[(offset - self.start) as usize..][..bytes])
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read { file, offset, source } => {
                write!(f, "cannot read journal file {file} at offset {offset}: {source}")
            }
            Error::OtherLog { file, log_id } => {
                write!(f, "journal file {file} belongs to another journal, {:032x}", u128::from_be_bytes(*log_id))
            }
            Error::Newer { file, offset, version } => write!(
                f,
                "journal file {file} has a frame of format {version} at offset {offset}; this release reads formats up to {}",
                frame::VERSION
            ),
            Error::Missing { position } => {
                write!(
                    f,
                    "no journal file holds position {position}, which was durable: a file is missing, or damaged at its beginning"
                )
            }
            Error::Damaged { file, offset, position } => write!(
                f,
                "journal file {file} is damaged at offset {offset}: position {position}, which was durable, cannot be read"
            ),
            Error::NoRecord { position } => write!(f, "no record of the journal begins at position {position}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}
