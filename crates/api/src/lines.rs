//! Owns a file of JSON lines with a bounded size: audit and events. Never knows what a line says.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The number of lines that are kept in memory for readers. The file holds more.
pub const KEPT: usize = 1000;

/// Newest last. Without a path, the lines are lost with the process.
pub struct Lines<T> {
    kept: VecDeque<T>,
    path: Option<PathBuf>,
    file: Option<File>,
    bytes: u64,
    bytes_max: u64,
}

impl<T: Serialize + DeserializeOwned> Lines<T> {
    pub fn open(path: Option<PathBuf>, bytes_max: u64) -> io::Result<Lines<T>> {
        let mut lines = Lines { kept: VecDeque::new(), file: None, path, bytes: 0, bytes_max };
        if let Some(path) = lines.path.clone() {
            for file in [rotated(&path), path.clone()] {
                match fs::read(&file) {
                    Ok(text) => lines.take(&text),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            lines.reopen(&path)?;
        }
        Ok(lines)
    }

    /// Skips a line that a crash cut short.
    fn take(&mut self, text: &[u8]) {
        for line in text.split(|&byte| byte == b'\n') {
            if let Ok(line) = serde_json::from_slice(line) {
                self.keep(line);
            }
        }
    }

    fn keep(&mut self, line: T) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(line);
    }

    fn reopen(&mut self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        self.bytes = file.metadata()?.len();
        if self.bytes > 0 {
            // End a line that a crash may have cut short.
            file.write_all(b"\n")?;
            self.bytes += 1;
        }
        self.file = Some(file);
        Ok(())
    }

    /// Returns an error if the file cannot be written. The line is kept in memory anyway.
    pub fn push(&mut self, line: T) -> io::Result<()> {
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        self.keep(line);
        let Some(path) = self.path.clone() else { return Ok(()) };
        if self.bytes + text.len() as u64 > self.bytes_max && self.bytes > 0 {
            self.file = None;
            fs::rename(&path, rotated(&path))?;
        }
        if self.file.is_none() {
            self.reopen(&path)?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(&text)?;
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Newest first.
    pub fn newest(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().rev()
    }
}

fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Replaces a file as a whole: after a crash, it is the old one or the new one.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &Lines<String>) -> Vec<String> {
        lines.newest().cloned().collect()
    }

    #[test]
    fn lines_survive_a_restart_and_a_cut_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut lines: Lines<String> = Lines::open(Some(path.clone()), 1000).unwrap();
        lines.push("one".into()).unwrap();
        lines.push("two".into()).unwrap();
        drop(lines);
        let mut cut = fs::read(&path).unwrap();
        cut.extend(b"\"thr");
        fs::write(&path, &cut).unwrap();
        let mut lines: Lines<String> = Lines::open(Some(path.clone()), 1000).unwrap();
        assert_eq!(text(&lines), ["two", "one"]);
        lines.push("four".into()).unwrap();
        let lines: Lines<String> = Lines::open(Some(path), 1000).unwrap();
        assert_eq!(text(&lines), ["four", "two", "one"]);
    }

    #[test]
    fn a_full_file_is_rotated_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut lines: Lines<String> = Lines::open(Some(path.clone()), 100).unwrap();
        for number in 0..100 {
            lines.push(format!("line {number}")).unwrap();
        }
        let sizes: Vec<u64> =
            [path.clone(), rotated(&path)].iter().map(|path| fs::metadata(path).unwrap().len()).collect();
        assert!(sizes.iter().all(|&bytes| bytes <= 100), "{sizes:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let lines: Lines<String> = Lines::open(Some(path), 100).unwrap();
        assert_eq!(text(&lines)[0], "line 99");
    }

    #[test]
    fn memory_holds_a_thousand_lines_without_a_file() {
        let mut lines: Lines<u32> = Lines::open(None, 100).unwrap();
        (0..2500).for_each(|number| lines.push(number).unwrap());
        assert_eq!(lines.newest().count(), KEPT);
        assert_eq!(lines.newest().next(), Some(&2499));
    }
}
