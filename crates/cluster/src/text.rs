//! Owns how a value that is written as one word comes from JSON. Never knows which values there are.

use serde::de::{Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// Reads a string and parses it. The visitor returns the error of the parser while the string is read, so that serde_json
/// gives the error the position of this string, and not that of the object around it.
pub fn read<'de, T, D>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    T: FromStr,
    T::Err: fmt::Display,
    D: Deserializer<'de>,
{
    deserializer.deserialize_str(Word { expected, value: PhantomData })
}

struct Word<T> {
    expected: &'static str,
    value: PhantomData<T>,
}

impl<T> Visitor<'_> for Word<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}
