//! Owns the sandbox: the Lua functions that a script can reach, read-only tables, and error texts as in Redis.
//! Never knows a command.
//!
//! A locked table is an empty table whose metatable reads from the real table and refuses writes. Functions that bypass
//! metatables (rawset, table.insert …) are wrapped: the wrapper first looks whether the table is locked.

use super::calls::Shared;
use mlua::ffi::{self, lua_State};
use mlua::{Function, LightUserData, Lua, MultiValue, Result, Table, Value};
use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::rc::Rc;

/// An error that a native function raises in the script.
pub enum Raise {
    /// A text. The position in the script is put in front, as by luaL_error.
    At(String),
    /// An error table, raised unchanged.
    Value(Value),
    /// A failure of Lua itself, for example out of memory.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Raise {
    fn from(error: mlua::Error) -> Raise {
        Raise::Lua(error)
    }
}

impl From<String> for Raise {
    fn from(text: String) -> Raise {
        Raise::At(text)
    }
}

/// The error "bad argument #1 to 'f' (…)".
pub fn bad_argument(at: usize, function: &str, why: &str) -> Raise {
    Raise::At(format!("bad argument #{at} to '{function}' ({why})"))
}

pub fn type_error(at: usize, function: &str, wanted: &str, args: &MultiValue) -> Raise {
    let got = args.get(at - 1).map_or("no value", lua_type);
    bad_argument(at, function, &format!("{wanted} expected, got {got}"))
}

/// The name of a value's type in Lua.
pub fn lua_type(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// Argument `at` as a number. Accepts a string that can be converted.
pub fn number(args: &MultiValue, at: usize, function: &str) -> std::result::Result<f64, Raise> {
    match args.get(at - 1) {
        Some(Value::Integer(value)) => Ok(*value as f64),
        Some(Value::Number(value)) => Ok(*value),
        Some(Value::String(text)) => {
            let text = text.to_string_lossy();
            text.trim().parse().map_err(|_| type_error(at, function, "number", args))
        }
        _ => Err(type_error(at, function, "number", args)),
    }
}

/// Argument `at` as a string. Accepts a number.
pub fn string(lua: &Lua, args: &MultiValue, at: usize, function: &str) -> std::result::Result<mlua::LuaString, Raise> {
    match args.get(at - 1) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value @ (Value::Integer(_) | Value::Number(_))) => {
            Ok(lua.coerce_string(value.clone())?.expect("numbers have a form"))
        }
        _ => Err(type_error(at, function, "string", args)),
    }
}

pub type Native = std::result::Result<MultiValue, Raise>;

/// A native function. It gets its arguments, and the state that the functions of its library share.
pub type NativeFn<C> = fn(&Lua, &MultiValue, &C) -> Native;

/// Puts native functions for scripts into a table. Their errors are strings or tables, as those of Lua's own functions.
///
/// They share one mlua function, because each mlua function takes 120 bytes of the interpreter. Scripts see a closure of 72
/// bytes, which contains that function and a number.
pub fn add_natives<C: 'static, const N: usize>(
    lua: &Lua,
    table: &Table,
    context: Rc<C>,
    functions: [(&str, NativeFn<C>); N],
) -> Result<()> {
    let runs = functions.map(|(_, run)| run);
    let all = lua.create_function(move |lua, (number, args): (usize, MultiValue)| {
        let error = match runs[number](lua, &args, &context) {
            Ok(mut values) => {
                values.push_front(Value::Boolean(true));
                return Ok(values);
            }
            Err(Raise::Lua(error)) => return Err(error),
            Err(Raise::Value(error)) => error,
            // Level 0 is this function, 1 is `raise_or_return`, 2 is the caller.
            Err(Raise::At(text)) => Value::String(lua.create_string(format!("{}{text}", position(lua, 2)))?),
        };
        Ok([Value::Boolean(false), error].into_iter().collect())
    })?;
    for (number, (name, _)) in functions.into_iter().enumerate() {
        let upvalues = [Value::Function(all.clone()), Value::Integer(number as i64)];
        table.raw_set(name, shim(lua, raise_or_return, upvalues)?)?;
    }
    Ok(())
}

