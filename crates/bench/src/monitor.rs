//! Owns the parsing of command lines and of MONITOR captures into arguments. Never knows what a command does.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The words of a line, with redis-cli's quoting.
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>> {
    resp::words(line).context("a quote is not closed, or something other than a blank follows it")
}

/// The commands of a capture, in order. Lines without a command (the OK at the start, blank lines) are left out. An
/// incomplete last line, which a stopped writer leaves, is left out too, with a warning.
pub fn read_capture(path: &Path) -> Result<Vec<Vec<Vec<u8>>>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut commands = Vec::new();
    let lines = text.split(|&byte| byte == b'\n');
    // The index of the text after the last line end: an incomplete line, or nothing.
    let last = text.iter().filter(|&&byte| byte == b'\n').count();
    for (index, line) in lines.enumerate() {
        // `1700000000.123456 [0 127.0.0.1:6379] "SET" "key" "value"`
        let Some(head) = line.windows(2).position(|pair| pair == b"] ") else {
            continue;
        };
        let words = match split(&line[head + 2..]) {
            Err(error) if index == last => {
                eprintln!("warning: {}:{}: the last line is cut, and left out: {error}", path.display(), index + 1);
                continue;
            }
            words => words.with_context(|| format!("{}:{}", path.display(), index + 1))?,
        };
        if !words.is_empty() {
            commands.push(words);
        }
    }
    ensure!(!commands.is_empty(), "{} holds no line of a MONITOR capture", path.display());
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words = split(line.as_bytes()).expect("a good line");
        words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn blanks_separate_and_quotes_hold_together() {
        assert_eq!(words("  set __key__  5 "), ["set", "__key__", "5"]);
        assert_eq!(words(r#"set "a b" 'c "d'"#), ["set", "a b", "c \"d"]);
        assert_eq!(words(r#""\x41\n\"" 'it\'s'"#), ["A\n\"", "it's"]);
        assert_eq!(words(r#""" x"#), ["", "x"]);
    }

    #[test]
    fn open_quotes_are_refused() {
        assert!(split(b"set \"a").is_err());
        assert!(split(b"set 'a").is_err());
        assert!(split(b"set \"a\"b").is_err());
    }

    #[test]
    fn a_capture_gives_its_commands() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("monitor.txt");
        let text =
            "OK\n1700000000.1 [0 127.0.0.1:5] \"SET\" \"k] y\" \"\\x00\"\n\n1700000000.2 [0 lua] \"get\" \"k\"\n";
        std::fs::write(&path, text).expect("write");
        let commands = read_capture(&path).expect("capture");
        assert_eq!(commands, [vec![b"SET".to_vec(), b"k] y".to_vec(), vec![0]], vec![b"get".to_vec(), b"k".to_vec()]]);
        // The writer of this file was stopped in the middle of a line.
        std::fs::write(&path, format!("{text}1700000000.3 [0 lua] \"set\" \"k\" \"val")).expect("write");
        assert_eq!(read_capture(&path).expect("capture"), commands);
        std::fs::write(&path, format!("1700000000.3 [0 lua] \"set\" \"k\" \"val\n{text}")).expect("write");
        let error = read_capture(&path).expect_err("it is not the last line");
        assert!(format!("{error:#}").contains("monitor.txt:1"), "{error:#}");
        std::fs::write(&path, "nothing here\n").expect("write");
        assert!(read_capture(&path).is_err());
    }
}
