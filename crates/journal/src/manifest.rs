//! Owns the manifest, the small file that says which files of a directory are the dataset. Never opens these files.
//!
//! ```text
//! flintkv-manifest 1                  the format
//! log 0123456789abcdef…               the journal's id, 32 hexadecimal digits
//! position 4711                       where the journal goes on from the checkpoint
//! base base-4711.rdb 123456           its name and its size in bytes; no such line: an empty dataset
//! index base-4711.index 7890          the keys whose values are on flash; no such line: there is no flash
//! stream 0123…ef 815 0 - -            where the stream for replicas is at the checkpoint; no such line: there is no stream
//! truncated 900 8150 4096 17          format 2 only, several may follow each other: see [`Truncation`]
//! crc32c 89abcdef                     of all the lines before
//! ```
//! A manifest is of format 2 only as long as it says that something was truncated, so that an earlier release does not replay that.
//!
//! A manifest whose second line is `void` says that there is no dataset, whatever files are in the directory. It is
//! written before the first file of a journal is made, and before a journal is removed. So files without a manifest mean
//! that the manifest was removed by hand.

use crate::mark::Mark;
use crate::record::Record;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

pub const NAME: &str = "manifest";
/// The manifest of an older checkpoint, which is kept beside the newest one.
pub const OLDER: &str = "manifest.older";
const DRAFT: &str = ".new";
const FORMAT: u32 = 1;
const FORMAT_TRUNCATED: u32 = 2;
/// At most so many truncations between two checkpoints.
pub const TRUNCATIONS_MAX: usize = 64;
/// A longer file is not a manifest.
const BYTES_MAX: u64 = 64 << 10;

/// The files that are the dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub log_id: [u8; 16],
    /// The checkpoint holds the effects of all records before this position of the journal.
    pub position: u64,
    /// `None`: the dataset was empty.
    pub checkpoint: Option<CheckpointFile>,
    /// The keys of the checkpoint whose values are on flash, see [`crate::index`].
    pub index: Option<CheckpointFile>,
    /// The position of the replication stream at `position`. `None`: there is no stream.
    pub stream: Option<Mark>,
    /// What was given up since the checkpoint, in the order of positions.
    pub truncations: Vec<Truncation>,
}

/// The end of the replication stream that the dataset has given up, because it is not in the stream of its new primary. The journal's files still
/// have it: of the records before `position`, what lies behind `offset` in the stream does not count. The stream went on at `offset` with
/// the records from `position` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    pub offset: u64,
    pub position: u64,
    /// How much of the stream it was, and the number of commands in it that write.
    pub bytes: u64,
    pub writes: u64,
}

impl Manifest {
    /// The files of the checkpoint.
    pub fn files(&self) -> impl Iterator<Item = &CheckpointFile> {
        self.checkpoint.iter().chain(&self.index)
    }

    /// Whether this is an older checkpoint of the newest one's dataset, from which the journal leads to it. What was truncated since is only
    /// in the newest manifest.
    pub fn is_behind(&self, newest: &Manifest) -> bool {
        self.log_id == newest.log_id && self.position < newest.position && newest.truncations.is_empty()
    }
}

/// Finds which of a journal's records count: all that were not truncated.
#[derive(Debug, Clone, Default)]
pub struct Untruncated {
    /// Of the stream, behind the last record that counted.
    offset: u64,
    truncations: Vec<Truncation>,
}

impl Untruncated {
    /// For the records from the manifest's position on.
    pub fn of(manifest: &Manifest) -> Untruncated {
        let offset = manifest.stream.map_or(0, |mark| mark.offset);
        Untruncated { offset, truncations: manifest.truncations.clone() }
    }

    /// Whether the next record counts. It ends at position `end`. A truncation never cuts a record: streams part between two records.
    pub fn counts(&mut self, end: u64, record: &Record) -> bool {
        let offset = self.offset + record.resp.len() as u64;
        let is_given_up = |truncation: &Truncation| end <= truncation.position && offset > truncation.offset;
        if self.truncations.iter().any(is_given_up) {
            return false;
        }
        self.offset = offset;
        true
    }

    /// Of the stream, behind the last record that counted.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFile {
    pub name: String,
    pub bytes: u64,
}

/// What the manifest of a directory says.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one is read at a start, and none is kept")]
pub enum Found {
    /// There is no manifest.
    Nothing,
    /// The manifest says that there is no dataset.
    Void,
    Dataset(Manifest),
}

/// Reads the manifest of the directory.
pub fn read(folder: &Path) -> Result<Found, String> {
    read_file(folder, NAME)
}

/// Reads the manifest of the older checkpoint. Whether it can be used depends on the newest one: see [`Manifest::is_behind`].
pub fn read_older(folder: &Path) -> Result<Found, String> {
    read_file(folder, OLDER)
}

fn read_file(folder: &Path, name: &str) -> Result<Found, String> {
    let path = folder.join(name);
    let about = |what: &str| format!("{}: {what}", path.display());
    let size = match fs::metadata(&path) {
        Ok(file) => file.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(about(&error.to_string())),
    };
    if size > BYTES_MAX {
        return Err(about("this is not a manifest"));
    }
    let bytes = fs::read(&path).map_err(|error| about(&error.to_string()))?;
    decode(&bytes).map_err(|what| about(&what))
}

