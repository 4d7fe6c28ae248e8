//! Owns the commands on the bits of strings; BITFIELD is in `bitfield`. Never knows other types, except to refuse them.
//!
//! Bit 0 is the highest bit of the first byte.

use crate::cx::Cx;
use crate::number::{int, int_or_error};
use crate::row::{Access, Flag, Group, KeyUse, Keys, Row, is, only_here};
use crate::stop::{Run, SYNTAX, Stop};
use crate::strings::{STRING_BYTES_MAX, claim_longer, string};
use store::{Class, Cold, ValueMut};

const READ: &[Flag] = &[Flag::Readonly];
const WRITE: &[Flag] = &[Flag::Write, Flag::Denyoom];

const BASE: Row = Row { group: Group::Bitmap, since: "2.6.0", ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "bitcount",
        arity: -2,
        flags: READ,
        complexity: "O(N) where N is the number of bytes looked at.",
        summary: "Counts the set bits of a string, or of a part of it given in bytes or bits.",
        syntax: "key [start end [BYTE | BIT]]",
        examples: &[
            is("SET k foobar", "OK"),
            is("BITCOUNT k", "(integer) 26"),
            is("BITCOUNT k 1 1", "(integer) 6"),
            is("BITCOUNT k -2 -1", "(integer) 7"),
            is("BITCOUNT k 5 30 BIT", "(integer) 17"),
            is("BITCOUNT nosuch", "(integer) 0"),
            is("BITCOUNT k 0", "(error) ERR syntax error"),
            is("BITCOUNT k 0 x", "(error) ERR value is not an integer or out of range"),
            only_here("BITCOUNT nosuch 0 x", "(error) ERR value is not an integer or out of range"),
            is("HSET h f v", "(integer) 1"),
            is("BITCOUNT h", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: bitcount,
        ..BASE
    },
    Row {
        name: "bitop",
        arity: -4,
        access: Access::First(KeyUse::OVERWRITE, KeyUse::READ),
        keys: Keys::Range { first: 2, last: -1, step: 1 },
        flags: WRITE,
        complexity: "O(N) where N is the number of bytes of all sources.",
        summary: "Combines strings bit by bit, with zeros after shorter ones, and stores the result at a key.",
        syntax: "<AND | OR | XOR | NOT> destkey key [key ...]",
        examples: &[
            is("MSET a abc b ABCd", "OK"),
            is("BITOP OR to a b", "(integer) 4"),
            is("GET to", "\"abcd\""),
            is("BITOP AND to a b", "(integer) 4"),
            is("GET to", "\"ABC\\x00\""),
            is("BITOP XOR to a b", "(integer) 4"),
            is("GET to", "\"   d\""),
            is("BITOP NOT to a", "(integer) 3"),
            is("GET to", "\"\\x9e\\x9d\\x9c\""),
            is("BITOP NOT to a b", "(error) ERR BITOP NOT must be called with a single source key."),
            is("BITOP NAND to a b", "(error) ERR syntax error"),
            is("BITOP OR to nosuch", "(integer) 0"),
            is("EXISTS to", "(integer) 0"),
        ],
        run: bitop,
        ..BASE
    },
    Row {
        name: "bitpos",
        arity: -3,
        flags: READ,
        since: "2.8.7",
        complexity: "O(N) where N is the number of bytes looked at.",
        summary: "Finds the first bit that is set, or the first that is not, in a string or a part of it.",
        syntax: "key bit [start [end [BYTE | BIT]]]",
        examples: &[
            is("SET k \"\\xff\\xf0\\x00\"", "OK"),
            is("BITPOS k 0", "(integer) 12"),
            is("SET k \"\\x00\\xff\\xf0\"", "OK"),
            is("BITPOS k 1 0", "(integer) 8"),
            is("BITPOS k 1 2 -1", "(integer) 16"),
            is("BITPOS k 1 7 15 BIT", "(integer) 8"),
            is("BITPOS nosuch 0", "(integer) 0"),
            is("BITPOS nosuch 1", "(integer) -1"),
            is("BITPOS k 2", "(error) ERR The bit argument must be 1 or 0."),
            is("BITPOS k 1 0 -1 NIBBLE", "(error) ERR syntax error"),
        ],
        run: bitpos,
        ..BASE
    },
    Row {
        name: "getbit",
        arity: 3,
        flags: &[Flag::Readonly, Flag::Fast],
        since: "2.2.0",
        summary: "Gives one bit of a string; past its end all are 0.",
        syntax: "key offset",
        examples: &[
            is("SETBIT k 7 1", "(integer) 0"),
            is("GETBIT k 7", "(integer) 1"),
            is("GETBIT k 100", "(integer) 0"),
            is("GETBIT k -1", "(error) ERR bit offset is not an integer or out of range"),
            is("GETBIT k 4294967296", "(error) ERR bit offset is not an integer or out of range"),
        ],
        run: getbit,
        ..BASE
    },
    Row {
        name: "setbit",
        arity: 4,
        flags: WRITE,
        since: "2.2.0",
        summary: "Sets one bit of a string, which grows with zeros up to it, and gives what the bit was.",
        syntax: "key offset value",
        examples: &[
            is("SETBIT k 7 1", "(integer) 0"),
            is("SETBIT k 7 0", "(integer) 1"),
            is("GET k", "\"\\x00\""),
            is("SETBIT k 7 2", "(error) ERR bit is not an integer or out of range"),
            is("SETBIT k 4294967296 1", "(error) ERR bit offset is not an integer or out of range"),
            is("HSET h f v", "(integer) 1"),
            is("SETBIT h 0 1", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: setbit,
        ..BASE
    },
];

pub const BAD_OFFSET: Stop = Stop::error("ERR bit offset is not an integer or out of range");
const BAD_BIT: Stop = Stop::error("ERR bit is not an integer or out of range");

/// A bit's position. It must lie within the longest allowed string.
fn bit_offset(cx: &Cx<'_>, text: &[u8]) -> Result<u64, Stop> {
    int(text).and_then(|bit| checked_offset(cx, bit)).ok_or(BAD_OFFSET)
}

pub fn checked_offset(cx: &Cx<'_>, bit: i64) -> Option<u64> {
    let bytes_max = cx.settings.proto_max_bulk_len.min(STRING_BYTES_MAX) as u64;
    u64::try_from(bit).ok().filter(|bit| bit >> 3 < bytes_max)
}

/// The string at the command's key, for changes, extended with zeros to `bytes` bytes. The string becomes a raw string,
/// as OBJECT ENCODING shows. The caller has checked its type, and its value is in RAM.
pub fn string_mut<'k>(cx: &'k mut Cx<'_>, bytes: usize) -> Result<ValueMut<'k>, Stop> {
    let key = &cx.keys[0];
    if cx.ks.peek(key)?.is_none() {
        cx.ks.set_string(key, b"", None);
    }
    let mut value = cx.ks.get_mut(key)?.expect("it was just there");
    value.extend_zero(bytes);
    value.mark_raw();
    Ok(value)
}

fn setbit(cx: &mut Cx<'_>) -> Run {
    let bit = bit_offset(cx, &cx.args[2])?;
    let on = match int(&cx.args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(BAD_BIT),
    };
    let (at, mask) = ((bit >> 3) as usize, 0x80u8 >> (bit & 7));
    let key = &cx.keys[0];
    let bytes = string(cx.ks.get_to_edit(key)?)?.unwrap_or_default();
    let old = bytes.get(at).copied();
    claim_longer(cx.settings, cx.session, bytes.len(), at + 1)?;
    let was_on = old.is_some_and(|byte| byte & mask != 0);
    // A write that changes no bit must not make the value dirty.
    if old.is_none() || was_on != on || !cx.ks.is_raw(key)? {
        let mut value = string_mut(cx, at + 1)?;
        if let Some(bytes) = value.inline_mut() {
            bytes[at] = bytes[at] & !mask | if on { mask } else { 0 };
        }
        if old.is_none() || was_on != on {
            cx.ks.event(Class::STRING, "setbit", &cx.keys[0]);
        }
    }
    cx.out.int(was_on.into());
    Ok(())
}

fn getbit(cx: &mut Cx<'_>) -> Run {
    let bit = bit_offset(cx, &cx.args[2])?;
    let bytes = string(cx.ks.get(&cx.keys[0])?)?.unwrap_or_default();
    let byte = bytes.get((bit >> 3) as usize).copied().unwrap_or(0);
    cx.out.int((byte >> (7 - (bit & 7)) & 1).into());
    Ok(())
}

/// The range of BITCOUNT and BITPOS. `end` is `None`: up to the end.
struct Range {
    start: i64,
    end: Option<i64>,
    in_bits: bool,
}

impl Range {
    /// The first and the last bit of the range in a string of `bytes` bytes. `None`: the range is empty.
    fn bits(&self, bytes: usize) -> Option<(u64, u64)> {
        let units = if self.in_bits { bytes as i64 * 8 } else { bytes as i64 };
        let place = |at: i64| if at < 0 { units.saturating_add(at).max(0) } else { at };
        let (start, end) = (place(self.start), self.end.map_or(units - 1, place).min(units - 1));
        if start > end {
            return None;
        }
        let (start, end) = (start as u64, end as u64);
        Some(if self.in_bits { (start, end) } else { (start * 8, end * 8 + 7) })
    }
}

/// Reads BYTE or BIT. True: BIT.
fn unit(word: &[u8]) -> Result<bool, Stop> {
    match word {
        word if word.eq_ignore_ascii_case(b"bit") => Ok(true),
        word if word.eq_ignore_ascii_case(b"byte") => Ok(false),
        _ => Err(SYNTAX),
    }
}

fn bitcount(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let range = match args.len() {
        2 => Range { start: 0, end: None, in_bits: false },
        4 | 5 => {
            let (start, end) = (int_or_error(&args[2])?, int_or_error(&args[3])?);
            Range { start, end: Some(end), in_bits: args.get(4).map_or(Ok(false), unit)? }
        }
        _ => return Err(SYNTAX),
    };
    let bytes = string(cx.ks.get(&cx.keys[0])?)?.unwrap_or_default();
    // BITCOUNT, unlike BITPOS, compares start and end before it counts from the end of the string: `-1 -5` is empty,
    // even in a string of one byte.
    let is_reversed = range.start < 0 && range.end.is_some_and(|end| end < 0 && range.start > end);
    let bits = range.bits(bytes.len()).filter(|_| !is_reversed);
    let count = bits.map_or(0, |(first, last)| count_ones(bytes, first, last));
    cx.out.int(count as i64);
    Ok(())
}

fn bitpos(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let wanted = match int_or_error(&args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Stop::error("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(SYNTAX);
    }
    let range = Range {
        start: args.get(3).map_or(Ok(0), int_or_error)?,
        in_bits: args.get(5).map_or(Ok(false), unit)?,
        end: args.get(4).map(int_or_error).transpose()?,
    };
    let position = match string(cx.ks.get(&cx.keys[0])?)? {
        None if wanted => -1,
        None => 0,
        Some(bytes) => match range.bits(bytes.len()) {
            None => -1,
            Some((first, last)) => match position(bytes, first, last, wanted) {
                Some(at) => at as i64,
                // Zeros follow the string, unless the caller gave an end.
                None if !wanted && range.end.is_none() => bytes.len() as i64 * 8,
                None => -1,
            },
        },
    };
    cx.out.int(position);
    Ok(())
}

/// A mask of the bits of the byte at `at` that lie between the bits `first` and `last`.
fn mask(at: usize, first: u64, last: u64) -> u8 {
    let start = (at as u64) * 8;
    let head = if first > start { 0xff >> (first - start).min(8) as u32 } else { 0xffu16 } as u8;
    let tail = if last < start + 7 { 0xffu16 << (start + 7 - last).min(8) as u32 } else { 0xff } as u8;
    head & tail
}

/// Counts the set bits from `first` to `last`. Both lie within the string.
fn count_ones(bytes: &[u8], first: u64, last: u64) -> u64 {
    let (from, to) = ((first >> 3) as usize, (last >> 3) as usize);
    if from == to {
        return (bytes[from] & mask(from, first, last)).count_ones().into();
    }
    let ends = (bytes[from] & mask(from, first, last)).count_ones() + (bytes[to] & mask(to, first, last)).count_ones();
    let (words, rest) = bytes[from + 1..to].as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>() + u64::from(ends)
}

/// The first bit from `first` to `last` that equals `wanted`.
fn position(bytes: &[u8], first: u64, last: u64, wanted: bool) -> Option<u64> {
    let (from, to) = ((first >> 3) as usize, (last >> 3) as usize);
    let flip = if wanted { 0 } else { 0xff };
    let hit = |at: usize| {
        let byte = (bytes[at] ^ flip) & mask(at, first, last);
        (byte != 0).then(|| at as u64 * 8 + u64::from(byte.leading_zeros()))
    };
    if let Some(at) = hit(from) {
        return Some(at);
    }
    if from == to {
        return None;
    }
    // Skip bytes without a wanted bit, eight at a time.
    let inner = &bytes[from + 1..to];
    let dull = u64::from_ne_bytes([flip; 8]);
    let skipped = inner.as_chunks::<8>().0.iter().take_while(|word| u64::from_ne_bytes(**word) == dull).count() * 8;
    (from + 1 + skipped..=to).find_map(hit)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

fn bitop(cx: &mut Cx<'_>) -> Run {
    let operations: [(&[u8], Operation); 4] =
        [(b"and", Operation::And), (b"or", Operation::Or), (b"xor", Operation::Xor), (b"not", Operation::Not)];
    let word = &cx.args[1];
    let Some((_, operation)) = operations.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)) else {
        return Err(SYNTAX);
    };
    if operation == Operation::Not && cx.args.len() != 4 {
        return Err(Stop::error("ERR BITOP NOT must be called with a single source key."));
    }
    let (to, sources) = (&cx.keys[0], &cx.keys[1..]);
    let (mut result, mut cold) = (Vec::new(), false);
    for (at, key) in sources.iter().enumerate() {
        // Do not stop at the first cold key: the walk goes on, so that all cold keys are read together. Errors of other
        // keys wait for the run that sees all values.
        let bytes = match cx.ks.get(key) {
            Ok(value) if !cold => string(value)?.unwrap_or_default(),
            Ok(_) => continue,
            Err(Cold) => {
                cold = true;
                continue;
            }
        };
        if at == 0 {
            result.extend_from_slice(bytes);
        } else {
            combine(&mut result, bytes, operation);
        }
    }
    if cold {
        return Err(Stop::Cold);
    }
    if operation == Operation::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    if result.is_empty() {
        if cx.ks.clear(to)? {
            cx.ks.event(Class::GENERIC, "del", to);
        }
    } else {
        cx.ks.set_string(to, &result, None);
        crate::strings::mark_raw(cx, to)?;
        cx.ks.event(Class::STRING, "set", to);
    }
    cx.out.int(result.len() as i64);
    Ok(())
}

fn combine(result: &mut Vec<u8>, bytes: &[u8], operation: Operation) {
    if result.len() < bytes.len() {
        result.resize(bytes.len(), 0);
    }
    let (both, rest) = result.split_at_mut(bytes.len());
    let pairs = both.iter_mut().zip(bytes);
    match operation {
        Operation::And => {
            pairs.for_each(|(to, from)| *to &= from);
            rest.fill(0);
        }
        Operation::Or => pairs.for_each(|(to, from)| *to |= from),
        Operation::Xor => pairs.for_each(|(to, from)| *to ^= from),
        Operation::Not => unreachable!("it has one source"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bits of `bytes`, one by one.
    fn bits(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1 != 0)).collect()
    }

    #[test]
    fn counting_and_finding_agree_with_looking_at_each_bit() {
        let patterns: [&[u8]; 5] =
            [&[0; 40], &[0xff; 40], b"foobar", b"\x80", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xf0]];
        for bytes in patterns {
            let all = bits(bytes);
            for first in 0..all.len() {
                for last in first..all.len() {
                    let part = &all[first..=last];
                    let (from, to) = (first as u64, last as u64);
                    assert_eq!(count_ones(bytes, from, to), part.iter().filter(|&&bit| bit).count() as u64);
                    for wanted in [false, true] {
                        let expected = part.iter().position(|&bit| bit == wanted).map(|at| (first + at) as u64);
                        assert_eq!(position(bytes, from, to, wanted), expected, "{bytes:?} {first} {last} {wanted}");
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_are_redis_s() {
        let bits = |start, end, in_bits, bytes| Range { start, end, in_bits }.bits(bytes);
        assert_eq!(bits(0, None, false, 3), Some((0, 23)));
        assert_eq!(bits(0, Some(-1), true, 3), Some((0, 23)));
        assert_eq!(bits(-2, Some(-2), false, 3), Some((8, 15)));
        assert_eq!(bits(5, Some(100), true, 3), Some((5, 23)));
        assert_eq!(bits(-100, Some(-100), false, 1), Some((0, 7)));
        assert_eq!(bits(3, None, false, 3), None);
        assert_eq!(bits(0, None, false, 0), None);
        assert_eq!(bits(i64::MIN, Some(i64::MAX), true, 2), Some((0, 15)));
        assert_eq!(bits(i64::MAX, Some(i64::MIN), true, 2), None);
    }
}
