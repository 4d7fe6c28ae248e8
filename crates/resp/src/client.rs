//! Owns the client's side of the protocol: encoding commands, and skipping replies or reading them into a tree. Never
//! knows which command a reply belongs to.
//!
//! The load generator needs only the end and the kind of a reply, so [`skip`] builds nothing. Tests read whole values
//! with [`parse_value`]. The server may be broken or hostile: a declared length never causes an allocation, and
//! recursion never goes deeper than [`DEPTH_MAX`].

use crate::line::{line_u64, short_length};
use crate::number::parse_i64;

/// The deepest nesting that [`parse_value`] follows. [`skip`] counts elements instead and needs no limit.
pub const DEPTH_MAX: usize = 32;
/// The longest simple string, error or number, and the longest line with a length.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;
/// The longest declared bulk string, and the most declared elements of one aggregate.
const LENGTH_MAX: u64 = u32::MAX as u64;

/// Appends a command in the multibulk form that every server accepts.
///
/// ```
/// let mut buf = Vec::new();
/// resp::client::encode_command(&[b"GET", b"k"], &mut buf);
/// assert_eq!(buf, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
/// ```
pub fn encode_command(args: &[&[u8]], out: &mut Vec<u8>) {
    begin_command(args.len(), out);
    for arg in args {
        encode_argument(arg, out);
    }
}

/// Appends the count of a command's arguments, which [`encode_argument`] then appends one by one.
#[inline]
pub fn begin_command(args_count: usize, out: &mut Vec<u8>) {
    line_u64(b'*', args_count as u64, out);
}

#[inline]
pub fn encode_argument(arg: &[u8], out: &mut Vec<u8>) {
    out.reserve(arg.len() + 16);
    line_u64(b'$', arg.len() as u64, out);
    out.extend_from_slice(arg);
    out.extend_from_slice(b"\r\n");
}

/// One complete reply at the start of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The bytes of the reply, including attributes before it.
    pub consumed: usize,
    pub kind: Kind<'a>,
}

/// The kind of a reply, without the content of an aggregate. Counts are elements; for a map, pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    Simple(&'a [u8]),
    /// A simple or a bulk error.
    Error(&'a [u8]),
    Int(i64),
    Bulk(&'a [u8]),
    /// RESP3's null and RESP2's null bulk string.
    Null,
    /// RESP2's null array.
    NullArray,
    Boolean(bool),
    Double(&'a [u8]),
    BigNumber(&'a [u8]),
    Verbatim {
        format: [u8; 3],
        text: &'a [u8],
    },
    Array {
        count: usize,
    },
    Map {
        count: usize,
    },
    Set {
        count: usize,
    },
    /// Not a reply to a command: a client that waits for a reply keeps waiting.
    Push {
        count: usize,
    },
}

/// Skips one reply. `None`: the reply is incomplete. Each call starts over, so use a [`SkipState`] for a large nested
/// reply that arrives in parts.
#[inline]
pub fn skip(input: &[u8]) -> Result<Option<Reply<'_>>, ProtocolError> {
    SkipState::default().skip(input)
}

/// How far an incomplete reply was skipped, as offsets from its start: the buffer may move between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkipState {
    /// The first byte that was not processed yet.
    position: usize,
    /// The number of bytes after `position` that contain no line end.
    searched: usize,
    /// The tag and the count of the aggregate whose elements are being skipped.
    aggregate: Option<(u8, usize)>,
    /// The elements still to skip, at any depth, of that aggregate or of an attribute before the reply.
    elements_left: u64,
}

impl SkipState {
    /// Continues with the reply at the start of `input`. Resets itself when the reply is complete.
    #[inline]
    pub fn skip<'a>(&mut self, input: &'a [u8]) -> Result<Option<Reply<'a>>, ProtocolError> {
        loop {
            let Some(Element { end, item }) = element(input, self.position, &mut self.searched)? else {
                return Ok(None);
            };
            self.position = end;
            self.searched = 0;
            let counted = u64::from(self.elements_left > 0);
            match item {
                Item::Scalar(kind) if counted == 0 => {
                    *self = SkipState::default();
                    return Ok(Some(Reply { consumed: end, kind }));
                }
                Item::Scalar(_) => self.elements_left -= 1,
                // An attribute is not an element of the aggregate around it; only the attribute's own elements must be
                // skipped.
                Item::Aggregate { tag: b'|', count } => self.add_elements(2 * count as u64)?,
                Item::Aggregate { tag, count } => {
                    if counted == 0 {
                        self.aggregate = Some((tag, count));
                    }
                    self.elements_left -= counted;
                    self.add_elements(elements(tag, count))?;
                }
            }
            if self.elements_left == 0
                && let Some((tag, count)) = self.aggregate
            {
                *self = SkipState::default();
                return Ok(Some(Reply { consumed: end, kind: aggregate(tag, count) }));
            }
        }
    }

    fn add_elements(&mut self, count: u64) -> Result<(), ProtocolError> {
        self.elements_left = self.elements_left.checked_add(count).ok_or(ProtocolError::MalformedLength)?;
        Ok(())
    }
}

