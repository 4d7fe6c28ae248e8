//! Owns the library `struct`: packs numbers and strings into bytes, like Roberto Ierusalimschy's library of that name.
//!
//! A format is a sequence of letters. `b B` are integers of 1 byte, `h H` of 2, `l L` and `T` of 8, `i I` of 4 or of the
//! number of bytes that follows the letter; upper case is unsigned. `f d` are floats. `s` is a string that ends with a zero,
//! `c` a string of the number of bytes that follows the letter. `x` is a byte of padding. `<` and `>` set the byte order, `!`
//! sets the alignment.

use crate::sandbox::{Native, Raise, add_natives, bad_argument, number, string};
use mlua::{Lua, MultiValue, Result, Table, Value};
use std::rc::Rc;

/// Maximum bytes of an integer. Bytes beyond the eighth are zeros.
const INTEGER_BYTES_MAX: usize = 32;
const ALIGN_MAX: usize = 8;

pub fn open(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    add_natives(lua, &table, Rc::new(()), [("pack", pack), ("unpack", unpack), ("size", size)])?;
    Ok(table)
}

/// A format while it is parsed.
struct Format<'a> {
    rest: &'a [u8],
    function: &'static str,
    big_endian: bool,
    align: usize,
}

/// A letter, its size in bytes, and the padding before it.
struct Item {
    letter: u8,
    bytes: usize,
    padding: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8], function: &'static str) -> Format<'a> {
        // The format ends at the first zero byte, as a C string does.
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Format { rest: &text[..end], function, big_endian: false, align: 1 }
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn count(&mut self, otherwise: usize) -> std::result::Result<usize, Raise> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(otherwise);
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let number =
            number.iter().try_fold(0i32, |sum, digit| sum.checked_mul(10)?.checked_add(i32::from(digit - b'0')));
        number.map(|number| number as usize).ok_or_else(|| "integral size overflow".to_owned().into())
    }

    /// Parses the next item. `at` is the item's offset in the packed data.
    fn next(&mut self, at: usize) -> std::result::Result<Option<Item>, Raise> {
        let Some(letter) = self.byte() else { return Ok(None) };
        let bytes = match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.count(1)?,
            b'i' | b'I' => {
                let bytes = self.count(4)?;
                if bytes > INTEGER_BYTES_MAX {
                    let text = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(text.into());
                }
                bytes
            }
            _ => 0,
        };
        let align = bytes.min(self.align);
        let padding = if align == 0 || letter == b'c' { 0 } else { (align - (at & (align - 1))) & (align - 1) };
        Ok(Some(Item { letter, bytes, padding }))
    }

    /// Handles a letter that is no item: byte order or alignment.
    fn control(&mut self, letter: u8) -> std::result::Result<(), Raise> {
        match letter {
            b' ' => {}
            b'<' => self.big_endian = false,
            b'>' => self.big_endian = true,
            b'!' => {
                let align = self.count(ALIGN_MAX)?;
                if !align.is_power_of_two() {
                    return Err(format!("alignment {align} is not a power of 2").into());
                }
                self.align = align;
            }
            other => {
                let why = format!("invalid format option '{}'", char::from(other));
                return Err(bad_argument(1, self.function, &why));
            }
        }
        Ok(())
    }
}

