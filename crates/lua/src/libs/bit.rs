//! Owns the library `bit`: operations on 32-bit integers, as LuaBitOp defines them.

use crate::sandbox::shim;
use mlua::ffi::{self, lua_State};
use mlua::{Lua, Result, Table};
use std::os::raw::c_int;

type Native = unsafe extern "C-unwind" fn(*mut lua_State) -> c_int;

pub fn open(lua: &Lua) -> Result<Table> {
    let functions: [(&str, Native); 12] = [
        ("tobit", tobit),
        ("tohex", tohex),
        ("bnot", bnot),
        ("band", band),
        ("bor", bor),
        ("bxor", bxor),
        ("lshift", lshift),
        ("rshift", rshift),
        ("arshift", arshift),
        ("rol", rol),
        ("ror", ror),
        ("bswap", bswap),
    ];
    let table = lua.create_table()?;
    for (name, function) in functions {
        table.raw_set(name, shim(lua, function, [])?)?;
    }
    Ok(table)
}

// These functions hold nothing that needs dropping, so that Lua's errors may jump over them.

/// Argument `at`, rounded to an integer, modulo 2^32. Adding 1.5 × 2^52 puts this integer into the low bits of the double.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn number(state: *mut lua_State, at: c_int) -> u32 {
    // SAFETY: raises an error if the argument is no number.
    let number = unsafe { ffi::luaL_checknumber(state, at) };
    (number + 6_755_399_441_055_744.0).to_bits() as u32
}

/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn give(state: *mut lua_State, bits: u32) -> c_int {
    // SAFETY: a C function's stack has room for it.
    unsafe { ffi::lua_pushnumber(state, f64::from(bits as i32)) };
    1
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn tobit(state: *mut lua_State) -> c_int {
    // SAFETY: as above, here and below.
    unsafe { give(state, number(state, 1)) }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn bnot(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { give(state, !number(state, 1)) }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn bswap(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { give(state, number(state, 1).swap_bytes()) }
}

/// Joins all arguments from left to right.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn fold(state: *mut lua_State, join: fn(u32, u32) -> u32) -> c_int {
    // SAFETY: as above.
    unsafe {
        let mut bits = number(state, 1);
        for at in 2..=ffi::lua_gettop(state) {
            bits = join(bits, number(state, at));
        }
        give(state, bits)
    }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn band(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { fold(state, |a, b| a & b) }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn bor(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { fold(state, |a, b| a | b) }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn bxor(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { fold(state, |a, b| a ^ b) }
}

/// Shifts the first argument by the second argument modulo 32.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn shift(state: *mut lua_State, shift: fn(u32, u32) -> u32) -> c_int {
    // SAFETY: as above.
    unsafe {
        let (bits, by) = (number(state, 1), number(state, 2));
        give(state, shift(bits, by % 32))
    }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn lshift(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { shift(state, |bits, by| bits << by) }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn rshift(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { shift(state, |bits, by| bits >> by) }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn arshift(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { shift(state, |bits, by| (bits as i32 >> by) as u32) }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn rol(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { shift(state, u32::rotate_left) }
}

/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn ror(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { shift(state, u32::rotate_right) }
}

/// The second argument is the number of digits, at most eight. If it is negative, the digits are in upper case.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn tohex(state: *mut lua_State) -> c_int {
    // SAFETY: as above; Lua copies the digits before the buffer ends.
    unsafe {
        let bits = number(state, 1);
        let wanted = if ffi::lua_type(state, 2) == ffi::LUA_TNONE { 8 } else { number(state, 2) as i32 };
        let count = wanted.unsigned_abs().min(8) as usize;
        let set: &[u8; 16] = if wanted < 0 { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
        let mut digits = [0u8; 8];
        for (at, digit) in digits[..count].iter_mut().rev().enumerate() {
            *digit = set[(bits >> (4 * at)) as usize & 15];
        }
        ffi::lua_pushlstring(state, digits.as_ptr().cast(), count);
        1
    }
}
