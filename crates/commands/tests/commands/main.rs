//! The table of rows, and the texts of errors: what can be tested without running a command. `crates/engine/tests/commands` runs
//! the handlers. All files are one program, because linking each file by itself took longer than running it.

mod errors;
mod table;
