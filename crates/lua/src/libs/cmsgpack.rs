//! Owns the library `cmsgpack`: Lua's values as MessagePack and back, with the same encodings as lua-cmsgpack.

use crate::sandbox::{Native, NativeFn, Raise, add_natives, bad_argument, number, string};
use mlua::{Lua, MultiValue, Result, Table, Value};
use std::rc::Rc;

/// Maximum nesting of packed tables. Deeper tables are packed as nil.
const NESTING_MAX: usize = 16;
/// Maximum nesting of unpacked data, because each level takes space on the native stack.
const DEPTH_MAX: usize = 2_000;

pub fn open(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        table.raw_set(name, text)?;
    }
    let functions: [(&str, NativeFn<()>); 4] = [
        ("pack", |lua, args, _| pack(lua, args)),
        ("unpack", |lua, args, _| unpack(lua, args, "unpack", 0, 0)),
        ("unpack_one", |lua, args, _| {
            let offset = optional(args, 2, "unpack_one")?;
            unpack(lua, args, "unpack_one", 1, offset)
        }),
        ("unpack_limit", |lua, args, _| {
            let limit = number(args, 2, "unpack_limit")? as i64;
            let offset = optional(args, 3, "unpack_limit")?;
            unpack(lua, args, "unpack_limit", limit, offset)
        }),
    ];
    add_natives(lua, &table, Rc::new(()), functions)?;
    Ok(table)
}

fn optional(args: &MultiValue, at: usize, function: &str) -> std::result::Result<i64, Raise> {
    match args.get(at - 1) {
        None | Some(Value::Nil) => Ok(0),
        Some(_) => Ok(number(args, at, function)? as i64),
    }
}

fn pack(lua: &Lua, args: &MultiValue) -> Native {
    if args.is_empty() {
        return Err(bad_argument(0, "pack", "MessagePack pack needs input."));
    }
    let mut out = Vec::new();
    for value in args {
        write(value, 0, &mut out)?;
    }
    Ok([Value::String(lua.create_string(out)?)].into_iter().collect())
}

