//! Owns the manifest, the small file that says which files of a directory are the dataset. Never opens these files.
//!
//! ```text
//! flintkv-manifest 1                  the format
//! log 0123456789abcdef…               the journal's id, 32 hexadecimal digits
//! position 4711                       where the journal goes on from the checkpoint
//! base base-4711.rdb 123456           its name and its size in bytes; no such line: an empty dataset
//! index base-4711.index 7890          the keys whose values are on flash; no such line: there is no flash
//! stream 0123…ef 815 0 - -            where the stream for replicas is at the checkpoint; no such line: there is no stream
//! crc32c 89abcdef                     of all the lines before
//! ```
//!
//! A manifest whose second line is `void` says that there is no dataset, whatever files are in the directory. It is
//! written before the first file of a journal is made, and before a journal is removed. So files without a manifest mean
//! that the manifest was removed by hand.

use crate::mark::Mark;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

pub const NAME: &str = "manifest";
const DRAFT: &str = "manifest.new";
const FORMAT: u32 = 1;
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
}

impl Manifest {
    /// The files of the checkpoint.
    pub fn files(&self) -> impl Iterator<Item = &CheckpointFile> {
        self.checkpoint.iter().chain(&self.index)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFile {
    pub name: String,
    pub bytes: u64,
}

/// What the manifest of a directory says.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no manifest.
    Nothing,
    /// The manifest says that there is no dataset.
    Void,
    Dataset(Manifest),
}

/// Reads the manifest of the directory.
pub fn read(folder: &Path) -> Result<Found, String> {
    let path = folder.join(NAME);
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
    let draft = folder.join(DRAFT);
    let written = File::create(&draft)
        .and_then(|mut file| file.write_all(&encode(manifest)).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, folder.join(NAME)))
        .and_then(|()| sync(folder));
    written.map_err(|error| format!("{}: {error}", folder.join(NAME).display()))
}

/// Makes the names in a directory durable.
pub fn sync(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

fn encode(manifest: Option<&Manifest>) -> Vec<u8> {
    let mut text = format!("flintkv-manifest {FORMAT}\n");
    match manifest {
        None => text.push_str("void\n"),
        Some(Manifest { log_id, position, checkpoint, index, stream }) => {
            text.push_str(&format!("log {:032x}\nposition {position}\n", u128::from_be_bytes(*log_id)));
            for (what, file) in [("base", checkpoint), ("index", index)] {
                if let Some(CheckpointFile { name, bytes }) = file {
                    text.push_str(&format!("{what} {name} {bytes}\n"));
                }
            }
            if let Some(mark) = stream {
                text.push_str(&format!("stream {mark}\n"));
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
    let newer = |format: &str| format.parse::<u32>().is_ok_and(|format| format > FORMAT);
    let at = text.rfind("crc32c ").ok_or_else(damaged)?;
    let (body, crc) = text.split_at(at);
    if crc != format!("crc32c {:08x}\n", base::crc::crc32c(body.as_bytes())) {
        return Err(damaged());
    }
    if newer(format) {
        return Err(format!(
            "its format is {format}, but this release reads only format {FORMAT}: use the newer release"
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
            Found::Dataset(Manifest { log_id: log_id.to_be_bytes(), position, checkpoint, index, stream })
        }
    };
    if lines.next().is_some() { Err(damaged()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::Id;

    fn full() -> Manifest {
        let checkpoint = Some(CheckpointFile { name: "base-4711.rdb".to_owned(), bytes: 123_456 });
        Manifest { log_id: *b"0123456789abcdef", position: 4711, checkpoint, index: None, stream: None }
    }

    fn with_index() -> Manifest {
        Manifest { index: Some(CheckpointFile { name: "base-4711.index".to_owned(), bytes: 7890 }), ..full() }
    }

    fn with_stream() -> Manifest {
        let (id, second) = (Id::new([7; 20]), Id::new([9; 20]));
        Manifest { stream: Some(Mark { id, second: Some((second, 600)), offset: 815, db: Some(0) }), ..full() }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), Ok(Found::Nothing));
        let empty = Manifest { position: 0, checkpoint: None, ..full() };
        for manifest in [Some(full()), None, Some(with_index()), Some(with_stream()), Some(empty)] {
            write(folder.path(), manifest.as_ref()).unwrap();
            assert_eq!(read(folder.path()), Ok(manifest.map_or(Found::Void, Found::Dataset)));
        }
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
        for manifest in [Some(with_index()), Some(with_stream()), Some(full()), None] {
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

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let body = "flintkv-manifest 2\nanything\n";
        let text = format!("{body}crc32c {:08x}\n", base::crc::crc32c(body.as_bytes()));
        assert!(
            decode(text.as_bytes()).unwrap_err().starts_with("its format is 2, but this release reads only format 1")
        );
    }
}
