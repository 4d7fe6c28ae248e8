//! Owns the analysis of a capture of MONITOR: how keys are used. Never connects.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::access::{Use, uses};
use crate::look::Traffic;
use crate::{Error, Sample, Usage};

const BUFFER_BYTES: usize = 1 << 20;

/// The result of the lines that were read so far.
#[derive(Debug, Default)]
pub struct Capture {
    pub usage: Usage,
    /// A sample of the values that were set.
    pub written: Sample,
    /// Whether `written` is wanted, which costs more than everything else.
    samples_values: bool,
    /// Use only lines of this logical database. `None`: of all.
    only_db: Option<u32>,
    pub commands: u64,
    /// The number of lines that are not MONITOR's.
    pub skipped: u64,
    pub bytes: u64,
    /// In seconds since 1970, by the server's clock.
    first_s: f64,
    last_s: f64,
}

impl Capture {
    pub fn new(samples_values: bool, only_db: Option<u32>) -> Capture {
        Capture { samples_values, only_db, ..Capture::default() }
    }

    /// A line such as `1700000000.123456 [0 127.0.0.1:6379] "SET" "key" "value"`, without its line end. Other lines are
    /// skipped and counted.
    pub fn line(&mut self, line: &[u8]) {
        self.bytes += line.len() as u64 + 1;
        let Some((at_s, db, words)) = parsed(line) else {
            // The first line, `OK`, is written by redis-cli.
            self.skipped += u64::from(!line.is_empty() && line != b"OK");
            return;
        };
        if self.commands == 0 {
            self.first_s = at_s;
        }
        self.last_s = at_s;
        self.commands += 1;
        if self.only_db.is_some_and(|only| only != db) {
            return;
        }
        uses(&words, |key, kind| self.usage.add(db, key, kind != Use::Overwrite, kind != Use::Read));
        if self.samples_values {
            written(&words, |key, value| {
                self.written.begin(key);
                self.written.string(value);
                self.written.end();
            });
        }
    }

    pub fn seconds(&self) -> f64 {
        self.last_s - self.first_s
    }

    pub fn traffic(&self) -> Traffic {
        let rate = |count: u64| if self.seconds() > 0.0 { (count as f64 / self.seconds()).round() } else { 0.0 };
        Traffic { reads_per_second: rate(self.usage.reads()), writes_per_second: rate(self.usage.changes()) }
    }
}

/// Reads a file with the output of MONITOR, or of `redis-cli MONITOR`. `report` gets the part of the file that is read,
/// 0 to 1.
pub fn read_capture(path: &Path, report: &dyn Fn(f64)) -> Result<Capture, Error> {
    let mut capture = Capture::new(true, None);
    for_each_line(path, report, |line| capture.line(line))?;
    if capture.commands == 0 {
        return Err(without_commands(path));
    }
    capture.written.finish();
    // Count all keys of the capture, including those that were only read.
    capture.written.keys = capture.usage.keys().round() as u64;
    Ok(capture)
}

/// Calls `each` with every use of a value in such a file, in its order: the logical database, the key, and how the value is used.
pub fn read_uses(path: &Path, mut each: impl FnMut(u32, &[u8], Use)) -> Result<(), Error> {
    let mut commands = 0u64;
    for_each_line(path, &|_| (), |line| {
        if let Some((_, db, words)) = parsed(line) {
            commands += 1;
            uses(&words, |key, kind| each(db, key, kind));
        }
    })?;
    if commands == 0 { Err(without_commands(path)) } else { Ok(()) }
}

fn for_each_line(path: &Path, report: &dyn Fn(f64), mut each: impl FnMut(&[u8])) -> Result<(), Error> {
    let file = File::open(path).map_err(|error| about(path, &error))?;
    let size = file.metadata().map_err(|error| about(path, &error))?.len().max(1);
    let mut lines = BufReader::with_capacity(BUFFER_BYTES, file);
    let (mut line, mut read, mut reported) = (Vec::new(), 0, 0);
    loop {
        match lines.read_until(b'\n', &mut line).map_err(|error| about(path, &error))? {
            0 => return Ok(()),
            bytes => read += bytes,
        }
        each(line.trim_ascii_end());
        line.clear();
        if read - reported >= BUFFER_BYTES {
            reported = read;
            report((read as f64 / size as f64).min(1.0));
        }
    }
}

fn about(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::new(format!("{}: {error}", path.display()))
}

fn without_commands(path: &Path) -> Error {
    about(path, &"no line has the format of MONITOR, such as: 1700000000.123456 [0 127.0.0.1:6379] \"GET\" \"key\"")
        .hint("write one with: redis-cli -h HOST MONITOR > FILE")
}

