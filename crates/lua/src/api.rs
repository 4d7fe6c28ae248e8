//! Owns the table `redis` that scripts see. Never knows how a command runs.

use super::calls::{self, Called, Calls, Shared};
use super::library::{Flags, Function as Registered, is_name};
use super::sandbox::{Native, NativeFn, Raise, add_natives, shim};
use super::sha1::sha1_hex;
use super::stack;
use super::words::Words;
use mlua::{Function, LightUserData, Lua, MultiValue, Result, Table, Value};
use resp::Proto;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Constants of the table `redis`. Libraries see them while loading too.
const LEVELS: [(&str, i64); 4] = [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
const REPLICATION: [(&str, i64); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];

fn nothing() -> Native {
    Ok(MultiValue::new())
}

fn one(value: Value) -> Native {
    Ok([value].into_iter().collect())
}

/// `{err = text}`.
fn error_table(lua: &Lua, text: impl AsRef<[u8]>) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 2)?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// Raises a table whose text has the code ERR.
fn refuse(lua: &Lua, text: &str) -> Raise {
    match error_table(lua, format!("ERR {text}")) {
        Ok(table) => Raise::Value(table),
        Err(error) => Raise::Lua(error),
    }
}

fn bytes(lua: &Lua, value: Option<&Value>) -> Result<Option<Vec<u8>>> {
    Ok(match value {
        Some(Value::String(text)) => Some(text.as_bytes().to_vec()),
        Some(value @ (Value::Integer(_) | Value::Number(_))) => {
            lua.coerce_string(value.clone())?.map(|text| text.as_bytes().to_vec())
        }
        _ => None,
    })
}

fn log(lua: &Lua, args: &MultiValue, shared: &Shared) -> Native {
    if args.len() < 2 {
        return Err(refuse(lua, "redis.log() requires two arguments or more."));
    }
    let level = match args[0] {
        Value::Integer(level) => level,
        Value::Number(level) => level as i64,
        _ => return Err(refuse(lua, "First argument must be a number (log level).")),
    };
    if !(0..=3).contains(&level) {
        return Err(refuse(lua, "Invalid debug level."));
    }
    let mut text = Vec::new();
    for arg in args.iter().skip(1) {
        if !text.is_empty() {
            text.push(b' ');
        }
        text.extend(bytes(lua, Some(arg))?.unwrap_or_default());
    }
    shared.with(|calls| calls.log(level, &String::from_utf8_lossy(&text)));
    nothing()
}

fn call(lua: &Lua, shared: &Rc<Shared>, raises: bool) -> Result<Function> {
    let shared = LightUserData(Rc::as_ptr(shared).cast_mut().cast());
    shim(lua, stack::call, [Value::LightUserData(shared), Value::Boolean(raises)])
}

/// The table `redis` for running scripts and functions.
pub fn table(lua: &Lua, shared: &Rc<Shared>, version: &str) -> Result<Table> {
    let redis = lua.create_table()?;
    for (name, value) in LEVELS.into_iter().chain(REPLICATION) {
        redis.raw_set(name, value)?;
    }
    redis.raw_set("REDIS_VERSION", version)?;
    redis.raw_set("REDIS_VERSION_NUM", version_number(version))?;
    redis.raw_set("call", call(lua, shared, true)?)?;
    redis.raw_set("pcall", call(lua, shared, false)?)?;
    let functions: [(&str, NativeFn<Shared>); 10] = [
        ("log", log),
        ("sha1hex", sha1hex),
        ("error_reply", error_reply),
        ("status_reply", status_reply),
        ("set_repl", set_repl),
        ("replicate_commands", |_, _, _| one(Value::Boolean(true))),
        // There is no debugger, so a breakpoint never stops.
        ("breakpoint", |_, _, _| one(Value::Boolean(false))),
        ("debug", |_, _, _| nothing()),
        ("setresp", setresp),
        ("acl_check_cmd", acl_check_cmd),
    ];
    add_natives(lua, &redis, Rc::clone(shared), functions)?;
    Ok(redis)
}

fn setresp(lua: &Lua, args: &MultiValue, shared: &Shared) -> Native {
    if args.len() != 1 {
        return Err(refuse(lua, "redis.setresp() requires one argument."));
    }
    let proto = match args[0] {
        Value::Integer(2) => Proto::Resp2,
        Value::Integer(3) => Proto::Resp3,
        Value::Number(2.0) => Proto::Resp2,
        Value::Number(3.0) => Proto::Resp3,
        _ => return Err(refuse(lua, "RESP version must be 2 or 3.")),
    };
    shared.with(|calls| calls.set_proto(proto));
    nothing()
}

