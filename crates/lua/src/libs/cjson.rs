//! Owns the library `cjson`: Lua's values as JSON and back. Settings and errors are those of lua-cjson 2.1.

use crate::sandbox::{Native, NativeFn, Raise, add_natives, bad_argument, lua_type, string};
use mlua::{Lua, MultiValue, Result, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

/// Maximum nesting, whatever a script sets, because each level takes space on the native stack.
const DEPTH_MAX: usize = 2_000;
const PRECISION_MAX: usize = 14;

/// The settings that a script may change. A change holds until the script ends.
#[derive(Clone, Copy)]
struct Settings {
    /// Whether an excessively sparse array becomes an object; from which share of gaps on; from which length on.
    sparse_converts: bool,
    sparse_ratio: usize,
    sparse_safe: usize,
    encode_depth: usize,
    decode_depth: usize,
    precision: usize,
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

/// How numbers that JSON does not have are encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

const DEFAULT: Settings = Settings {
    sparse_converts: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_depth: 1000,
    decode_depth: 1000,
    precision: PRECISION_MAX,
    keep_buffer: true,
    encode_invalid: Invalid::Refused,
    decode_invalid: true,
};

/// Resets the library's settings before the next script.
pub struct Reset(Rc<Cell<Settings>>);

impl Reset {
    pub fn reset(&self) {
        self.0.set(DEFAULT);
    }
}

pub fn open(lua: &Lua) -> Result<(Table, Reset)> {
    let settings = Rc::new(Cell::new(DEFAULT));
    Ok((library(lua, &settings)?, Reset(settings)))
}

fn library(lua: &Lua, settings: &Rc<Cell<Settings>>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    table.raw_set("null", Value::NULL)?;
    let functions: [(&str, NativeFn<Cell<Settings>>); 10] = [
        ("encode", encode),
        ("decode", decode),
        ("encode_sparse_array", sparse_array),
        ("encode_max_depth", |_, args, settings| {
            change(args, settings, "encode_max_depth", (1, i32::MAX as usize), |settings| &mut settings.encode_depth)
        }),
        ("decode_max_depth", |_, args, settings| {
            change(args, settings, "decode_max_depth", (1, i32::MAX as usize), |settings| &mut settings.decode_depth)
        }),
        ("encode_number_precision", |_, args, settings| {
            change(args, settings, "encode_number_precision", (1, PRECISION_MAX), |settings| &mut settings.precision)
        }),
        ("encode_keep_buffer", |_, args, settings| {
            switch(args, settings, "encode_keep_buffer", |settings| &mut settings.keep_buffer)
        }),
        ("decode_invalid_numbers", |_, args, settings| {
            switch(args, settings, "decode_invalid_numbers", |settings| &mut settings.decode_invalid)
        }),
        ("encode_invalid_numbers", encode_invalid),
        // Another instance of the library, with its own settings.
        ("new", |lua, _, _| Ok(one(Value::Table(library(lua, &Rc::new(Cell::new(DEFAULT)))?)))),
    ];
    add_natives(lua, &table, Rc::clone(settings), functions)?;
    Ok(table)
}

fn one(value: Value) -> MultiValue {
    [value].into_iter().collect()
}

fn at_most(args: &MultiValue, count: usize, function: &str) -> std::result::Result<(), Raise> {
    match args.len() > count {
        true => Err(bad_argument(count + 1, function, "found too many arguments")),
        false => Ok(()),
    }
}

/// Reads or writes an integer setting. The argument, if there is one, is the new value.
fn integer(
    args: &MultiValue,
    at: usize,
    function: &str,
    (min, max): (usize, usize),
    setting: &mut usize,
) -> std::result::Result<(), Raise> {
    let given = match args.get(at - 1) {
        None | Some(Value::Nil) => return Ok(()),
        Some(_) => crate::sandbox::number(args, at, function)?.trunc(),
    };
    if !(min as f64..=max as f64).contains(&given) {
        return Err(bad_argument(at, function, &format!("expected integer between {min} and {max}")));
    }
    *setting = given as usize;
    Ok(())
}

fn boolean(args: &MultiValue, at: usize, function: &str, setting: &mut bool) -> std::result::Result<(), Raise> {
    match args.get(at - 1) {
        None | Some(Value::Nil) => {}
        Some(Value::Boolean(value)) => *setting = *value,
        Some(Value::String(word)) if word == "off" => *setting = false,
        Some(Value::String(word)) if word == "on" => *setting = true,
        Some(_) => {
            let given = option(args, at, function)?;
            return Err(bad_argument(at, function, &format!("invalid option '{given}'")));
        }
    }
    Ok(())
}

/// A word argument, with the errors of luaL_checkoption.
fn option(args: &MultiValue, at: usize, function: &str) -> std::result::Result<String, Raise> {
    match args.get(at - 1) {
        Some(Value::String(word)) => Ok(word.to_string_lossy()),
        Some(Value::Integer(number)) => Ok(number.to_string()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => Err(crate::sandbox::type_error(at, function, "string", args)),
    }
}

fn change(
    args: &MultiValue,
    settings: &Cell<Settings>,
    function: &str,
    range: (usize, usize),
    field: fn(&mut Settings) -> &mut usize,
) -> Native {
    at_most(args, 1, function)?;
    let mut changed = settings.get();
    integer(args, 1, function, range, field(&mut changed))?;
    settings.set(changed);
    Ok(one(Value::Integer(*field(&mut changed) as i64)))
}

fn switch(
    args: &MultiValue,
    settings: &Cell<Settings>,
    function: &str,
    field: fn(&mut Settings) -> &mut bool,
) -> Native {
    at_most(args, 1, function)?;
    let mut changed = settings.get();
    boolean(args, 1, function, field(&mut changed))?;
    settings.set(changed);
    Ok(one(Value::Boolean(*field(&mut changed))))
}

fn sparse_array(_: &Lua, args: &MultiValue, settings: &Cell<Settings>) -> Native {
    const NAME: &str = "encode_sparse_array";
    at_most(args, 3, NAME)?;
    let mut changed = settings.get();
    boolean(args, 1, NAME, &mut changed.sparse_converts)?;
    integer(args, 2, NAME, (0, i32::MAX as usize), &mut changed.sparse_ratio)?;
    integer(args, 3, NAME, (0, i32::MAX as usize), &mut changed.sparse_safe)?;
    settings.set(changed);
    let numbers = [changed.sparse_ratio, changed.sparse_safe].map(|number| Value::Integer(number as i64));
    Ok([Value::Boolean(changed.sparse_converts)].into_iter().chain(numbers).collect())
}

fn encode_invalid(lua: &Lua, args: &MultiValue, settings: &Cell<Settings>) -> Native {
    const NAME: &str = "encode_invalid_numbers";
    at_most(args, 1, NAME)?;
    let mut changed = settings.get();
    changed.encode_invalid = match args.front() {
        None | Some(Value::Nil) => changed.encode_invalid,
        Some(Value::Boolean(true)) => Invalid::Written,
        Some(Value::Boolean(false)) => Invalid::Refused,
        Some(_) => match option(args, 1, NAME)?.as_str() {
            "off" => Invalid::Refused,
            "on" => Invalid::Written,
            "null" => Invalid::Null,
            other => return Err(bad_argument(1, NAME, &format!("invalid option '{other}'"))),
        },
    };
    settings.set(changed);
    Ok(one(match changed.encode_invalid {
        Invalid::Refused => Value::Boolean(false),
        Invalid::Written => Value::Boolean(true),
        Invalid::Null => Value::String(lua.create_string("null")?),
    }))
}

// ---- Encoding

fn encode(lua: &Lua, args: &MultiValue, settings: &Cell<Settings>) -> Native {
    let (1, Some(value)) = (args.len(), args.front()) else {
        return Err(bad_argument(1, "encode", "expected 1 argument"));
    };
    let mut writer = Writer { settings: settings.get(), out: Vec::new() };
    writer.value(value, 0)?;
    Ok(one(Value::String(lua.create_string(writer.out)?)))
}

struct Writer {
    settings: Settings,
    out: Vec<u8>,
}

type Written = std::result::Result<(), Raise>;

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Written {
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Table(table) => self.table(table, depth + 1)?,
            other => return Err(format!("Cannot serialise {}: type not supported", lua_type(other)).into()),
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> Written {
        if number.is_finite() {
            general(number, self.settings.precision, &mut self.out);
            return Ok(());
        }
        match self.settings.encode_invalid {
            Invalid::Refused => return Err("Cannot serialise number: must not be NaN or Inf".to_owned().into()),
            Invalid::Null => self.out.extend_from_slice(b"null"),
            Invalid::Written if number.is_nan() => self.out.extend_from_slice(b"NaN"),
            Invalid::Written if number > 0.0 => self.out.extend_from_slice(b"Infinity"),
            Invalid::Written => self.out.extend_from_slice(b"-Infinity"),
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.reserve(text.len() + 2);
        self.out.push(b'"');
        for &byte in text {
            match byte {
                b'"' | b'\\' | b'/' => self.out.extend([b'\\', byte]),
                b'\x08' => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\x0c' => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                ..0x20 | 0x7f => self.out.extend(format!("\\u{byte:04x}").bytes()),
                _ => self.out.push(byte),
            }
        }
        self.out.push(b'"');
    }

    fn table(&mut self, table: &Table, depth: usize) -> Written {
        if depth > self.settings.encode_depth.min(DEPTH_MAX) {
            return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
        }
        let len = self.array_len(table)?;
        if len > 0 {
            self.out.push(b'[');
            for at in 1..=len {
                if at > 1 {
                    self.out.push(b',');
                }
                self.value(&table.raw_get(at)?, depth)?;
            }
            self.out.push(b']');
            return Ok(());
        }
        self.out.push(b'{');
        let mut raised = None;
        let mut first = true;
        table.for_each(|key: Value, value: Value| {
            if raised.is_none() {
                raised = self.pair(&key, &value, std::mem::take(&mut first), depth).err();
            }
            Ok(())
        })?;
        self.out.push(b'}');
        raised.map_or(Ok(()), Err)
    }

    fn pair(&mut self, key: &Value, value: &Value, first: bool, depth: usize) -> Written {
        if !first {
            self.out.push(b',');
        }
        match key {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b'"');
                self.value(key, depth)?;
                self.out.push(b'"');
            }
            other => {
                let text = format!("Cannot serialise {}: table key must be a number or string", lua_type(other));
                return Err(text.into());
            }
        }
        self.out.push(b':');
        self.value(value, depth)
    }

    /// The length of the array. 0: the table is an object.
    fn array_len(&self, table: &Table) -> std::result::Result<usize, Raise> {
        let (mut last, mut count, mut is_array) = (0usize, 0usize, true);
        table.for_each(|key: Value, _: Value| {
            count += 1;
            match key {
                Value::Integer(key) if key >= 1 => last = last.max(key as usize),
                _ => is_array = false,
            }
            Ok(())
        })?;
        if !is_array {
            return Ok(0);
        }
        let Settings { sparse_converts, sparse_ratio, sparse_safe, .. } = self.settings;
        let is_sparse = sparse_ratio > 0 && last > count.saturating_mul(sparse_ratio) && last > sparse_safe;
        match is_sparse {
            true if !sparse_converts => Err("Cannot serialise table: excessively sparse array".to_owned().into()),
            true => Ok(0),
            false => Ok(last),
        }
    }
}

/// Prints a number like C's `%.*g`.
pub fn general(number: f64, precision: usize, out: &mut Vec<u8>) {
    if number == 0.0 {
        out.extend_from_slice(if number.is_sign_negative() { b"-0" } else { b"0" });
        return;
    }
    let scientific = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let text = if (-4..precision as i32).contains(&exponent) {
        trimmed(&format!("{number:.*}", (precision as i32 - 1 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
    };
    out.extend_from_slice(text.as_bytes());
}

// ---- Decoding

fn decode(lua: &Lua, args: &MultiValue, settings: &Cell<Settings>) -> Native {
    if args.len() != 1 {
        return Err(bad_argument(1, "decode", "expected 1 argument"));
    }
    let text = string(lua, args, 1, "decode")?;
    let text = text.as_bytes();
    if text.len() >= 2 && text[..2].contains(&0) {
        return Err("JSON parser does not support UTF-16 or UTF-32".to_owned().into());
    }
    let settings = settings.get();
    let depth_max = settings.decode_depth.min(DEPTH_MAX);
    let mut reader = Reader { lua, text: &text, at: 0, depth: 0, depth_max, takes_invalid: settings.decode_invalid };
    let token = reader.token()?;
    let value = reader.value(token)?;
    match reader.token()? {
        Token { kind: Kind::End, .. } => Ok(one(value)),
        token => Err(expected("the end", &token)),
    }
}

struct Reader<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    depth: usize,
    depth_max: usize,
    takes_invalid: bool,
}

struct Token {
    kind: Kind,
    /// Where the token begins.
    at: usize,
}

enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

fn expected(what: &str, token: &Token) -> Raise {
    let found = match token.kind {
        Kind::ObjectBegin => "T_OBJ_BEGIN",
        Kind::ObjectEnd => "T_OBJ_END",
        Kind::ArrayBegin => "T_ARR_BEGIN",
        Kind::ArrayEnd => "T_ARR_END",
        Kind::String(_) => "T_STRING",
        Kind::Number(_) => "T_NUMBER",
        Kind::Boolean(_) => "T_BOOLEAN",
        Kind::Null => "T_NULL",
        Kind::Colon => "T_COLON",
        Kind::Comma => "T_COMMA",
        Kind::End => "T_END",
        Kind::Error(text) => text,
    };
    Raise::At(format!("Expected {what} but found {found} at character {}", token.at + 1))
}

impl Reader<'_> {
    /// The byte `ahead` bytes after the current one. 0 at the end, as in C.
    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn starts(&self, word: &[u8]) -> bool {
        self.text[self.at..].starts_with(word)
    }

    fn token(&mut self) -> std::result::Result<Token, Raise> {
        while matches!(self.peek(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let (kind, bytes) = match self.peek(0) {
            0 => (Kind::End, 0),
            b'{' => (Kind::ObjectBegin, 1),
            b'}' => (Kind::ObjectEnd, 1),
            b'[' => (Kind::ArrayBegin, 1),
            b']' => (Kind::ArrayEnd, 1),
            b',' => (Kind::Comma, 1),
            b':' => (Kind::Colon, 1),
            b'"' => return Ok(self.string()),
            b'-' | b'0'..=b'9' if !self.takes_invalid && self.is_invalid_number() => (Kind::Error("invalid number"), 0),
            b'-' | b'0'..=b'9' => self.number(),
            b't' if self.starts(b"true") => (Kind::Boolean(true), 4),
            b'f' if self.starts(b"false") => (Kind::Boolean(false), 5),
            b'n' if self.starts(b"null") => (Kind::Null, 4),
            b'+' | b'i' | b'I' | b'n' | b'N' if self.takes_invalid && self.is_invalid_number() => self.number(),
            _ => (Kind::Error("invalid token"), 0),
        };
        self.at += bytes;
        Ok(Token { kind, at })
    }

    /// Whether a number follows that C accepts and JSON does not: 0x10, 01, +1, inf, nan.
    fn is_invalid_number(&self) -> bool {
        if self.peek(0) == b'+' {
            return true;
        }
        let sign = usize::from(self.peek(0) == b'-');
        match self.peek(sign) {
            b'0' => matches!(self.peek(sign + 1), b'x' | b'X' | b'0'..=b'9'),
            ..=b'9' => false,
            _ => {
                let word = self.text.get(self.at + sign..self.at + sign + 3).unwrap_or_default();
                word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
            }
        }
    }

    fn number(&self) -> (Kind, usize) {
        match strtod(&self.text[self.at..]) {
            (_, 0) => (Kind::Error("invalid number"), 0),
            (number, bytes) => (Kind::Number(number), bytes),
        }
    }

    fn string(&mut self) -> Token {
        let begin = self.at;
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            let plain = self.text[self.at..].iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0)).count();
            bytes.extend_from_slice(&self.text[self.at..self.at + plain]);
            self.at += plain;
            let error = match self.peek(0) {
                b'"' => {
                    self.at += 1;
                    return Token { kind: Kind::String(bytes), at: begin };
                }
                b'\\' => match self.peek(1) {
                    b'u' => match self.unicode() {
                        Some((character, taken)) => {
                            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                            self.at += taken;
                            continue;
                        }
                        None => "invalid unicode escape code",
                    },
                    escape => {
                        let byte = match escape {
                            b'"' | b'\\' | b'/' => escape,
                            b'b' => b'\x08',
                            b't' => b'\t',
                            b'n' => b'\n',
                            b'f' => b'\x0c',
                            b'r' => b'\r',
                            _ => return Token { kind: Kind::Error("invalid escape code"), at: self.at },
                        };
                        bytes.push(byte);
                        self.at += 2;
                        continue;
                    }
                },
                _ => "unexpected end of string",
            };
            return Token { kind: Kind::Error(error), at: self.at };
        }
    }

    /// The character of `\uXXXX`, or of a surrogate pair of two such escapes, and how many bytes they take.
    fn unicode(&self) -> Option<(char, usize)> {
        let unit = |ahead: usize| {
            let escape = self.text.get(self.at + ahead..self.at + ahead + 6)?;
            let digits = escape.strip_prefix(b"\\u").filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let first = unit(0)?;
        if first & 0xf800 != 0xd800 {
            return Some((char::from_u32(first)?, 6));
        }
        let second = unit(6).filter(|second| first & 0x400 == 0 && second & 0xfc00 == 0xdc00)?;
        Some((char::from_u32(0x1_0000 + ((first & 0x3ff) << 10 | second & 0x3ff))?, 12))
    }

    fn value(&mut self, token: Token) -> std::result::Result<Value, Raise> {
        match token.kind {
            Kind::String(text) => Ok(Value::String(self.lua.create_string(text)?)),
            Kind::Number(number) => Ok(Value::Number(number)),
            Kind::Boolean(value) => Ok(Value::Boolean(value)),
            Kind::Null => Ok(Value::NULL),
            Kind::ObjectBegin => self.object(),
            Kind::ArrayBegin => self.array(),
            _ => Err(expected("value", &token)),
        }
    }

    fn descend(&mut self) -> Written {
        self.depth += 1;
        if self.depth > self.depth_max {
            let text = format!("Found too many nested data structures ({}) at character {}", self.depth, self.at);
            return Err(text.into());
        }
        Ok(())
    }

    fn object(&mut self) -> std::result::Result<Value, Raise> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token()?;
        if !matches!(token.kind, Kind::ObjectEnd) {
            loop {
                let Kind::String(key) = token.kind else { return Err(expected("object key string", &token)) };
                let colon = self.token()?;
                if !matches!(colon.kind, Kind::Colon) {
                    return Err(expected("colon", &colon));
                }
                let first = self.token()?;
                let value = self.value(first)?;
                table.raw_set(self.lua.create_string(key)?, value)?;
                token = self.token()?;
                match token.kind {
                    Kind::ObjectEnd => break,
                    Kind::Comma => token = self.token()?,
                    _ => return Err(expected("comma or object end", &token)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> std::result::Result<Value, Raise> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token()?;
        if !matches!(token.kind, Kind::ArrayEnd) {
            for at in 1.. {
                let value = self.value(token)?;
                table.raw_set(at, value)?;
                token = self.token()?;
                match token.kind {
                    Kind::ArrayEnd => break,
                    Kind::Comma => token = self.token()?,
                    _ => return Err(expected("comma or array end", &token)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}

/// The number at the beginning of the text, by the rules of C's strtod, and its length. Length 0: there is no number.
fn strtod(text: &[u8]) -> (f64, usize) {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let (negative, rest) = (text.first() == Some(&b'-'), &text[sign..]);
    let signed = |number: f64, bytes: usize| (if negative { -number } else { number }, sign + bytes);
    let begins = |word: &[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if begins(b"infinity") {
        return signed(f64::INFINITY, 8);
    }
    if begins(b"inf") {
        return signed(f64::INFINITY, 3);
    }
    if begins(b"nan") {
        return signed(f64::NAN, 3);
    }
    if begins(b"0x")
        && let Some((number, bytes)) = hexadecimal(&rest[2..])
    {
        return signed(number, 2 + bytes);
    }
    let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    if rest.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if end == 0 {
        return (0.0, 0);
    }
    if matches!(rest.get(end), Some(b'e' | b'E')) {
        let digits_from = end + 1 + usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
        if digits_from <= rest.len() && digits(digits_from) > 0 {
            end = digits_from + digits(digits_from);
        }
    }
    let number = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    signed(number, end)
}

/// A hexadecimal number: digits, a fraction, and an exponent of two after `p`.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let value = |byte: &u8| char::from(*byte).to_digit(16).map(f64::from);
    let whole = text.iter().map_while(value).count();
    let mut number = text[..whole].iter().filter_map(value).fold(0.0, |sum, digit| sum * 16.0 + digit);
    let mut end = whole;
    if text.get(end) == Some(&b'.') {
        let fraction = text[end + 1..].iter().map_while(value).count();
        let mut scale = 1.0 / 16.0;
        for digit in text[end + 1..end + 1 + fraction].iter().filter_map(value) {
            number += digit * scale;
            scale /= 16.0;
        }
        if whole + fraction == 0 {
            return None;
        }
        end += 1 + fraction;
    }
    if end == 0 {
        return None;
    }
    if matches!(text.get(end), Some(b'p' | b'P')) {
        let signed = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let digits = text[end + 1 + signed..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            let exponent = std::str::from_utf8(&text[end + 1..end + 1 + signed + digits]).ok()?;
            // An exponent that does not fit its type gives infinity or zero anyway.
            let exponent: i32 = exponent.parse().unwrap_or(if text[end + 1] == b'-' { -5000 } else { 5000 });
            number *= 2f64.powi(exponent.clamp(-5000, 5000));
            end += 1 + signed + digits;
        }
    }
    Some((number, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_by_c() {
        for (number, precision, text) in [
            (0.1, 14, "0.1"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (1.0 / 3.0, 3, "0.333"),
            (1e15, 14, "1e+15"),
            (123456789012345678.0, 14, "1.2345678901235e+17"),
            (99999999999999.0, 14, "99999999999999"),
            (-1e-5, 14, "-1e-05"),
            (0.0001, 14, "0.0001"),
            (1e100, 14, "1e+100"),
            (-0.0, 14, "-0"),
            (9.99, 1, "1e+01"),
            (5.0, 1, "5"),
            (100.0, 14, "100"),
        ] {
            let mut out = Vec::new();
            general(number, precision, &mut out);
            assert_eq!(std::str::from_utf8(&out).unwrap(), text, "{number} {precision}");
        }
    }

    #[test]
    fn numbers_are_read_as_by_c() {
        for (text, number, bytes) in [
            ("12,", 12.0, 2),
            ("-1.5e3]", -1500.0, 6),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            ("0x10", 16.0, 4),
            ("0x.8p1", 1.0, 6),
            ("0x1p-99999999999", 0.0, 16),
            ("0xg", 0.0, 1),
            ("-", 0.0, 0),
            ("+", 0.0, 0),
            (".", 0.0, 0),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            ("infinite", f64::INFINITY, 3),
            ("-Infinity", f64::NEG_INFINITY, 9),
        ] {
            assert_eq!(strtod(text.as_bytes()), (number, bytes), "{text}");
        }
        assert!(strtod(b"nan").0.is_nan());
    }
}
