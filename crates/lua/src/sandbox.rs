//! Owns the sandbox: the Lua functions that a script can reach, read-only tables, and error texts as in Redis.
//! Never knows a command.
//!
//! A locked table is an empty table whose metatable reads from the real table and refuses writes. Functions that bypass
//! metatables (rawset, table.insert …) are wrapped: the wrapper first looks whether the table is locked.

use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, MultiValue, Result, Table, Value};
use std::os::raw::c_int;

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

/// Makes a native function for scripts. Its errors are strings or tables, as those of Lua's own functions.
pub fn native(lua: &Lua, run: impl Fn(&Lua, MultiValue) -> Native + 'static) -> Result<Function> {
    let inner = lua.create_function(move |lua, args: MultiValue| {
        let error = match run(lua, args) {
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
    shim(lua, raise_or_return, [Value::Function(inner)])
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

/// Upvalue 1: a function that returns true and results, or false and an error.
unsafe extern "C-unwind" fn raise_or_return(state: *mut lua_State) -> c_int {
    // SAFETY: a C function's stack has room for 20 more values than its arguments.
    unsafe {
        let count = ffi::lua_gettop(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, count, ffi::LUA_MULTRET);
        if ffi::lua_toboolean(state, 1) == 0 {
            ffi::lua_settop(state, 2);
            ffi::lua_error(state);
        }
        ffi::lua_gettop(state) - 1
    }
}

/// Whether the value at `at` is a key of the table in upvalue `locked`.
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

/// Lua's pcall, but it also makes room on the stack for the value that it adds to the results.
unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let status = ffi::lua_pcall(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET, 0);
        ffi::luaL_checkstack(state, 1, c"too many results".as_ptr());
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_insert(state, 1);
        ffi::lua_gettop(state)
    }
}

/// Lua's xpcall, with the same difference.
unsafe extern "C-unwind" fn xpcall(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1);
        ffi::luaL_checkstack(state, 1, c"too many results".as_ptr());
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_replace(state, 1);
        ffi::lua_gettop(state)
    }
}

/// Replaces a locked table by its real table and calls a Lua function. Upvalue 1: the locked tables; 2: the function, which
/// only reads its first argument.
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
    /// (function, handler) → true and the results, or false and an error.
    pub xpcall: Function,
    locked: Table,
    refuse_write: Function,
    no_such_global: Function,
}

/// Lua's functions that scripts may call directly.
const PLAIN: [&str; 9] = ["assert", "error", "gcinfo", "ipairs", "rawequal", "select", "tonumber", "tostring", "type"];

