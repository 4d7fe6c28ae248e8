//! Owns BITFIELD: a string as an array of integers of any width. Never knows other types, except to refuse them.

use crate::bitmaps::{BAD_OFFSET, checked_offset, string_mut};
use crate::cx::Cx;
use crate::number::{int, int_or_error};
use crate::row::{self, Flag, Group, KeyUse, Row, is};
use crate::stop::{Run, SYNTAX, Stop};
use crate::strings::{claim_longer, string};
use smallvec::SmallVec;
use store::Class;

const BASE: Row = Row { arity: -2, group: Group::Bitmap, complexity: "O(1) for each subcommand.", ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "bitfield",
        access: row::Access::Rule(|args| {
            let changes = |word: &[u8]| word.eq_ignore_ascii_case(b"set") || word.eq_ignore_ascii_case(b"incrby");
            if args.from(2).any(changes) { KeyUse::CHANGE } else { KeyUse::READ }
        }),
        flags: &[Flag::Write, Flag::Denyoom],
        since: "3.2.0",
        summary: "Reads, sets and increments integers of 1 to 64 bits at any place in a string.",
        syntax: "key [<GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | \
                 INCRBY encoding offset increment>> ...]",
        examples: &[
            is("BITFIELD k INCRBY i5 100 1 GET u4 0", "1) (integer) 1\n2) (integer) 0"),
            is("BITFIELD k SET u8 #1 200 GET u8 8", "1) (integer) 0\n2) (integer) 200"),
            is("BITFIELD k INCRBY u8 #1 100", "1) (integer) 44"),
            is("BITFIELD k OVERFLOW SAT INCRBY u8 #1 250", "1) (integer) 255"),
            is("BITFIELD k OVERFLOW FAIL INCRBY u8 #1 1", "1) (nil)"),
            is("BITFIELD k SET i64 0 -1", "1) (integer) 71776119061217280"),
            is("BITFIELD k", "(empty array)"),
            is(
                "BITFIELD k GET u64 0",
                "(error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 \
                 is.",
            ),
            is("BITFIELD k OVERFLOW JUMP", "(error) ERR Invalid OVERFLOW type specified"),
            is("BITFIELD k GET u8 -1", "(error) ERR bit offset is not an integer or out of range"),
            is("BITFIELD k SET u8 0", "(error) ERR syntax error"),
        ],
        run: |cx| bitfield(cx, Access::Any),
        ..BASE
    },
    Row {
        name: "bitfield_ro",
        flags: &[Flag::Readonly, Flag::Fast],
        since: "6.0.0",
        summary: "Reads integers of 1 to 64 bits at any place in a string.",
        syntax: "key [GET encoding offset [GET encoding offset ...]]",
        examples: &[
            is("SET k ab", "OK"),
            is("BITFIELD_RO k GET u8 0 GET i8 #1 GET u4 14", "1) (integer) 97\n2) (integer) 98\n3) (integer) 8"),
            is("BITFIELD_RO k GET u8 100", "1) (integer) 0"),
            is("BITFIELD_RO k SET u8 0 1", "(error) ERR BITFIELD_RO only supports the GET subcommand"),
        ],
        run: |cx| bitfield(cx, Access::ReadOnly),
        ..BASE
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Any,
    ReadOnly,
}

/// An integer's type: 1 to 64 bits signed, 1 to 63 unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Encoding {
    signed: bool,
    bits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Clone, Copy)]
struct Step {
    action: Action,
    encoding: Encoding,
    offset: u64,
    overflow: Overflow,
}

impl Encoding {
    fn parse(text: &[u8]) -> Option<Encoding> {
        let (signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return None,
        };
        let bits = int(digits).filter(|bits| (1..=if signed { 64 } else { 63 }).contains(bits))?;
        Some(Encoding { signed, bits: bits as u32 })
    }

    fn range(self) -> (i128, i128) {
        match self.signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    /// The low bits as a number of this type.
    fn number(self, bits: u64) -> i64 {
        let unused = 64 - self.bits;
        let top = bits << unused;
        if self.signed { top as i64 >> unused } else { (top >> unused) as i64 }
    }

    /// Brings a number into the type's range. `None`: the number is refused.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = self.range();
        if (min..=max).contains(&number) {
            return Some(number as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.number(number as u64)),
            Overflow::Saturate => Some(if number > max { max } else { min } as i64),
            Overflow::Fail => None,
        }
    }
}

