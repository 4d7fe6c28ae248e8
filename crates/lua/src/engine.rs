//! Owns a worker's Lua interpreter: the compiled scripts, how a function runs, and how a script that runs too long is stopped.
//! Never knows a command: scripts reach them through [`Calls`].

use super::api;
use super::calls::{Calls, Shared};
use super::library::{Flags, Function as Registered, Library};
use super::libs::{self, cjson};
use super::sandbox::{self, NOT_ENOUGH_MEMORY, Native, Raise, Sandbox, add_natives, number, plain, shim};
use super::sha1::{Sha, sha1_hex};
use super::stack::{self, Raised};
use mlua::ffi;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, VmState};
use resp::{Args, Out};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::os::raw::c_int;
use std::rc::Rc;
use std::sync::Arc;

/// The smallest limit that [`Engine::limit_memory`] sets: the interpreter with its libraries and some scripts needs
/// this much.
const MEMORY_BYTES_MIN: usize = 4 << 20;
/// The limit until another one is set.
const MEMORY_BYTES: usize = 256 << 20;
/// If an interpreter holds more than this after a script, or a quarter of its limit, its garbage is collected at once.
const MEMORY_KEPT_BYTES: usize = 16 << 20;
/// The collector starts a new cycle when the memory has grown to this share of the live memory. With Lua's default of 200 %,
/// the garbage of short scripts would grow to the size of the live memory.
const COLLECT_AT_PERCENT: c_int = 130;
/// Lua instructions between two calls of [`Calls::tick`]: a tenth of a millisecond, or some milliseconds if each instruction
/// creates a string.
const TICK_INSTRUCTIONS: u32 = 20_000;
/// The size of one step of [`Engine::tidy`], in the unit of Lua's collector: about a millisecond.
const COLLECT_STEP_KIB: c_int = 64;
/// Maximum number of compiled scripts kept.
const COMPILED_MAX: usize = 2_000;

pub struct Engine {
    pub lua: Lua,
    sandbox: Sandbox,
    pub shared: Rc<Shared>,
    cjson: cjson::Reset,
    memory_bytes_max: usize,
    /// The compiled functions, and the values that every run needs.
    functions: Functions,
    /// The error handler: converts an error to a table.
    handler: Function,
    /// The globals of a library while it is loaded. Created when the first library is loaded.
    loading: OnceCell<Table>,
    version: Box<str>,
    by_body: HashMap<Box<[u8]>, Rc<Compiled>>,
    by_sha: HashMap<Sha, Rc<Compiled>>,
    /// The number of SCRIPT FLUSH commands at the time when these scripts were compiled.
    pub flushes: u64,
    libraries: HashMap<String, Loaded>,
}

/// References to values that a run fetches by number.
struct Functions {
    table: Table,
    free: Rc<RefCell<Vec<c_int>>>,
    last: c_int,
    /// References in Lua's registry to the table of functions, the handler and the globals.
    registered: [c_int; 3],
}

/// The number of a compiled function. The number becomes free when the last owner is dropped.
pub struct Callable {
    number: c_int,
    free: Rc<RefCell<Vec<c_int>>>,
}

impl Drop for Callable {
    fn drop(&mut self) {
        // The function itself stays in the table until its number is used again.
        self.free.borrow_mut().push(self.number);
    }
}

impl Functions {
    fn new(lua: &Lua, handler: &Function, globals: &Table) -> Result<Functions> {
        let table = lua.create_table()?;
        let values = [Value::Table(table.clone()), Value::Function(handler.clone()), Value::Table(globals.clone())];
        let mut registered = [0; 3];
        for (value, number) in values.into_iter().zip(&mut registered) {
            // SAFETY: luaL_ref pops the value that was pushed.
            unsafe { lua.exec_raw::<()>(value, |state| *number = ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX))? };
        }
        Ok(Functions { table, free: Rc::default(), last: 0, registered })
    }

    fn add(&mut self, function: Function) -> Result<Rc<Callable>> {
        let freed = self.free.borrow_mut().pop();
        let number = freed.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        self.table.raw_set(number, function)?;
        Ok(Rc::new(Callable { number, free: Rc::clone(&self.free) }))
    }
}

impl Functions {
    /// Drops the functions whose numbers are free.
    fn empty_free(&self) {
        for &number in self.free.borrow().iter() {
            // If Lua is out of memory, the function stays until its number is used again.
            let _ = self.table.raw_set(number, Value::Nil);
        }
    }
}

