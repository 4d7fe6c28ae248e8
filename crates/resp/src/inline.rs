//! Owns the splitting of an inline command's line into arguments, with Redis's quoting. Never knows where the line
//! comes from: it gets a complete line without its line end. `Limits::inline_bytes_max` bounds lines, so every offset
//! fits into a span.

use crate::request::Span;

/// The words of a line, with quotes resolved. `None`: a quote is not closed, or something other than a space follows a
/// closing quote.
pub fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut spans, mut unquoted) = (Vec::new(), Vec::new());
    split_quoted(line, &mut spans, &mut unquoted)?;
    Some(spans.iter().map(|span| span.of(&unquoted).to_vec()).collect())
}

/// Splits a line without quotes; the spans point into the line.
pub(crate) fn split(line: &[u8], spans: &mut Vec<Span>) {
    let mut at = 0;
    while let Some(start) = skip_spaces(line, at) {
        let len = line[start..].iter().position(|&byte| ends_argument(byte)).unwrap_or(line.len() - start);
        spans.push(Span { start: start as u32, len: len as u32 });
        at = start + len;
    }
}

/// Splits a line with quotes. The arguments are appended to `unquoted`, and the spans point into it. `None`: a quote is
/// not closed, or something other than a space follows a closing quote. The unquoted form is never longer than the
/// line.
pub(crate) fn split_quoted(line: &[u8], spans: &mut Vec<Span>, unquoted: &mut Vec<u8>) -> Option<()> {
    let mut at = 0;
    while let Some(start) = skip_spaces(line, at) {
        let unquoted_start = unquoted.len();
        at = unquote(line, start, unquoted)?;
        spans.push(Span {
            start: u32::try_from(unquoted_start).ok()?,
            len: u32::try_from(unquoted.len() - unquoted_start).ok()?,
        });
    }
    Some(())
}

/// Appends the argument that starts at `at`, and returns the position after it.
fn unquote(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Option<usize> {
    // A quote may open in the middle of a word. The closing quote ends the argument.
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' => return closed(line, double_quoted(line, at + 1, out)?),
            b'\'' => return closed(line, single_quoted(line, at + 1, out)?),
            _ if ends_argument(byte) => return Some(at),
            _ => out.push(byte),
        }
        at += 1;
    }
    Some(at)
}

/// Starts after the opening quote, and returns the position after the closing one.
fn double_quoted(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Option<usize> {
    loop {
        match &line[at..] {
            [] => return None,
            [b'"', ..] => return Some(at + 1),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(hex(*high) << 4 | hex(*low));
                at += 4;
            }
            [b'\\', escaped, ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                at += 2;
            }
            [byte, ..] => {
                out.push(*byte);
                at += 1;
            }
        }
    }
}

/// Like [`double_quoted`], with `\'` as the only escape.
fn single_quoted(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Option<usize> {
    loop {
        match &line[at..] {
            [] => return None,
            [b'\'', ..] => return Some(at + 1),
            [b'\\', b'\'', ..] => {
                out.push(b'\'');
                at += 2;
            }
            [byte, ..] => {
                out.push(*byte);
                at += 1;
            }
        }
    }
}

/// Only a space or the end may follow a closing quote.
fn closed(line: &[u8], at: usize) -> Option<usize> {
    line.get(at).is_none_or(|&byte| is_space(byte)).then_some(at)
}

fn hex(digit: u8) -> u8 {
    (digit as char).to_digit(16).expect("the caller checked the digit") as u8
}

fn skip_spaces(line: &[u8], at: usize) -> Option<usize> {
    line[at..].iter().position(|&byte| !is_space(byte)).map(|offset| at + offset)
}

/// C's `isspace`: the bytes that may separate arguments.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// The bytes that end an unquoted argument. Redis does not count vertical tab and form feed here.
fn ends_argument(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