fn parse(cx: &Cx<'_>, access: Access) -> Result<SmallVec<[Step; 4]>, Stop> {
    let args = cx.args;
    let (mut steps, mut overflow, mut at) = (SmallVec::new(), Overflow::Wrap, 2);
    let mut writes = false;
    while let Some(word) = args.get(at) {
        let says =
            |name: &str, operands: usize| word.eq_ignore_ascii_case(name.as_bytes()) && args.len() - at > operands;
        if says("overflow", 1) {
            overflow = match &args[at + 1] {
                word if word.eq_ignore_ascii_case(b"wrap") => Overflow::Wrap,
                word if word.eq_ignore_ascii_case(b"sat") => Overflow::Saturate,
                word if word.eq_ignore_ascii_case(b"fail") => Overflow::Fail,
                _ => return Err(Stop::error("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let (get, set, add) = (says("get", 2), says("set", 3), says("incrby", 3));
        if !(get || set || add) {
            return Err(SYNTAX);
        }
        let encoding = Encoding::parse(&args[at + 1]).ok_or(Stop::error(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ))?;
        let offset = field_offset(cx, &args[at + 2], encoding).ok_or(BAD_OFFSET)?;
        let action = match () {
            () if get => Action::Get,
            () if set => Action::Set(int_or_error(&args[at + 3])?),
            () => Action::Add(int_or_error(&args[at + 3])?),
        };
        writes |= !get;
        steps.push(Step { action, encoding, offset, overflow });
        at += if get { 3 } else { 4 };
    }
    if writes && access == Access::ReadOnly {
        return Err(Stop::error("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    Ok(steps)
}

/// `#n` means the n-th integer of that width.
fn field_offset(cx: &Cx<'_>, text: &[u8], encoding: Encoding) -> Option<u64> {
    let bit = match text {
        [b'#', index @ ..] => int(index)?.checked_mul(encoding.bits.into())?,
        text => int(text)?,
    };
    checked_offset(cx, bit)
}

fn bitfield(cx: &mut Cx<'_>, access: Access) -> Run {
    let steps = parse(cx, access)?;
    // Redis extends the string for every SET and INCRBY step before it knows whether an overflow refuses the step.
    let end = steps.iter().filter(|step| !matches!(step.action, Action::Get)).map(Step::end).max();
    let key = &cx.keys[0];
    let value = if end.is_some() { cx.ks.get_to_edit(key)? } else { cx.ks.get(key)? };
    let bytes = string(value)?.unwrap_or_default();
    cx.out.array(steps.len());
    let Some(end) = end else {
        for step in &steps {
            cx.out.int(step.encoding.number(read(bytes, step.offset, step.encoding.bits)));
        }
        return Ok(());
    };
    claim_longer(cx.settings, cx.session, bytes.len(), end)?;
    let mut replies: SmallVec<[Option<i64>; 4]> = SmallVec::new();
    let mut changed = bytes.len() < end;
    let keys = cx.keys;
    let mut value = match changed || !cx.ks.is_raw(&keys[0])? {
        true => string_mut(cx, end)?,
        false => cx.ks.get_mut(&keys[0])?.expect("it was just there"),
    };
    for step in &steps {
        let (offset, encoding) = (step.offset, step.encoding);
        let old = encoding.number(read(value.inline().unwrap_or_default(), offset, encoding.bits));
        let new = match step.action {
            Action::Get => Some(old),
            // For an unsigned type, a negative number is a large one.
            Action::Set(new) if encoding.signed => encoding.fit(i128::from(new), step.overflow),
            Action::Set(new) => encoding.fit(i128::from(new as u64), step.overflow),
            Action::Add(more) => encoding.fit(i128::from(old) + i128::from(more), step.overflow),
        };
        if let Some(new) = new.filter(|&new| new != old) {
            write(value.inline_mut().unwrap_or_default(), offset, encoding.bits, new as u64);
            changed = true;
        }
        replies.push(if matches!(step.action, Action::Set(_)) { new.map(|_| old) } else { new });
    }
    if changed {
        cx.ks.event(Class::STRING, "setbit", &keys[0]);
    }
    for reply in replies {
        match reply {
            Some(number) => cx.out.int(number),
            None => cx.out.null(),
        }
    }
    Ok(())
}

impl Step {
    /// The length in bytes of a string that holds this step's bits.
    fn end(&self) -> usize {
        ((self.offset + u64::from(self.encoding.bits) - 1) >> 3) as usize + 1
    }
}

/// `bits` bits at `offset`; bits after the end of the string are zero.
fn read(bytes: &[u8], offset: u64, bits: u32) -> u64 {
    // 64 bits at any offset lie within nine bytes.
    let (at, shift) = ((offset >> 3) as usize, (offset & 7) as u32);
    let mut window = [0; 16];
    let part = bytes.get(at..).unwrap_or_default();
    let part = &part[..part.len().min(9)];
    window[..part.len()].copy_from_slice(part);
    let value = u128::from_be_bytes(window) << shift >> (128 - bits);
    value as u64
}

/// Writes the low `bits` bits of `value` at `offset`. The string must be long enough.
fn write(bytes: &mut [u8], offset: u64, bits: u32, value: u64) {
    let (at, shift) = ((offset >> 3) as usize, (offset & 7) as u32);
    let touched = ((shift + bits).div_ceil(8)) as usize;
    let part = &mut bytes[at..at + touched];
    let mut window = [0; 16];
    window[..touched].copy_from_slice(part);
    let place = 128 - bits - shift;
    let mask = (u128::MAX >> (128 - bits)) << place;
    let new = u128::from_be_bytes(window) & !mask | (u128::from(value) << place & mask);
    part.copy_from_slice(&new.to_be_bytes()[..touched]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_changes() {
        for bits in 1..=64 {
            for offset in 0..70u64 {
                for fill in [0x00, 0xff, 0xa5] {
                    let value = 0x9234_5678_9abc_def1u64 & (u64::MAX >> (64 - bits));
                    let before = [fill; 20];
                    let mut bytes = before;
                    write(&mut bytes, offset, bits, value);
                    assert_eq!(read(&bytes, offset, bits), value, "{bits} bits at {offset}");
                    for bit in (0..160).filter(|bit| !(offset..offset + u64::from(bits)).contains(bit)) {
                        assert_eq!(read(&bytes, bit, 1), read(&before, bit, 1), "bit {bit} of {bits} at {offset}");
                    }
                }
            }
        }
        assert_eq!(read(b"\xff", 4, 8), 0xf0, "zeros past the end");
        assert_eq!(read(b"", 1 << 30, 64), 0);
    }

    #[test]
    fn types_have_the_ranges_of_two_s_complement() {
        let signed = |bits| Encoding { signed: true, bits };
        let unsigned = |bits| Encoding { signed: false, bits };
        assert_eq!(signed(64).range(), (i64::MIN.into(), i64::MAX.into()));
        assert_eq!(signed(1).range(), (-1, 0));
        assert_eq!(unsigned(63).range(), (0, i64::MAX.into()));
        assert_eq!(signed(8).fit(200, Overflow::Wrap), Some(-56));
        assert_eq!(signed(8).fit(200, Overflow::Saturate), Some(127));
        assert_eq!(signed(8).fit(-200, Overflow::Saturate), Some(-128));
        assert_eq!(signed(8).fit(-200, Overflow::Fail), None);
        assert_eq!(unsigned(8).fit(-1, Overflow::Wrap), Some(255));
        assert_eq!(unsigned(8).fit(-1, Overflow::Saturate), Some(0));
        assert_eq!(signed(64).fit(i128::from(i64::MAX) + 1, Overflow::Wrap), Some(i64::MIN));
        for text in ["u64", "i65", "u0", "i0", "i", "x8", "u-1", "u08", "", "U8"] {
            assert_eq!(Encoding::parse(text.as_bytes()), None, "{text}");
        }
    }
}