fn elements(tag: u8, count: usize) -> u64 {
    if tag == b'%' { 2 * count as u64 } else { count as u64 }
}

fn aggregate(tag: u8, count: usize) -> Kind<'static> {
    match tag {
        b'%' => Kind::Map { count },
        b'~' => Kind::Set { count },
        b'>' => Kind::Push { count },
        _ => Kind::Array { count },
    }
}

/// A scalar, or the header of an aggregate.
struct Element<'a> {
    end: usize,
    item: Item<'a>,
}

enum Item<'a> {
    Scalar(Kind<'a>),
    Aggregate { tag: u8, count: usize },
}

/// Reads the element at `at`. `None`: it is incomplete, and `searched` holds the bytes of its line.
#[inline]
fn element<'a>(input: &'a [u8], at: usize, searched: &mut usize) -> Result<Option<Element<'a>>, ProtocolError> {
    let Some(&tag) = input.get(at) else {
        return Ok(None);
    };
    let scalar = |end, kind| Ok(Some(Element { end, item: Item::Scalar(kind) }));
    match tag {
        b'$' | b'=' | b'!' => {
            let Some((bytes, start)) = length(input, at, searched)? else {
                return Ok(None);
            };
            let Some(bytes) = bytes else {
                return if tag == b'$' { scalar(start, Kind::Null) } else { MALFORMED };
            };
            let end = start + bytes;
            // The part of CR LF that has arrived must be right.
            match input.get(end..).unwrap_or_default() {
                [b'\r', b'\n', ..] => {}
                [] | [b'\r'] => return Ok(None),
                _ => return Err(ProtocolError::MissingLineEnd),
            }
            let text = &input[start..end];
            scalar(
                end + 2,
                match (tag, text) {
                    (b'$', _) => Kind::Bulk(text),
                    (b'!', _) => Kind::Error(text),
                    (_, [a, b, c, b':', text @ ..]) => Kind::Verbatim { format: [*a, *b, *c], text },
                    _ => return Err(ProtocolError::MalformedVerbatim),
                },
            )
        }
        b'*' | b'%' | b'~' | b'>' | b'|' => {
            let Some((count, end)) = length(input, at, searched)? else {
                return Ok(None);
            };
            match count {
                Some(count) => Ok(Some(Element { end, item: Item::Aggregate { tag, count } })),
                None if tag == b'*' => scalar(end, Kind::NullArray),
                None => MALFORMED,
            }
        }
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {
            let Some((text, end)) = line(input, at, searched)? else {
                return Ok(None);
            };
            scalar(
                end,
                match (tag, text) {
                    (b'+', _) => Kind::Simple(text),
                    (b'-', _) => Kind::Error(text),
                    (b':', _) => Kind::Int(parse_i64(text).ok_or(ProtocolError::MalformedNumber)?),
                    (b'_', b"") => Kind::Null,
                    (b'#', b"t") => Kind::Boolean(true),
                    (b'#', b"f") => Kind::Boolean(false),
                    (b',', _) => Kind::Double(text),
                    (b'(', _) => Kind::BigNumber(text),
                    _ => return Err(ProtocolError::MalformedNumber),
                },
            )
        }
        tag => Err(ProtocolError::UnknownType { tag }),
    }
}

const MALFORMED: Result<Option<Element<'static>>, ProtocolError> = Err(ProtocolError::MalformedLength);

/// The length declared at `at` (`None` for -1), and the position after its line.
#[inline]
fn length(input: &[u8], at: usize, searched: &mut usize) -> Result<Option<(Option<usize>, usize)>, ProtocolError> {
    if let Some(line) = short_length(input, at + 1) {
        return Ok(Some((Some(line.value), line.end())));
    }
    let Some((text, end)) = line(input, at, searched)? else {
        return Ok(None);
    };
    match parse_i64(text) {
        Some(-1) => Ok(Some((None, end))),
        Some(value @ 0..) if value as u64 <= LENGTH_MAX => Ok(Some((Some(value as usize), end))),
        _ => Err(ProtocolError::MalformedLength),
    }
}