struct Loaded {
    library: Arc<Library>,
    functions: HashMap<String, Rc<Callable>>,
}

pub struct Compiled {
    pub function: Rc<Callable>,
    pub sha: Sha,
    pub flags: Flags,
}

impl Engine {
    /// `version` is the value of `redis.REDIS_VERSION` in scripts.
    pub fn new(version: &str) -> Result<Engine> {
        let libs = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libs, LuaOptions::new())?;
        // The same initial seed as in Redis. A script that wants other numbers calls math.randomseed.
        let shared =
            Rc::new(Shared { calls: Cell::new(None), ended: Cell::new(false), random: Cell::new(0x1234_abcd_330e) });
        random(&lua, &shared)?;
        libs::bound(&lua)?;
        let sandbox = Sandbox::new(&lua, &shared)?;
        let (libraries, cjson) = libs::open(&lua)?;
        for (name, library) in libraries {
            sandbox.builtins.raw_set(name, sandbox.lock(&lua, &library)?)?;
        }
        let redis = api::table(&lua, &shared, version)?;
        sandbox.builtins.raw_set("redis", sandbox.lock(&lua, &redis)?)?;
        let ticking = Rc::clone(&shared);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(TICK_INSTRUCTIONS), move |_, _| {
            match ticking.with(|calls| calls.tick()) {
                Some(Err(text)) => {
                    ticking.ended.set(true);
                    Err(mlua::Error::runtime(text))
                }
                _ => Ok(VmState::Continue),
            }
        })?;
        let handler = lua.create_function(handle)?;
        lua.set_memory_limit(MEMORY_BYTES)?;
        lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(COLLECT_AT_PERCENT)));
        // Frees what was needed only to create the libraries.
        lua.gc_collect()?;
        Ok(Engine {
            functions: Functions::new(&lua, &handler, &sandbox.builtins)?,
            cjson,
            memory_bytes_max: MEMORY_BYTES,
            lua,
            sandbox,
            shared,
            handler,
            loading: OnceCell::new(),
            version: version.into(),
            by_body: HashMap::new(),
            by_sha: HashMap::new(),
            flushes: 0,
            libraries: HashMap::new(),
        })
    }

    /// Sets the memory that the interpreter may have. A script that needs more gets an error.
    pub fn limit_memory(&mut self, bytes: usize) {
        let bytes = bytes.max(MEMORY_BYTES_MIN);
        if bytes != self.memory_bytes_max && self.lua.set_memory_limit(bytes).is_ok() {
            self.memory_bytes_max = bytes;
        }
    }

    pub fn by_body(&self, body: &[u8]) -> Option<Rc<Compiled>> {
        self.by_body.get(body).cloned()
    }

    pub fn by_sha(&self, sha: &Sha) -> Option<Rc<Compiled>> {
        self.by_sha.get(sha).cloned()
    }

    /// Forgets all compiled scripts, for SCRIPT FLUSH.
    pub fn forget(&mut self, flushes: u64) {
        self.by_body.clear();
        self.by_sha.clear();
        self.flushes = flushes;
        self.functions.empty_free();
        // If even the collection runs out of memory, the next allocation tries again.
        let _ = self.lua.gc_collect();
    }

    /// Drops the libraries that no longer exist.
    pub fn forget_libraries(&mut self, is_there: impl Fn(&str) -> bool) {
        let before = self.libraries.len();
        self.libraries.retain(|name, _| is_there(name));
        if self.libraries.len() < before {
            self.functions.empty_free();
            let _ = self.lua.gc_collect();
        }
    }

    /// Compiles a script. The error is the whole error text including the code.
    pub fn compile(&mut self, body: &[u8]) -> std::result::Result<Rc<Compiled>, String> {
        let (flags, code) = shebang(body)?;
        let function = self
            .lua
            .load(code)
            .set_name("@user_script")
            .set_mode(mlua::chunk::ChunkMode::Text)
            .into_function()
            .and_then(|function| self.functions.add(function))
            .map_err(|error| format!("ERR Error compiling script (new function): {}", plain(&error)))?;
        let compiled = Rc::new(Compiled { function, sha: sha1_hex(body), flags });
        if self.by_body.len() >= COMPILED_MAX {
            self.by_body.clear();
            self.by_sha.clear();
        }
        self.by_body.insert(body.into(), Rc::clone(&compiled));
        self.by_sha.insert(compiled.sha, Rc::clone(&compiled));
        Ok(compiled)
    }

    /// Runs a script or a function with the keys and arguments in `words`, and writes its result as the reply.
    pub fn run(
        &mut self,
        calls: &mut dyn Calls,
        function: &Callable,
        words: Args<'_>,
        keys: usize,
        how: Passed,
        out: &mut Out<'_>,
    ) -> std::result::Result<(), Raised> {
        self.cjson.reset();
        let serving = self.serve(calls);
        let calls = self.shared.calls().expect("it is served");
        let [functions, handler, globals] = self.functions.registered;
        let mut raised = None;
        // SAFETY: the code in here holds nothing that needs dropping while it calls Lua, and it leaves an empty stack.
        let result = unsafe {
            self.lua.exec_raw::<()>((), |state| {
                ffi::luaL_checkstack(state, 12, c"a script".as_ptr());
                ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, handler.into());
                let base = ffi::lua_gettop(state);
                ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, functions.into());
                ffi::lua_rawgeti(state, -1, function.number.into());
                ffi::lua_replace(state, -2);
                if how == Passed::AsGlobals {
                    ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, globals.into());
                    stack::push_strings(state, words.from(0).take(keys));
                    ffi::lua_setfield(state, -2, c"KEYS".as_ptr());
                    stack::push_strings(state, words.from(keys));
                    ffi::lua_setfield(state, -2, c"ARGV".as_ptr());
                    ffi::lua_settop(state, -2);
                } else {
                    ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, globals.into());
                    for name in [c"KEYS", c"ARGV"] {
                        ffi::lua_pushnil(state);
                        ffi::lua_setfield(state, -2, name.as_ptr());
                    }
                    ffi::lua_settop(state, -2);
                    stack::push_strings(state, words.from(0).take(keys));
                    stack::push_strings(state, words.from(keys));
                }
                let passed = ffi::lua_gettop(state) - base - 1;
                if ffi::lua_pcall(state, passed, 1, base) == ffi::LUA_OK {
                    stack::write_reply(state, out, calls, 0);
                } else {
                    stack::describe(state, raised.get_or_insert_default());
                }
                ffi::lua_settop(state, base - 1);
            })
        };
        drop(serving);
        if let Err(error) = result {
            raised = Some(Raised { text: format!("ERR {}", plain(&error)).into(), ..Raised::default() });
        }
        let Some(mut raised) = raised else { return Ok(()) };
        if raised.text.ends_with(NOT_ENOUGH_MEMORY.as_bytes()) {
            let limit =
                format!(": the scripts of one worker may use {} bytes, see script-memory-limit", self.memory_bytes_max);
            raised.text.extend(limit.bytes());
        }
        Err(raised)
    }

    /// Makes `calls` the server's side of the running script for as long as the result lives.
    fn serve<'a>(&'a self, calls: &'a mut dyn Calls) -> Serving<'a> {
        let pointer: *mut (dyn Calls + '_) = calls;
        // SAFETY: only the lifetime is erased. `Serving` carries the lifetime and clears the pointer when it is dropped.
        let pointer = unsafe { std::mem::transmute::<*mut (dyn Calls + '_), *mut (dyn Calls + 'static)>(pointer) };
        self.shared.calls.set(Some(pointer));
        self.shared.ended.set(false);
        Serving(&self.shared)
    }

    /// If a script has left much memory, collects its garbage in steps, with a call of `between` after each. Call this when the
    /// script's stripes are free.
    pub fn tidy(&self, between: impl Fn()) {
        if self.lua.used_memory() <= MEMORY_KEPT_BYTES.min(self.memory_bytes_max / 4) {
            return;
        }
        // The first cycle may have begun before the garbage became unreachable, so more than one may be needed. Each
        // cycle also halves the table of strings.
        let mut before = usize::MAX;
        while self.collect(&between) && self.lua.used_memory() < before / 4 * 3 {
            before = self.lua.used_memory();
        }
    }

    /// Runs the rest of the collector's cycle. False: Lua has no memory for it, and the next allocation tries again.
    fn collect(&self, between: impl Fn()) -> bool {
        let mut is_over = false;
        while !is_over {
            // SAFETY: a step of the collector does not change the stack.
            let step = unsafe {
                self.lua.exec_raw::<()>((), |state| {
                    is_over = ffi::lua_gc(state, ffi::LUA_GCSTEP, COLLECT_STEP_KIB) != 0;
                })
            };
            if step.is_err() {
                return false;
            }
            between();
        }
        true
    }

    /// Returns a function of a library. Loads the library first unless this version of it is already loaded.
    pub fn function(
        &mut self,
        library: &Arc<Library>,
        name: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> std::result::Result<Rc<Callable>, String> {
        let is_loaded = self.libraries.get(&library.name).is_some_and(|loaded| Arc::ptr_eq(&loaded.library, library));
        if !is_loaded {
            let (_, loaded) = self.load(&library.code)?;
            let mut functions = HashMap::new();
            for (name, function) in loaded {
                let function = self.functions.add(function);
                functions.insert(name, function.map_err(|error| format!("ERR {}", plain(&error)))?);
            }
            // Drop libraries that no longer exist.
            self.libraries.retain(|name, _| is_there(name));
            self.libraries.insert(library.name.clone(), Loaded { library: Arc::clone(library), functions });
        }
        let loaded = &self.libraries[&library.name];
        loaded.functions.get(name).cloned().ok_or_else(|| "ERR Function not found".to_owned())
    }

    fn loading(&self) -> Result<&Table> {
        if let Some(loading) = self.loading.get() {
            return Ok(loading);
        }
        let Engine { lua, sandbox, shared, version, .. } = self;
        let redis = api::loading_table(lua, shared, version)?;
        sandbox.only(&redis)?;
        let loading = lua.create_table_with_capacity(0, 1)?;
        loading.raw_set("redis", sandbox.lock(lua, &redis)?)?;
        sandbox.only(&loading)?;
        Ok(self.loading.get_or_init(|| loading))
    }

    /// Runs a library's code, which registers the library's functions. `code` begins with the `#!` line.
    pub fn load(&self, code: &[u8]) -> std::result::Result<(Vec<Registered>, HashMap<String, Function>), String> {
        let body = after_shebang(code);
        let chunk = self
            .lua
            .load(body)
            .set_name("@user_function")
            .set_mode(mlua::chunk::ChunkMode::Text)
            .into_function()
            .map_err(|error| format!("ERR Error compiling function: {}", plain(&error)))?;
        let mut loader = api::Loader::new();
        let failed = |error: mlua::Error| format!("ERR Error registering functions: {}", plain(&error));
        let globals = &self.sandbox.globals_metatable;
        globals.raw_set("__index", self.loading().map_err(failed)?).map_err(failed)?;
        let serving = self.serve(&mut loader);
        let protected = shim(&self.lua, sandbox::protected, []);
        let outcome: Result<(bool, Value)> = protected.and_then(|protected| protected.call((&chunk, &self.handler)));
        drop(serving);
        globals.raw_set("__index", &self.sandbox.builtins).map_err(failed)?;
        let text = match outcome.map_err(failed)? {
            (true, _) if loader.registered.is_empty() => return Err("ERR No functions registered".to_owned()),
            (true, _) => return Ok((loader.registered, loader.functions)),
            (false, Value::Table(error)) => error.raw_get::<mlua::LuaString>("err").map(|text| text.to_string_lossy()),
            (false, other) => other.to_string(),
        };
        Err(format!("ERR Error registering functions: {}", text.map_err(failed)?))
    }
}

/// How a script gets its keys and arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// As the globals KEYS and ARGV, for scripts.
    AsGlobals,
    /// As arguments, for functions.
    AsArguments,
}

