//! Owns the transfer of values over Lua's stack: a script's arguments, the words and replies of its commands, and its
//! result. Never knows what a command is.
//!
//! This file uses Lua's C interface directly, because mlua makes a protected call for each value: with mlua an EVAL of one GET
//! took twice as long. A Lua error is a longjmp over these functions. So none of them holds a value that needs dropping
//! while it calls Lua.

use super::calls::{Called, Calls, NOT_RUNNING, Shared};
use super::words::Words;
use mlua::ffi::{self, lua_State};
use resp::{Out, Proto};
use std::ffi::CStr;
use std::os::raw::c_int;

/// Copies the arguments of the running C function into `words`.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn take_words(state: *mut lua_State, words: &mut Words) -> Result<(), &'static CStr> {
    words.clear();
    // SAFETY: reads only existing stack positions.
    unsafe {
        let count = ffi::lua_gettop(state);
        if count == 0 {
            return Err(c"ERR Please specify at least one argument for this redis lib call");
        }
        for at in 1..=count {
            if !words.push(state, at) {
                return Err(c"ERR Lua redis lib command arguments must be strings or integers");
            }
        }
    }
    Ok(())
}

/// redis.call and redis.pcall. Upvalue 1: [`Shared`]; 2: whether an error is raised.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
pub unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: the engine keeps `Shared` as long as the interpreter. The server's side that it points to lives as long as the
    // script runs, and there is no other reference to it while this function has it.
    unsafe {
        let shared = &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<Shared>();
        let raises = ffi::lua_toboolean(state, ffi::lua_upvalueindex(2)) != 0;
        let Some(calls) = shared.calls() else {
            return fail(state, NOT_RUNNING.as_bytes(), raises, false);
        };
        if let Err(text) = take_words(state, (*calls).words()) {
            return fail(state, text.to_bytes(), raises, false);
        }
        if let Called::Ends = (*calls).call() {
            shared.ended.set(true);
            ffi::lua_pushnil(state);
            ffi::lua_error(state);
        }
        let reply: *const [u8] = (*calls).reply();
        if let [b'-', text @ .., b'\r', b'\n'] = &*reply {
            return fail(state, text, raises, true);
        }
        ffi::lua_settop(state, 0);
        push_reply(state, &*reply, &mut 0);
        1
    }
}

/// The field that marks an error that a command of the script has caused: the statistics already include it.
pub const COUNTED: &CStr = c"ignore_error_stats_update";

/// Raises or returns `{err = text}`. `counted`: see [`COUNTED`].
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn fail(state: *mut lua_State, text: &[u8], raises: bool, counted: bool) -> c_int {
    // SAFETY: a C function's stack has room for 20 values.
    unsafe {
        ffi::lua_settop(state, 0);
        ffi::lua_createtable(state, 0, 2);
        set(state, c"err", text);
        if counted {
            ffi::lua_pushboolean(state, 1);
            ffi::lua_setfield(state, -2, COUNTED.as_ptr());
        }
        if raises {
            ffi::lua_error(state);
        }
        1
    }
}

/// Sets a field of the table on top.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn set(state: *mut lua_State, name: &CStr, text: &[u8]) {
    // SAFETY: two values are pushed and popped; the caller has room.
    unsafe {
        push(state, text);
        ffi::lua_setfield(state, -2, name.as_ptr());
    }
}

/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn push(state: *mut lua_State, text: &[u8]) {
    // SAFETY: Lua copies the bytes.
    unsafe { ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len()) };
}

/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn room(state: *mut lua_State, values: c_int) {
    // SAFETY: raises an error if there is no room.
    unsafe {
        if ffi::lua_checkstack(state, values) == 0 {
            ffi::luaL_error(state, c"reached lua stack limit".as_ptr());
        }
    }
}

/// Pushes a table of strings.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
pub unsafe fn push_strings<'a>(state: *mut lua_State, strings: impl ExactSizeIterator<Item = &'a [u8]>) {
    // SAFETY: room for two values is made.
    unsafe {
        room(state, 2);
        ffi::lua_createtable(state, strings.len() as c_int, 0);
        for (at, text) in strings.enumerate() {
            push(state, text);
            ffi::lua_rawseti(state, -2, at as ffi::lua_Integer + 1);
        }
    }
}