/// The time, the logical database and the command of a line.
fn parsed(line: &[u8]) -> Option<(f64, u32, Vec<Vec<u8>>)> {
    let bracket = line.iter().position(|&byte| byte == b'[')?;
    let end = bracket + line[bracket..].windows(2).position(|pair| pair == b"] ")?;
    let time =
        std::str::from_utf8(&line[..bracket]).ok()?.trim().parse::<f64>().ok().filter(|time| time.is_finite())?;
    let client = std::str::from_utf8(&line[bracket + 1..end]).ok()?;
    let db = client.split(' ').next()?.parse().ok()?;
    let words = resp::words(&line[end + 2..])?;
    (!words.is_empty()).then_some((time, db, words))
}

/// The strings that a command sets.
fn written<'a>(words: &'a [Vec<u8>], mut each: impl FnMut(&'a [u8], &'a [u8])) {
    let name = words[0].to_ascii_lowercase();
    match (name.as_slice(), &words[1..]) {
        (b"set", [key, value, ..]) | (b"setex" | b"psetex", [key, _, value]) => each(key, value),
        (b"mset", pairs) => pairs.chunks_exact(2).for_each(|pair| each(&pair[0], &pair[1])),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_time_a_database_and_words() {
        let line = br#"1700000000.250000 [3 127.0.0.1:5] "SET" "k] [y" "\x00""#;
        let words = vec![b"SET".to_vec(), b"k] [y".to_vec(), vec![0]];
        assert_eq!(parsed(line), Some((1_700_000_000.25, 3, words)));
        assert!(parsed(br#"1700000000.25 [0 lua] "get" "k""#).is_some());
        assert!(parsed(br#"1700000000.25 [0 unix:/run/a.sock] "get" "k""#).is_some());
        for bad in [
            &b"OK"[..],
            b"",
            b"[",
            b"1.0 [0 x]",
            b"1.0 [0 x] ",
            b"x [0 x] \"GET\"",
            b"1.0 [x x] \"GET\"",
            b"1.0 [0 x] \"GET",
            b"nan [0 x] \"GET\"",
            b"\xff [0 x] \"GET\"",
        ] {
            assert_eq!(parsed(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_file_tells_sizes_rates_and_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("monitor.txt");
        let mut text = "OK\n".to_owned();
        for number in 0..2000 {
            let at = 100.0 + f64::from(number) / 100.0;
            let (key, value) = (number % 100, "v".repeat(50));
            text += &format!("{at:.6} [0 10.0.0.1:5] \"set\" \"key:{key:04}\" \"{value}\"\n");
            text += &format!("{at:.6} [0 10.0.0.1:5] \"get\" \"key:{key:04}\"\n");
            text += &format!("{at:.6} [0 10.0.0.1:5] \"get\" \"other:{}\"\n", number % 50);
        }
        std::fs::write(&path, text).expect("written");
        let capture = read_capture(&path, &|part| assert!((0.0..=1.0).contains(&part))).expect("a capture");
        assert_eq!((capture.commands, capture.usage.reads(), capture.usage.changes()), (6000, 4000, 2000));
        let written = &capture.written;
        assert_eq!((written.keys, written.name_bytes(), written.value_bytes()), (150, 8, 50));
        assert_eq!(capture.traffic(), Traffic { reads_per_second: 200.0, writes_per_second: 100.0 });
        let curve = capture.usage.curve();
        // A read of a key that was just set is a hit; the other keys are used again after 100 and 50 keys.
        assert_eq!((curve.hit_ratio(2.0), curve.hit_ratio(64.0)), (Some(0.5), Some(0.5)));
        assert!(curve.hit_ratio(139.0).is_some_and(|ratio| ratio > 0.99), "{curve:?}");
        let mut used = Vec::new();
        read_uses(&path, |db, key, kind| used.push((db, key.to_vec(), kind))).expect("a capture");
        assert_eq!(
            (used.len(), &used[3..5]),
            (6000, &[(0, b"key:0001".to_vec(), Use::Overwrite), (0, b"key:0001".to_vec(), Use::Read)][..])
        );
        std::fs::write(&path, "nothing of the kind\n").expect("written");
        assert!(read_uses(&path, |_, _, _| ()).is_err_and(|error| error.message.contains("MONITOR")));
        assert!(read_capture(&path, &|_| ()).is_err_and(|error| error.message.contains("MONITOR")));
        assert!(read_capture(&directory.path().join("none"), &|_| ()).is_err());
    }
}
