//! Owns compression: the codecs, and the contexts that are kept from frame to frame.
//! Never knows pages or records.

use std::sync::Arc;

use base::Codec;
use lz4_flex::block::CompressTable;
use zstd_safe::{CCtx, DCtx};

use super::layout::{EXTENT_RAW_BYTES_MAX, FRAME_RAW_BYTES_MAX, FrameCodec};
use super::{Corrupt, Dictionary};

/// Every zstd frame begins with it, so pages need not.
const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();

/// Buffers above this are given back after the one record that needed them.
const KEEP_BYTES_MAX: usize = 1 << 20;

/// Contexts of the writing side; one per builder.
pub(super) struct Compressor {
    codec: Codec,
    level: i32,
    zstd: Option<CCtx<'static>>,
    lz4: CompressTable,
    out: Vec<u8>,
    /// Where in `out` the frame made last begins.
    out_at: usize,
}

impl Compressor {
    pub fn new(codec: Codec, level: i32) -> Compressor {
        let zstd = (codec == Codec::Zstd).then(CCtx::create);
        Compressor { codec, level, zstd, lz4: CompressTable::small(), out: Vec::new(), out_at: 0 }
    }

    /// Takes effect with the next frame.
    pub fn set_codec(&mut self, codec: Codec) {
        if codec != self.codec {
            *self = Compressor::new(codec, self.level);
        }
    }

    /// What [`Compressor::compress`] makes.
    pub fn frame_codec(&self) -> FrameCodec {
        match self.codec {
            Codec::None => FrameCodec::Raw,
            Codec::Lz4 => FrameCodec::Lz4,
            Codec::Zstd => FrameCodec::Zstd,
        }
    }

    /// `raw` compressed, or `None` when that does not make it smaller.
    pub fn compress(&mut self, raw: &[u8], dictionary: Option<&Dictionary>) -> Option<&[u8]> {
        if self.out.capacity() > KEEP_BYTES_MAX && raw.len() < KEEP_BYTES_MAX / 2 {
            self.out = Vec::new();
        }
        let stored_bytes = match self.codec {
            Codec::None => return None,
            Codec::Lz4 => {
                let bound = lz4_flex::block::get_maximum_output_size(raw.len());
                if self.out.len() < bound {
                    self.out.resize(bound, 0);
                }
                // A large record would turn the small table into a large one for good.
                let written = if raw.len() < FRAME_RAW_BYTES_MAX {
                    lz4_flex::block::compress_into_with_table(raw, &mut self.out, &mut self.lz4)
                } else {
                    lz4_flex::block::compress_into(raw, &mut self.out)
                };
                self.out_at = 0;
                written.ok()?
            }
            Codec::Zstd => {
                let zstd = self.zstd.as_mut().expect("made in new()");
                self.out.clear();
                self.out.reserve(zstd_safe::compress_bound(raw.len()));
                let written = match dictionary {
                    Some(dictionary) => zstd.compress_using_cdict(&mut self.out, raw, dictionary.for_writing()),
                    None => zstd.compress(&mut self.out, raw, self.level),
                };
                self.out_at = ZSTD_MAGIC.len();
                let written = written.ok()?;
                assert!(self.out.starts_with(&ZSTD_MAGIC));
                written - ZSTD_MAGIC.len()
            }
        };
        (stored_bytes < raw.len()).then(|| self.last(stored_bytes))
    }

    /// Gives back the memory of a large frame.
    pub fn release(&mut self) {
        if self.out.capacity() > KEEP_BYTES_MAX {
            self.out = Vec::new();
        }
    }

    /// Again what [`Compressor::compress`] returned last, `stored_bytes` long.
    pub fn last(&self, stored_bytes: usize) -> &[u8] {
        &self.out[self.out_at..self.out_at + stored_bytes]
    }
}

/// Contexts and buffers of the reading side; one per worker.
pub struct Scratch {
    zstd: DCtx<'static>,
    /// The frame with its magic number put back.
    stored: Vec<u8>,
    /// The frame decoded last.
    raw: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch { zstd: DCtx::create(), stored: Vec::new(), raw: Vec::new() }
    }

    /// Bytes held, for accounting.
    pub fn ram_bytes(&self) -> usize {
        self.zstd.sizeof() + self.stored.capacity() + self.raw.capacity()
    }

    /// Gives back the memory of a large frame.
    pub fn release(&mut self) {
        if self.raw.capacity() > KEEP_BYTES_MAX {
            self.raw = Vec::new();
            self.stored = Vec::new();
        }
    }

    /// Decodes `stored` into exactly `raw_bytes`, which is at most [`EXTENT_RAW_BYTES_MAX`]; see [`Scratch::raw`].
    /// Not for raw frames.
    pub(super) fn decode(
        &mut self,
        codec: FrameCodec,
        stored: &[u8],
        raw_bytes: usize,
        dictionary: Option<&Arc<Dictionary>>,
    ) -> Result<(), Corrupt> {
        assert!(raw_bytes <= EXTENT_RAW_BYTES_MAX);
        if self.raw.capacity() > KEEP_BYTES_MAX && raw_bytes < KEEP_BYTES_MAX / 2 {
            self.raw = Vec::new();
            self.stored = Vec::new();
        }
        let decoded_bytes = match codec {
            FrameCodec::Raw => unreachable!("raw frames are read in place"),
            FrameCodec::Lz4 => {
                self.raw.resize(raw_bytes, 0);
                lz4_flex::block::decompress_into(stored, &mut self.raw).map_err(|_| Corrupt::Decompress)?
            }
            FrameCodec::Zstd => {
                self.stored.clear();
                self.stored.extend_from_slice(&ZSTD_MAGIC);
                self.stored.extend_from_slice(stored);
                // A slice, not the Vec: what the frame may write is bounded by raw_bytes, not by a capacity.
                self.raw.resize(raw_bytes, 0);
                match dictionary {
                    Some(dictionary) => {
                        self.zstd.decompress_using_ddict(&mut self.raw[..], &self.stored, dictionary.for_reading())
                    }
                    None => self.zstd.decompress(&mut self.raw[..], &self.stored),
                }
                .map_err(|_| Corrupt::Decompress)?
            }
        };
        if decoded_bytes == raw_bytes { Ok(()) } else { Err(Corrupt::Decompress) }
    }

    /// The frame decoded last.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }
}
