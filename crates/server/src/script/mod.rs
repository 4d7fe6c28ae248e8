//! Scripts and functions in Lua 5.1, as Redis's. `run` carries a command out, `engine` is a worker's interpreter,
//! `api` the table `redis`, `sandbox` what of Lua scripts can reach, `libs` the libraries they find there, `stack`
//! what passes between commands and Lua; `cache` and `library` are what all workers know;
//! `host` answers SCRIPT and FUNCTION, `try_out` runs anything for the fuzz target.

mod api;
mod cache;
mod dump;
mod engine;
mod host;
mod library;
mod libs;
mod run;
mod sandbox;
mod sha1;
mod stack;
mod try_out;

pub use cache::Scripts;
pub use run::{Interpreter, inside, run};
pub use sha1::sha1;
pub use try_out::try_script;