/// Pushes the reply that begins at `at` of `reply`, which a handler wrote, and moves `at` behind it. An error reply becomes a
/// table with `err`.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn push_reply(state: *mut lua_State, reply: &[u8], at: &mut usize) {
    let tag = reply[*at];
    let line = line(reply, at);
    // SAFETY: room is made for what is pushed here; nested replies make their own.
    unsafe {
        room(state, 4);
        match tag {
            b'+' => field(state, c"ok", line),
            b'-' => field(state, c"err", line),
            b':' => ffi::lua_pushnumber(state, number(line) as f64),
            b'$' => match number(line) {
                ..0 => ffi::lua_pushboolean(state, 0),
                bytes => push(state, body(reply, at, bytes)),
            },
            b'*' | b'>' => match number(line) {
                ..0 => ffi::lua_pushboolean(state, 0),
                count => {
                    ffi::lua_createtable(state, count as c_int, 0);
                    for index in 1..=count {
                        push_reply(state, reply, at);
                        ffi::lua_rawseti(state, -2, index as ffi::lua_Integer);
                    }
                }
            },
            b'_' => ffi::lua_pushnil(state),
            b'#' => ffi::lua_pushboolean(state, c_int::from(line == b"t")),
            b',' => {
                let double = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_pushnumber(state, double);
                ffi::lua_setfield(state, -2, c"double".as_ptr());
            }
            b'(' => field(state, c"big_number", line),
            b'=' => {
                let text = body(reply, at, number(line));
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_createtable(state, 0, 2);
                set(state, c"format", &text[..3]);
                set(state, c"string", &text[4..]);
                ffi::lua_setfield(state, -2, c"verbatim_string".as_ptr());
            }
            b'%' | b'~' => {
                ffi::lua_createtable(state, 0, 1);
                let count = number(line);
                ffi::lua_createtable(state, 0, count as c_int);
                for _ in 0..count {
                    push_reply(state, reply, at);
                    match tag {
                        b'%' => push_reply(state, reply, at),
                        _ => ffi::lua_pushboolean(state, 1),
                    }
                    ffi::lua_rawset(state, -3);
                }
                ffi::lua_setfield(state, -2, if tag == b'%' { c"map" } else { c"set" }.as_ptr());
            }
            _ => unreachable!("handlers write RESP"),
        }
    }
}

/// Pushes a table with one field.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn field(state: *mut lua_State, name: &CStr, text: &[u8]) {
    // SAFETY: as in `set`.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        set(state, name, text);
    }
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

/// Maximum nesting of a returned value, as in Redis. Deeper values get an error.
const DEPTH_MAX: usize = 1_900;

/// Writes the value on top of the stack, a script's result, as the reply. `calls` knows the protocol that the script chose by
/// setresp, and is told of errors.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
pub unsafe fn write_reply(state: *mut lua_State, out: &mut Out<'_>, calls: *mut dyn Calls, depth: usize) {
    // SAFETY: room is made for a key and a value of a table, or a field and another.
    unsafe {
        if depth > DEPTH_MAX || ffi::lua_checkstack(state, 6) == 0 {
            const TEXT: &str = "ERR reached lua stack limit";
            (*calls).note_error(TEXT.as_bytes(), false);
            return out.error(TEXT);
        }
        match ffi::lua_type(state, -1) {
            ffi::LUA_TSTRING => out.bulk(text(state, -1)),
            ffi::LUA_TNUMBER => out.int(truncated(ffi::lua_tonumber(state, -1))),
            ffi::LUA_TBOOLEAN => match ((*calls).proto(), ffi::lua_toboolean(state, -1) != 0) {
                (Proto::Resp3, value) => out.boolean(value),
                (Proto::Resp2, true) => out.int(1),
                (Proto::Resp2, false) => out.null(),
            },
            ffi::LUA_TTABLE => write_table(state, out, calls, depth),
            _ => out.null(),
        }
    }
}

/// The string at `at`. The reference is valid while the string is on the stack or in a table.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn text<'s>(state: *mut lua_State, at: c_int) -> &'s [u8] {
    let mut len = 0;
    // SAFETY: the value is a string, so Lua does not convert it.
    unsafe {
        let start = ffi::lua_tolstring(state, at, &mut len).cast::<u8>();
        std::slice::from_raw_parts(start, len)
    }
}

/// The bytes before the first NUL: Redis treats this text as a C string.
pub fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Pushes a field of the table on top of the stack if it has the wanted type. Returns whether it has.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn get(state: *mut lua_State, name: &CStr, wanted: c_int) -> bool {
    // SAFETY: the caller has made room.
    unsafe {
        ffi::lua_pushstring(state, name.as_ptr());
        ffi::lua_rawget(state, -2);
        let found = ffi::lua_type(state, -1) == wanted;
        if !found {
            ffi::lua_settop(state, -2);
        }
        found
    }
}

/// Whether the error table on top of the stack is [`COUNTED`].
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn is_counted(state: *mut lua_State) -> bool {
    // SAFETY: the caller has made room for a value.
    unsafe {
        let counted = get(state, COUNTED, ffi::LUA_TBOOLEAN);
        if counted {
            ffi::lua_settop(state, -2);
        }
        counted
    }
}

