//! Owns ids of stream entries in arguments and replies. Never knows streams.

use crate::number::int;
use crate::stop::Stop;
use value::stream::Id;

const INVALID: Stop = Stop::error("ERR Invalid stream ID specified as stream command argument");
/// Redis copies an id into a buffer of 128 bytes.
const TEXT_BYTES_MAX: usize = 127;

/// An id as text on the stack.
pub struct IdText {
    bytes: [u8; 41],
    start: usize,
}

impl IdText {
    pub fn new(id: Id) -> IdText {
        let mut text = IdText { bytes: [0; 41], start: 41 };
        text.push_number(id.seq);
        text.push(b'-');
        text.push_number(id.ms);
        text
    }

    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }

    fn push_number(&mut self, mut number: u64) {
        loop {
            self.push((number % 10) as u8 + b'0');
            number /= 10;
            if number == 0 {
                break;
            }
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// A number in an id as Redis accepts it: an integer, or otherwise anything that `strtoull` accepts completely.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(number) = int(text) {
        return u64::try_from(number).ok();
    }
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        number.checked_mul(10)?.checked_add(u64::from(digit)).filter(|_| digit <= 9)
    })?;
    Some(if negative { number.wrapping_neg() } else { number })
}

/// A sequence of `None` means `*`, or no sequence.
struct Parts {
    ms: u64,
    seq: Option<u64>,
    is_star: bool,
}

fn parts(text: &[u8]) -> Result<Parts, Stop> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(INVALID);
    }
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let Some(dash) = text.iter().position(|&byte| byte == b'-') else {
        return Ok(Parts { ms: number(text).ok_or(INVALID)?, seq: None, is_star: false });
    };
    let (ms, seq) = (number(&text[..dash]).ok_or(INVALID)?, &text[dash + 1..]);
    if seq == b"*" {
        return Ok(Parts { ms, seq: None, is_star: true });
    }
    Ok(Parts { ms, seq: Some(number(seq).ok_or(INVALID)?), is_star: false })
}

/// `ms` or `ms-seq`, where a missing seq becomes `missing_seq`. No other forms.
pub fn strict(text: &[u8], missing_seq: u64) -> Result<Id, Stop> {
    let parts = parts(text)?;
    if parts.is_star {
        return Err(INVALID);
    }
    Ok(Id::new(parts.ms, parts.seq.unwrap_or(missing_seq)))
}

/// Like [`strict`]; `-` and `+` are the smallest and the largest id.
pub fn bound(text: &[u8], missing_seq: u64) -> Result<Id, Stop> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        text => strict(text, missing_seq),
    }
}

/// The id for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// `*`
    Auto,
    /// `ms-*`
    AutoSeq(u64),
    Exact(Id),
}

impl NewId {
    pub fn parse(text: &[u8]) -> Result<NewId, Stop> {
        let parts = parts(text)?;
        Ok(if parts.is_star {
            NewId::AutoSeq(parts.ms)
        } else {
            NewId::Exact(Id::new(parts.ms, parts.seq.unwrap_or(0)))
        })
    }

    /// The id in a stream whose last id is `last`. `None`: the id would not be larger than that.
    pub fn after(self, last: Id, now_ms: u64) -> Option<Id> {
        let id = match self {
            NewId::Auto if now_ms > last.ms => Id::new(now_ms, 0),
            NewId::Auto => last.next()?,
            NewId::AutoSeq(ms) if ms == last.ms => Id::new(ms, last.seq.checked_add(1)?),
            NewId::AutoSeq(ms) => Id::new(ms, 0),
            NewId::Exact(id) => id,
        };
        (id > last).then_some(id)
    }
}

const BAD_START: Stop = Stop::error("ERR invalid start ID for the interval");
const BAD_END: Stop = Stop::error("ERR invalid end ID for the interval");

/// The start of an interval. `(id` excludes the id itself.
pub fn start(text: &[u8]) -> Result<Id, Stop> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => strict(id, 0)?.next().ok_or(BAD_START),
        text => bound(text, 0),
    }
}

/// The end of an interval. An id without seq includes its whole millisecond.
pub fn end(text: &[u8]) -> Result<Id, Stop> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => strict(id, u64::MAX)?.previous().ok_or(BAD_END),
        text => bound(text, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let id = |text: &str| strict(text.as_bytes(), 7).ok().map(|id| (id.ms, id.seq));
        assert_eq!(id("5"), Some((5, 7)));
        assert_eq!(id("5-3"), Some((5, 3)));
        assert_eq!(id("18446744073709551615-18446744073709551615"), Some((u64::MAX, u64::MAX)));
        assert_eq!(id("007- 3"), Some((7, 3)));
        assert_eq!(id("1-\u{0}9"), None);
        assert_eq!(id("1-+2"), Some((1, 2)));
        assert_eq!(id("1--02"), Some((1, u64::MAX - 1)));
        for text in ["", "-", "+", "-1", "1-", "1-2-3", "1--2", "x", "1-x", "5-*", "18446744073709551616", "1 "] {
            assert_eq!(id(text), None, "{text:?}");
        }
        assert_eq!(id(&"0".repeat(127)), Some((0, 7)));
        assert_eq!(id(&"0".repeat(128)), None);
        assert_eq!(IdText::new(Id::MAX).as_bytes(), b"18446744073709551615-18446744073709551615");
        assert_eq!(IdText::new(Id::MIN).as_bytes(), b"0-0");
    }

    #[test]
    fn bounds_may_be_left_out() {
        assert_eq!(start(b"(5-3").ok(), Some(Id::new(5, 4)));
        assert_eq!(end(b"(5").ok(), Some(Id::new(5, u64::MAX - 1)));
        assert_eq!((start(b"-").ok(), end(b"+").ok()), (Some(Id::MIN), Some(Id::MAX)));
        for text in [&b"(18446744073709551615-18446744073709551615"[..], b"(", b"(-", b"(+", b"(("] {
            assert!(start(text).is_err());
        }
        assert!(end(b"(0-0").is_err());
    }

    #[test]
    fn new_ids_are_above_the_last() {
        let last = Id::new(10, 5);
        assert_eq!(NewId::Auto.after(last, 11), Some(Id::new(11, 0)));
        assert_eq!(NewId::Auto.after(last, 9), Some(Id::new(10, 6)));
        assert_eq!(NewId::AutoSeq(10).after(last, 0), Some(Id::new(10, 6)));
        assert_eq!(NewId::AutoSeq(12).after(last, 0), Some(Id::new(12, 0)));
        assert_eq!(NewId::AutoSeq(9).after(last, 0), None);
        assert_eq!(NewId::AutoSeq(10).after(Id::new(10, u64::MAX), 0), None);
        assert_eq!(NewId::Exact(last).after(last, 0), None);
    }
}
