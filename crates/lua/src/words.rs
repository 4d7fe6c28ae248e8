//! Owns the words of a command that a script calls, copied from Lua's stack. Never knows what a command is.

use mlua::ffi::{self, lua_State};
use resp::number::{format_double, format_i64};
use resp::{Args, Span};
use std::os::raw::c_int;

/// The words of a command that a script calls.
#[derive(Default)]
pub struct Words {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// A buffer that has grown larger than this is freed after the command.
pub const KEPT_BYTES: usize = 64 << 10;
/// Maximum bytes of all arguments of one command, so that their positions fit their type.
const WORDS_BYTES_MAX: usize = 1 << 30;

impl Words {
    #[inline]
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    pub fn set(&mut self, words: &[Vec<u8>]) {
        self.clear();
        for word in words {
            self.spans.push(Span { start: self.bytes.len() as u32, len: word.len() as u32 });
            self.bytes.extend_from_slice(word);
        }
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    pub fn shrink(&mut self) {
        self.clear();
        if self.bytes.capacity() > KEPT_BYTES || self.spans.capacity() > KEPT_BYTES {
            *self = Words::default();
        }
    }

    /// Appends a string unchanged, or a number in Redis's form. False: the value is neither, or too long.
    ///
    /// # Safety
    /// `state` is live, and its stack is that of the running C function. An error of Lua jumps over the caller.
    pub(super) unsafe fn push(&mut self, state: *mut lua_State, at: c_int) -> bool {
        let start = self.bytes.len();
        // SAFETY: the string stays on the stack while it is copied. A number on the stack is not converted in place.
        unsafe {
            match ffi::lua_type(state, at) {
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    let text = ffi::lua_tolstring(state, at, &mut len).cast::<u8>();
                    if start + len > WORDS_BYTES_MAX {
                        return false;
                    }
                    self.bytes.extend_from_slice(std::slice::from_raw_parts(text, len));
                }
                ffi::LUA_TNUMBER => match ffi::lua_tonumber(state, at) {
                    number if number.abs() < (1i64 << 62) as f64 && number.trunc() == number => {
                        format_i64(number as i64, &mut self.bytes);
                    }
                    number => format_double(number, &mut self.bytes),
                },
                _ => return false,
            }
        }
        self.spans.push(Span { start: start as u32, len: (self.bytes.len() - start) as u32 });
        true
    }
}
