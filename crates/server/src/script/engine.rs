//! Owns a worker's Lua interpreter: what it has compiled, how a function is run in it, what ends one that runs on.
//! Never knows a command: scripts reach them through [`Calls`].

use super::library::{Function as Registered, Library};
use super::sandbox::{Native, Raise, Sandbox, native, number, plain};
use super::sha1::{Sha, sha1_hex};
use super::{api, libs};
use commands::host::REDIS_VERSION;
use mlua::{Function, HookTriggers, IntoLuaMulti, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, VmState};
use resp::Proto;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Memory of one interpreter: a script that wants more gets an error.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// An interpreter that holds more after a script is swept at once.
const MEMORY_KEPT_BYTES: usize = 16 << 20;
/// Instructions between two looks at the clock.
const TICK_INSTRUCTIONS: u32 = 100_000;
/// Compiled scripts kept.
const COMPILED_MAX: usize = 2_000;

/// What came of a command that a script called.
pub enum Called {
    Reply(Value),
    /// The whole error, code first.
    Error(String),
    /// The script ends here, whatever it catches.
    Ends,
}

/// What a script asks of the server while it runs.
pub trait Calls {
    fn call(&mut self, lua: &Lua, args: &MultiValue) -> Result<Called>;
    fn set_proto(&mut self, proto: Proto);
    /// Whether there is such a command and the caller may run it. `None`: there is none.
    fn may_call(&mut self, args: &MultiValue) -> Option<bool>;
    fn log(&mut self, level: i64, text: &str);
    /// Now and then while the script runs. `Err`: it ends, with this text.
    fn tick(&mut self) -> std::result::Result<(), &'static str>;
    /// `redis.register_function`, while a library is loaded.
    fn register(&mut self, _: Registered, _: Function) -> std::result::Result<(), String> {
        Err("redis.register_function can only be called on FUNCTION LOAD command".to_owned())
    }
}

/// What the interpreter's functions share.
pub struct Shared {
    /// Whom the running script talks to.
    calls: Cell<Option<*mut (dyn Calls + 'static)>>,
    /// The running script is to end, whatever it catches.
    pub ended: Cell<bool>,
    /// State of math.random: the 48 bits of drand48.
    random: Cell<u64>,
}

impl Shared {
    pub fn with<T>(&self, run: impl FnOnce(&mut dyn Calls) -> T) -> Option<T> {
        let calls = self.calls.get()?;
        // SAFETY: set by `run` for as long as its exclusive reference lives. Functions of ours are the only ones
        // to come here, none of them calls back into Lua, so there is one reference at a time.
        Some(run(unsafe { &mut *calls }))
    }

    /// The generator of drand48, 31 bits at a time, so that scripts draw the numbers they draw from Redis.
    fn draw(&self) -> u32 {
        let next = (self.random.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb)) & 0xffff_ffff_ffff;
        self.random.set(next);
        (next >> 17) as u32
    }

    fn seed(&self, seed: u32) {
        self.random.set(u64::from(seed) << 16 | 0x330e);
    }
}

pub struct Engine {
    pub lua: Lua,
    sandbox: Sandbox,
    pub shared: Rc<Shared>,
    handler: Function,
    /// `redis` while a library is loaded.
    loading: Table,
    by_body: HashMap<Box<[u8]>, Rc<Compiled>>,
    by_sha: HashMap<Sha, Rc<Compiled>>,
    /// The count of SCRIPT FLUSH that those are of.
    pub flushes: u64,
    libraries: HashMap<String, Loaded>,
}

struct Loaded {
    library: Arc<Library>,
    functions: HashMap<String, Function>,
}

pub struct Compiled {
    pub function: Function,
    pub sha: Sha,
    pub flags: Flags,
}

/// What a script's first line, or a function's registration, says it does.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flags {
    /// It says so: a script without `#!` has none, and older rules apply.
    pub given: bool,
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    pub fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot_keys,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// In Redis's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot_keys, "allow-cross-slot-keys"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
    }
}

/// What came of a run.
pub enum Outcome {
    Returned(Value),
    /// What was raised, and where.
    Raised {
        text: Vec<u8>,
        place: Option<String>,
    },
}