/// `user_script:3: ` if stack level `level` is a Lua function, otherwise empty.
pub fn position(lua: &Lua, level: usize) -> String {
    let place = lua.inspect_stack(level, |debug| {
        let line = debug.current_line()?;
        Some(format!("{}:{line}: ", debug.source().short_src?))
    });
    place.flatten().unwrap_or_default()
}

/// A C function with upvalues.
pub fn shim<const N: usize>(
    lua: &Lua,
    function: unsafe extern "C-unwind" fn(*mut lua_State) -> c_int,
    upvalues: [Value; N],
) -> Result<Function> {
    let upvalues: MultiValue = upvalues.into_iter().collect();
    // SAFETY: the upvalues are on the stack. The closure pops N values and pushes one.
    unsafe { lua.exec_raw(upvalues, |state| ffi::lua_pushcclosure(state, function, N as c_int)) }
}

// The functions below hold nothing that needs dropping, so that Lua's errors may jump over them. They are C functions
// and not Lua functions, so that error texts name the script's line.

/// Upvalue 1: a function that returns true and results, or false and an error; 2: its first argument.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn raise_or_return(state: *mut lua_State) -> c_int {
    // SAFETY: a C function's stack has room for 20 more values than its arguments.
    unsafe {
        let count = ffi::lua_gettop(state);
        for upvalue in [1, 2] {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(upvalue));
            ffi::lua_insert(state, upvalue);
        }
        ffi::lua_call(state, count + 1, ffi::LUA_MULTRET);
        if ffi::lua_toboolean(state, 1) == 0 {
            ffi::lua_settop(state, 2);
            ffi::lua_error(state);
        }
        ffi::lua_gettop(state) - 1
    }
}

/// Whether the value at `at` is a key of the table in upvalue `locked`.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn is_locked(state: *mut lua_State, at: c_int, locked: c_int) -> bool {
    // SAFETY: as above; every pushed value is popped.
    unsafe {
        if ffi::lua_type(state, at) != ffi::LUA_TTABLE {
            return false;
        }
        ffi::lua_pushvalue(state, at);
        ffi::lua_rawget(state, ffi::lua_upvalueindex(locked));
        let found = ffi::lua_toboolean(state, -1) != 0;
        ffi::lua_settop(state, -2);
        found
    }
}

const READ_ONLY: &std::ffi::CStr = c"Attempt to modify a readonly table";

/// Calls the C function in an upvalue with the arguments of this call. That function must have no upvalues of its own.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
pub unsafe fn pass_on(state: *mut lua_State, upvalue: c_int) -> c_int {
    // SAFETY: the function finds its arguments where the caller put them.
    unsafe {
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(upvalue)) {
            Some(function) => function(state),
            None => 0,
        }
    }
}

/// Refuses a locked table. Upvalue 1: the locked tables; 2: a Lua function that changes its first argument.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn guarded(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        if is_locked(state, 1, 1) {
            ffi::lua_pushstring(state, READ_ONLY.as_ptr());
            ffi::lua_error(state);
        }
        pass_on(state, 2)
    }
}

/// How far below position 1 table.insert may insert. The bound limits the loop that moves all later items one by one.
const INSERT_BELOW_MAX: f64 = 1e6;

/// `guarded` for table.insert.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn insert(state: *mut lua_State) -> c_int {
    // SAFETY: reads an argument.
    unsafe {
        if ffi::lua_gettop(state) == 3 && ffi::lua_tonumber(state, 2) < -INSERT_BELOW_MAX {
            ffi::luaL_error(state, c"bad argument #2 to 'insert' (position out of bounds)".as_ptr());
        }
        guarded(state)
    }
}

/// `__newindex` of locked tables: raises an error.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn refuse_write(state: *mut lua_State) -> c_int {
    // SAFETY: pushes two values, raises one.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_pushstring(state, READ_ONLY.as_ptr());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// `__index` of the real globals: raises an error, because the global does not exist.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn no_such_global(state: *mut lua_State) -> c_int {
    // SAFETY: pushes four values, raises one.
    unsafe {
        ffi::lua_settop(state, 2);
        ffi::luaL_where(state, 1);
        ffi::lua_pushstring(state, c"Script attempted to access nonexistent global variable '".as_ptr());
        if ffi::lua_isstring(state, 2) != 0 {
            ffi::lua_pushvalue(state, 2);
        } else {
            ffi::lua_pushstring(state, c"?".as_ptr());
        }
        ffi::lua_pushstring(state, c"'".as_ptr());
        ffi::lua_concat(state, 4);
        ffi::lua_error(state)
    }
}