/// Replaces the manifest of the directory. When this returns, the new one is durable. `None`: there is no dataset.
pub fn write(folder: &Path, manifest: Option<&Manifest>) -> Result<(), String> {
    write_file(folder, NAME, manifest)
}

/// Replaces the manifest of the older checkpoint, durably.
pub fn write_older(folder: &Path, manifest: &Manifest) -> Result<(), String> {
    write_file(folder, OLDER, Some(manifest))
}

fn write_file(folder: &Path, name: &str, manifest: Option<&Manifest>) -> Result<(), String> {
    let draft = folder.join(format!("{name}{DRAFT}"));
    // Opened before anything changes: afterwards, an error leaves in the dark which manifest counts.
    let written = File::open(named(folder)).and_then(|directory| {
        let mut file = File::create(&draft)?;
        file.write_all(&encode(manifest))?;
        file.sync_all()?;
        fs::rename(&draft, folder.join(name))?;
        directory.sync_all()
    });
    written.map_err(|error| {
        // Best effort: it may not be there.
        let _ = fs::remove_file(&draft);
        format!("{}: {error}", folder.join(name).display())
    })
}

/// Removes what the end of a process has left of manifests that were being written.
pub fn remove_drafts(folder: &Path) -> io::Result<()> {
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(NAME) && name.ends_with(DRAFT)) {
            fs::remove_file(folder.join(name))?;
        }
    }
    Ok(())
}

/// Makes the names in a directory durable.
pub fn sync(folder: &Path) -> io::Result<()> {
    File::open(named(folder))?.sync_all()
}

