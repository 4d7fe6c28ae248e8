//! Scripts and functions in Lua 5.1, as in Redis. `run` executes a command in the interpreter of crate `lua`, `host`
//! answers SCRIPT and FUNCTION, `kept` changes the functions of a database with several shards, `dump` is the format of FUNCTION DUMP.

mod dump;
mod host;
mod kept;
mod run;

pub use kept::change as change_functions;
pub use run::{inside, may_write, run};