/// No more values fit on Lua's stack, which also holds the arguments.
const UNPACK_MAX: f64 = 8_000.0;

/// Replaces Lua's unpack, which computes the count as an int without a check for overflow.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
    // SAFETY: the stack is checked before values are pushed.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        let first = ffi::luaL_optnumber(state, 2, 1.0);
        let last = match ffi::lua_type(state, 3) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => ffi::lua_objlen(state, 1) as f64,
            _ => ffi::luaL_optnumber(state, 3, 0.0),
        };
        // The same as a cast in C where C defines the result.
        let int = |value: f64| value.clamp(-2_147_483_648.0, 2_147_483_647.0) as i64;
        let (first, last) = (int(first), int(last));
        if first > last {
            return 0;
        }
        let count = last - first + 1;
        if count as f64 > UNPACK_MAX || ffi::lua_checkstack(state, count as c_int) == 0 {
            ffi::luaL_where(state, 1);
            ffi::lua_pushstring(state, c"too many results to unpack".as_ptr());
            ffi::lua_concat(state, 2);
            ffi::lua_error(state);
        }
        for at in first..=last {
            ffi::lua_rawgeti(state, 1, at as ffi::lua_Integer);
        }
        count as c_int
    }
}

/// Whether the running script must end, even if it catches errors. Upvalue 1: [`Shared`].
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn is_ended(state: *mut lua_State) -> bool {
    // SAFETY: the engine keeps `Shared` as long as the interpreter.
    unsafe { (*ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<Shared>()).ended.get() }
}

/// Converts the error on top of the stack to a form that scripts may see: an error of mlua becomes its text. Upvalue 2: the
/// function that converts. If the running script must end, it raises the error again.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn catch(state: *mut lua_State) {
    // SAFETY: a C function's stack has room for two more values.
    unsafe {
        if is_ended(state) {
            ffi::lua_error(state);
        }
        as_text(state);
    }
}

/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn as_text(state: *mut lua_State) {
    // SAFETY: as above.
    unsafe {
        if ffi::lua_type(state, -1) == ffi::LUA_TUSERDATA {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
            ffi::lua_insert(state, -2);
            ffi::lua_call(state, 1, 1);
        }
    }
}

/// Replaces Lua's pcall. For an error table it returns the table's text, as scripts written for older versions of Redis
/// expect. Upvalues: see [`catch`].
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: as above. Lua makes no room for the value that is added to the results.
    unsafe {
        ffi::luaL_checkany(state, 1);
        if ffi::lua_pcall(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET, 0) == ffi::LUA_OK {
            ffi::luaL_checkstack(state, 1, c"too many results".as_ptr());
            ffi::lua_pushboolean(state, 1);
            ffi::lua_insert(state, 1);
            return ffi::lua_gettop(state);
        }
        catch(state);
        if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            ffi::lua_pushstring(state, c"err".as_ptr());
            ffi::lua_rawget(state, -2);
            if ffi::lua_type(state, -1) != ffi::LUA_TSTRING {
                ffi::lua_settop(state, -2);
            }
        }
        ffi::lua_pushboolean(state, 0);
        ffi::lua_insert(state, -2);
        2
    }
}

/// Replaces Lua's xpcall. Upvalues: see [`catch`].
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn xpcall(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        for upvalue in [1, 2] {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(upvalue));
            ffi::lua_insert(state, -2);
        }
        ffi::lua_pushcclosure(state, handled, 3);
        let is_ok = call_protected(state) == ffi::LUA_OK;
        if !is_ok && is_ended(state) {
            ffi::lua_error(state);
        }
        ffi::luaL_checkstack(state, 1, c"too many results".as_ptr());
        ffi::lua_pushboolean(state, c_int::from(is_ok));
        ffi::lua_replace(state, 1);
        ffi::lua_gettop(state)
    }
}

