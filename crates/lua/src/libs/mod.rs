//! Owns the libraries that scripts get in addition to Lua's own, and the bounds on Lua's own functions.

mod bit;
pub mod cjson;
mod cmsgpack;
mod structs;

use super::sandbox::{pass_on, shim};
use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, Result, Table, Value};
use std::os::raw::c_int;

/// Maximum number of repeated items in a pattern. Lua's matcher recurses once for each item, and 1,000 calls take a third of a
/// megabyte of the native stack.
const PATTERN_ITEMS_MAX: usize = 1_000;

/// Wraps Lua's functions whose loops or recursion depend on an argument, so that their time and stack are bounded.
pub fn bound(lua: &Lua) -> Result<()> {
    let string: Table = lua.globals().raw_get("string")?;
    for name in ["find", "gfind", "gmatch", "gsub", "match"] {
        string.raw_set(name, shim(lua, with_pattern, [Value::Function(string.raw_get::<Function>(name)?)])?)?;
    }
    string.raw_set("rep", shim(lua, rep, [Value::Function(string.raw_get::<Function>("rep")?)])?)
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn with_pattern(state: *mut lua_State) -> c_int {
    // SAFETY: the string stays on the stack while it is read.
    unsafe {
        if ffi::lua_type(state, 2) == ffi::LUA_TSTRING && ffi::lua_toboolean(state, 4) == 0 {
            let mut bytes = 0;
            let start = ffi::lua_tolstring(state, 2, &mut bytes).cast::<u8>();
            let pattern = std::slice::from_raw_parts(start, bytes);
            let is_repeat = |byte: &&u8| matches!(byte, b'?' | b'*' | b'+' | b'-');
            if bytes > PATTERN_ITEMS_MAX && pattern.iter().filter(is_repeat).count() > PATTERN_ITEMS_MAX {
                ffi::luaL_error(state, c"pattern too complex".as_ptr());
            }
        }
        pass_on(state, 1)
    }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn rep(state: *mut lua_State) -> c_int {
    // SAFETY: reads one argument and changes another.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TSTRING && ffi::lua_objlen(state, 1) == 0 {
            // For an empty string Lua would still loop this many times.
            ffi::luaL_checknumber(state, 2);
            ffi::lua_settop(state, 1);
            return 1;
        }
        pass_on(state, 1)
    }
}

/// Makes the libraries, with the names under which scripts see them.
pub fn open(lua: &Lua) -> Result<([(&'static str, Table); 4], cjson::Reset)> {
    let (cjson, reset) = cjson::open(lua)?;
    let tables = [
        ("bit", bit::open(lua)?),
        ("cjson", cjson),
        ("cmsgpack", cmsgpack::open(lua)?),
        ("struct", structs::open(lua)?),
    ];
    Ok((tables, reset))
}
