//! Owns what a script asks of the server while it runs, in one trait, and who answers the script that runs. Never knows a
//! command.

use super::library::Function as Registered;
use super::words::Words;
use mlua::Function;
use resp::Proto;
use std::cell::Cell;

pub const NOT_RUNNING: &str = "ERR redis.call/pcall can only be called inside a script invocation";

/// What came of a command that a script called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Called {
    /// See [`Calls::reply`].
    Reply,
    /// The script ends here, whatever it catches.
    Ends,
}

/// What a script asks of the server while it runs.
pub trait Calls {
    /// Where the words of its next command go.
    fn words(&mut self) -> &mut Words;
    /// Runs that command. Does not panic.
    fn call(&mut self) -> Called;
    /// What it answered, as RESP.
    fn reply(&self) -> &[u8];
    fn proto(&self) -> Proto;
    fn set_proto(&mut self, proto: Proto);
    /// Whether there is a command of those words and the caller may run it. `None`: there is none.
    fn may_call(&mut self) -> Option<bool>;
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
    pub calls: Cell<Option<*mut (dyn Calls + 'static)>>,
    /// The running script is to end, whatever it catches.
    pub ended: Cell<bool>,
    /// State of math.random: the 48 bits of drand48.
    pub random: Cell<u64>,
}

impl Shared {
    pub fn calls(&self) -> Option<*mut (dyn Calls + 'static)> {
        self.calls.get()
    }

    pub fn with<T>(&self, run: impl FnOnce(&mut dyn Calls) -> T) -> Option<T> {
        let calls = self.calls.get()?;
        // SAFETY: set by `serve` for as long as its exclusive reference lives. Functions of ours are the only ones
        // to come here, none of them calls back into Lua, so there is one reference at a time.
        Some(run(unsafe { &mut *calls }))
    }

    /// The generator of drand48, 31 bits at a time, so that scripts draw the numbers they draw from Redis.
    pub fn draw(&self) -> u32 {
        let next = (self.random.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb)) & 0xffff_ffff_ffff;
        self.random.set(next);
        (next >> 17) as u32
    }

    pub fn seed(&self, seed: u32) {
        self.random.set(u64::from(seed) << 16 | 0x330e);
    }
}

/// What `redis.log` asks for, in the log of the process.
pub fn log(level: i64, text: &str) {
    match level {
        0 => tracing::debug!("script: {text}"),
        1 | 2 => tracing::info!("script: {text}"),
        _ => tracing::warn!("script: {text}"),
    }
}