/// The error handler of `xpcall`. Upvalues 1 and 2: see [`catch`]; 3: the script's handler.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn handled(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        if !is_ended(state) {
            as_text(state);
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
            ffi::lua_insert(state, -2);
            ffi::lua_call(state, 1, 1);
        }
        1
    }
}

/// Calls the function at position 1 with the error handler at position 2. The stack position of the handler, or a value in
/// its place, is below the results.
///
/// # Safety
/// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
unsafe fn call_protected(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::lua_insert(state, 1);
        ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1)
    }
}

/// (function, handler) → true and the results, or false and an error. Not for scripts.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
pub unsafe extern "C-unwind" fn protected(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let status = call_protected(state);
        ffi::luaL_checkstack(state, 1, c"too many results".as_ptr());
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_replace(state, 1);
        ffi::lua_gettop(state)
    }
}

/// Replaces coroutine.resume. Upvalues 1 and 2: see [`catch`]; 3: Lua's resume.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn resume(state: *mut lua_State) -> c_int {
    // SAFETY: Lua's resume leaves its results, at least two, on top of the stack.
    unsafe {
        let count = pass_on(state, 3);
        if ffi::lua_toboolean(state, -count) == 0 {
            catch(state);
        }
        count
    }
}

/// Replaces Lua's getmetatable, so that it never returns the real metatable of a locked table. Upvalue 1: the locked
/// tables.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn getmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::luaL_checkany(state, 1);
        ffi::lua_settop(state, 1);
        if ffi::lua_getmetatable(state, 1) == 0 {
            ffi::lua_pushnil(state);
            return 1;
        }
        if ffi::luaL_getmetafield_(state, 1, c"__metatable".as_ptr()) != 0
            && ffi::lua_type(state, -1) != ffi::LUA_TTABLE
        {
            return 1;
        }
        // The field of the metatable that getmetatable returns instead of it.
        ffi::lua_pushvalue(state, -1);
        ffi::lua_rawget(state, ffi::lua_upvalueindex(1));
        if ffi::lua_toboolean(state, -1) == 0 {
            ffi::lua_settop(state, -2);
            if is_locked(state, 1, 1) {
                ffi::lua_pushnil(state);
            }
        }
        1
    }
}

/// Replaces Lua's load: the joined pieces are refused if they are bytecode. Upvalue 1: see [`loadstring`].
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn load(state: *mut lua_State) -> c_int {
    // SAFETY: as above. The buffer holds nothing that needs dropping; between its calls the stack is as it left it.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        ffi::lua_settop(state, 2);
        if ffi::lua_toboolean(state, 2) == 0 {
            ffi::lua_pushstring(state, c"=(load)".as_ptr());
            ffi::lua_replace(state, 2);
        }
        let mut code = MaybeUninit::<ffi::luaL_Buffer>::uninit();
        let code = code.as_mut_ptr();
        ffi::luaL_buffinit(state, code);
        loop {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_call(state, 0, 1);
            match ffi::lua_type(state, -1) {
                ffi::LUA_TNIL => break,
                _ if ffi::lua_isstring(state, -1) == 0 => {
                    ffi::lua_pushnil(state);
                    ffi::lua_pushstring(state, c"reader function must return a string".as_ptr());
                    return 2;
                }
                _ if ffi::lua_objlen(state, -1) == 0 => break,
                _ => ffi::luaL_addvalue(code),
            }
        }
        ffi::lua_settop(state, -2);
        ffi::luaL_pushresult(code);
        ffi::lua_replace(state, 1);
        loadstring(state)
    }
}

/// Replaces Lua's collectgarbage: scripts cannot stop or tune the collector. Upvalue 1: Lua's.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn collectgarbage(state: *mut lua_State) -> c_int {
    // SAFETY: the string stays on the stack while it is read.
    unsafe {
        let is_known = match ffi::lua_type(state, 1) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => true,
            ffi::LUA_TSTRING => {
                let what = std::ffi::CStr::from_ptr(ffi::lua_tolstring(state, 1, std::ptr::null_mut()));
                [c"collect", c"step", c"count"].contains(&what)
            }
            _ => false,
        };
        if is_known {
            return pass_on(state, 1);
        }
        ffi::lua_pushnumber(state, 0.0);
        1
    }
}