/// Clears the pointer to the server's side when it is dropped, even after a panic of a handler. So no code can access the
/// data of the run afterwards.
struct Serving<'a>(&'a Shared);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.calls.set(None);
    }
}

const COUNTED: &str = match stack::COUNTED.to_str() {
    Ok(name) => name,
    Err(_) => panic!("ASCII"),
};

/// Converts any error to a table with `err`, and with the `source` and `line` where the error was raised.
fn handle(lua: &Lua, error: Value) -> Result<Table> {
    let table = lua.create_table()?;
    match error {
        Value::Table(error) => {
            table.raw_set("err", error.raw_get::<Value>("err")?)?;
            table.raw_set(COUNTED, error.raw_get::<Value>(COUNTED)?)?;
        }
        Value::Error(error) => table.raw_set("err", lua.create_string(format!("ERR {}", plain(&error)))?)?,
        other => {
            let mut text = b"ERR ".to_vec();
            match &other {
                Value::String(message) => text.extend_from_slice(&message.as_bytes()),
                other => text.extend_from_slice(other.to_string()?.as_bytes()),
            }
            table.raw_set("err", lua.create_string(text)?)?;
        }
    }
    // Level 0 is this function, level 1 raised the error. If level 1 is not a Lua function, use its caller.
    for level in 1..=2 {
        let place = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            (source.what != "C").then(|| (source.source.map(|name| name.into_owned()), debug.current_line()))
        });
        if let Some(Some((source, line))) = place {
            table.raw_set("source", source)?;
            table.raw_set("line", line)?;
            break;
        }
    }
    Ok(table)
}

