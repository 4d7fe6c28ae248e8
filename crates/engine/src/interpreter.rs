//! Owns the Lua interpreter of a worker, and what its scripts' commands reuse. Never knows the worker, nor what a script does.

use lua::{Engine, Words};

/// A worker's Lua interpreter, and the buffers that its scripts' commands reuse.
pub struct Interpreter {
    pub engine: Engine,
    pub scratch: Scratch,
}

#[derive(Default)]
pub struct Scratch {
    pub words: Words,
    pub reply: Vec<u8>,
    pub positions: Vec<usize>,
}