fn pack(lua: &Lua, args: &MultiValue, (): &()) -> Native {
    let text = string(lua, args, 1, "pack")?;
    let text = text.as_bytes();
    let mut format = Format::new(&text, "pack");
    let mut out = Vec::new();
    let mut at = 2;
    // A missing argument is nil.
    let args = &mut args.clone();
    while let Some(Item { letter, bytes, padding }) = format.next(out.len())? {
        out.resize(out.len() + padding, 0);
        if matches!(letter, b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' | b'f' | b'd' | b's' | b'c')
            && at > args.len()
        {
            args.push_back(Value::Nil);
        }
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = number(args, at, "pack")?;
                // The same as a cast in C on x86.
                let bits = match number {
                    ..0.0 => number as i64 as u64,
                    ..18_446_744_073_709_551_616.0 => number as u64,
                    _ => 0,
                };
                let mut digits = [0u8; INTEGER_BYTES_MAX];
                digits[..8].copy_from_slice(&bits.to_le_bytes());
                if format.big_endian {
                    digits[..bytes].reverse();
                }
                out.extend_from_slice(&digits[..bytes]);
                at += 1;
            }
            b'x' => out.push(0),
            b'f' => {
                let number = number(args, at, "pack")? as f32;
                out.extend(if format.big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
                at += 1;
            }
            b'd' => {
                let number = number(args, at, "pack")?;
                out.extend(if format.big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
                at += 1;
            }
            b's' | b'c' => {
                let text = string(lua, args, at, "pack")?;
                let text = text.as_bytes();
                at += 1;
                let bytes = if bytes == 0 { text.len() } else { bytes };
                let text = text.get(..bytes).ok_or_else(|| bad_argument(at, "pack", "string too short"))?;
                out.extend_from_slice(text);
                if letter == b's' {
                    out.push(0);
                }
            }
            other => format.control(other)?,
        }
    }
    Ok([Value::String(lua.create_string(out)?)].into_iter().collect())
}

fn unpack(lua: &Lua, args: &MultiValue, (): &()) -> Native {
    const SHORT: &str = "data string too short";
    let text = string(lua, args, 1, "unpack")?;
    let text = text.as_bytes();
    let data = string(lua, args, 2, "unpack")?;
    let data = data.as_bytes();
    let first = match args.get(2) {
        None | Some(Value::Nil) => 1.0,
        Some(_) => number(args, 3, "unpack")?.trunc(),
    };
    if first == 0.0 {
        return Err(bad_argument(3, "unpack", "offset must be 1 or greater"));
    }
    let mut at = if first >= 1.0 { first as usize - 1 } else { usize::MAX };
    let mut format = Format::new(&text, "unpack");
    let mut values = MultiValue::new();
    while let Some(Item { letter, bytes, padding }) = format.next(at)? {
        at = at.saturating_add(padding);
        let rest = data.get(at..).unwrap_or_default();
        let field = data.get(at..).and_then(|rest| rest.get(..bytes));
        let field = field.ok_or_else(|| bad_argument(2, "unpack", SHORT))?;
        let mut taken = bytes;
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let join = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
                let bits = match format.big_endian {
                    true => field.iter().fold(0, join),
                    false => field.iter().rev().fold(0, join),
                };
                let unused = 64 - 8 * bytes.min(8) as u32;
                let number = match letter.is_ascii_lowercase() && bytes > 0 {
                    true => (((bits << unused) as i64) >> unused) as f64,
                    false => bits as f64,
                };
                values.push_back(Value::Number(number));
            }
            b'x' => {}
            b'f' => {
                let field: [u8; 4] = field.try_into().expect("four bytes");
                let number = if format.big_endian { f32::from_be_bytes(field) } else { f32::from_le_bytes(field) };
                values.push_back(Value::Number(number.into()));
            }
            b'd' => {
                let field: [u8; 8] = field.try_into().expect("eight bytes");
                let number = if format.big_endian { f64::from_be_bytes(field) } else { f64::from_le_bytes(field) };
                values.push_back(Value::Number(number));
            }
            b'c' => {
                let field = if bytes > 0 {
                    field
                } else {
                    let Some(Value::Number(count)) = values.pop_back() else {
                        return Err("format 'c0' needs a previous size".to_owned().into());
                    };
                    // A negative size becomes a huge size, as in C.
                    taken = if count >= 0.0 { count as usize } else { usize::MAX };
                    rest.get(..taken).ok_or_else(|| bad_argument(2, "unpack", SHORT))?
                };
                values.push_back(Value::String(lua.create_string(field)?));
            }
            b's' => {
                let end = rest.iter().position(|&byte| byte == 0);
                let end = end.ok_or_else(|| Raise::from("unfinished string in data".to_owned()))?;
                values.push_back(Value::String(lua.create_string(&rest[..end])?));
                taken = end + 1;
            }
            other => format.control(other)?,
        }
        at = at.saturating_add(taken);
    }
    values.push_back(Value::Number(at as f64 + 1.0));
    Ok(values)
}

fn size(lua: &Lua, args: &MultiValue, (): &()) -> Native {
    let text = string(lua, args, 1, "size")?;
    let text = text.as_bytes();
    let mut format = Format::new(&text, "size");
    let mut total = 0usize;
    while let Some(Item { letter, bytes, padding }) = format.next(total)? {
        total = total.saturating_add(padding);
        match letter {
            b's' => return Err(bad_argument(1, "size", "option 's' has no fixed size")),
            b'c' if bytes == 0 => return Err(bad_argument(1, "size", "option 'c0' has no fixed size")),
            letter if !letter.is_ascii_alphanumeric() => format.control(letter)?,
            _ => {}
        }
        total = total.saturating_add(bytes);
    }
    Ok([Value::Number(total as f64)].into_iter().collect())
}
