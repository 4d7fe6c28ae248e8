//! Owns the two directions between replies and Lua values. Never knows a command.

use super::sandbox::plain;
use mlua::{Lua, Result, Table, Value};
use resp::{Out, Proto};

/// Nested deeper than this, a value a script returns is refused.
const DEPTH_MAX: usize = 1_900;

/// The reply at `at` of `reply`, which a handler wrote; moves `at` behind it. An error becomes a table with `err`.
pub fn to_lua(lua: &Lua, reply: &[u8], at: &mut usize) -> Result<Value> {
    let tag = reply[*at];
    let line = line(reply, at);
    Ok(match tag {
        b'+' => Value::Table(field(lua, "ok", Value::String(lua.create_string(line)?))?),
        b'-' => Value::Table(field(lua, "err", Value::String(lua.create_string(line)?))?),
        b':' => Value::Integer(number(line)),
        b'$' => match number(line) {
            ..0 => Value::Boolean(false),
            bytes => Value::String(lua.create_string(body(reply, at, bytes))?),
        },
        b'*' | b'>' => match number(line) {
            ..0 => Value::Boolean(false),
            count => {
                let table = lua.create_table_with_capacity(count as usize, 0)?;
                for index in 1..=count {
                    table.raw_set(index, to_lua(lua, reply, at)?)?;
                }
                Value::Table(table)
            }
        },
        b'_' => Value::Nil,
        b'#' => Value::Boolean(line == b"t"),
        b',' => {
            let double = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
            Value::Table(field(lua, "double", Value::Number(double))?)
        }
        b'(' => Value::Table(field(lua, "big_number", Value::String(lua.create_string(line)?))?),
        b'=' => {
            let text = body(reply, at, number(line));
            let verbatim = field(lua, "format", Value::String(lua.create_string(&text[..3])?))?;
            verbatim.raw_set("string", lua.create_string(&text[4..])?)?;
            Value::Table(field(lua, "verbatim_string", Value::Table(verbatim))?)
        }
        b'%' => {
            let map = lua.create_table()?;
            for _ in 0..number(line) {
                let key = to_lua(lua, reply, at)?;
                map.raw_set(key, to_lua(lua, reply, at)?)?;
            }
            Value::Table(field(lua, "map", Value::Table(map))?)
        }
        b'~' => {
            let set = lua.create_table()?;
            for _ in 0..number(line) {
                set.raw_set(to_lua(lua, reply, at)?, true)?;
            }
            Value::Table(field(lua, "set", Value::Table(set))?)
        }
        _ => unreachable!("handlers write RESP"),
    })
}

fn field(lua: &Lua, name: &str, value: Value) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(table)
}

fn line<'r>(reply: &'r [u8], at: &mut usize) -> &'r [u8] {
    let start = *at + 1;
    let len = reply[start..].iter().position(|&byte| byte == b'\r').expect("a line ends");
    *at = start + len + 2;
    &reply[start..start + len]
}

fn body<'r>(reply: &'r [u8], at: &mut usize, bytes: i64) -> &'r [u8] {
    let start = *at;
    *at = start + bytes as usize + 2;
    &reply[start..start + bytes as usize]
}

fn number(line: &[u8]) -> i64 {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).expect("a number")
}

/// What a script returned, as its reply. `script_proto`: what it chose by setresp.
pub fn to_reply(value: &Value, out: &mut Out<'_>, script_proto: Proto, depth: usize) -> Result<()> {
    match value {
        Value::String(text) => out.bulk(&text.as_bytes()),
        Value::Integer(number) => out.int(*number),
        Value::Number(number) => out.int(truncated(*number)),
        Value::Boolean(value) if script_proto == Proto::Resp3 => out.boolean(*value),
        Value::Boolean(true) => out.int(1),
        Value::Table(_) if depth > DEPTH_MAX => out.error("ERR reached lua stack limit"),
        Value::Table(table) => table_to_reply(table, out, script_proto, depth)?,
        Value::Error(error) => out.error(&format!("ERR {}", plain(error))),
        _ => out.null(),
    }
    Ok(())
}

fn table_to_reply(table: &Table, out: &mut Out<'_>, script_proto: Proto, depth: usize) -> Result<()> {
    if let Value::String(text) = table.raw_get::<Value>("err")? {
        out.error_bytes(&text.as_bytes());
        return Ok(());
    }
    if let Value::String(text) = table.raw_get::<Value>("ok")? {
        let mut line = vec![b'+'];
        line.extend(text.as_bytes().iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        line.extend_from_slice(b"\r\n");
        out.raw(&line);
        return Ok(());
    }
    if let Value::Number(_) | Value::Integer(_) = table.raw_get::<Value>("double")? {
        out.double(table.raw_get("double")?);
        return Ok(());
    }
    if let Value::Table(map) = table.raw_get::<Value>("map")? {
        let mark = out.map_deferred();
        let mut count = 0;
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            to_reply(&key, out, script_proto, depth + 1)?;
            to_reply(&value, out, script_proto, depth + 1)?;
            count += 1;
        }
        out.finish(mark, count);
        return Ok(());
    }
    if let Value::Table(set) = table.raw_get::<Value>("set")? {
        let mark = out.set_deferred();
        let mut count = 0;
        for pair in set.pairs::<Value, Value>() {
            to_reply(&pair?.0, out, script_proto, depth + 1)?;
            count += 1;
        }
        out.finish(mark, count);
        return Ok(());
    }
    if let Value::String(digits) = table.raw_get::<Value>("big_number")? {
        // In RESP3 it is a line: what would end it becomes a space.
        out.big_number(&String::from_utf8_lossy(&digits.as_bytes()));
        return Ok(());
    }
    if let Value::Table(verbatim) = table.raw_get::<Value>("verbatim_string")?
        && let (Value::String(format), Value::String(text)) =
            (verbatim.raw_get::<Value>("format")?, verbatim.raw_get::<Value>("string")?)
    {
        // Three bytes, whatever the script gave.
        let format: String =
            format.to_string_lossy().chars().filter(char::is_ascii).chain("   ".chars()).take(3).collect();
        out.verbatim(&format, &text.as_bytes());
        return Ok(());
    }
    let mark = out.array_deferred();
    let mut count = 0;
    loop {
        let value: Value = table.raw_get(count + 1)?;
        if value.is_nil() {
            break;
        }
        to_reply(&value, out, script_proto, depth + 1)?;
        count += 1;
    }
    out.finish(mark, count);
    Ok(())
}

/// As C casts on this processor: what does not fit is the smallest integer.
fn truncated(number: f64) -> i64 {
    if number.abs() < 9_223_372_036_854_775_808.0 { number as i64 } else { i64::MIN }
}