/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn write_table(state: *mut lua_State, out: &mut Out<'_>, calls: *mut dyn Calls, depth: usize) {
    // SAFETY: `write_reply` has made room; every value that is pushed is popped.
    unsafe {
        let top = ffi::lua_gettop(state);
        if get(state, c"err", ffi::LUA_TSTRING) {
            let error = until_nul(text(state, -1));
            ffi::lua_pushvalue(state, -2);
            (*calls).note_error(error, is_counted(state));
            out.error_bytes(error);
        } else if get(state, c"ok", ffi::LUA_TSTRING) {
            out.raw(b"+");
            for (at, piece) in until_nul(text(state, -1)).split(|byte| matches!(byte, b'\r' | b'\n')).enumerate() {
                out.raw(if at == 0 { b"" } else { b" " });
                out.raw(piece);
            }
            out.raw(b"\r\n");
        } else if get(state, c"double", ffi::LUA_TNUMBER) {
            out.double(ffi::lua_tonumber(state, -1));
        } else if get(state, c"map", ffi::LUA_TTABLE) {
            let mark = out.map_deferred();
            let count = write_pairs(state, out, calls, depth, true);
            out.finish(mark, count);
        } else if get(state, c"set", ffi::LUA_TTABLE) {
            let mark = out.set_deferred();
            let count = write_pairs(state, out, calls, depth, false);
            out.finish(mark, count);
        } else if get(state, c"big_number", ffi::LUA_TSTRING) {
            // A RESP3 big number is one line, so a line break in it is replaced by a space.
            out.big_number(&String::from_utf8_lossy(text(state, -1)));
        } else if get(state, c"verbatim_string", ffi::LUA_TTABLE)
            && get(state, c"string", ffi::LUA_TSTRING)
            && ({
                ffi::lua_pushvalue(state, -2);
                get(state, c"format", ffi::LUA_TSTRING)
            })
        {
            // The format is always three bytes.
            let mut format = [b' '; 3];
            for (byte, given) in format.iter_mut().zip(text(state, -1)) {
                *byte = if given.is_ascii_graphic() { *given } else { b' ' };
            }
            out.verbatim(std::str::from_utf8(&format).expect("ASCII"), text(state, -3));
        } else {
            ffi::lua_settop(state, top);
            let mark = out.array_deferred();
            let mut count = 0;
            loop {
                ffi::lua_rawgeti(state, -1, count as ffi::lua_Integer + 1);
                if ffi::lua_type(state, -1) == ffi::LUA_TNIL {
                    break;
                }
                write_reply(state, out, calls, depth + 1);
                ffi::lua_settop(state, top);
                count += 1;
            }
            out.finish(mark, count);
        }
        ffi::lua_settop(state, top);
    }
}

/// Writes the table on top of the stack as the pairs of a map or the members of a set.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn write_pairs(
    state: *mut lua_State,
    out: &mut Out<'_>,
    calls: *mut dyn Calls,
    depth: usize,
    values: bool,
) -> usize {
    let mut count = 0;
    // SAFETY: as above; the key stays on the stack for the next step.
    unsafe {
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, -2) != 0 {
            ffi::lua_pushvalue(state, -2);
            write_reply(state, out, calls, depth + 1);
            ffi::lua_settop(state, -2);
            if values {
                write_reply(state, out, calls, depth + 1);
            }
            ffi::lua_settop(state, -2);
            count += 1;
        }
    }
    count
}

/// The same as a cast in C on x86: a number out of range becomes the smallest integer.
fn truncated(number: f64) -> i64 {
    if number.abs() < 9_223_372_036_854_775_808.0 { number as i64 } else { i64::MIN }
}

/// An error that a script raised.
#[derive(Default)]
pub struct Raised {
    /// The whole error text including the code.
    pub text: Vec<u8>,
    /// `@user_script:1`.
    pub place: Option<String>,
    /// A command of the script has caused the error, so the statistics already include it.
    pub counted: bool,
}

/// Describes the error on top of the stack. It is a table from the engine's handler, except after out of memory.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
pub unsafe fn describe(state: *mut lua_State, raised: &mut Raised) {
    // SAFETY: the caller has made room for three values.
    unsafe {
        match ffi::lua_type(state, -1) {
            // Out of memory: the error handler did not run.
            ffi::LUA_TSTRING => {
                raised.text.extend_from_slice(b"ERR ");
                raised.text.extend_from_slice(text(state, -1));
            }
            ffi::LUA_TTABLE => {
                match get(state, c"err", ffi::LUA_TSTRING) {
                    true => {
                        raised.text.extend_from_slice(text(state, -1));
                        ffi::lua_settop(state, -2);
                    }
                    false => raised.text.extend_from_slice(b"ERR an error object without a text in its field 'err'"),
                }
                raised.counted = is_counted(state);
                if get(state, c"source", ffi::LUA_TSTRING) {
                    let source: *const [u8] = text(state, -1);
                    ffi::lua_settop(state, -2);
                    if get(state, c"line", ffi::LUA_TNUMBER) {
                        let line = ffi::lua_tonumber(state, -1);
                        raised.place = Some(format!("{}:{line}", String::from_utf8_lossy(&*source)));
                        ffi::lua_settop(state, -2);
                    }
                }
            }
            _ => raised.text.extend_from_slice(b"ERR execution failure"),
        }
    }
}
