//! Owns the Lua 5.1 interpreter of scripts and functions: the sandbox, the libraries, and the conversion of values between Lua
//! and commands. Never knows a command, a key or the store: it uses them only through the trait [`Calls`].
//!
//! `calls` is that trait, and `words` holds the words of a command that a script calls. `engine` is a worker's interpreter, `api`
//! the table `redis`, `sandbox` the part of Lua that scripts can reach, `libs` the libraries for scripts. `stack` passes
//! values over Lua's stack. `library` holds the functions that FUNCTION LOAD registers. `try_out` runs arbitrary text for
//! the fuzz target.

mod api;
mod calls;
mod engine;
mod library;
mod libs;
mod sandbox;
mod sha1;
mod stack;
mod try_out;
mod words;

pub use calls::{Called, Calls, log};
pub use engine::{Callable, Compiled, Engine, Passed, flags_of};
pub use library::{Flags, Function, Libraries, Library, name_of};
pub use sandbox::plain;
pub use sha1::{Sha, sha1, sha1_hex};
pub use stack::Raised;
#[doc(hidden)]
pub use try_out::try_script;
pub use words::{KEPT_BYTES, Words};