impl Sandbox {
    /// `killed` says whether the running script must end, even if it catches errors.
    pub fn new(lua: &Lua, killed: impl Fn() -> bool + 'static) -> Result<Sandbox> {
        let globals = lua.globals();
        globals.raw_set("pcall", shim(lua, pcall, [])?)?;
        globals.raw_set("xpcall", shim(lua, xpcall, [])?)?;
        let locked = lua.create_table()?;
        let builtins = lua.create_table()?;
        for name in PLAIN {
            builtins.raw_set(name, globals.raw_get::<Function>(name)?)?;
        }
        builtins.raw_set("_VERSION", globals.raw_get::<Value>("_VERSION")?)?;
        let sandbox = Sandbox {
            globals_metatable: lua.create_table()?,
            xpcall: globals.raw_get("xpcall")?,
            refuse_write: shim(lua, refuse_write, [])?,
            no_such_global: shim(lua, no_such_global, [])?,
            builtins: builtins.clone(),
            locked: locked.clone(),
        };
        let guard = |how, function| shim(lua, how, [Value::Table(locked.clone()), Value::Function(function)]);
        for name in ["rawset", "setmetatable"] {
            builtins.raw_set(name, guard(guarded, globals.raw_get(name)?)?)?;
        }
        let table: Table = globals.raw_get("table")?;
        for name in ["remove", "sort", "setn"] {
            table.raw_set(name, guard(guarded, table.raw_get(name)?)?)?;
        }
        table.raw_set("insert", guard(insert, table.raw_get("insert")?)?)?;
        builtins.raw_set("unpack", shim(lua, unpack, [])?)?;
        let seen_through = |name: &str| {
            let real = globals.raw_get::<Function>(name)?;
            shim(lua, through, [Value::Table(locked.clone()), Value::Function(real)])
        };
        for name in ["next", "rawget"] {
            builtins.raw_set(name, seen_through(name)?)?;
        }
        let loads = shim(lua, loadstring, [globals.raw_get("loadstring")?])?;
        globals.raw_set("loadstring", &loads)?;
        builtins.raw_set("loadstring", loads)?;
        let as_text = lua.create_function(|lua, value: Value| match value {
            Value::Error(error) => Ok(Value::String(lua.create_string(plain(&error))?)),
            value => Ok(value),
        })?;
        let is_killed = lua.create_function(move |_, ()| Ok(killed()))?;
        let string_metatable: Table = {
            let of: Function = globals.raw_get("getmetatable")?;
            of.call("")?
        };
        let made: Table = lua.load(include_str!("sandbox.lua")).set_name("=sandbox").call((
            globals.clone(),
            locked.clone(),
            as_text,
            is_killed,
        ))?;
        for pair in made.pairs::<mlua::LuaString, Value>() {
            let (name, value) = pair?;
            builtins.raw_set(name, value)?;
        }
        let next: Function = globals.raw_get("next")?;
        let pairs = shim(
            lua,
            pairs,
            [Value::Function(next), Value::Table(locked.clone()), Value::Function(seen_through("next")?)],
        )?;
        builtins.raw_set("pairs", pairs)?;
        for name in ["string", "table", "math"] {
            builtins.raw_set(name, sandbox.lock(lua, &globals.raw_get(name)?)?)?;
        }
        let coroutine: Table = builtins.raw_get("coroutine")?;
        builtins.raw_set("coroutine", sandbox.lock(lua, &coroutine)?)?;
        // The table that getmetatable returns for strings.
        let facade = lua.create_table()?;
        facade.raw_set("__index", builtins.raw_get::<Value>("string")?)?;
        locked.raw_set(string_metatable, sandbox.lock(lua, &facade)?)?;

        // The table of globals stays empty; its metatable reads from `builtins`.
        let seen = lua.create_table()?;
        builtins.raw_set("_G", &seen)?;
        sandbox.only(lua, &builtins)?;
        sandbox.globals_metatable.raw_set("__index", &builtins)?;
        sandbox.globals_metatable.raw_set("__newindex", &sandbox.refuse_write)?;
        seen.set_metatable(Some(sandbox.globals_metatable.clone()))?;
        let shown = lua.create_table()?;
        shown.raw_set("__index", &sandbox.no_such_global)?;
        locked.raw_set(&seen, &builtins)?;
        locked.raw_set(&sandbox.globals_metatable, sandbox.lock(lua, &shown)?)?;
        lua.set_globals(seen)?;
        Ok(sandbox)
    }

    /// Makes a read-only table with the contents of `real`.
    pub fn lock(&self, lua: &Lua, real: &Table) -> Result<Table> {
        let proxy = lua.create_table()?;
        let metatable = lua.create_table()?;
        metatable.raw_set("__index", real)?;
        metatable.raw_set("__newindex", &self.refuse_write)?;
        proxy.set_metatable(Some(metatable))?;
        self.locked.raw_set(&proxy, real)?;
        Ok(proxy)
    }

    /// From now on globals read only from `table`.
    pub fn only(&self, lua: &Lua, table: &Table) -> Result<()> {
        let metatable = lua.create_table()?;
        metatable.raw_set("__index", &self.no_such_global)?;
        table.set_metatable(Some(metatable))
    }
}

/// The error text as in plain Lua, without the text that mlua adds.
pub fn plain(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => plain(cause),
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        error => error.to_string(),
    }
}
