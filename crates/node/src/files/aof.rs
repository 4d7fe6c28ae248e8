//! Owns reading Redis's append-only files: the commands in them, and the manifest that lists them. Never runs a command.
//!
//! ```text
//! file      a dump (see the crate rdb), or nothing; then commands
//! command   as clients send it: *2 $4 INCR $1 k, each part ended by \r\n
//! #…        a line that is skipped: Redis notes the time
//!
//! manifest  a line for each file: file NAME seq NUMBER type b|i|h
//!           b: the dataset as it was at first; i: the changes since, in the order of their numbers; h: no longer needed
//!           #…: a line that is skipped
//! ```
//!
//! A file that was cut off ends with the beginning of a command. Anything else at its end is damage: zeros, above all.

use config::{is_text, split_words};
use rdb::Error;
use std::io::{BufRead, Read};

/// The longest count.
const DIGITS_MAX: usize = 10;
/// The longest line with a count: a letter, the digits, and the end of the line.
const COUNT_BYTES_MAX: u64 = 1 + DIGITS_MAX as u64 + 2;
/// The longest line that is skipped.
const REMARK_BYTES_MAX: u64 = 64 << 10;

/// The names of the files to load, in order. As in Redis, an empty manifest is none, and a blank line is damage: a manifest is written
/// whole, so something else has made it so.
pub fn manifest(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Err("an empty AOF manifest. Restore it from a copy, or write it again: a line for each file, as in \
                    file appendonly.aof.1.incr.aof seq 1 type i"
            .to_owned());
    }
    let (mut base, mut changes) = (None, Vec::new());
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let bad = |what: &str| Err(format!("line {number}: {what}"));
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            return bad("it is blank");
        }
        if !line.ends_with('\n') {
            return bad("it is cut off: it has no end");
        }
        let Some(words) = split_words(line)
            .ok()
            .filter(|words| words.len().is_multiple_of(2) && words.iter().all(|word| is_text(word)))
        else {
            return bad("it is not a list of names and values");
        };
        let value =
            |name: &str| words.chunks(2).find(|pair| pair[0].eq_ignore_ascii_case(name)).map(|pair| pair[1].as_str());
        let (Some(file), Some(Ok(seq @ 1..)), Some(kind)) =
            (value("file"), value("seq").map(str::parse::<u64>), value("type"))
        else {
            return bad("file, seq or type is missing");
        };
        if file.contains('/') {
            return bad("the file's name must not be a path");
        }
        match kind {
            "b" if base.is_some() => return bad("there is a second base file"),
            "b" => base = Some(file.to_owned()),
            "i" if changes.last().is_some_and(|&(last, _)| last >= seq) => return bad("the files are not in order"),
            "i" => changes.push((seq, file.to_owned())),
            "h" => {}
            _ => return bad("its type is not b, i or h"),
        }
    }
    Ok(base.into_iter().chain(changes.into_iter().map(|(_, file)| file)).collect())
}

/// Reads commands, one after another.
pub struct Commands<R> {
    source: R,
    offset: u64,
}

/// A command: its bytes as they are in the file.
#[derive(Default)]
pub struct Command {
    pub bytes: Vec<u8>,
    pub name: Vec<u8>,
}

impl<R: BufRead> Commands<R> {
    /// `offset`: how many bytes of the file are before the source.
    pub fn new(source: R, offset: u64) -> Commands<R> {
        Commands { source, offset }
    }

    /// Where the next command begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next command into `command`. False: the file is over.
    pub fn read(&mut self, command: &mut Command) -> Result<bool, Error> {
        loop {
            command.bytes.clear();
            command.name.clear();
            match self.source.fill_buf().map_err(Error::Io)?.first() {
                None => return Ok(false),
                Some(b'#') => {}
                Some(_) => break,
            }
            let remark = (&mut self.source).take(REMARK_BYTES_MAX).read_until(b'\n', &mut command.bytes);
            self.offset += remark.map_err(Error::Io)? as u64;
        }
        let count = match self.count(b'*', "no command begins here", &mut command.bytes)? {
            0 => return self.bad("no command begins here"),
            count => count,
        };
        for nth in 0..count {
            let len = self.count(b'$', "an argument has no length", &mut command.bytes)?;
            let from = command.bytes.len();
            let wanted = len + 2;
            let read = (&mut self.source).take(wanted).read_to_end(&mut command.bytes).map_err(Error::Io)?;
            if (read as u64) < wanted {
                return Err(Error::Truncated { offset: self.offset });
            }
            if !command.bytes.ends_with(b"\r\n") {
                return self.bad("an argument is longer than its length");
            }
            if nth == 0 {
                command.name = command.bytes[from..command.bytes.len() - 2].to_ascii_lowercase();
            }
        }
        self.offset += command.bytes.len() as u64;
        Ok(true)
    }

    fn bad<T>(&self, what: &str) -> Result<T, Error> {
        Err(Error::Bad { offset: self.offset, what: what.to_owned() })
    }

