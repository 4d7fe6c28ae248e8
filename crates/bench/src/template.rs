//! Owns the writing of requests. A command is rendered once into constant bytes and variable places, so that each
//! further request costs a few copies. Never knows which command is next.

use anyhow::{Result, ensure};

use crate::config::{DataSpec, Fill, SizeSpec};
use crate::data::Data;
use crate::keys::Keys;
use crate::rng::Rng;

const KEY: &[u8] = b"__key__";
const DATA: &[u8] = b"__data__";
/// A constant value up to this size becomes part of the template.
const INLINE_VALUE_BYTES: usize = 64 << 10;
const DIGITS_MAX: usize = 20;

/// One command, ready to be sent repeatedly.
pub struct Template {
    parts: Vec<Part>,
}

enum Part {
    Bytes(Box<[u8]>),
    Key(KeyHead),
    /// A value with `affix` bytes around it. The bytes before it are given; those after it follow in the next part.
    Value {
        before: Box<[u8]>,
        affix_bytes: usize,
    },
    /// An argument drawn from a range. `normal` puts most of them near its centre.
    Number {
        low: u64,
        high: u64,
        normal: bool,
    },
    /// The last byte of a value that starts at this offset (GETRANGE).
    End {
        offset: u64,
    },
    /// SCAN's cursor.
    Cursor,
}

/// Everything before a key's digits, once for each number of digits, because RESP gives the length first.
pub struct KeyHead(Vec<Box<[u8]>>);

/// An argument of a command.
pub enum Arg<'a> {
    /// Text in which `__key__` or `__data__` is replaced.
    Text(&'a [u8]),
    Literal(&'a [u8]),
    Number {
        low: u64,
        high: u64,
        normal: bool,
    },
    End {
        offset: u64,
    },
    Cursor,
}

/// The sources of a request's variable parts.
pub struct Draw<'a> {
    pub keys: &'a mut Keys,
    pub rng: &'a mut Rng,
    pub data: &'a mut Data,
    pub cursor: &'a [u8],
}

impl Template {
    pub fn new(args: &[Arg<'_>], key_prefix: &[u8], data: &DataSpec) -> Result<Template> {
        let mut parts = Vec::new();
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            match *arg {
                Arg::Literal(text) => literal(&mut bytes, text),
                Arg::Number { low, high, .. } if low == high => literal(&mut bytes, low.to_string().as_bytes()),
                Arg::Number { low, high, normal } => {
                    parts.push(Part::Bytes(std::mem::take(&mut bytes).into()));
                    parts.push(Part::Number { low, high, normal });
                }
                Arg::End { offset } => {
                    parts.push(Part::Bytes(std::mem::take(&mut bytes).into()));
                    parts.push(Part::End { offset });
                }
                Arg::Cursor => {
                    parts.push(Part::Bytes(std::mem::take(&mut bytes).into()));
                    parts.push(Part::Cursor);
                }
                Arg::Text(text) => match placeholder(text)? {
                    None => literal(&mut bytes, text),
                    Some((before, true, after)) => {
                        let head = KeyHead::new(&bytes, before, key_prefix, after.len());
                        parts.push(Part::Key(head));
                        bytes.clear();
                        bytes.extend_from_slice(after);
                        bytes.extend_from_slice(b"\r\n");
                    }
                    Some((before, false, after)) => match (&data.size, data.fill) {
                        (SizeSpec::Fixed(size), Fill::Constant) if *size <= INLINE_VALUE_BYTES => {
                            literal(&mut bytes, &[before, &vec![b'x'; *size], after].concat());
                        }
                        _ => {
                            parts.push(Part::Bytes(std::mem::take(&mut bytes).into()));
                            let affix_bytes = before.len() + after.len();
                            parts.push(Part::Value { before: before.into(), affix_bytes });
                            bytes.extend_from_slice(after);
                            bytes.extend_from_slice(b"\r\n");
                        }
                    },
                },
            }
        }
        if !bytes.is_empty() {
            parts.push(Part::Bytes(bytes.into()));
        }
        Ok(Template { parts })
    }

