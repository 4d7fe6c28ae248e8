//! Owns the trait through which a running script calls the server, and the pointer to the server's side of the running
//! script. Never knows a command.

use super::library::Function as Registered;
use super::words::Words;
use mlua::Function;
use resp::Proto;
use std::cell::Cell;

pub const NOT_RUNNING: &str = "ERR redis.call/pcall can only be called inside a script invocation";

/// The outcome of a command that a script called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Called {
    /// The command ran: [`Calls::reply`] returns its reply.
    Reply,
    /// The script must end here, even if it catches errors.
    Ends,
}

/// The server's side of a running script.
pub trait Calls {
    /// The buffer for the words of the script's next command.
    fn words(&mut self) -> &mut Words;
    /// Runs the command whose words are in [`Calls::words`]. Does not panic.
    fn call(&mut self) -> Called;
    /// The reply of the last command, as RESP.
    fn reply(&self) -> &[u8];
    fn proto(&self) -> Proto;
    fn set_proto(&mut self, proto: Proto);
    /// Whether the user may run the command whose words are in [`Calls::words`]. `None`: there is no such command.
    fn may_call(&mut self) -> Option<bool>;
    fn log(&mut self, level: i64, text: &str);
    /// The script's reply is or contains this error. `counted`: a command of the script has caused the error, so the
    /// statistics already include it.
    fn note_error(&mut self, _text: &[u8], _counted: bool) {}
    /// Called regularly while the script runs. `Err`: the script ends with this error text.
    fn tick(&mut self) -> std::result::Result<(), &'static str>;
    /// `redis.register_function`, called while a library is loaded.
    fn register(&mut self, _: Registered, _: Function) -> std::result::Result<(), String> {
        Err("redis.register_function can only be called on FUNCTION LOAD command".to_owned())
    }
}

/// State that the interpreter's native functions share.
pub struct Shared {
    /// The server's side of the running script. None while no script runs.
    pub calls: Cell<Option<*mut (dyn Calls + 'static)>>,
    /// The running script must end, even if it catches errors.
    pub ended: Cell<bool>,
    /// The state of math.random: the 48 bits of drand48.
    pub random: Cell<u64>,
}

impl Shared {
    pub fn calls(&self) -> Option<*mut (dyn Calls + 'static)> {
        self.calls.get()
    }

    pub fn with<T>(&self, run: impl FnOnce(&mut dyn Calls) -> T) -> Option<T> {
        let calls = self.calls.get()?;
        // SAFETY: `serve` sets the pointer for as long as its exclusive reference lives. Only our native functions call
        // this, and none of them calls back into Lua. So there is only one reference at a time.
        Some(run(unsafe { &mut *calls }))
    }

    /// One step of drand48, 31 bits, so that scripts get the same random numbers as in Redis.
    pub fn draw(&self) -> u32 {
        let next = (self.random.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb)) & 0xffff_ffff_ffff;
        self.random.set(next);
        (next >> 17) as u32
    }

    pub fn seed(&self, seed: u32) {
        self.random.set(u64::from(seed) << 16 | 0x330e);
    }
}

/// Writes a line of `redis.log` to the log of the process.
pub fn log(level: i64, text: &str) {
    match level {
        0 => tracing::debug!("script: {text}"),
        1 | 2 => tracing::info!("script: {text}"),
        _ => tracing::warn!("script: {text}"),
    }
}
