//! Owns the files of the crate's keys and certificates: each is written whole or not at all, and one with a key only
//! its owner may read. Never knows what is in them.

use crate::limits::FILE_BYTES_MAX;
use crate::secret::SecretText;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum FileError {
    /// Others than its owner may read or write the file.
    TooOpen {
        path: PathBuf,
        mode: u32,
    },
    /// Not a regular file of at most [`FILE_BYTES_MAX`] bytes of text.
    Unreadable(PathBuf),
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::TooOpen { path, mode } => write!(
                f,
                "{} has a key and the mode {mode:04o}: others may have read it. If nobody has, set the mode 0600; if \
                 somebody may have, replace the key",
                path.display()
            ),
            FileError::Unreadable(path) => {
                write!(f, "{} is no text file of at most {FILE_BYTES_MAX} bytes", path.display())
            }
            FileError::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for FileError {}

/// Writes a file that only its owner may read (mode 0600). After the return the file survives a loss of power.
pub fn write_secret(path: &Path, text: &SecretText) -> Result<(), FileError> {
    write(path, text.expose().as_bytes(), 0o600)
}

/// Writes a file without a key, such as an authority's certificate for etcd (mode 0644).
pub fn write_public(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write(path, bytes, 0o644)
}

/// Reads what [`write_secret`] wrote; not if others than its owner may read or write it.
pub fn read_secret(path: &Path) -> Result<SecretText, FileError> {
    let about = |error| FileError::Io { path: path.to_owned(), error };
    let file = File::open(path).map_err(about)?;
    // Of the opened file: the path may name another one by now.
    let known = file.metadata().map_err(about)?;
    let mode = known.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FileError::TooOpen { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    match read {
        Ok(count) if known.is_file() && count as u64 <= FILE_BYTES_MAX => Ok(SecretText::new(text)),
        Err(error) if error.kind() != ErrorKind::InvalidData => Err(about(error)),
        _ => Err(FileError::Unreadable(path.to_owned())),
    }
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let written = write_draft(&draft, bytes, mode).and_then(|()| fs::rename(&draft, path)).and_then(|()| {
        // Without this a loss of power could bring the old file back: a key whose certificate is gone.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    });
    written.map_err(|error| {
        // Best effort: the draft may not exist.
        let _ = fs::remove_file(&draft);
        FileError::Io { path: path.to_owned(), error }
    })
}

fn write_draft(draft: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // A draft that a crash has left may have another mode, which opening it would keep. Usually there is none.
    let _ = fs::remove_file(draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
    file.write_all(bytes)?;
    file.sync_all()
}
