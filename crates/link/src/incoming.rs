//! Owns the splitting of received bytes into frames, wherever a read has cut them. Never knows what a frame does.

use std::task::Waker;

use crate::end::{End, Violation};
use crate::frame::{HEADER_BYTES, Header, Kind, MAGIC, TARGET_BYTES_MAX, VERSION};
use crate::state::Multiplexer;

enum Part {
    Greeting,
    Header,
    Payload { header: Header, left: usize },
}

pub struct Incoming {
    part: Part,
    /// A greeting, a header, or the payload of OPEN or CREDIT, as far as it has come. Other payloads are passed on in pieces.
    kept: [u8; TARGET_BYTES_MAX],
    kept_bytes: usize,
}

const _: () = assert!(HEADER_BYTES <= TARGET_BYTES_MAX);

impl Incoming {
    pub fn new() -> Incoming {
        Incoming { part: Part::Greeting, kept: [0; TARGET_BYTES_MAX], kept_bytes: 0 }
    }

    /// Does what the frames say. Each loop takes at least one byte.
    pub fn take(&mut self, mut bytes: &[u8], state: &mut Multiplexer, wakers: &mut Vec<Waker>) -> Result<(), End> {
        while !bytes.is_empty() {
            match self.part {
                Part::Greeting => {
                    if self.keep(&mut bytes, HEADER_BYTES) {
                        self.kept_bytes = 0;
                        let [magic @ .., low, high] = self.head();
                        if magic != MAGIC {
                            return Err(End::NotALink(magic));
                        }
                        let version = u16::from_le_bytes([low, high]);
                        if version != VERSION {
                            return Err(End::Version(version));
                        }
                        self.part = Part::Header;
                    }
                }
                Part::Header => {
                    if self.keep(&mut bytes, HEADER_BYTES) {
                        self.kept_bytes = 0;
                        let header = Header::decode(self.head()).map_err(Violation::UnknownKind)?;
                        state.begin(header)?;
                        if header.length == 0 {
                            state.finish(header, &[], wakers)?;
                        } else {
                            self.part = Part::Payload { header, left: header.length };
                        }
                    }
                }
                Part::Payload { header, left } => {
                    let is_complete = if let Kind::Open | Kind::Credit = header.kind {
                        self.keep(&mut bytes, header.length)
                    } else {
                        let (piece, rest) = bytes.split_at(left.min(bytes.len()));
                        state.append(header, piece, wakers);
                        bytes = rest;
                        self.part = Part::Payload { header, left: left - piece.len() };
                        left == piece.len()
                    };
                    if is_complete {
                        state.finish(header, &self.kept[..self.kept_bytes], wakers)?;
                        self.kept_bytes = 0;
                        self.part = Part::Header;
                    }
                }
            }
        }
        Ok(())
    }

    /// Keeps bytes until there are so many.
    fn keep(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let (piece, rest) = bytes.split_at((wanted - self.kept_bytes).min(bytes.len()));
        self.kept[self.kept_bytes..self.kept_bytes + piece.len()].copy_from_slice(piece);
        self.kept_bytes += piece.len();
        *bytes = rest;
        self.kept_bytes == wanted
    }

    fn head(&self) -> [u8; HEADER_BYTES] {
        *self.kept.first_chunk().expect("as long as a target at least")
    }
}
