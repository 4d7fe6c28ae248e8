//! Owns what scripts find besides Lua's own libraries, and what keeps those within bounds.

mod bit;
pub mod cjson;
mod cmsgpack;
mod structs;

use super::sandbox::{pass_on, shim};
use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, Result, Table, Value};
use std::os::raw::c_int;

/// Repeated items that a pattern may have: Lua's matcher calls itself once for each, and 1,000 calls take a third of a
/// megabyte of the processor's stack.
const PATTERN_ITEMS_MAX: usize = 1_000;

/// Lua's functions that loop, or call themselves, as often as an argument says are kept from doing so for ever.
pub fn bound(lua: &Lua) -> Result<()> {
    let string: Table = lua.globals().raw_get("string")?;
    for name in ["find", "gfind", "gmatch", "gsub", "match"] {
        string.raw_set(name, shim(lua, with_pattern, [Value::Function(string.raw_get::<Function>(name)?)])?)?;
    }
    string.raw_set("rep", shim(lua, rep, [Value::Function(string.raw_get::<Function>("rep")?)])?)
}

unsafe extern "C-unwind" fn with_pattern(state: *mut lua_State) -> c_int {
    // SAFETY: the string is on the stack as long as it is looked at.
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

unsafe extern "C-unwind" fn rep(state: *mut lua_State) -> c_int {
    // SAFETY: reads an argument, changes another.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TSTRING && ffi::lua_objlen(state, 1) == 0 {
            // However often: it would count.
            ffi::luaL_checknumber(state, 2);
            ffi::lua_settop(state, 1);
            return 1;
        }
        pass_on(state, 1)
    }
}

/// By the names that scripts know them by.
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
