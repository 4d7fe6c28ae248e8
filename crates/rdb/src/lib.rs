//! Owns RDB files, which Redis and Valkey write with SAVE and send to replicas: from bytes to keys and values, and back.
//! Both directions stream: a large collection is read and written in pieces. The encodings of values are those of
//! `value::rdb`. Never knows files, commands or the store, and never trusts its input.
//!
//! ```text
//! magic        "REDIS" and 4 digits of version, or "VALKEY" and 3 digits
//! record …
//! 255          the end
//! checksum     8 bytes, little-endian: CRC-64 of all before it; 0: none. Since version 5
//!
//! record
//!   250 name value                     a remark, both strings; "ctime", "used-mem" and the like
//!   245 code                           a library of functions
//!   247 module …                       data of a module beside the keys
//!   254 number                         the logical database of the keys that follow
//!   251 keys, keys with an expiry      of that database
//!   240 pages                          pages of a FlintKV's flash, for a replica that takes them: a length, and
//!                                      as many bytes, which have checksums of their own
//!   241 dictionary                     a dictionary that pages behind it need; the same
//!   244 slot, keys, keys that expire   of a cluster
//!   253 seconds (4 bytes), or 252 milliseconds (8 bytes), little-endian: the next key's expiry
//!   248 seconds (a length), or 249 frequency (1 byte): how the next key was used
//!   0 … 25 key value                   a key; the number is the value's type
//! ```
//!
//! Lengths, strings and values: see `value::rdb`. Types that only files have:
//!
//! ```text
//! 7    a module's value                          module, (1 number | 2 number | 3 4 bytes | 4 8 bytes | 5 string) …, 0
//! 22   a hash with fields that expire (Valkey)   how many; each field, value, expiry (8 bytes; -1: none)
//! 22   the same (Redis 7.4 before its release)   how many; each expiry (0: none), field, value
//! 23   the same (Redis 7.4 before its release)   a listpack of field, value, expiry (0: none)
//! 24   the same (Redis 7.4)                      first expiry (8 bytes), how many; each expiry - first + 1 (0: none), field, value
//! 25   the same (Redis 7.4)                      first expiry (8 bytes), a listpack like that of 23
//! ```

#![forbid(unsafe_code)]

mod opcode;
mod read;
mod stream;
mod window;
mod write;

pub use read::{Item, Key, Piece, Reader};
pub use window::{Error, show_key};
pub use write::{Options, Writer};