fn acl_check_cmd(lua: &Lua, args: &MultiValue, shared: &Shared) -> Native {
    if args.is_empty() {
        return Err(refuse(lua, "Please specify at least one argument for this redis lib call"));
    }
    if !args.iter().all(|arg| matches!(arg, Value::String(_) | Value::Integer(_) | Value::Number(_))) {
        return Err(refuse(lua, "redis.acl_check_cmd() require all arguments to be strings or integers"));
    }
    let words = args.iter().map(|arg| Ok(bytes(lua, Some(arg))?.unwrap_or_default()));
    let words = words.collect::<Result<Vec<_>>>()?;
    let allowed = shared.with(|calls| {
        calls.words().set(&words);
        calls.may_call()
    });
    match allowed.flatten() {
        Some(allowed) => one(Value::Boolean(allowed)),
        None => Err(refuse(lua, "Invalid command passed to redis.acl_check_cmd()")),
    }
}

fn sha1hex(lua: &Lua, args: &MultiValue, _: &Shared) -> Native {
    if args.len() != 1 {
        return Err(refuse(lua, "wrong number of arguments"));
    }
    let text = bytes(lua, args.front())?.unwrap_or_default();
    one(Value::String(lua.create_string(sha1_hex(&text))?))
}

/// `{err = …}`. If the text is one word, the code `ERR` is put in front.
fn error_reply(lua: &Lua, args: &MultiValue, _: &Shared) -> Native {
    let (1, Some(Value::String(text))) = (args.len(), args.front()) else {
        return one(error_table(lua, "ERR wrong number or type of arguments")?);
    };
    let text = text.as_bytes();
    let text = stack::until_nul(text.strip_prefix(b"-").unwrap_or(&text));
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    let text = &text[..end];
    let coded = if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() };
    one(error_table(lua, coded)?)
}

fn status_reply(lua: &Lua, args: &MultiValue, _: &Shared) -> Native {
    let (1, Some(Value::String(text))) = (args.len(), args.front()) else {
        return one(error_table(lua, "ERR wrong number or type of arguments")?);
    };
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("ok", text)?;
    one(Value::Table(table))
}

/// Every valid choice is accepted without effect: replicas and the journal always get all changes of a script.
fn set_repl(lua: &Lua, args: &MultiValue, _: &Shared) -> Native {
    if args.len() != 1 {
        return Err(refuse(lua, "redis.set_repl() requires two arguments."));
    }
    let flags = match args[0] {
        Value::Integer(flags) => flags,
        Value::Number(flags) => flags as i64,
        _ => 0,
    };
    if flags & !3 != 0 {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(refuse(lua, text));
    }
    nothing()
}

/// The table `redis` that a library sees while it is loaded.
pub fn loading_table(lua: &Lua, shared: &Rc<Shared>, version: &str) -> Result<Table> {
    let redis = lua.create_table()?;
    for (name, value) in LEVELS {
        redis.raw_set(name, value)?;
    }
    redis.raw_set("REDIS_VERSION", version)?;
    redis.raw_set("REDIS_VERSION_NUM", version_number(version))?;
    add_natives(lua, &redis, Rc::clone(shared), [("log", log), ("register_function", register_function)])?;
    Ok(redis)
}

fn register_function(lua: &Lua, args: &MultiValue, shared: &Shared) -> Native {
    let registration = registration(lua, args)?;
    let registered = shared.with(|calls| calls.register(registration.0, registration.1));
    match registered.unwrap_or_else(|| Err("no library is loaded".to_owned())) {
        Ok(()) => nothing(),
        Err(text) => Err(refuse(lua, &text)),
    }
}