    /// Appends one request. Every `__key__` draws a new key; every `__data__` of a request belongs to the last key.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>, draw: &mut Draw<'_>) {
        let mut key = 0;
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::Key(head) => {
                    key = draw.keys.next(draw.rng);
                    head.write(out, key);
                }
                Part::Value { before, affix_bytes } => {
                    let size = draw.data.next_size(key, draw.rng);
                    header(out, b'$', (size + affix_bytes) as u64);
                    out.extend_from_slice(before);
                    out.extend_from_slice(draw.data.next(size));
                }
                Part::Number { low, high, normal } => {
                    let number = if *normal { centred(draw.rng, *low, *high) } else { draw.rng.range(*low, *high) };
                    number_arg(out, number);
                }
                Part::End { offset } => number_arg(out, offset + draw.data.next_size(key, draw.rng) as u64 - 1),
                Part::Cursor => literal(out, draw.cursor),
            }
        }
    }
}

impl KeyHead {
    /// `lead` precedes the argument; `before` and `after_bytes` are the key's affixes.
    pub fn new(lead: &[u8], before: &[u8], prefix: &[u8], after_bytes: usize) -> KeyHead {
        let heads = (0..=DIGITS_MAX).map(|digits| {
            let mut head = lead.to_vec();
            header(&mut head, b'$', (before.len() + prefix.len() + digits + after_bytes) as u64);
            head.extend_from_slice(before);
            head.extend_from_slice(prefix);
            head.into()
        });
        KeyHead(heads.collect())
    }

    #[inline]
    pub fn write(&self, out: &mut Vec<u8>, key: u64) {
        let mut buffer = [0; DIGITS_MAX];
        let digits = decimal(key, &mut buffer);
        out.extend_from_slice(&self.0[digits.len()]);
        out.extend_from_slice(digits);
    }
}

/// `*3\r\n`, `$500\r\n` …
pub fn header(out: &mut Vec<u8>, kind: u8, count: u64) {
    let mut buffer = [0; DIGITS_MAX];
    out.push(kind);
    out.extend_from_slice(decimal(count, &mut buffer));
    out.extend_from_slice(b"\r\n");
}

