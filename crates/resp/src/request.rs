//! Owns the server's reading of commands: the bytes of a receive buffer become spans into it, without a copy and, in
//! the steady state, without an allocation. Never knows what a command means.
//!
//! Two forms may arrive on the same connection. The first byte of each command tells which:
//! ```text
//! *2\r\n$3\r\nGET\r\n$1\r\nk\r\n      multibulk: counted arguments of counted bytes
//! GET k\r\n                           inline: one line, split at spaces, with Redis's quoting
//! ```
//! The result does not depend on how the bytes were cut into reads: every check uses a position in the command, never
//! the number of buffered bytes.

use crate::inline;
use crate::line::{Length, bulk_length, short_length};
use crate::number::parse_i64;

/// One argument: a range in the command's bytes, counted from the start of the command (or in the unquoted bytes, see
/// [`Source`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub len: u32,
}

impl Span {
    /// The bytes of the argument. `bytes` must be what [`Source`] names.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.start as usize + self.len as usize]
    }
}

/// What a client may declare. A declaration never causes an allocation, so these limits bound work, not memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    pub args_count_max: usize,
    /// The longest inline line, and the longest line with a count.
    pub inline_bytes_max: usize,
    /// Chooses only the wording of the error when one of the first two limits is exceeded.
    pub authenticated: bool,
}

impl Limits {
    pub const DEFAULT: Limits = Limits {
        bulk_bytes_max: 512 * 1024 * 1024,
        args_count_max: 1024 * 1024,
        inline_bytes_max: 64 * 1024,
        authenticated: true,
    };

    /// Before authentication. The server must then parse and run one command at a time, because the full limits apply
    /// to the command after a successful AUTH.
    pub const UNAUTHENTICATED: Limits =
        Limits { bulk_bytes_max: 16 * 1024, args_count_max: 10, inline_bytes_max: 64 * 1024, authenticated: false };
}

/// Where the spans of a complete command point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Into the input, counted from the start of the command.
    Input,
    /// Into [`Progress::unquoted`]: for an inline command with quotes, whose arguments are not contiguous in the input.
    Unquoted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The command took `consumed` bytes, and its arguments were appended to `spans`. A command without arguments (an
    /// empty line, `*0`, `*-1`) is not an error: skip it silently, as Redis does.
    Complete { consumed: usize, source: Source },
    /// At least `need` bytes from the start of the command are needed. A hint for the size of a read. The client
    /// declared it, so never allocate by it.
    Incomplete { need: usize },
}

/// The state of a command that has not arrived completely. It makes a long command in small reads cost time linear in
/// its bytes. It holds only offsets from the command's start, because the buffer may move between calls.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    cursor: Cursor,
    /// The arguments of an incomplete command that were parsed so far.
    args: Vec<Span>,
    unquoted: Vec<u8>,
}

impl Progress {
    /// The bytes that spans of [`Source::Unquoted`] point into. Each quoted inline command adds at most the bytes of
    /// its line, until [`Progress::clear_unquoted`].
    #[inline]
    pub fn unquoted(&self) -> &[u8] {
        &self.unquoted
    }

    /// Call this when the commands parsed so far have run.
    #[inline]
    pub fn clear_unquoted(&mut self) {
        self.unquoted.clear();
    }

    /// Whether a part of a command has arrived.
    #[inline]
    pub fn is_partial(&self) -> bool {
        // Each processed byte is counted in one of the two.
        self.cursor.position + self.cursor.searched > 0
    }

    /// Whether the command that is arriving can be skipped with [`skip`], because its count line is known.
    pub fn can_skip(&self) -> bool {
        self.cursor.args_left > 0
    }

    /// Heap bytes held, to account for a connection's memory.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.args.capacity() * size_of::<Span>() + self.unquoted.capacity()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// The first byte that was not processed yet.
    position: usize,
    /// The number of bytes after `position` that contain no line end.
    searched: usize,
    /// The arguments still to come; 0 while the count line is incomplete.
    args_left: usize,
    /// The declared bytes of the argument at `position`, once its length line is complete.
    bulk_bytes: Option<usize>,
}

