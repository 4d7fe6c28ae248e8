//! Owns bytes in JSON: a string if they are UTF-8, otherwise `{"base64": "…"}`. Never knows what they mean.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// A key, a value, an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Coded { base64: STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Coded {
    base64: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Text(String),
    Coded(Coded),
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let wrong = || D::Error::custom("expected a string, or {\"base64\": \"…\"} for bytes that are not UTF-8");
        match Given::deserialize(deserializer).map_err(|_| wrong())? {
            Given::Text(text) => Ok(Bytes(text.into_bytes())),
            Given::Coded(coded) => STANDARD.decode(&coded.base64).map(Bytes).map_err(|_| wrong()),
        }
    }
}

impl PartialSchema for Bytes {
    fn schema() -> RefOr<Schema> {
        let coded =
            ObjectBuilder::new().property("base64", ObjectBuilder::new().schema_type(Type::String)).required("base64");
        let either = OneOfBuilder::new()
            .item(ObjectBuilder::new().schema_type(Type::String))
            .item(coded)
            .description(Some("A string if it is UTF-8, else an object with its base64; both are accepted."));
        either.into()
    }
}

impl ToSchema for Bytes {
    fn name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }
}

/// `key64=` in a query.
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A size as the console shows sizes: `12.8 MiB`.
pub fn size(bytes: u64) -> String {
    let text = base::size::human(bytes);
    match text.strip_suffix('B') {
        Some(number) if !number.ends_with(' ') => format!("{number}iB"),
        _ => text,
    }
}

/// A name for display, in one line: valid UTF-8 is unchanged; control characters, characters that change the direction of
/// text, and bytes that are not UTF-8 are escaped. The console shows names in the same way (binary.ts), so that a name
/// looks the same everywhere.
pub fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                c if c.is_control() => text.push_str(&format!("\\x{:02x}", u32::from(c))),
                '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    text.push_str(&format!("\\u{:x}", u32::from(c)));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Shows invalid UTF-8 as question marks: for replies of the node that are text, never for names or values.
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same names as in the console's binary.test.ts.
    #[test]
    fn a_name_is_shown_as_the_console_shows_it() {
        for (name, text) in [
            (&b"Zo\xc3\xab <b>"[..], "Zoë <b>"),
            (b"a\nb\tc\\d\x07", "a\\nb\\tc\\d\\x07"),
            (b"caf\xc3\xa9\xff\x00", "café\\xff\\x00"),
            ("abc\u{202e}txt".as_bytes(), "abc\\u202etxt"),
        ] {
            assert_eq!(shown(name), text);
        }
    }

    #[test]
    fn a_size_has_the_console_s_unit() {
        assert_eq!([0, 512, 13_449_398, 1 << 40].map(size), ["0 B", "512 B", "12.8 MiB", "1 TiB"]);
    }

    #[test]
    fn utf8_is_a_string_and_the_rest_is_base64_and_both_come_back() {
        for (bytes, json) in
            [(&b"caf\xc3\xa9"[..], "\"café\""), (&b"\xff\x00"[..], "{\"base64\":\"/wA=\"}"), (b"", "\"\"")]
        {
            let bytes = Bytes(bytes.to_vec());
            assert_eq!(serde_json::to_string(&bytes).unwrap(), json);
            assert_eq!(serde_json::from_str::<Bytes>(json).unwrap(), bytes);
        }
        for wrong in ["7", "{\"base64\":\"*\"}", "{\"base64\":\"AA==\",\"more\":1}", "null", "[]"] {
            let why = serde_json::from_str::<Bytes>(wrong).unwrap_err().to_string();
            assert!(why.starts_with("expected a string, or {\"base64\""), "{wrong}: {why}");
        }
    }
}