/// Splits a script into the flags of its first line and the rest. The rest keeps its line numbers.
fn shebang(body: &[u8]) -> std::result::Result<(Flags, &[u8]), String> {
    let mut flags = Flags::default();
    if !body.starts_with(b"#!") {
        return Ok((flags, body));
    }
    let Some(end) = body.iter().position(|&byte| byte == b'\n') else {
        return Err("ERR Invalid script shebang".to_owned());
    };
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let words = resp::words(&body[..end]).ok_or("ERR Invalid engine in script shebang")?;
    let (engine, words) = words.split_first().ok_or("ERR Invalid engine in script shebang")?;
    if engine != b"#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {}", shown(engine)));
    }
    flags.given = true;
    for word in words {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {}", shown(word)));
        };
        for name in names.split(|&byte| byte == b',').filter(|_| !names.is_empty()) {
            if !flags.set(name) {
                return Err(format!("ERR Unexpected flag in script shebang: {}", shown(name)));
            }
        }
    }
    Ok((flags, &body[end..]))
}

/// The flags that a script's first line declares. `None`: the line is not valid.
pub fn flags_of(body: &[u8]) -> Option<Flags> {
    shebang(body).ok().map(|(flags, _)| flags)
}

fn after_shebang(code: &[u8]) -> &[u8] {
    let end = code.iter().position(|&byte| byte == b'\n').unwrap_or(code.len());
    &code[end..]
}