/// The text between the tag at `at` and the end of its line, and the position after the line.
#[inline]
fn line<'a>(input: &'a [u8], at: usize, searched: &mut usize) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
    let rest = &input[at..];
    let window = &rest[..rest.len().min(LINE_BYTES_MAX + 1)];
    let from = (*searched).min(window.len());
    match window[from..].iter().position(|&byte| byte == b'\n') {
        Some(offset) => match window[1..from + offset].strip_suffix(b"\r") {
            Some(text) => Ok(Some((text, at + from + offset + 1))),
            None => Err(ProtocolError::MissingLineEnd),
        },
        None if rest.len() > LINE_BYTES_MAX => Err(ProtocolError::TooLongLine),
        None => {
            *searched = rest.len();
            Ok(None)
        }
    }
}

/// A complete reply as an owned tree, for tests and tools. Attributes are dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Boolean(bool),
    Double(f64),
    BigNumber(Vec<u8>),
    Verbatim { format: [u8; 3], text: Vec<u8> },
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
}

/// Reads one reply and returns its length in bytes. `None`: the reply is incomplete.
pub fn parse_value(input: &[u8]) -> Result<Option<(Value, usize)>, ProtocolError> {
    let mut position = 0;
    let value = value_at(input, &mut position, 0)?;
    Ok(value.map(|value| (value, position)))
}

fn value_at(input: &[u8], position: &mut usize, depth: usize) -> Result<Option<Value>, ProtocolError> {
    loop {
        let Some(Element { end, item }) = element(input, *position, &mut 0)? else {
            return Ok(None);
        };
        *position = end;
        let (tag, count) = match item {
            Item::Scalar(kind) => return scalar_value(kind).map(Some),
            Item::Aggregate { tag, count } => (tag, count),
        };
        if depth == DEPTH_MAX {
            return Err(ProtocolError::TooDeep);
        }
        // Grows with the elements that arrived, not with the declared count.
        let mut values = Vec::new();
        for _ in 0..if tag == b'|' { 2 * count as u64 } else { elements(tag, count) } {
            match value_at(input, position, depth + 1)? {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        return Ok(Some(match tag {
            b'|' => continue,
            b'~' => Value::Set(values),
            b'>' => Value::Push(values),
            b'%' => Value::Map(pairs(values)),
            _ => Value::Array(values),
        }));
    }
}

fn pairs(values: Vec<Value>) -> Vec<(Value, Value)> {
    let mut values = values.into_iter();
    std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect()
}

fn scalar_value(kind: Kind<'_>) -> Result<Value, ProtocolError> {
    Ok(match kind {
        Kind::Simple(text) => Value::Simple(text.to_vec()),
        Kind::Error(text) => Value::Error(text.to_vec()),
        Kind::Int(value) => Value::Int(value),
        Kind::Bulk(bytes) => Value::Bulk(bytes.to_vec()),
        Kind::NullArray => Value::NullArray,
        Kind::Boolean(value) => Value::Boolean(value),
        Kind::Double(text) => {
            let text = std::str::from_utf8(text).map_err(|_| ProtocolError::MalformedNumber)?;
            Value::Double(text.parse().map_err(|_| ProtocolError::MalformedNumber)?)
        }
        Kind::BigNumber(digits) => Value::BigNumber(digits.to_vec()),
        Kind::Verbatim { format, text } => Value::Verbatim { format, text: text.to_vec() },
        Kind::Null => Value::Null,
        Kind::Array { .. } | Kind::Map { .. } | Kind::Set { .. } | Kind::Push { .. } => {
            unreachable!("element() gives aggregates as headers")
        }
    })
}

/// The bytes are not a RESP reply. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    UnknownType { tag: u8 },
    MalformedLength,
    MalformedNumber,
    MalformedVerbatim,
    MissingLineEnd,
    TooLongLine,
    TooDeep,
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProtocolError::UnknownType { tag } => {
                write!(f, "reply of unknown type '{}'", tag.escape_ascii())
            }
            ProtocolError::MalformedLength => f.write_str("malformed length in a reply"),
            ProtocolError::MalformedNumber => f.write_str("malformed number in a reply"),
            ProtocolError::MalformedVerbatim => f.write_str("malformed verbatim string in a reply"),
            ProtocolError::MissingLineEnd => f.write_str("a reply's line or string does not end in CR LF"),
            ProtocolError::TooLongLine => f.write_str("a reply's line is longer than 1 MiB"),
            ProtocolError::TooDeep => f.write_str("a reply is nested more than 32 deep"),
        }
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests;
