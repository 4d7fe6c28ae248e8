//! Owns which value of a JSON text lies at a position, for errors. Never judges the text: it may be damaged anywhere.

/// The names and indices that lead to the value at an offset, joined by dots: `assignments.2.node`. Empty: the whole text. serde_json says
/// only the position, and an operator who looks into etcd searches for a name.
pub fn path_at(text: &[u8], offset: usize) -> String {
    let mut levels: Vec<Level> = Vec::new();
    let mut bytes = text.iter().copied().take(offset);
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' => levels.push(Level::Object(None)),
            b'[' => levels.push(Level::Array(0)),
            b'}' | b']' => drop(levels.pop()),
            b',' => match levels.last_mut() {
                Some(Level::Object(name)) => *name = None,
                Some(Level::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let string = rest_of_string(&mut bytes);
                if let Some(Level::Object(name @ None)) = levels.last_mut() {
                    *name = Some(string);
                }
            }
            _ => {}
        }
    }
    let names = levels.into_iter().filter_map(|level| match level {
        Level::Object(name) => name,
        Level::Array(index) => Some(index.to_string()),
    });
    names.collect::<Vec<_>>().join(".")
}

/// The same for a line and a column, both from 1, as serde_json counts them.
pub fn path_at_line(text: &[u8], line: usize, column: usize) -> String {
    let before: usize = text.split_inclusive(|&byte| byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    path_at(text, before + column)
}

enum Level {
    /// The name whose value is being read.
    Object(Option<String>),
    Array(usize),
}

/// Up to the closing quote. Escapes stay as they are written.
fn rest_of_string(bytes: &mut impl Iterator<Item = u8>) -> String {
    let mut string = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => string.extend([byte].into_iter().chain(bytes.next())),
            _ => string.push(byte),
        }
    }
    String::from_utf8_lossy(&string).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_a_path() {
        let text = br#"{"a": [1, {"b\"": "x,]"}], "c": 22}"#;
        let at = |what: &str| {
            let offset = std::str::from_utf8(text).unwrap().find(what).unwrap();
            path_at(text, offset + what.len())
        };
        assert_eq!(at("[1"), "a.0");
        assert_eq!(at("x,"), "a.1.b\\\"");
        assert_eq!(at("\"}"), "a.1");
        assert_eq!(at("x,]\""), "a.1.b\\\"");
        assert_eq!(at("}]"), "a");
        assert_eq!(at("22"), "c");
        assert_eq!((path_at(text, 0), path_at(text, usize::MAX)), (String::new(), String::new()));
        assert_eq!(path_at_line(b"{\n\"a\":\n1}", 3, 1), "a");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_have_a_path(bytes in proptest::collection::vec(proptest::sample::select(b"{}[]\",:\\a\xff\n".to_vec()), 0..40), offset in 0..50_usize) {
            path_at(&bytes, offset);
            path_at_line(&bytes, offset, offset);
        }
    }
}