fn registration(lua: &Lua, args: &MultiValue) -> std::result::Result<(Registered, Function), Raise> {
    let refuse = |text: &str| refuse(lua, text);
    let mut registered = Registered::default();
    let mut callback = None;
    let name = |value: &Value| match value {
        Value::String(name) => Some(name.to_string_lossy()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match args.len() {
        1 => {
            let Value::Table(table) = &args[0] else {
                return Err(refuse(
                    "calling redis.register_function with a single argument is only applicable to Lua table \
                     (representing named arguments).",
                ));
            };
            let mut has_name = false;
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                let Value::String(key) = key else {
                    return Err(refuse("named argument key given to redis.register_function is not a string"));
                };
                match &*key.as_bytes() {
                    b"function_name" => {
                        registered.name = name(&value).ok_or_else(|| {
                            refuse("function_name argument given to redis.register_function must be a string")
                        })?;
                        has_name = true;
                    }
                    b"description" => {
                        registered.description = Some(name(&value).ok_or_else(|| {
                            refuse("description argument given to redis.register_function must be a string")
                        })?);
                    }
                    b"callback" => match value {
                        Value::Function(function) => callback = Some(function),
                        _ => {
                            return Err(refuse(
                                "callback argument given to redis.register_function must be a function",
                            ));
                        }
                    },
                    b"flags" => match value {
                        Value::Table(names) => registered.flags = flags(&names, &refuse)?,
                        _ => {
                            return Err(refuse(
                                "flags argument to redis.register_function must be a table representing function flags",
                            ));
                        }
                    },
                    _ => return Err(refuse("unknown argument given to redis.register_function")),
                }
            }
            if !has_name {
                return Err(refuse("redis.register_function must get a function name argument"));
            }
            if callback.is_none() {
                return Err(refuse("redis.register_function must get a callback argument"));
            }
        }
        2 => {
            registered.name =
                name(&args[0]).ok_or_else(|| refuse("first argument to redis.register_function must be a string"))?;
            match &args[1] {
                Value::Function(function) => callback = Some(function.clone()),
                _ => return Err(refuse("second argument to redis.register_function must be a function")),
            }
        }
        _ => return Err(refuse("wrong number of arguments to redis.register_function")),
    }
    let callback = callback.ok_or_else(|| refuse("redis.register_function must get a callback argument"))?;
    Ok((registered, callback))
}

fn flags(names: &Table, refuse: &dyn Fn(&str) -> Raise) -> std::result::Result<Flags, Raise> {
    let mut flags = Flags { given: true, ..Flags::default() };
    for index in 1.. {
        match names.raw_get::<Value>(index)? {
            Value::Nil => break,
            Value::String(name) if flags.set(&name.as_bytes()) => {}
            _ => return Err(refuse("unknown flag given")),
        }
    }
    Ok(flags)
}

/// The version as 0x00MMmmpp, for example 0x00070204 for 7.2.4.
fn version_number(version: &str) -> u32 {
    version.split('.').fold(0, |number, part| number << 8 | part.parse::<u32>().unwrap_or(0))
}

/// Maximum time that a library may take to load.
const LOAD_MAX: Duration = Duration::from_millis(500);

/// Collects the functions that a library registers while it is loaded.
pub struct Loader {
    words: Words,
    pub registered: Vec<Registered>,
    pub functions: HashMap<String, Function>,
    started: Instant,
}

impl Loader {
    pub fn new() -> Loader {
        Loader { words: Words::default(), registered: Vec::new(), functions: HashMap::new(), started: Instant::now() }
    }
}

impl Calls for Loader {
    fn words(&mut self) -> &mut Words {
        &mut self.words
    }

    fn call(&mut self) -> Called {
        Called::Reply
    }

    fn reply(&self) -> &[u8] {
        b"-ERR redis.call/pcall can only be called inside a script invocation\r\n"
    }

    fn proto(&self) -> Proto {
        Proto::Resp2
    }

    fn set_proto(&mut self, _: Proto) {}

    fn may_call(&mut self) -> Option<bool> {
        None
    }

    fn log(&mut self, level: i64, text: &str) {
        calls::log(level, text);
    }

    fn tick(&mut self) -> std::result::Result<(), &'static str> {
        if self.started.elapsed() < LOAD_MAX { Ok(()) } else { Err("FUNCTION LOAD timeout") }
    }

    fn register(&mut self, registered: Registered, callback: Function) -> std::result::Result<(), String> {
        if !is_name(registered.name.as_bytes()) {
            return Err("Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                        character long"
                .to_owned());
        }
        if self.functions.contains_key(&registered.name) {
            return Err("Function already exists in the library".to_owned());
        }
        self.functions.insert(registered.name.clone(), callback);
        self.registered.push(registered);
        Ok(())
    }
}
