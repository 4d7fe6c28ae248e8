//! Owns the packed form of a hash: one run of bytes, with the fields in the order of insertion. Never knows when a hash
//! is too large for it.
//!
//! ```text
//! field length   varint (1 byte below 128)
//! field
//! value length   varint
//! value
//! ... the next field
//! ```
//! There is no header and no end mark: zero bytes are the empty hash, and a hash of two short fields costs four bytes
//! more than its content. Malformed bytes (possible only if a flash page is wrong despite its checksum) end the hash
//! early. They never cause a panic or a read past the end.

use crate::varint::{self, Varint};
use crate::{Buffer, Corrupt};
use std::ops::Range;

/// The position of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpan {
    /// The field's length, the field, the value's length and the value.
    pub entry: Range<usize>,
    /// Where the value's length starts.
    pub value_header: usize,
    pub value: Range<usize>,
}

/// The fields and their values, in order.
#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let field = varint::read_part(self.bytes, self.at)?;
        let value = varint::read_part(self.bytes, field.end)?;
        self.at = value.end;
        Some((&self.bytes[field], &self.bytes[value]))
    }
}

pub fn iter(bytes: &[u8]) -> Iter<'_> {
    Iter { bytes, at: 0 }
}

/// The number of fields. Walks all of them.
pub fn len(bytes: &[u8]) -> usize {
    iter(bytes).count()
}

pub fn get<'a>(bytes: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    // Compare lengths first: most fields differ in length, and comparing their bytes would be wasted.
    iter(bytes).find(|(name, _)| name.len() == field.len() && *name == field).map(|(_, value)| value)
}

pub fn find(bytes: &[u8], field: &[u8]) -> Option<FieldSpan> {
    let mut at = 0;
    loop {
        let name = varint::read_part(bytes, at)?;
        let value = varint::read_part(bytes, name.end)?;
        if name.len() == field.len() && &bytes[name.clone()] == field {
            return Some(FieldSpan { entry: at..value.end, value_header: name.end, value });
        }
        at = value.end;
    }
}

/// Sets a field. True: the field is new and goes to the end.
pub fn set<B: Buffer + ?Sized>(buffer: &mut B, field: &[u8], value: &[u8]) -> bool {
    match find(buffer.bytes(), field) {
        Some(place) => {
            overwrite(buffer, &place, value);
            false
        }
        None => {
            append(buffer, field, value);
            true
        }
    }
}

/// Changes the value of the field at `place`.
pub fn overwrite<B: Buffer + ?Sized>(buffer: &mut B, place: &FieldSpan, value: &[u8]) {
    if place.value.len() == value.len() {
        buffer.bytes_mut()[place.value.clone()].copy_from_slice(value);
    } else {
        let len = Varint::new(value.len());
        buffer.splice(place.value_header..place.value.end, &[len.as_bytes(), value]);
    }
}

/// Adds a field. The caller knows that it does not exist.
pub fn append<B: Buffer + ?Sized>(buffer: &mut B, field: &[u8], value: &[u8]) {
    let end = buffer.bytes().len();
    let (field_len, value_len) = (Varint::new(field.len()), Varint::new(value.len()));
    buffer.splice(end..end, &[field_len.as_bytes(), field, value_len.as_bytes(), value]);
}

/// Removes a field. True: the field was there.
pub fn remove<B: Buffer + ?Sized>(buffer: &mut B, field: &[u8]) -> bool {
    match find(buffer.bytes(), field) {
        Some(place) => {
            buffer.splice(place.entry, &[]);
            true
        }
        None => false,
    }
}

/// Whether the bytes are a packed hash up to their last byte.
pub fn check(bytes: &[u8]) -> Result<(), Corrupt> {
    let mut fields = iter(bytes);
    while fields.next().is_some() {}
    if fields.at == bytes.len() { Ok(()) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(bytes: &[u8]) -> String {
        let pairs = iter(bytes)
            .map(|(field, value)| format!("{}={}", String::from_utf8_lossy(field), String::from_utf8_lossy(value)));
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn fields_keep_their_order_of_insertion() {
        let mut hash = Vec::new();
        assert!(set(&mut hash, b"name", b"ada"));
        assert!(set(&mut hash, b"born", b"1815"));
        assert!(!set(&mut hash, b"name", b"Ada Lovelace"));
        assert_eq!(text(&hash), "name=Ada Lovelace born=1815");
        assert!(!set(&mut hash, b"born", b"1816"), "same length: in place");
        assert_eq!(text(&hash), "name=Ada Lovelace born=1816");
        assert!(remove(&mut hash, b"name"));
        assert!(!remove(&mut hash, b"name"));
        assert_eq!(text(&hash), "born=1816");
        assert!(remove(&mut hash, b"born"));
        assert!(hash.is_empty());
    }

    #[test]
    fn empty_fields_and_values_are_fields_and_values() {
        let mut hash = Vec::new();
        set(&mut hash, b"", b"");
        assert_eq!(hash, [0, 0]);
        assert_eq!((get(&hash, b""), len(&hash)), (Some(&b""[..]), 1));
        assert_eq!(get(&hash, b"x"), None);
    }

    #[test]
    fn two_short_fields_cost_four_bytes_of_overhead() {
        let mut hash = Vec::new();
        set(&mut hash, b"a", b"1");
        set(&mut hash, b"b", b"2");
        assert_eq!(hash, b"\x01a\x011\x01b\x012");
    }

    proptest! {
        #[test]
        fn behaves_as_a_list_of_pairs(ops in proptest::collection::vec((0..3u8, "[a-c]{0,2}", "[x-z]{0,200}"), 0..60)) {
            let (mut hash, mut model) = (Vec::new(), Vec::<(String, String)>::new());
            for (op, field, value) in ops {
                let at = model.iter().position(|(name, _)| *name == field);
                match (op, at) {
                    (0, Some(at)) => { prop_assert!(remove(&mut hash, field.as_bytes())); model.remove(at); }
                    (0, None) => prop_assert!(!remove(&mut hash, field.as_bytes())),
                    (_, Some(at)) => { prop_assert!(!set(&mut hash, field.as_bytes(), value.as_bytes())); model[at].1 = value; }
                    (_, None) => { prop_assert!(set(&mut hash, field.as_bytes(), value.as_bytes())); model.push((field, value)); }
                }
            }
            prop_assert_eq!(check(&hash), Ok(()));
            let pairs: Vec<(&[u8], &[u8])> = iter(&hash).collect();
            let want: Vec<(&[u8], &[u8])> = model.iter().map(|(f, v)| (f.as_bytes(), v.as_bytes())).collect();
            prop_assert_eq!(pairs, want);
        }

        #[test]
        fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), field in "[a-c]{0,2}") {
            let whole = check(&bytes).is_ok();
            let fields = len(&bytes);
            prop_assert!(fields <= bytes.len() / 2);
            prop_assert_eq!(get(&bytes, field.as_bytes()).is_some(), find(&bytes, field.as_bytes()).is_some());
            set(&mut bytes, field.as_bytes(), b"v");
            remove(&mut bytes, field.as_bytes());
            prop_assert!(!whole || check(&bytes).is_ok());
        }
    }
}