impl Engine {
    pub fn new() -> Result<Engine> {
        let libs = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libs, LuaOptions::new().catch_rust_panics(false))?;
        // As Redis begins: scripts that want other numbers seed it themselves.
        let shared =
            Rc::new(Shared { calls: Cell::new(None), ended: Cell::new(false), random: Cell::new(0x1234_abcd_330e) });
        let ended = Rc::clone(&shared);
        random(&lua, &shared)?;
        libs::bound(&lua)?;
        let sandbox = Sandbox::new(&lua, move || ended.ended.get())?;
        for (name, library) in libs::open(&lua)? {
            sandbox.builtins.raw_set(name, sandbox.lock(&lua, &library)?)?;
        }
        let redis = api::table(&lua, &shared)?;
        sandbox.builtins.raw_set("redis", sandbox.lock(&lua, &redis)?)?;
        let loading = lua.create_table()?;
        loading.raw_set("redis", sandbox.lock(&lua, &api::loading_table(&lua, &shared)?)?)?;
        sandbox.only(&lua, &loading)?;
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
        lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        Ok(Engine {
            lua,
            sandbox,
            shared,
            handler,
            loading,
            by_body: HashMap::new(),
            by_sha: HashMap::new(),
            flushes: 0,
            libraries: HashMap::new(),
        })
    }

    pub fn by_body(&self, body: &[u8]) -> Option<Rc<Compiled>> {
        self.by_body.get(body).cloned()
    }

    pub fn by_sha(&self, sha: &Sha) -> Option<Rc<Compiled>> {
        self.by_sha.get(sha).cloned()
    }

    /// SCRIPT FLUSH.
    pub fn forget(&mut self, flushes: u64) {
        self.by_body.clear();
        self.by_sha.clear();
        self.flushes = flushes;
    }

    /// The error is whole, code first.
    pub fn compile(&mut self, body: &[u8]) -> std::result::Result<Rc<Compiled>, String> {
        let (flags, code) = shebang(body)?;
        let function = self
            .lua
            .load(code)
            .set_name("@user_script")
            .set_mode(mlua::chunk::ChunkMode::Text)
            .into_function()
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

    /// KEYS and ARGV of a script.
    pub fn set_arguments(&self, keys: Option<(Table, Table)>) -> Result<()> {
        let (keys, args) = keys.unzip();
        self.sandbox.builtins.raw_set("KEYS", keys)?;
        self.sandbox.builtins.raw_set("ARGV", args)
    }

    pub fn table<'a>(&self, items: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<Table> {
        let table = self.lua.create_table_with_capacity(items.len(), 0)?;
        for (index, item) in items.enumerate() {
            table.raw_set(index + 1, self.lua.create_string(item)?)?;
        }
        Ok(table)
    }

    /// Runs a function; `calls` serves what it asks for.
    pub fn run(&self, calls: &mut dyn Calls, function: &Function, args: impl IntoLuaMulti) -> Result<Outcome> {
        let pointer: *mut (dyn Calls + '_) = calls;
        // SAFETY: only the lifetime is dropped: the pointer is taken back below, before `calls` ends.
        let pointer = unsafe { std::mem::transmute::<*mut (dyn Calls + '_), *mut (dyn Calls + 'static)>(pointer) };
        let reset = Reset(&self.shared);
        self.shared.calls.set(Some(pointer));
        self.shared.ended.set(false);
        let mut words = args.into_lua_multi(&self.lua)?;
        words.push_front(Value::Function(self.handler.clone()));
        words.push_front(Value::Function(function.clone()));
        let (ok, value): (bool, Value) = self.sandbox.xpcall.call(words)?;
        drop(reset);
        if self.lua.used_memory() > MEMORY_KEPT_BYTES {
            self.lua.gc_collect()?;
        }
        Ok(if ok { Outcome::Returned(value) } else { raised(&value)? })
    }

    /// A function of a library, which is loaded first if it is not the one already loaded.
    pub fn function(
        &mut self,
        library: &Arc<Library>,
        name: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> std::result::Result<Function, String> {
        let is_loaded = self.libraries.get(&library.name).is_some_and(|loaded| Arc::ptr_eq(&loaded.library, library));
        if !is_loaded {
            let (_, functions) = self.load(&library.code)?;
            // Now and then those that are gone are forgotten.
            self.libraries.retain(|name, _| is_there(name));
            self.libraries.insert(library.name.clone(), Loaded { library: Arc::clone(library), functions });
        }
        let loaded = &self.libraries[&library.name];
        loaded.functions.get(name).cloned().ok_or_else(|| "ERR Function not found".to_owned())
    }

    /// Runs a library's code, which registers its functions. `code` begins with its `#!` line.
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
        globals.raw_set("__index", &self.loading).map_err(failed)?;
        let outcome = self.run(&mut loader, &chunk, ());
        globals.raw_set("__index", &self.sandbox.builtins).map_err(failed)?;
        match outcome.map_err(failed)? {
            Outcome::Raised { text, .. } => {
                Err(format!("ERR Error registering functions: {}", String::from_utf8_lossy(&text)))
            }
            Outcome::Returned(_) if loader.registered.is_empty() => Err("ERR No functions registered".to_owned()),
            Outcome::Returned(_) => Ok((loader.registered, loader.functions)),
        }
    }
}

