//! Scripts and functions in Lua 5.1, as in Redis. `run` executes a command in the interpreter of crate `lua`, `host`
//! answers SCRIPT and FUNCTION.

mod host;
mod run;

pub use run::{inside, may_write, run};
