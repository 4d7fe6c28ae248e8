//! Scripts and functions in Lua 5.1, as Redis's. `run` carries a command out in the interpreter of crate `lua`,
//! `host` answers SCRIPT and FUNCTION, `dump` is the form of FUNCTION DUMP.

mod dump;
mod host;
mod run;

pub use run::{Interpreter, inside, run};
