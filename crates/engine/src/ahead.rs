//! Owns bytes that a client has sent ahead: while its earlier commands have not run, their arguments must stay in place in the input
//! buffer, so what follows is received here, in pieces. Never parses.

use std::collections::VecDeque;

#[derive(Default)]
pub struct Ahead {
    pieces: VecDeque<Piece>,
    /// The bytes received.
    bytes: usize,
}

struct Piece {
    buf: Box<[u8]>,
    /// The bytes from here to `filled` were received and not taken.
    from: usize,
    filled: usize,
}

impl Ahead {
    pub const PIECE_BYTES: usize = 64 << 10;

    /// Bytes that were received.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it has no piece.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn mem_bytes(&self) -> usize {
        self.pieces.len() * Ahead::PIECE_BYTES
    }

    pub fn free_bytes(&self) -> usize {
        self.pieces.back().map_or(0, |last| last.buf.len() - last.filled)
    }

    pub fn has_room(&self) -> bool {
        self.free_bytes() > 0
    }

    /// Adds a piece.
    pub fn grow(&mut self) {
        self.pieces.push_back(Piece { buf: vec![0; Ahead::PIECE_BYTES].into(), from: 0, filled: 0 });
    }

    /// Where the next bytes are received.
    pub fn room(&mut self) -> &mut [u8] {
        self.pieces.back_mut().map_or(&mut [], |last| &mut last.buf[last.filled..])
    }

    /// So many bytes have arrived there.
    pub fn fill(&mut self, bytes: usize) {
        if let Some(last) = self.pieces.back_mut() {
            last.filled += bytes;
            self.bytes += bytes;
        }
    }

    /// Gives back a piece in which nothing has arrived.
    pub fn trim(&mut self) {
        if self.pieces.back().is_some_and(|last| last.filled == 0) {
            self.pieces.pop_back();
        }
    }

    /// Moves the first bytes to `room`. Returns their number.
    pub fn take(&mut self, room: &mut [u8]) -> usize {
        let mut taken = 0;
        while let Some(first) = self.pieces.front_mut() {
            let bytes = (first.filled - first.from).min(room.len() - taken);
            room[taken..taken + bytes].copy_from_slice(&first.buf[first.from..first.from + bytes]);
            first.from += bytes;
            taken += bytes;
            if first.from < first.filled {
                break;
            }
            self.pieces.pop_front();
        }
        self.bytes -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_the_order_in_which_they_came() {
        let mut ahead = Ahead::default();
        let sent: Vec<u8> = (0..3 * Ahead::PIECE_BYTES + 100).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        let (mut left, mut received, mut room) = (&sent[..], Vec::new(), vec![0; 10_007]);
        while !left.is_empty() {
            if !ahead.has_room() {
                ahead.grow();
            }
            let bytes = left.len().min(ahead.room().len()).min(25_000);
            ahead.room()[..bytes].copy_from_slice(&left[..bytes]);
            ahead.fill(bytes);
            left = &left[bytes..];
            let taken = ahead.take(&mut room);
            received.extend_from_slice(&room[..taken]);
        }
        assert_eq!(ahead.bytes(), sent.len() - received.len());
        while !ahead.is_empty() {
            let taken = ahead.take(&mut room);
            received.extend_from_slice(&room[..taken]);
        }
        assert!(received == sent);
        assert_eq!((ahead.bytes(), ahead.mem_bytes(), ahead.free_bytes()), (0, 0, 0));
    }
}