/// Also when a handler panics: nobody comes to the run's data afterwards.
struct Reset<'a>(&'a Shared);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        self.0.calls.set(None);
    }
}

/// Makes of any error a table with `err`, and `source` and `line` of where it was raised.
fn handle(lua: &Lua, error: Value) -> Result<Table> {
    let table = lua.create_table()?;
    match error {
        Value::Table(error) => {
            table.raw_set("err", error.raw_get::<Value>("err")?)?;
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
    // 0 is this function, 1 what calls it, 2 what raised; where that is not Lua, its caller.
    for level in 2..=3 {
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

fn raised(error: &Value) -> Result<Outcome> {
    let error = match error {
        Value::Table(error) => error,
        // Out of memory: nothing of ours has seen it.
        Value::String(text) => {
            return Ok(Outcome::Raised { text: [b"ERR ", &*text.as_bytes()].concat(), place: None });
        }
        _ => return Ok(Outcome::Raised { text: b"ERR execution failure".to_vec(), place: None }),
    };
    let text = match error.raw_get::<Value>("err")? {
        Value::String(text) => text.as_bytes().to_vec(),
        _ => b"ERR an error object without a text in its field 'err'".to_vec(),
    };
    let (source, line) = (error.raw_get::<Option<String>>("source")?, error.raw_get::<Option<usize>>("line")?);
    let place = source.zip(line).map(|(source, line)| format!("{source}:{line}"));
    Ok(Outcome::Raised { text, place })
}

/// A script's first line and the rest, which keeps its line numbers.
fn shebang(body: &[u8]) -> std::result::Result<(Flags, &[u8]), String> {
    let mut flags = Flags::default();
    if !body.starts_with(b"#!") {
        return Ok((flags, body));
    }
    let Some(end) = body.iter().position(|&byte| byte == b'\n') else {
        return Err("ERR Invalid script shebang".to_owned());
    };
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut words = body[..end].split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {}", shown(engine)));
    }
    flags.given = true;
    for word in words {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {}", shown(word)));
        };
        for name in names.split(|&byte| byte == b',').filter(|name| !name.is_empty()) {
            if !flags.set(name) {
                return Err(format!("ERR Unexpected flag in script shebang: {}", shown(name)));
            }
        }
    }
    Ok((flags, &body[end..]))
}

fn after_shebang(code: &[u8]) -> &[u8] {
    let end = code.iter().position(|&byte| byte == b'\n').unwrap_or(code.len());
    &code[end..]
}

fn random(lua: &Lua, shared: &Rc<Shared>) -> Result<()> {
    let math: Table = lua.globals().raw_get("math")?;
    let draws = Rc::clone(shared);
    let random = move |_: &Lua, args: MultiValue| -> Native {
        const RANGE: u32 = i32::MAX as u32;
        let part = f64::from(draws.draw() % RANGE) / f64::from(RANGE);
        // As C's luaL_checkint in the range it defines.
        let int = |at| number(&args, at, "random").map(|value| value.trunc().clamp(-2_147_483_648.0, 2_147_483_647.0));
        let empty = |at| super::sandbox::bad_argument(at, "random", "interval is empty");
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
    };
    math.raw_set("random", native(lua, random)?)?;
    let seeded = Rc::clone(shared);
    let randomseed = move |_: &Lua, args: MultiValue| -> Native {
        seeded.seed(number(&args, 1, "randomseed")? as i64 as u32);
        Ok(MultiValue::new())
    };
    math.raw_set("randomseed", native(lua, randomseed)?)
}

/// 7.2.4 as 0x00MMmmpp.
pub fn version_number() -> u32 {
    REDIS_VERSION.split('.').fold(0, |number, part| number << 8 | part.parse::<u32>().unwrap_or(0))
}
