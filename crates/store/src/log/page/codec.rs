//! Owns compression: the codecs, and the contexts that are reused from frame to frame.
//! Never knows pages or records.

use std::sync::Arc;

use base::Codec;
use lz4_flex::block::CompressTable;
use zstd_safe::{CCtx, DCtx};

use super::layout::{FrameCodec, RECORD_BYTES_MAX};
use super::{Corrupt, Dictionary};

/// Every zstd frame begins with it, so pages do not store it.
const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();

/// A buffer that has grown beyond this for one record is freed afterwards.
const KEEP_BYTES_MAX: usize = 1 << 20;

/// The LZ4 table is small for inputs below this size. A larger input would turn it into a large table for good.
const LZ4_SMALL_BYTES: usize = u16::MAX as usize;

/// The contexts of the writing side, one per builder.
pub(super) struct Compressor {
    codec: Codec,
    level: i32,
    zstd: Option<CCtx<'static>>,
    lz4: CompressTable,
    out: Vec<u8>,
    /// The position in `out` of the last frame.
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

    /// The codec of the frames that [`Compressor::compress`] makes.
    pub fn frame_codec(&self, has_dictionary: bool) -> FrameCodec {
        match self.codec {
            Codec::None => FrameCodec::Raw,
            Codec::Lz4 => FrameCodec::Lz4,
            Codec::Zstd if has_dictionary => FrameCodec::ZstdWithDictionary,
            Codec::Zstd => FrameCodec::Zstd,
        }
    }

    /// Returns `raw` compressed, or `None` if that is not smaller. LZ4 uses no dictionary: it would hash the dictionary again for
    /// every frame, 5 µs more for one byte in 17.
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
                let written = if raw.len() < LZ4_SMALL_BYTES {
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

    /// Frees the memory of a large frame.
    pub fn release(&mut self) {
        if self.out.capacity() > KEEP_BYTES_MAX {
            self.out = Vec::new();
        }
    }

    /// The last result of [`Compressor::compress`], which has `stored_bytes`.
    pub fn last(&self, stored_bytes: usize) -> &[u8] {
        &self.out[self.out_at..self.out_at + stored_bytes]
    }
}

/// The contexts and buffers of the reading side, one per worker.
pub struct Scratch {
    /// Made for the first frame that needs it: it takes some 100 KB.
    zstd: Option<DCtx<'static>>,
    /// The stored bytes of a frame, if they are not in one piece. For zstd with the magic number.
    stored: Vec<u8>,
    /// The last frame, decoded, and behind it what longer frames have left: clearing the buffer for each frame would cost as much as
    /// decoding many of them.
    raw: Vec<u8>,
    /// Number of bytes of the last frame.
    raw_bytes: usize,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch { zstd: None, stored: Vec::new(), raw: Vec::new(), raw_bytes: 0 }
    }

    /// Number of bytes held, for accounting.
    pub fn ram_bytes(&self) -> usize {
        self.zstd.as_ref().map_or(0, DCtx::sizeof) + self.stored.capacity() + self.raw.capacity()
    }

    /// Frees the memory of a large frame.
    pub fn release(&mut self) {
        if self.raw.capacity() > KEEP_BYTES_MAX {
            (self.raw, self.raw_bytes) = (Vec::new(), 0);
            self.stored = Vec::new();
        }
    }

    /// Decodes a frame of `raw_bytes`, at most [`RECORD_BYTES_MAX`], from its pieces: see [`Scratch::raw`].
    pub(super) fn decode<'p>(
        &mut self,
        codec: FrameCodec,
        pieces: impl Iterator<Item = Result<&'p [u8], Corrupt>>,
        raw_bytes: usize,
        dictionary: Option<&Arc<Dictionary>>,
    ) -> Result<(), Corrupt> {
        assert!(raw_bytes <= RECORD_BYTES_MAX);
        if self.raw.capacity() > KEEP_BYTES_MAX && raw_bytes < KEEP_BYTES_MAX / 2 {
            self.raw = Vec::new();
            self.stored = Vec::new();
        }
        self.raw_bytes = 0;
        let Scratch { zstd, stored, raw, .. } = self;
        if codec == FrameCodec::Raw {
            raw.clear();
            join(pieces, raw)?;
            self.raw_bytes = raw.len();
            return Ok(());
        }
        stored.clear();
        if codec != FrameCodec::Lz4 {
            stored.extend_from_slice(&ZSTD_MAGIC);
        }
        join(pieces, stored)?;
        // The frame may write at most raw_bytes, so decode into a slice. A Vec would allow its capacity.
        if raw.len() < raw_bytes {
            raw.resize(raw_bytes, 0);
        }
        let room = &mut raw[..raw_bytes];
        let decoded = match (codec, dictionary) {
            (FrameCodec::Lz4, _) => lz4_flex::block::decompress_into(stored, room).ok(),
            (_, Some(dictionary)) => zstd
                .get_or_insert_with(DCtx::create)
                .decompress_using_ddict(room, stored, dictionary.for_reading())
                .ok(),
            (_, None) => zstd.get_or_insert_with(DCtx::create).decompress(room, stored).ok(),
        };
        if decoded != Some(raw_bytes) {
            return Err(Corrupt::Decompress);
        }
        self.raw_bytes = raw_bytes;
        Ok(())
    }

    /// The last frame that was decoded.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw[..self.raw_bytes]
    }
}

fn join<'p>(pieces: impl Iterator<Item = Result<&'p [u8], Corrupt>>, out: &mut Vec<u8>) -> Result<(), Corrupt> {
    for piece in pieces {
        out.extend_from_slice(piece?);
    }
    Ok(())
}