/// Reads one command from the start of `input`. `input` must start where the command starts, even if the command
/// arrives in parts. After an error, close the connection; `spans` is then unchanged.
///
/// ```
/// use resp::{Limits, Parsed, Progress, Source, parse};
/// let (mut progress, mut spans) = (Progress::default(), Vec::new());
/// let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n";
/// let parsed = parse(input, &mut progress, &Limits::DEFAULT, &mut spans);
/// assert_eq!(parsed, Ok(Parsed::Complete { consumed: 20, source: Source::Input }));
/// assert_eq!(spans[1].of(input), b"k");
/// ```
#[inline]
pub fn parse(
    input: &[u8],
    progress: &mut Progress,
    limits: &Limits,
    spans: &mut Vec<Span>,
) -> Result<Parsed, ProtocolError> {
    if progress.is_partial() {
        return resume(input, progress, limits, spans);
    }
    let args_before = spans.len();
    let mut cursor = Cursor::default();
    let parsed = match input.first() {
        None => return Ok(Parsed::Incomplete { need: 1 }),
        Some(b'*') => match usual_multibulk(input, limits, spans) {
            Some(consumed) => return Ok(Parsed::Complete { consumed, source: Source::Input }),
            None => multibulk(input, &mut cursor, limits, spans),
        },
        Some(_) => inline_line(input, &mut cursor, limits, spans, &mut progress.unquoted),
    };
    match parsed {
        Ok(Parsed::Complete { .. }) => {}
        Ok(Parsed::Incomplete { .. }) => {
            progress.cursor = cursor;
            progress.args.extend(spans.drain(args_before..));
        }
        Err(_) => spans.truncate(args_before),
    }
    parsed
}

/// Continues with a command of which a part was seen. Its arguments collect in `progress` and move to `spans` at the
/// end.
#[cold]
fn resume(
    input: &[u8],
    progress: &mut Progress,
    limits: &Limits,
    spans: &mut Vec<Span>,
) -> Result<Parsed, ProtocolError> {
    let parsed = if input.first() == Some(&b'*') {
        multibulk(input, &mut progress.cursor, limits, &mut progress.args)
    } else {
        inline_line(input, &mut progress.cursor, limits, &mut progress.args, &mut progress.unquoted)
    };
    if let Ok(Parsed::Complete { .. }) = parsed {
        // The list may have held a million spans, so free its memory.
        spans.append(&mut std::mem::take(&mut progress.args));
        progress.cursor = Cursor::default();
    }
    parsed
}

/// What [`skip`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The bytes of the input that belong to the command and are not needed any more.
    pub consumed: usize,
    /// The command is over.
    pub is_complete: bool,
}

/// Leaves out a command that has begun to arrive ([`Progress::can_skip`]), so that the command need not be stored. At the
/// first call, `input` starts where the command starts; at later calls, it starts after the bytes that were consumed.
pub fn skip(input: &[u8], progress: &mut Progress, limits: &Limits) -> Result<Skipped, ProtocolError> {
    let parsed = multibulk(input, &mut progress.cursor, limits, &mut Vec::new())?;
    progress.args = Vec::new();
    let cursor = &mut progress.cursor;
    if let Parsed::Complete { consumed, .. } = parsed {
        *cursor = Cursor::default();
        return Ok(Skipped { consumed, is_complete: true });
    }
    let mut consumed = std::mem::take(&mut cursor.position);
    if let Some(bytes) = &mut cursor.bulk_bytes {
        let arrived = (input.len() - consumed).min(*bytes);
        *bytes -= arrived;
        consumed += arrived;
    }
    Ok(Skipped { consumed, is_complete: false })
}

