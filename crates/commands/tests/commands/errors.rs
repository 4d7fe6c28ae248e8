//! Every error text in the sources must occur in an example or a test. A text that nobody has seen may differ from
//! Redis's.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Error texts that no client can provoke, and why.
const NEVER_SEEN: [(&str, &str); 6] = [
    ("OOM command not allowed", "DEBUG POPULATE of more than RAM and flash hold"),
    ("ERR TESTFAILED ", "a HyperLogLog that counts wrongly"),
    ("ERR syntax error, XTRIM must be called with a trimming strategy", "every other word is an error of its own"),
    ("ERR Elements are too large to be stored", "a gigabyte in one entry"),
    ("ERR RESP2 is not supported by this command", "DEBUG PROTOCOL ATTRIB, a tool of test suites"),
    ("ERR Wrong protocol type name", "as above"),
];

const CODES: [&str; 16] = [
    "ERR ",
    "WRONGTYPE ",
    "NOSCRIPT ",
    "NOGROUP ",
    "BUSYGROUP ",
    "BUSYKEY ",
    "EXECABORT ",
    "NOAUTH ",
    "WRONGPASS ",
    "NOPERM ",
    "NOPROTO ",
    "OOM ",
    "UNBLOCKED ",
    "INVALIDOBJ ",
    "IOERR ",
    "NOREPLICAS ",
];

#[test]
fn every_error_text_is_seen_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut texts, mut seen) = (BTreeSet::new(), String::new());
    for path in sources(&root.join("crates")).into_iter().chain(sources(&root.join("tests"))) {
        let source = fs::read_to_string(&path).unwrap();
        let is_commands = path.starts_with(root.join("crates/commands/src"));
        let tests_from = source.find("#[cfg(test)]").unwrap_or(source.len());
        for (at, text) in literals(&source) {
            let is_error = CODES.iter().any(|code| text.starts_with(code));
            if is_commands && is_error && at < tests_from {
                texts.insert(text);
            } else if !is_error || path.components().any(|part| part.as_os_str() == "tests") {
                seen.push_str(&text);
                seen.push('\n');
            }
        }
    }
    assert!(texts.len() > 100, "the sources are elsewhere");
    let unseen: Vec<&String> = texts
        .iter()
        .filter(|text| !NEVER_SEEN.iter().any(|(known, _)| text.starts_with(known)))
        .filter(|text| !seen.contains(longest_part(text)))
        .collect();
    assert!(unseen.is_empty(), "no example and no test shows\n{unseen:#?}");
}

/// The longest constant part of a text with placeholders.
fn longest_part(text: &str) -> &str {
    let parts = text.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    parts.max_by_key(|part| part.len()).unwrap_or(text).trim()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Packages of other languages are large, and not our sources.
            if !matches!(path.file_name().and_then(|name| name.to_str()), Some("node_modules" | "target" | ".venv")) {
                found.append(&mut sources(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The string literals of a source, with their places. Quotes inside comments and raw strings confuse this only up to
/// the end of the line.
fn literals(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = source[at..].find('\n').map_or(bytes.len(), |end| at + end);
            }
            b'\'' if bytes.get(at + 1) == Some(&b'"') => at += 3,
            b'\'' if bytes.get(at + 1) == Some(&b'\\') => at += 4,
            b'"' => {
                let (start, mut text) = (at, Vec::new());
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    if bytes[at] != b'\\' {
                        text.push(bytes[at]);
                        at += 1;
                        continue;
                    }
                    at += 1;
                    match bytes[at] {
                        // A string literal that continues on the next line.
                        b'\n' => at += source[at..].len() - source[at..].trim_start().len(),
                        escaped => {
                            text.push(if escaped == b'n' { b'\n' } else { escaped });
                            at += 1;
                        }
                    }
                }
                at += 1;
                found.push((start, String::from_utf8_lossy(&text).into_owned()));
            }
            _ => at += 1,
        }
    }
    found
}