/// A bulk string.
pub fn literal(out: &mut Vec<u8>, text: &[u8]) {
    header(out, b'$', text.len() as u64);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn number_arg(out: &mut Vec<u8>, number: u64) {
    let mut buffer = [0; DIGITS_MAX];
    literal(out, decimal(number, &mut buffer));
}

/// Normal around the centre of the range, with a sixth of the range as deviation, cut at its ends.
fn centred(rng: &mut Rng, low: u64, high: u64) -> u64 {
    let width = (high - low) as f64;
    let number = low as f64 + width / 2.0 + rng.normal() * width / 6.0;
    (number.round() as u64).clamp(low, high)
}

fn decimal(mut number: u64, buffer: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut at = DIGITS_MAX;
    while number >= 100 {
        let pair = (number % 100) as u8;
        number /= 100;
        at -= 2;
        buffer[at] = b'0' + pair / 10;
        buffer[at + 1] = b'0' + pair % 10;
    }
    at -= 1;
    buffer[at] = b'0' + (number % 10) as u8;
    if number >= 10 {
        at -= 1;
        buffer[at] = b'0' + (number / 10) as u8;
    }
    &buffer[at..]
}

/// The only placeholder of an argument: the text before it, whether it is a key, and the text after it.
type Placeholder<'a> = (&'a [u8], bool, &'a [u8]);

fn placeholder(text: &[u8]) -> Result<Option<Placeholder<'_>>> {
    let find = |what: &[u8]| text.windows(what.len()).position(|window| window == what);
    let (at, length, is_key) = match (find(KEY), find(DATA)) {
        (None, None) => return Ok(None),
        (Some(at), None) => (at, KEY.len(), true),
        (None, Some(at)) => (at, DATA.len(), false),
        (Some(_), Some(_)) => {
            anyhow::bail!("an argument holds either __key__ or __data__, not both")
        }
    };
    let (before, after) = (&text[..at], &text[at + length..]);
    let again = if is_key { KEY } else { DATA };
    let repeated = after.windows(again.len()).any(|window| window == again);
    ensure!(!repeated, "an argument holds __key__ or __data__ once at most");
    Ok(Some((before, is_key, after)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KeyPattern, KeySpace};
    use crate::data::constant;

    fn render(args: &[Arg<'_>], data: &DataSpec, times: usize) -> Result<String> {
        let space = KeySpace { min: 8, max: 100, ..KeySpace::default() };
        let template = Template::new(args, b"k-", data)?;
        let mut keys = Keys::new(KeyPattern::Sequential, &space, 0, 1);
        let mut values = Data::new(data, &space, &constant(data), 0);
        let mut rng = Rng::new(0);
        let mut out = Vec::new();
        for _ in 0..times {
            let mut draw = Draw { keys: &mut keys, rng: &mut rng, data: &mut values, cursor: b"17" };
            template.write(&mut out, &mut draw);
        }
        Ok(String::from_utf8(out).expect("text"))
    }

    fn three() -> DataSpec {
        DataSpec { size: SizeSpec::Fixed(3), offset: 0, fill: Fill::Constant }
    }

    #[test]
    fn a_key_carries_its_own_length() {
        let args = [Arg::Literal(b"SET"), Arg::Text(KEY), Arg::Text(DATA)];
        let set = |length, key| format!("*3\r\n$3\r\nSET\r\n${length}\r\nk-{key}\r\n$3\r\nxxx\r\n");
        let expected = [set(3, 8), set(3, 9), set(4, 10)].concat();
        assert_eq!(render(&args, &three(), 3).expect("template"), expected);
    }

    #[test]
    fn affixes_stay_around_key_and_data() {
        let args = [Arg::Text(b"a{__key__}b"), Arg::Text(b"<__data__>")];
        assert_eq!(render(&args, &three(), 1).expect("template"), "*2\r\n$7\r\na{k-8}b\r\n$5\r\n<xxx>\r\n");
        let varying = DataSpec { size: SizeSpec::List(vec![(1, 1), (12, 1)]), ..three() };
        let args = [Arg::Text(b"<__data__>")];
        assert_eq!(render(&args, &varying, 2).expect("template"), "*1\r\n$3\r\n<x>\r\n*1\r\n$14\r\n<xxxxxxxxxxxx>\r\n");
    }

    #[test]
    fn every_key_of_a_command_is_drawn_anew() {
        let args = [Arg::Text(KEY), Arg::Text(KEY)];
        assert_eq!(render(&args, &three(), 1).expect("template"), "*2\r\n$3\r\nk-8\r\n$3\r\nk-9\r\n");
    }

    #[test]
    fn numbers_ends_and_cursors_are_arguments() {
        let number = Arg::Number { low: 60, high: 60, normal: false };
        let args = [number, Arg::End { offset: 10 }, Arg::Cursor];
        assert_eq!(render(&args, &three(), 1).expect("template"), "*3\r\n$2\r\n60\r\n$2\r\n12\r\n$2\r\n17\r\n");
        for _ in 0..3 {
            let drawn = render(&[Arg::Number { low: 5, high: 9, normal: true }], &three(), 1).expect("template");
            assert!(("*1\r\n$1\r\n5\r\n"..="*1\r\n$1\r\n9\r\n").contains(&drawn.as_str()), "{drawn}");
        }
    }

    #[test]
    fn two_placeholders_in_one_argument_are_refused() {
        assert!(render(&[Arg::Text(b"__key____key__")], &three(), 1).is_err());
        assert!(render(&[Arg::Text(b"__key____data__")], &three(), 1).is_err());
    }

    #[test]
    fn decimals_of_every_length() {
        let mut buffer = [0; DIGITS_MAX];
        for number in [0, 7, 10, 99, 100, 12345, 999_999, u64::MAX] {
            assert_eq!(decimal(number, &mut buffer), number.to_string().as_bytes());
        }
    }
}