fn named(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn encode(manifest: Option<&Manifest>) -> Vec<u8> {
    let is_truncated = manifest.is_some_and(|manifest| !manifest.truncations.is_empty());
    let mut text = format!("flintkv-manifest {}\n", if is_truncated { FORMAT_TRUNCATED } else { FORMAT });
    match manifest {
        None => text.push_str("void\n"),
        Some(Manifest { log_id, position, checkpoint, index, stream, truncations }) => {
            text.push_str(&format!("log {:032x}\nposition {position}\n", u128::from_be_bytes(*log_id)));
            for (what, file) in [("base", checkpoint), ("index", index)] {
                if let Some(CheckpointFile { name, bytes }) = file {
                    text.push_str(&format!("{what} {name} {bytes}\n"));
                }
            }
            if let Some(mark) = stream {
                text.push_str(&format!("stream {mark}\n"));
            }
            for Truncation { offset, position, bytes, writes } in truncations {
                text.push_str(&format!("truncated {offset} {position} {bytes} {writes}\n"));
            }
        }
    }
    text.push_str(&format!("crc32c {:08x}\n", base::crc::crc32c(text.as_bytes())));
    text.into_bytes()
}

fn decode(bytes: &[u8]) -> Result<Found, String> {
    let damaged = || "the manifest is damaged: restore the directory from a copy".to_owned();
    let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
    let format = text.lines().next().and_then(|line| line.strip_prefix("flintkv-manifest ")).ok_or_else(damaged)?;
    let newer = |format: &str| format.parse::<u32>().is_ok_and(|format| format > FORMAT_TRUNCATED);
    let at = text.rfind("crc32c ").ok_or_else(damaged)?;
    let (body, crc) = text.split_at(at);
    if crc != format!("crc32c {:08x}\n", base::crc::crc32c(body.as_bytes())) {
        return Err(damaged());
    }
    if newer(format) {
        return Err(format!(
            "its format is {format}, but this release reads only formats up to {FORMAT_TRUNCATED}: use the newer release"
        ));
    }
    let mut lines = body.lines().skip(1).peekable();
    let found = match lines.next().ok_or_else(damaged)? {
        "void" => Found::Void,
        log => {
            let log_id =
                log.strip_prefix("log ").and_then(|id| u128::from_str_radix(id, 16).ok()).ok_or_else(damaged)?;
            let position = lines.next().and_then(|line| line.strip_prefix("position ")?.parse().ok());
            let position = position.ok_or_else(damaged)?;
            let mut file = |what: &str| {
                let Some(line) = lines.next_if(|line| line.starts_with(what)) else { return Ok(None) };
                let named = line[what.len()..].rsplit_once(' ');
                let file = named.and_then(|(name, bytes)| {
                    Some(CheckpointFile { name: name.to_owned(), bytes: bytes.parse().ok()? })
                });
                file.map(Some).ok_or_else(damaged)
            };
            let (checkpoint, index) = (file("base ")?, file("index ")?);
            let mark = lines.next_if(|line| line.starts_with("stream "));
            let stream = mark.map(|line| line["stream ".len()..].parse()).transpose().map_err(|_| damaged())?;
            let mut truncations = Vec::new();
            while let Some(line) = lines.next_if(|line| line.starts_with("truncated ")) {
                truncations.push(truncation(&line["truncated ".len()..]).ok_or_else(damaged)?);
            }
            let log_id = log_id.to_be_bytes();
            Found::Dataset(Manifest { log_id, position, checkpoint, index, stream, truncations })
        }
    };
    if lines.next().is_some() { Err(damaged()) } else { Ok(found) }
}

fn truncation(text: &str) -> Option<Truncation> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|number| number.parse().ok()).collect();
    let [offset, position, bytes, writes] = numbers?[..] else { return None };
    Some(Truncation { offset, position, bytes, writes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::Id;

    fn full() -> Manifest {
        let checkpoint = Some(CheckpointFile { name: "base-4711.rdb".to_owned(), bytes: 123_456 });
        let log_id = *b"0123456789abcdef";
        Manifest { log_id, position: 4711, checkpoint, index: None, stream: None, truncations: Vec::new() }
    }

    fn with_index() -> Manifest {
        Manifest { index: Some(CheckpointFile { name: "base-4711.index".to_owned(), bytes: 7890 }), ..full() }
    }

    fn with_stream() -> Manifest {
        let (id, second) = (Id::new([7; 20]), Id::new([9; 20]));
        Manifest { stream: Some(Mark { id, second: Some((second, 600)), offset: 815, db: Some(0) }), ..full() }
    }

    fn truncated() -> Manifest {
        let truncation = |offset, position| Truncation { offset, position, bytes: 4096, writes: 17 };
        Manifest { truncations: vec![truncation(900, 8150), truncation(950, 9000)], ..with_stream() }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), Ok(Found::Nothing));
        let empty = Manifest { position: 0, checkpoint: None, ..full() };
        for manifest in [Some(full()), None, Some(with_index()), Some(with_stream()), Some(truncated()), Some(empty)] {
            write(folder.path(), manifest.as_ref()).unwrap();
            assert_eq!(read(folder.path()), Ok(manifest.map_or(Found::Void, Found::Dataset)));
        }
    }

    #[test]
    fn no_draft_stays() {
        let folder = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
        // Nothing can be renamed to this name.
        fs::create_dir_all(folder.path().join(NAME).join("x")).unwrap();
        write(folder.path(), None).unwrap_err();
        assert_eq!(names(), [NAME]);
        for name in ["manifest.new", "manifest.older.new", "manifest.boot"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::remove_dir_all(folder.path().join(NAME)).unwrap();
        remove_drafts(folder.path()).unwrap();
        assert_eq!(names(), ["manifest.boot"]);
    }

    /// The bytes of format 1 never change.
    #[test]
    fn the_bytes_are_those_of_the_first_release() {
        let text = "flintkv-manifest 1\nlog 30313233343536373839616263646566\nposition 4711\nbase base-4711.rdb 123456\n\
                    crc32c 850b4d5c\n";
        assert_eq!(String::from_utf8(encode(Some(&full()))).unwrap(), text);
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        for manifest in [Some(with_index()), Some(with_stream()), Some(truncated()), Some(full()), None] {
            let mut bytes = encode(manifest.as_ref());
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    /// An earlier release would replay what was given up, so it must not take the manifest for one of its own.
    #[test]
    fn the_format_is_newer_only_while_something_is_truncated() {
        let first_line = |manifest: &Manifest| String::from_utf8(encode(Some(manifest))).unwrap()[..18].to_owned();
        assert_eq!(
            (&*first_line(&with_stream()), &*first_line(&truncated())),
            ("flintkv-manifest 1", "flintkv-manifest 2")
        );
    }

    #[test]
    fn of_the_records_only_what_was_not_truncated_counts() {
        let truncation = |offset, position| Truncation { offset, position, bytes: 0, writes: 0 };
        // Each record has 10 bytes of the stream, and ends at a position divisible by 100. The checkpoint is at offset 815.
        let counted = |truncations: &[Truncation]| {
            let manifest = Manifest { truncations: truncations.to_vec(), ..with_stream() };
            let (mut untruncated, record) =
                (Untruncated::of(&manifest), Record { db: 0, time_ms: 0, resp: b"0123456789" });
            let counted = (48..55).filter(|end| untruncated.counts(100 * end, &record)).collect::<Vec<_>>();
            (counted, untruncated.offset())
        };
        assert_eq!(counted(&[]), (vec![48, 49, 50, 51, 52, 53, 54], 885));
        assert_eq!(counted(&[truncation(825, 5000)]), (vec![48, 51, 52, 53, 54], 865));
        // At the checkpoint.
        assert_eq!(counted(&[truncation(815, 5000)]), (vec![51, 52, 53, 54], 855));
        assert_eq!(counted(&[truncation(825, 5000), truncation(835, 5300)]), (vec![48, 51, 54], 845));
        // The second one reaches further back than the first one.
        assert_eq!(counted(&[truncation(825, 5000), truncation(815, 5300)]), (vec![54], 825));
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let body = "flintkv-manifest 3\nanything\n";
        let text = format!("{body}crc32c {:08x}\n", base::crc::crc32c(body.as_bytes()));
        assert!(
            decode(text.as_bytes())
                .unwrap_err()
                .starts_with("its format is 3, but this release reads only formats up to 2")
        );
    }
}
