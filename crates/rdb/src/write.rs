//! Owns writing a file: the caller gives the records in their order. Values are written in their plain form (a count and
//! the members), which every version reads. Never knows a store.

use crate::opcode;
use std::io::{self, Write};
use value::rdb::stream::{self, Version};
use value::rdb::{self, Compressor, Type, crc64_after};
use value::stream::{Id, Stream};

/// Redis compresses longer strings.
const COMPRESSED_BYTES_MIN: usize = 20;
/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// 10, 11 or 12.
    pub version: u32,
    /// Whether long strings are compressed.
    pub compresses: bool,
    /// Whether the file ends with its checksum.
    pub has_checksum: bool,
}

pub struct Writer<W> {
    out: W,
    buffer: Vec<u8>,
    options: Options,
    sum: u64,
    compressor: Compressor,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, options: Options) -> Writer<W> {
        let magic = format!("REDIS{:04}", options.version).into_bytes();
        Writer { out, buffer: magic, options, sum: 0, compressor: Compressor::default() }
    }

    /// A writer that continues a file without a checksum.
    pub fn after(out: W, options: Options) -> Writer<W> {
        Writer { buffer: Vec::new(), ..Writer::new(out, Options { has_checksum: false, ..options }) }
    }

    pub fn options(&self) -> Options {
        self.options
    }

    pub fn aux(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        self.buffer.push(opcode::AUX);
        self.string(name.as_bytes())?;
        self.string(value)
    }

    /// A library of functions.
    pub fn function(&mut self, code: &[u8]) -> io::Result<()> {
        self.buffer.push(opcode::FUNCTION);
        self.string(code)
    }

    /// Sets the logical database of the keys that follow.
    pub fn select(&mut self, db: u64) {
        self.buffer.push(opcode::SELECT);
        rdb::put_len(&mut self.buffer, db);
    }

    /// Pages of this node's flash: for a replica that accepts them. A dictionary precedes the pages that need it. Both
    /// have checksums of their own.
    pub fn pages(&mut self, pages: &[u8]) -> io::Result<()> {
        self.own(opcode::PAGES, pages)
    }

    pub fn dictionary(&mut self, dictionary: &[u8]) -> io::Result<()> {
        self.own(opcode::DICTIONARY, dictionary)
    }

    fn own(&mut self, opcode: u8, bytes: &[u8]) -> io::Result<()> {
        self.buffer.push(opcode);
        rdb::put_len(&mut self.buffer, bytes.len() as u64);
        self.flush()?;
        self.out.write_all(bytes)
    }

    /// The number of keys of the database, and the number of those that expire.
    pub fn resize(&mut self, keys: u64, expires: u64) {
        self.buffer.push(opcode::RESIZE);
        rdb::put_len(&mut self.buffer, keys);
        rdb::put_len(&mut self.buffer, expires);
    }

    /// A key. The caller then writes the value as `value::rdb` describes the type.
    pub fn key(&mut self, name: &[u8], expiry_ms: Option<u64>, kind: Type) -> io::Result<()> {
        self.begin(name, expiry_ms, kind as u8)
    }

    /// Begins a hash of `fields` fields, some of which expire, the first of them at `first_ms`. Needs version 12.
    pub fn hash_with_expiries(
        &mut self,
        name: &[u8],
        expiry_ms: Option<u64>,
        first_ms: u64,
        fields: u64,
    ) -> io::Result<()> {
        self.begin(name, expiry_ms, opcode::HASH_FIELDS)?;
        self.buffer.extend_from_slice(&first_ms.to_le_bytes());
        self.len(fields);
        Ok(())
    }

    /// A field of such a hash. `after_first_ms` is `None` if the field does not expire.
    pub fn field(&mut self, field: &[u8], value: &[u8], after_first_ms: Option<u64>) -> io::Result<()> {
        self.len(after_first_ms.map_or(0, |after| after + 1));
        self.string(field)?;
        self.string(value)
    }

    fn begin(&mut self, name: &[u8], expiry_ms: Option<u64>, kind: u8) -> io::Result<()> {
        if let Some(expiry_ms) = expiry_ms {
            self.buffer.push(opcode::EXPIRY_MS);
            self.buffer.extend_from_slice(&expiry_ms.to_le_bytes());
        }
        self.buffer.push(kind);
        self.string(name)
    }

    pub fn len(&mut self, len: u64) {
        rdb::put_len(&mut self.buffer, len);
    }

    pub fn string(&mut self, text: &[u8]) -> io::Result<()> {
        let compressed = match self.options.compresses && text.len() > COMPRESSED_BYTES_MIN {
            true => self.compressor.compress(text),
            false => None,
        };
        match compressed {
            Some(compressed) => {
                self.buffer.push(0xc3);
                rdb::put_len(&mut self.buffer, compressed.len() as u64);
                rdb::put_len(&mut self.buffer, text.len() as u64);
                self.buffer.extend_from_slice(&compressed);
            }
            None => rdb::put_string(&mut self.buffer, text),
        }
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// A member's score.
    pub fn score(&mut self, score: f64) {
        self.buffer.extend_from_slice(&score.to_le_bytes());
    }

    /// The type in which this file has streams.
    pub fn stream_type(&self) -> Type {
        if self.options.version >= 11 { Type::Stream3 } else { Type::Stream2 }
    }

    /// A chunk of a stream: its first id and its listpack.
    pub fn stream_chunk(&mut self, base: Id, list: &[u8]) -> io::Result<()> {
        rdb::put_string(&mut self.buffer, &base.to_bytes());
        self.string(list)
    }

    /// What follows a stream's chunks.
    pub fn stream_end(&mut self, stream: &Stream) -> io::Result<()> {
        let version = if self.options.version >= 11 { Version::V3 } else { Version::V2 };
        stream::write_after_chunks(stream, version, &mut self.buffer);
        self.flush()
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.options.has_checksum {
            self.sum = crc64_after(self.sum, &self.buffer);
        }
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the file. Returns what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.buffer.push(opcode::END);
        self.flush()?;
        // 0: there is no checksum.
        self.out.write_all(&self.sum.to_le_bytes())?;
        Ok(self.out)
    }
}
