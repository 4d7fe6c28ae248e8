//! Scripts and functions in Lua 5.1, as Redis's. `run` carries a command out in the interpreter of crate `lua`, `cache` is
//! what all workers know, `host` answers SCRIPT and FUNCTION, `dump` is the form of FUNCTION DUMP.

mod cache;
mod dump;
mod host;
mod run;

pub use cache::Scripts;
pub use run::{Interpreter, inside, run};