    /// Appends a line with its end: this letter and a number, which is returned.
    fn count(&mut self, letter: u8, otherwise: &str, out: &mut Vec<u8>) -> Result<u64, Error> {
        let from = out.len();
        let read = (&mut self.source).take(COUNT_BYTES_MAX).read_until(b'\n', out).map_err(Error::Io)?;
        let line = &out[from..];
        match number(line, letter) {
            Some(count) => Ok(count),
            None if (read as u64) < COUNT_BYTES_MAX && is_cut(line, letter) => {
                Err(Error::Truncated { offset: self.offset })
            }
            None => self.bad(otherwise),
        }
    }
}

/// Whether a line with a number begins like this.
fn is_cut(line: &[u8], letter: u8) -> bool {
    let Some((first, digits)) = line.split_first() else { return true };
    let digits = digits.strip_suffix(b"\r").unwrap_or(digits);
    *first == letter && digits.len() <= DIGITS_MAX && digits.iter().all(u8::is_ascii_digit)
}

/// The number in a line behind its first letter.
fn number(line: &[u8], letter: u8) -> Option<u64> {
    let digits = line.strip_prefix(&[letter])?.strip_suffix(b"\r\n")?;
    let number = std::str::from_utf8(digits).ok()?.parse::<u32>().ok()?;
    Some(number.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_lists_its_files_in_order() {
        let text = "file appendonly.aof.2.base.rdb seq 2 type b\nfile old seq 1 type h\n# a remark\n\
                    file \"with space\" seq 3 type i\nfile appendonly.aof.12.incr.aof seq 12 type i\n";
        assert_eq!(manifest(text).unwrap(), ["appendonly.aof.2.base.rdb", "with space", "appendonly.aof.12.incr.aof"]);
        for (bad, why) in [
            ("file a seq 1\n", "line 1: file, seq or type is missing"),
            ("file a seq x type b\n", "line 1: file, seq or type is missing"),
            ("file a seq 0 type b\n", "line 1: file, seq or type is missing"),
            ("file ../a seq 1 type b\n", "line 1: the file's name must not be a path"),
            ("file a seq 1 type b\nfile b seq 2 type b\n", "line 2: there is a second base file"),
            ("file a seq 2 type i\nfile b seq 1 type i\n", "line 2: the files are not in order"),
            ("file a seq 2 type z\n", "line 1: its type is not b, i or h"),
            ("file\n", "line 1: it is not a list of names and values"),
            // As in Redis.
            ("file a seq 1 type b\n\nfile b seq 1 type i\n", "line 2: it is blank"),
            ("file a seq 1 type b\n \t", "line 2: it is blank"),
            ("file a seq 1 type b", "line 1: it is cut off: it has no end"),
        ] {
            assert_eq!(manifest(bad).unwrap_err(), why);
        }
        assert!(manifest("").unwrap_err().starts_with("an empty AOF manifest"));
        assert_eq!(manifest("# only a remark").unwrap(), [""; 0]);
    }

    #[test]
    fn commands_are_read_up_to_damage() {
        let file = b"#TS:1700000000\r\n*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n";
        let read = |file: &[u8]| {
            let (mut commands, mut command, mut names) = (Commands::new(file, 100), Command::default(), Vec::new());
            loop {
                match commands.read(&mut command) {
                    Ok(true) => names.push(String::from_utf8(command.name.clone()).unwrap()),
                    Ok(false) => return (names, commands.offset(), None),
                    Err(error) => return (names, commands.offset(), Some(error)),
                }
            }
        };
        let (names, end, error) = read(file);
        assert_eq!((names.join(" "), end), ("incr ping".to_owned(), 100 + file.len() as u64));
        assert!(error.is_none());
        for cut in 17..file.len() {
            let (names, end, error) = read(&file[..cut]);
            let offset = if cut < 37 { 116 } else { 137 };
            match error {
                Some(Error::Truncated { offset: told }) => assert_eq!(told, offset),
                other => assert!(cut == 37 && names.len() == 1 && other.is_none(), "cut at {cut}: {other:?}"),
            }
            assert_eq!(end, offset);
        }
        for bad in [
            &b"+OK\r\n"[..],
            b"*0\r\n",
            b"*1\r\n:4\r\n",
            b"*1\r\n$1\r\nPING\r\n",
            b"*99999999999\r\n",
            b"*-1\r\n",
            // No command begins like this, so these files were not cut off.
            &[0; 100],
            b"\n",
            b"RED",
            b"*1\r\n\0\0",
            b"*1\r\n$4\r\nPING\0\0\0",
            b"*1\0",
            b"*99999999999",
        ] {
            assert!(matches!(read(bad).2, Some(Error::Bad { offset: 100, .. })), "{bad:?}");
        }
        for cut in [&b"*"[..], b"*1", b"*1\r", b"*1\r\n", b"*1\r\n$", b"*1\r\n$4\r\nPING\r"] {
            assert!(matches!(read(cut).2, Some(Error::Truncated { offset: 100 })), "{cut:?}");
        }
        let (names, _, error) = read(b"*1\r\n$4\r\nPING\r\n#TS:17000");
        assert!(names.len() == 1 && error.is_none(), "a remark may be cut off");
    }
}
