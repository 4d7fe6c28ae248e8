//! Owns the words of a configuration line: splitting and quoting them. Also finds the files that a pattern names.
//! Never knows a directive.

use base::glob;
use std::io;
use std::path::{Path, PathBuf};

/// Splits a line into words by Redis's rules. `"…"` understands `\n \r \t \b \a \xHH` and `\` before any other
/// character; `'…'` understands only `\'`. A closing quote ends its word. The error text never contains the line itself.
pub fn split(line: &str) -> Result<Vec<String>, &'static str> {
    const UNBALANCED: &str = "Unbalanced quotes in configuration line";
    let mut words = Vec::new();
    let mut bytes = line.bytes().peekable();
    loop {
        while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
        if bytes.peek().is_none() {
            return Ok(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = bytes.next_if(|byte| !byte.is_ascii_whitespace()) {
            if byte != b'"' && byte != b'\'' {
                word.push(byte);
                continue;
            }
            loop {
                match bytes.next().ok_or(UNBALANCED)? {
                    close if close == byte => break,
                    b'\\' if byte == b'"' => match bytes.next().ok_or(UNBALANCED)? {
                        b'n' => word.push(b'\n'),
                        b'r' => word.push(b'\r'),
                        b't' => word.push(b'\t'),
                        b'b' => word.push(8),
                        b'a' => word.push(7),
                        b'x' => {
                            let mut ahead = bytes.clone();
                            match (ahead.next().and_then(hex), ahead.next().and_then(hex)) {
                                (Some(high), Some(low)) => {
                                    word.push(high << 4 | low);
                                    bytes = ahead;
                                }
                                _ => word.push(b'x'),
                            }
                        }
                        other => word.push(other),
                    },
                    b'\\' if bytes.peek() == Some(&b'\'') => word.extend(bytes.next()),
                    other => word.push(other),
                }
            }
            if bytes.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
                return Err(UNBALANCED);
            }
        }
        words.push(self::word(&word));
    }
}

/// The first character of a word that is not text; the bytes follow in hex. Text never contains a NUL.
const NO_TEXT: char = '\0';

/// The word for any bytes. Only passwords may be bytes that are not text, see [`is_text`].
pub fn word(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(NO_TEXT) => text.to_owned(),
        _ => bytes.iter().fold(NO_TEXT.to_string(), |word, byte| word + &format!("{byte:02x}")),
    }
}

/// Whether a word is text: UTF-8 without a NUL.
pub fn is_text(word: &str) -> bool {
    !word.starts_with(NO_TEXT)
}

/// The bytes of a word.
pub fn bytes(word: &str) -> Vec<u8> {
    let Some(digits) = word.strip_prefix(NO_TEXT) else { return word.as_bytes().to_vec() };
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.filter_map(|pair| Some(hex(pair[0])? << 4 | hex(pair[1])?)).collect()
}

fn hex(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

/// A word in the form that [`split`] reads back. Quoted only if necessary.
pub fn quote(word: &str) -> String {
    if !is_text(word) {
        let escaped = bytes(word).iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        return format!("\"{escaped}\"");
    }
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\'' | '\\');
    if !word.is_empty() && !word.starts_with('#') && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

pub fn join<S: AsRef<str>>(words: &[S]) -> String {
    words.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Whether a name contains a character that a pattern treats specially.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The files that match a pattern, sorted. Any component may contain `*`, `?` or `[…]`. No match is no error.
pub fn glob_files(pattern: &str) -> io::Result<Vec<PathBuf>> {
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![PathBuf::from(root)];
    for component in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for base in found {
            if !is_pattern(component) {
                next.push(base.join(component));
                continue;
            }
            let directory = if base.as_os_str().is_empty() { Path::new(".") } else { base.as_path() };
            let entries = match std::fs::read_dir(directory) {
                Ok(entries) => entries,
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            for entry in entries {
                let name = entry?.file_name();
                let Some(text) = name.to_str() else { continue };
                // As in a shell, only a pattern with a leading dot matches hidden files.
                let hidden = text.starts_with('.') && !component.starts_with('.');
                if !hidden && glob::matches(component.as_bytes(), text.as_bytes(), false) {
                    next.push(base.join(text));
                }
            }
        }
        found = next;
    }
    found.retain(|path| path.exists());
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn words(line: &str, expected: &[&str]) {
        assert_eq!(split(line).expect("the line splits"), expected, "{line}");
    }

    #[test]
    fn words_are_separated_by_any_white_space() {
        words("", &[]);
        words("  port\t 7000 ", &["port", "7000"]);
        words("a\u{b5}b c", &["aµb", "c"]);
    }

    #[test]
    fn escapes_work_inside_double_quotes() {
        words(r#"a "b c" """#, &["a", "b c", ""]);
        words(r#""\x41\n\r\t\"\\\q""#, &["A\n\r\t\"\\q"]);
        words(r#""\b\a""#, &["\u{8}\u{7}"]);
        words(r#""\xg1 \x4""#, &["xg1 x4"]);
        words(r#""\xc2\xb5""#, &["µ"]);
        words(r#"ab"c d""#, &["abc d"]);
    }

    #[test]
    fn single_quotes_escape_only_themselves() {
        words(r"'a b' 'it\'s' '\n'", &["a b", "it's", r"\n"]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [r#"a "b"#, "a 'b", r#""a"b"#, r#"'a'b"#, r#"""""#, r#""\"#, r#""\x"#] {
            assert_eq!(split(line), Err("Unbalanced quotes in configuration line"), "{line}");
        }
    }

    #[test]
    fn words_may_be_other_than_text() {
        for (line, expected) in
            [(r#""\xff""#, &b"\xff"[..]), (r#""a\x00ff""#, b"a\0ff"), (r#""\x00""#, b"\0"), ("\0ff", b"\0ff")]
        {
            let words = split(line).unwrap();
            assert_eq!(words.iter().map(|word| bytes(word)).collect::<Vec<_>>(), [expected], "{line}");
            assert!(!is_text(&words[0]));
            assert_eq!(split(&quote(&words[0])).unwrap(), words, "{line}");
        }
        assert!(is_text("µ") && is_text(""));
    }

    #[test]
    fn a_quoted_word_reads_back() {
        for word in ["", "plain", "two words", "a\"b", "it's", "back\\slash", "\n\r\t\u{1}", "#hash", "µ", "\u{a0}"] {
            assert_eq!(split(&quote(word)).unwrap(), [word], "{word:?}");
        }
        assert_eq!(quote("/data/a"), "/data/a");
        assert_eq!(join(&["save", ""]), "save \"\"");
    }

    #[test]
    fn files_are_found_by_pattern_in_order() {
        let dir = std::env::temp_dir().join(format!("flintkv-glob-{}", std::process::id()));
        for sub in ["x", "y"] {
            std::fs::create_dir_all(dir.join(sub)).unwrap();
            for name in ["2.conf", "1.conf", ".hidden.conf", "3.CONF", "other"] {
                std::fs::write(dir.join(sub).join(name), "").unwrap();
            }
        }
        let found = glob_files(&format!("{}/[xy]/*.conf", dir.display())).unwrap();
        let expected: Vec<_> =
            ["x/1.conf", "x/2.conf", "y/1.conf", "y/2.conf"].iter().map(|name| dir.join(name)).collect();
        assert_eq!(found, expected);
        assert!(glob_files(&format!("{}/none/*.conf", dir.display())).unwrap().is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