/// Reads a command that has arrived completely, without the state that an incomplete one needs. `None`: it is incomplete,
/// broken or unusual, `spans` is unchanged, and [`multibulk`] decides.
#[inline]
fn usual_multibulk(input: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Option<usize> {
    // Spans hold 32 bits.
    let input = &input[..input.len().min(u32::MAX as usize)];
    let args_before = spans.len();
    let (args_count, args_left, mut position) = match usual_head(input) {
        Some((args_count, name_bytes)) if 8 + name_bytes + 2 <= input.len() && name_bytes <= limits.bulk_bytes_max => {
            spans.push(Span { start: 8, len: name_bytes as u32 });
            (args_count, args_count - 1, 8 + name_bytes + 2)
        }
        _ => {
            let line = short_length(input, 1)?;
            (line.value, line.value, line.end())
        }
    };
    for _ in 0..args_left {
        let Some((value, start)) = usual_argument(input, position, limits) else {
            spans.truncate(args_before);
            return None;
        };
        spans.push(Span { start: start as u32, len: value as u32 });
        position = start + value + 2;
    }
    (args_count <= limits.args_count_max).then_some(position)
}

/// The first eight bytes of most commands: at most nine arguments, and a name of at most nine bytes. Returns both numbers.
#[inline(always)]
fn usual_head(input: &[u8]) -> Option<(usize, usize)> {
    const DIGITS: u64 = u64::from_le_bytes([0, 0x0f, 0, 0, 0, 0x0f, 0, 0]);
    const SIXES: u64 = u64::from_le_bytes([0, 6, 0, 0, 0, 6, 0, 0]);
    const FIFTHS: u64 = u64::from_le_bytes([0, 0x10, 0, 0, 0, 0x10, 0, 0]);
    let head = u64::from_le_bytes(*input.first_chunk()?);
    // 10 to 15 carry into the fifth bit.
    let carries = ((head & DIGITS) + SIXES) & FIFTHS;
    let is_usual = head & !DIGITS == u64::from_le_bytes(*b"*0\r\n$0\r\n");
    let (args_count, name_bytes) = (head >> 8 & 0x0f, head >> 40 & 0x0f);
    (is_usual && carries == 0 && args_count > 0).then_some((args_count as usize, name_bytes as usize))
}

/// The length and the start of the argument whose line is at `at`.
#[inline(always)]
fn usual_argument(input: &[u8], at: usize, limits: &Limits) -> Option<(usize, usize)> {
    let line = bulk_length(&input[at..])?;
    let (value, start) = (line.value, at + line.end());
    (value <= limits.bulk_bytes_max && start + value + 2 <= input.len()).then_some((value, start))
}

fn multibulk(
    input: &[u8],
    cursor: &mut Cursor,
    limits: &Limits,
    spans: &mut Vec<Span>,
) -> Result<Parsed, ProtocolError> {
    let Cursor { mut position, mut searched, mut args_left, mut bulk_bytes } = *cursor;
    let need = 'incomplete: {
        if args_left == 0 {
            let line = match short_length(input, 1) {
                Some(line) => line,
                None => match count_line(input, searched, limits)? {
                    Line::Complete(line) => line,
                    Line::Incomplete { bytes } => {
                        searched = bytes;
                        break 'incomplete bytes + 1;
                    }
                },
            };
            args_left = line.value;
            position = line.end();
            searched = 0;
            if args_left > limits.args_count_max {
                return Err(too_many_args(args_left, limits));
            }
        }
        while args_left > 0 {
            let bytes = match bulk_bytes {
                Some(bytes) => bytes,
                None => {
                    let line = match bulk_length(&input[position..]) {
                        Some(line) => Length::new(line.value, position + line.end()),
                        None => match bulk_line(input, position, searched, limits)? {
                            Line::Complete(line) => line,
                            Line::Incomplete { bytes } => {
                                searched = bytes;
                                break 'incomplete position + bytes + 1;
                            }
                        },
                    };
                    if line.value > limits.bulk_bytes_max {
                        return Err(too_long_bulk(line.value, limits));
                    }
                    position = line.end();
                    searched = 0;
                    line.value
                }
            };
            // The two bytes after an argument are skipped unread, as in Redis.
            let end = position + bytes + 2;
            if input.len() < end {
                // A span cannot hold positions beyond 4 GiB. The limits make this case unreachable in practice.
                if end > u32::MAX as usize {
                    return Err(ProtocolError::InvalidBulkLength);
                }
                bulk_bytes = Some(bytes);
                break 'incomplete end;
            }
            spans.push(Span { start: span_part(position)?, len: span_part(bytes)? });
            position = end;
            bulk_bytes = None;
            args_left -= 1;
        }
        return Ok(Parsed::Complete { consumed: position, source: Source::Input });
    };
    *cursor = Cursor { position, searched, args_left, bulk_bytes };
    Ok(Parsed::Incomplete { need })
}

#[inline(always)]
fn span_part(bytes: usize) -> Result<u32, ProtocolError> {
    u32::try_from(bytes).map_err(|_| ProtocolError::InvalidBulkLength)
}

enum Line {
    Complete(Length),
    /// `bytes` of the line have arrived, and none of them ends it.
    Incomplete {
        bytes: usize,
    },
}

/// The count line of a command, checked completely: anything up to a CR, any byte after the CR, a strict integer in
/// between.
#[cold]
fn count_line(input: &[u8], searched: usize, limits: &Limits) -> Result<Line, ProtocolError> {
    let Some(text_bytes) = line_end(input, searched, limits, ProtocolError::TooBigMultibulkCount)? else {
        return Ok(Line::Incomplete { bytes: input.len() });
    };
    let value = parse_i64(&input[1..text_bytes]).ok_or(ProtocolError::InvalidMultibulkLength)?;
    if value > i32::MAX as i64 {
        return Err(ProtocolError::InvalidMultibulkLength);
    }
    // Nothing follows a count of zero or less.
    Ok(Line::Complete(Length::new(value.max(0) as usize, text_bytes + 2)))
}

