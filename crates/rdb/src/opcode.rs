//! Owns the numbers that begin a record, and those of the types that only files have. Never knows what follows them.

/// Used only in a stream to a FlintKV replica that asks for them. They are in no file that is kept.
pub const PAGES: u8 = 240;
pub const DICTIONARY: u8 = 241;
pub const SLOT_INFO: u8 = 244;
pub const FUNCTION: u8 = 245;
/// Written by release candidates of Redis 7.0 only.
pub const FUNCTION_BEFORE_RELEASE: u8 = 246;
pub const MODULE_AUX: u8 = 247;
pub const IDLE: u8 = 248;
pub const FREQUENCY: u8 = 249;
pub const AUX: u8 = 250;
pub const RESIZE: u8 = 251;
pub const EXPIRY_MS: u8 = 252;
pub const EXPIRY_S: u8 = 253;
pub const SELECT: u8 = 254;
pub const END: u8 = 255;

pub const MODULE_BEFORE_RELEASE: u8 = 6;
pub const MODULE: u8 = 7;
/// Valkey's hash with fields that expire, or what Redis 7.4 wrote for one before its release.
pub const HASH_22: u8 = 22;
pub const HASH_LISTPACK_BEFORE_RELEASE: u8 = 23;
pub const HASH_FIELDS: u8 = 24;
pub const HASH_LISTPACK_FIELDS: u8 = 25;

/// The type of the next item of a module's data.
pub mod module {
    pub const END: u64 = 0;
    pub const SIGNED: u64 = 1;
    pub const UNSIGNED: u64 = 2;
    pub const FLOAT: u64 = 3;
    pub const DOUBLE: u64 = 4;
    pub const STRING: u64 = 5;
}