/// Replaces a locked table by its real table and calls a Lua function. Upvalue 1: the locked tables; 2: the function, which
/// only reads its first argument.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn through(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TTABLE {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_rawget(state, ffi::lua_upvalueindex(1));
            match ffi::lua_toboolean(state, -1) {
                0 => ffi::lua_settop(state, -2),
                _ => ffi::lua_replace(state, 1),
            }
        }
        pass_on(state, 2)
    }
}

/// Replaces Lua's pairs. Upvalue 1: next; 2: the locked tables; 3: next for locked tables.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn pairs(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        let next = if is_locked(state, 1, 2) { 3 } else { 1 };
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(next));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

/// Upvalue 1: Lua's loadstring. Refuses bytecode, because crafted bytecode can break out of the interpreter.
///
/// # Safety
/// Only Lua calls it: with a live state, and the upvalues that the closure was made with.
unsafe extern "C-unwind" fn loadstring(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let mut bytes = 0;
        let code = ffi::luaL_checklstring(state, 1, &mut bytes);
        if bytes > 0 && *code.cast::<u8>() == 27 {
            ffi::lua_pushnil(state);
            ffi::lua_pushstring(state, c"bytecode is not loaded".as_ptr());
            return 2;
        }
        pass_on(state, 1)
    }
}

/// The tables and functions of the sandbox that change between scripts.
pub struct Sandbox {
    /// The table that globals read from: Lua's functions, the libraries, `redis`, and KEYS and ARGV of the running script.
    pub builtins: Table,
    /// The metatable of the globals. Its `__index` is `builtins`, or the table that a library sees while it is loaded.
    pub globals_metatable: Table,
    locked: Table,
    refuse_write: Function,
    /// The metatable of tables without a name that was asked for.
    absent: Table,
}

/// Lua's globals that scripts can reach, as they are or replaced.
const REACHABLE: [&str; 26] = [
    "_VERSION",
    "assert",
    "collectgarbage",
    "coroutine",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "load",
    "loadstring",
    "math",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
];

impl Sandbox {
    pub fn new(lua: &Lua, shared: &Rc<Shared>) -> Result<Sandbox> {
        // Lua's own table of globals becomes the table that globals read from, because its functions keep it alive anyway.
        let builtins = lua.globals();
        for pair in builtins.pairs::<Value, Value>() {
            let name = pair?.0;
            if !REACHABLE.iter().any(|known| matches!(&name, Value::String(name) if name == *known)) {
                builtins.raw_set(name, Value::Nil)?;
            }
        }
        let absent = lua.create_table_with_capacity(0, 1)?;
        absent.raw_set("__index", shim(lua, no_such_global, [])?)?;
        let sandbox = Sandbox {
            globals_metatable: lua.create_table_with_capacity(0, 2)?,
            refuse_write: shim(lua, refuse_write, [])?,
            locked: lua.create_table()?,
            builtins,
            absent,
        };
        sandbox.replace(lua, shared)?;

        // SAFETY: pushes a string, and replaces it by its metatable.
        let string_metatable: Table = unsafe {
            lua.exec_raw((), |state| {
                ffi::lua_pushstring(state, c"".as_ptr());
                ffi::lua_getmetatable(state, -1);
                ffi::lua_replace(state, -2);
            })?
        };
        let Sandbox { builtins, locked, globals_metatable, .. } = &sandbox;
        for name in ["string", "table", "math", "coroutine"] {
            builtins.raw_set(name, sandbox.lock(lua, &builtins.raw_get(name)?)?)?;
        }
        // The table that getmetatable returns for strings.
        let facade = lua.create_table_with_capacity(0, 1)?;
        facade.raw_set("__index", builtins.raw_get::<Value>("string")?)?;
        locked.raw_set(string_metatable, sandbox.lock(lua, &facade)?)?;

        // The table of globals stays empty; its metatable reads from `builtins`.
        let seen = lua.create_table()?;
        builtins.raw_set("_G", &seen)?;
        sandbox.only(builtins)?;
        globals_metatable.raw_set("__index", builtins)?;
        globals_metatable.raw_set("__newindex", &sandbox.refuse_write)?;
        seen.set_metatable(Some(globals_metatable.clone()))?;
        locked.raw_set(&seen, builtins)?;
        locked.raw_set(globals_metatable, sandbox.lock(lua, &sandbox.absent)?)?;
        lua.set_globals(seen)?;
        Ok(sandbox)
    }

