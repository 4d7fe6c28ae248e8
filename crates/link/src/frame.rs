//! Owns the bytes of the protocol: the greeting, the header of a frame, the kinds and their limits. Never knows a link's state.
//!
//! Each direction begins with a greeting of 8 bytes, then has frames only. Numbers are little-endian.
//!
//! ```text
//!          0       1       2       3       4       5       6       7
//! greeting │ F     │ K     │ L     │ I     │ N     │ K     │ version       │
//!
//! header   │ kind  │ length of the payload │ session                       │
//! ```
//!
//! | kind | name | session | payload |
//! | --- | --- | --- | --- |
//! | 1 | OPEN | a number that is free | the target, at most 256 bytes; only the end that connected sends it |
//! | 2 | DATA | open | 1 to 65,536 bytes, at most the credit that is left |
//! | 3 | CREDIT | open | u32: how many bytes more the receiver of this frame may send |
//! | 4 | END | open | none: the sender sends no more DATA, but still reads |
//! | 5 | CLOSE | open | none: the sender sends nothing more for this session and discards what comes |
//! | 6 | REFUSE | open | none: a CLOSE of the end that accepts, before it has read or sent a byte |
//! | 7 | MESSAGE | 0 | the last or only part of a message, at most 65,536 bytes |
//! | 8 | MORE | 0 | a part of a message that is not the last, 1 to 65,536 bytes |
//! | 9 | PING | 0 | none: the sender is alive |
//!
//! A session has a window for each direction: so many bytes of DATA can be sent before the first CREDIT, by default the largest window of
//! 1 MiB; both ends begin with the same. By the CREDIT that it gives, the receiver lets the window grow and shrink. Its number is free
//! again when both ends have sent CLOSE or REFUSE; numbers are below 65,536. A frame that breaks one of these rules ends the link.

/// The first 6 bytes of each direction.
pub const MAGIC: [u8; 6] = *b"FKLINK";
/// Of the protocol. There is no negotiation: another version is an error.
pub const VERSION: u16 = 1;
pub const HEADER_BYTES: usize = 8;
/// The payload of a frame.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
pub const TARGET_BYTES_MAX: usize = 256;
/// The largest window of one direction of a session.
pub const WINDOW_BYTES: u32 = 1 << 20;
/// A whole message.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Session numbers are below it.
pub const SESSIONS_MAX: usize = 64 << 10;

const _: () = assert!(MAGIC.len() + size_of::<u16>() == HEADER_BYTES);
const _: () = assert!(FRAME_BYTES_MAX < 1 << 24);
const _: () = assert!(FRAME_BYTES_MAX <= WINDOW_BYTES as usize);

/// The bytes that each direction begins with.
pub fn greeting() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..6].copy_from_slice(&MAGIC);
    bytes[6..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Open = 1,
    Data = 2,
    Credit = 3,
    End = 4,
    Close = 5,
    Refuse = 6,
    Message = 7,
    More = 8,
    Ping = 9,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Open,
        Kind::Data,
        Kind::Credit,
        Kind::End,
        Kind::Close,
        Kind::Refuse,
        Kind::Message,
        Kind::More,
        Kind::Ping,
    ];

    pub fn from_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// Whether a payload of this kind can have this length.
    pub fn can_have(self, length: usize) -> bool {
        match self {
            Kind::Open => length <= TARGET_BYTES_MAX,
            // Each of these frames must carry something, so that a peer cannot keep this end busy with nothing.
            Kind::Data | Kind::More => 0 < length && length <= FRAME_BYTES_MAX,
            Kind::Message => length <= FRAME_BYTES_MAX,
            Kind::Credit => length == 4,
            Kind::End | Kind::Close | Kind::Refuse | Kind::Ping => length == 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Of the payload.
    pub length: usize,
    pub session: u32,
}

impl Header {
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        debug_assert!(self.kind.can_have(self.length), "{self:?}");
        let [low, middle, high, _] = (self.length as u32).to_le_bytes();
        let [a, b, c, d] = self.session.to_le_bytes();
        [self.kind as u8, low, middle, high, a, b, c, d]
    }

    /// `Err`: the byte of an unknown kind.
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Header, u8> {
        let [kind, low, middle, high, a, b, c, d] = bytes;
        Ok(Header {
            kind: Kind::from_byte(kind).ok_or(kind)?,
            length: u32::from_le_bytes([low, middle, high, 0]) as usize,
            session: u32::from_le_bytes([a, b, c, d]),
        })
    }
}