/// Replaces math.random and math.randomseed.
fn random(lua: &Lua, shared: &Rc<Shared>) -> Result<()> {
    let math: Table = lua.globals().raw_get("math")?;
    add_natives(lua, &math, Rc::clone(shared), [("random", draw), ("randomseed", seed)])
}

fn draw(_: &Lua, args: &MultiValue, shared: &Shared) -> Native {
    const RANGE: u32 = i32::MAX as u32;
    let part = f64::from(shared.draw() % RANGE) / f64::from(RANGE);
    // The same as C's luaL_checkint where C defines the result.
    let int = |at| number(args, at, "random").map(|value| value.trunc().clamp(-2_147_483_648.0, 2_147_483_647.0));
    let empty = |at| sandbox::bad_argument(at, "random", "interval is empty");
    let value = match args.len() {
        0 => part,
        1 => {
            let last = int(1)?;
            if last < 1.0 {
                return Err(empty(1));
            }
            (part * last).floor() + 1.0
        }
        2 => {
            let (first, last) = (int(1)?, int(2)?);
            if first > last {
                return Err(empty(2));
            }
            (part * (last - first + 1.0)).floor() + first
        }
        _ => return Err(Raise::At("wrong number of arguments".to_owned())),
    };
    Ok([Value::Number(value)].into_iter().collect())
}

fn seed(_: &Lua, args: &MultiValue, shared: &Shared) -> Native {
    shared.seed(number(args, 1, "randomseed")? as i64 as u32);
    Ok(MultiValue::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_without_scripts_is_small() {
        let engine = Engine::new("7.2.4").unwrap();
        assert!(engine.lua.used_memory() < 40_000, "{}", engine.lua.used_memory());
    }

    #[test]
    fn what_a_large_script_leaves_is_collected_in_steps() {
        let engine = Engine::new("7.2.4").unwrap();
        let before = engine.lua.used_memory();
        engine.lua.load("local t = {} for i = 1, 3e5 do t[i] = 'x' .. i end").exec().unwrap();
        assert!(engine.lua.used_memory() > MEMORY_KEPT_BYTES);
        let steps = Cell::new(0);
        engine.tidy(|| steps.set(steps.get() + 1));
        assert!(engine.lua.used_memory() < 2 * before, "{}", engine.lua.used_memory());
        assert!(steps.get() > 10, "{}", steps.get());
    }
}