/// The length line of an argument, checked completely.
#[cold]
fn bulk_line(input: &[u8], at: usize, searched: usize, limits: &Limits) -> Result<Line, ProtocolError> {
    let rest = &input[at..];
    let Some(text_bytes) = line_end(rest, searched, limits, ProtocolError::TooBigBulkCount)? else {
        return Ok(Line::Incomplete { bytes: rest.len() });
    };
    if rest.first() != Some(&b'$') {
        return Err(ProtocolError::ExpectedDollar { got: rest[0] });
    }
    let value = parse_i64(&rest[1..text_bytes]).ok_or(ProtocolError::InvalidBulkLength)?;
    let value = usize::try_from(value).map_err(|_| ProtocolError::InvalidBulkLength)?;
    Ok(Line::Complete(Length::new(value, at + text_bytes + 2)))
}

/// The number of bytes before the CR that ends the line, once the byte after the CR has arrived.
fn line_end(
    line: &[u8],
    searched: usize,
    limits: &Limits,
    too_big: ProtocolError,
) -> Result<Option<usize>, ProtocolError> {
    let window = &line[..line.len().min(limits.inline_bytes_max + 1)];
    // The last searched byte may have been the CR before a missing LF.
    let from = searched.saturating_sub(1).min(window.len());
    match window[from..].iter().position(|&byte| byte == b'\r') {
        Some(offset) if from + offset + 1 < line.len() => Ok(Some(from + offset)),
        Some(_) => Ok(None),
        None if line.len() > limits.inline_bytes_max => Err(too_big),
        None => Ok(None),
    }
}

#[cold]
fn too_many_args(count: usize, limits: &Limits) -> ProtocolError {
    if limits.authenticated || count > Limits::DEFAULT.args_count_max {
        ProtocolError::InvalidMultibulkLength
    } else {
        ProtocolError::UnauthenticatedMultibulkLength
    }
}

#[cold]
fn too_long_bulk(bytes: usize, limits: &Limits) -> ProtocolError {
    if limits.authenticated || bytes > Limits::DEFAULT.bulk_bytes_max {
        ProtocolError::InvalidBulkLength
    } else {
        ProtocolError::UnauthenticatedBulkLength
    }
}

fn inline_line(
    input: &[u8],
    cursor: &mut Cursor,
    limits: &Limits,
    spans: &mut Vec<Span>,
    unquoted: &mut Vec<u8>,
) -> Result<Parsed, ProtocolError> {
    let window = &input[..input.len().min(limits.inline_bytes_max + 1)];
    let from = cursor.searched.min(window.len());
    let Some(offset) = window[from..].iter().position(|&byte| byte == b'\n') else {
        if input.len() > limits.inline_bytes_max {
            return Err(ProtocolError::TooBigInlineRequest);
        }
        cursor.searched = input.len();
        return Ok(Parsed::Incomplete { need: input.len() + 1 });
    };
    let newline = from + offset;
    let line = &input[..newline];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let source = if line.iter().any(|&byte| byte == b'"' || byte == b'\'') {
        inline::split_quoted(line, spans, unquoted).ok_or(ProtocolError::UnbalancedQuotes)?;
        Source::Unquoted
    } else {
        inline::split(line, spans);
        Source::Input
    };
    Ok(Parsed::Complete { consumed: newline + 1, source })
}

/// Why a connection is closed. The client first receives `-ERR ` and [`ProtocolError::text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    InvalidMultibulkLength,
    ExpectedDollar { got: u8 },
    InvalidBulkLength,
    UnauthenticatedMultibulkLength,
    UnauthenticatedBulkLength,
    TooBigMultibulkCount,
    TooBigBulkCount,
    TooBigInlineRequest,
    UnbalancedQuotes,
}

impl ProtocolError {
    /// Redis's words, without the code `ERR`.
    pub fn text(self) -> String {
        match self {
            // The byte comes from the client. Show it if it is printable and cannot end the reply's line.
            ProtocolError::ExpectedDollar { got } => {
                let got = if got.is_ascii_graphic() || got == b' ' { got as char } else { '?' };
                format!("Protocol error: expected '$', got '{got}'")
            }
            ProtocolError::InvalidMultibulkLength => "Protocol error: invalid multibulk length".into(),
            ProtocolError::InvalidBulkLength => "Protocol error: invalid bulk length".into(),
            ProtocolError::UnauthenticatedMultibulkLength => "Protocol error: unauthenticated multibulk length".into(),
            ProtocolError::UnauthenticatedBulkLength => "Protocol error: unauthenticated bulk length".into(),
            ProtocolError::TooBigMultibulkCount => "Protocol error: too big mbulk count string".into(),
            ProtocolError::TooBigBulkCount => "Protocol error: too big bulk count string".into(),
            ProtocolError::TooBigInlineRequest => "Protocol error: too big inline request".into(),
            ProtocolError::UnbalancedQuotes => "Protocol error: unbalanced quotes in request".into(),
        }
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests;