    /// Replaces Lua's functions that could reach past the sandbox.
    fn replace(&self, lua: &Lua, shared: &Rc<Shared>) -> Result<()> {
        let Sandbox { builtins, locked, .. } = self;
        let (table, coroutine): (Table, Table) = (builtins.raw_get("table")?, builtins.raw_get("coroutine")?);
        let locked = || Value::Table(locked.clone());
        let wrap = |of: &Table, name: &str, how| {
            let real = of.raw_get::<Function>(name)?;
            of.raw_set(name, shim(lua, how, [locked(), Value::Function(real)])?)
        };
        for name in ["rawset", "setmetatable"] {
            wrap(builtins, name, guarded)?;
        }
        for name in ["remove", "sort", "setn"] {
            wrap(&table, name, guarded)?;
        }
        wrap(&table, "insert", insert)?;
        let next: Function = builtins.raw_get("next")?;
        for name in ["next", "rawget"] {
            wrap(builtins, name, through)?;
        }
        let seen_through: Function = builtins.raw_get("next")?;
        let nexts = [Value::Function(next), locked(), Value::Function(seen_through)];
        builtins.raw_set("pairs", shim(lua, pairs, nexts)?)?;
        builtins.raw_set("getmetatable", shim(lua, getmetatable, [locked()])?)?;
        builtins.raw_set("unpack", shim(lua, unpack, [])?)?;
        let loads = Value::Function(builtins.raw_get("loadstring")?);
        builtins.raw_set("loadstring", shim(lua, loadstring, [loads.clone()])?)?;
        builtins.raw_set("load", shim(lua, load, [loads])?)?;
        let collects = Value::Function(builtins.raw_get("collectgarbage")?);
        builtins.raw_set("collectgarbage", shim(lua, collectgarbage, [collects])?)?;

        let shared = || Value::LightUserData(LightUserData(Rc::as_ptr(shared).cast_mut().cast()));
        let as_text = lua.create_function(|lua, value: Value| match value {
            Value::Error(error) => Ok(Value::String(lua.create_string(plain(&error))?)),
            value => Ok(value),
        })?;
        let as_text = || Value::Function(as_text.clone());
        builtins.raw_set("pcall", shim(lua, pcall, [shared(), as_text()])?)?;
        builtins.raw_set("xpcall", shim(lua, xpcall, [shared(), as_text()])?)?;
        let resumes = Value::Function(coroutine.raw_get("resume")?);
        coroutine.raw_set("resume", shim(lua, resume, [shared(), as_text(), resumes])?)
    }

    /// Makes a read-only table with the contents of `real`.
    pub fn lock(&self, lua: &Lua, real: &Table) -> Result<Table> {
        let proxy = lua.create_table()?;
        let metatable = lua.create_table_with_capacity(0, 2)?;
        metatable.raw_set("__index", real)?;
        metatable.raw_set("__newindex", &self.refuse_write)?;
        proxy.set_metatable(Some(metatable))?;
        self.locked.raw_set(&proxy, real)?;
        Ok(proxy)
    }

    /// From now on globals read only from `table`.
    pub fn only(&self, table: &Table) -> Result<()> {
        table.set_metatable(Some(self.absent.clone()))
    }
}

/// The text of Lua's error.
pub const NOT_ENOUGH_MEMORY: &str = "not enough memory";

/// The error text as in plain Lua, without the text that mlua adds.
pub fn plain(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => plain(cause),
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::MemoryError(_) => NOT_ENOUGH_MEMORY.to_owned(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        error => error.to_string(),
    }
}