fn write(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    match value {
        Value::Boolean(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(value) => write_number(*value as f64, out),
        Value::Number(value) => write_number(*value, out),
        Value::String(text) => {
            let text = text.as_bytes();
            head(text.len(), [(0xa0, 32), (0xd9, 1 << 8), (0xda, 1 << 16)], 0xdb, out);
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < NESTING_MAX => write_table(table, depth, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

/// Writes a length: in the low bits of the tag, or after the tag in one, two or four bytes.
fn head(len: usize, tags: [(u8, usize); 3], largest: u8, out: &mut Vec<u8>) {
    match tags.iter().find(|(_, limit)| len < *limit) {
        Some(&(tag @ (0xa0 | 0x90 | 0x80), _)) => out.push(tag | len as u8),
        Some(&(tag, 256)) => out.extend([tag, len as u8]),
        Some(&(tag, _)) => {
            out.push(tag);
            out.extend((len as u16).to_be_bytes());
        }
        None => {
            out.push(largest);
            out.extend((len as u32).to_be_bytes());
        }
    }
}

fn write_number(number: f64, out: &mut Vec<u8>) {
    let integer = number as i64;
    // 2^63 is no i64, but a saturating cast turns it into the largest i64. So test for it.
    if integer as f64 != number || number >= 9_223_372_036_854_775_808.0 {
        let short = number as f32;
        if f64::from(short) == number {
            out.push(0xca);
            out.extend(short.to_be_bytes());
        } else {
            out.push(0xcb);
            out.extend(number.to_be_bytes());
        }
        return;
    }
    let (tag, bytes) = match integer {
        -32..0x80 => return out.push(integer as u8),
        0x80..0x100 => (0xcc, 1),
        0x100..0x1_0000 => (0xcd, 2),
        0x1_0000..0x1_0000_0000 => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80.. => (0xd0, 1),
        -0x8000.. => (0xd1, 2),
        -0x8000_0000.. => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(tag);
    out.extend_from_slice(&integer.to_be_bytes()[8 - bytes..]);
}

fn write_table(table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    // A table is an array if its keys are 1 to n.
    let (mut count, mut last, mut is_array) = (0usize, 0, true);
    table.for_each(|key: Value, _: Value| {
        count += 1;
        match key {
            Value::Integer(key) if key > 0 => last = last.max(key as usize),
            _ => is_array = false,
        }
        Ok(())
    })?;
    if is_array && last == count {
        head(count, [(0x90, 16), (0xdc, 0), (0xdc, 1 << 16)], 0xdd, out);
        for at in 1..=count {
            write(&table.raw_get(at)?, depth + 1, out)?;
        }
        return Ok(());
    }
    head(count, [(0x80, 16), (0xde, 0), (0xde, 1 << 16)], 0xdf, out);
    table.for_each(|key: Value, value: Value| {
        write(&key, depth + 1, out)?;
        write(&value, depth + 1, out)
    })
}

/// If `limit` and `offset` are 0, returns all values. Otherwise the first result is the next offset, −1 at the end.
fn unpack(lua: &Lua, args: &MultiValue, function: &str, limit: i64, offset: i64) -> Native {
    let text = string(lua, args, 1, function)?;
    let bytes = text.as_bytes();
    let len = bytes.len();
    if offset < 0 || limit < 0 {
        return Err(format!("Invalid request to unpack with offset of {offset} and limit of {len}.").into());
    }
    if offset as u64 > len as u64 {
        return Err(format!("Start offset {offset} greater than input length {len}.").into());
    }
    let all = limit == 0 && offset == 0;
    let mut rest = &bytes[offset as usize..];
    let mut values = MultiValue::new();
    while !rest.is_empty() && (all || (values.len() as i64) < limit) {
        values.push_back(read(lua, &mut rest, 0)?);
    }
    if !all {
        values.push_front(Value::Number(if rest.is_empty() { -1.0 } else { (len - rest.len()) as f64 }));
    }
    Ok(values)
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> std::result::Result<&'a [u8], Raise> {
    let missing = || Raise::At("Missing bytes in input.".to_owned());
    let (taken, tail) = rest.split_at_checked(len).ok_or_else(missing)?;
    *rest = tail;
    Ok(taken)
}

/// An unsigned integer of `bytes` bytes.
fn integer(rest: &mut &[u8], bytes: usize) -> std::result::Result<u64, Raise> {
    Ok(take(rest, bytes)?.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

fn read(lua: &Lua, rest: &mut &[u8], depth: usize) -> std::result::Result<Value, Raise> {
    let number = |value: f64| Ok(Value::Number(value));
    let tag = take(rest, 1)?[0];
    match tag {
        0..0x80 => number(f64::from(tag)),
        0xe0.. => number(f64::from(tag as i8)),
        0xc0 => Ok(Value::Nil),
        0xc2 | 0xc3 => Ok(Value::Boolean(tag == 0xc3)),
        0xca => number(f64::from(f32::from_bits(integer(rest, 4)? as u32))),
        0xcb => number(f64::from_bits(integer(rest, 8)?)),
        0xcc..=0xce => number(integer(rest, 1 << (tag - 0xcc))? as f64),
        // lua-cmsgpack also reads an unsigned integer of 8 bytes as a signed one.
        0xcf | 0xd3 => number(integer(rest, 8)? as i64 as f64),
        0xd0 => number(f64::from(integer(rest, 1)? as i8)),
        0xd1 => number(f64::from(integer(rest, 2)? as i16)),
        0xd2 => number(f64::from(integer(rest, 4)? as i32)),
        0xa0..0xc0 => text(lua, rest, usize::from(tag & 31)),
        0xd9..=0xdb => {
            let len = integer(rest, 1 << (tag - 0xd9))? as usize;
            text(lua, rest, len)
        }
        0x90..0xa0 => array(lua, rest, u64::from(tag & 15), depth),
        0xdc | 0xdd => {
            let count = integer(rest, if tag == 0xdc { 2 } else { 4 })?;
            array(lua, rest, count, depth)
        }
        0x80..0x90 => map(lua, rest, u64::from(tag & 15), depth),
        0xde | 0xdf => {
            let count = integer(rest, if tag == 0xde { 2 } else { 4 })?;
            map(lua, rest, count, depth)
        }
        _ => Err(Raise::At("Bad data format in input.".to_owned())),
    }
}

fn text(lua: &Lua, rest: &mut &[u8], len: usize) -> std::result::Result<Value, Raise> {
    Ok(Value::String(lua.create_string(take(rest, len)?)?))
}

fn too_deep(function: &str) -> Raise {
    Raise::At(format!("stack overflow (in function {function})"))
}

fn array(lua: &Lua, rest: &mut &[u8], count: u64, depth: usize) -> std::result::Result<Value, Raise> {
    if depth > DEPTH_MAX {
        return Err(too_deep("mp_decode_to_lua_array"));
    }
    let table = lua.create_table()?;
    for at in 1..=count {
        table.raw_set(at, read(lua, rest, depth + 1)?)?;
    }
    Ok(Value::Table(table))
}

fn map(lua: &Lua, rest: &mut &[u8], count: u64, depth: usize) -> std::result::Result<Value, Raise> {
    if depth > DEPTH_MAX {
        return Err(too_deep("mp_decode_to_lua_hash"));
    }
    let raise = |text: &str| lua.create_string(text).map_or_else(Raise::Lua, |text| Raise::Value(Value::String(text)));
    let table = lua.create_table()?;
    for _ in 0..count {
        let key = read(lua, rest, depth + 1)?;
        let value = read(lua, rest, depth + 1)?;
        match &key {
            Value::Nil => return Err(raise("table index is nil")),
            Value::Number(key) if key.is_nan() => return Err(raise("table index is NaN")),
            _ => table.raw_set(key, value)?,
        }
    }
    Ok(Value::Table(table))
}
