//! Owns the search for the end of a reply that is passed on while it arrives. Never keeps its bytes, and never knows the command.

use crate::client::ProtocolError;
use crate::number::parse_i64;

/// How far a reply has arrived. Unlike [`crate::client::SkipState`], what was looked at need not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The values still to come; 0: the reply is complete.
    values: u64,
    /// The bytes still to come of a bulk string, with its line end.
    bulk: u64,
    /// Nothing has arrived yet.
    is_new: bool,
}

impl Default for Extent {
    fn default() -> Extent {
        Extent { values: 1, bulk: 0, is_new: true }
    }
}

impl Extent {
    /// Returns how many bytes at the start of `input` belong to the reply, and whether it ends with them. A line that is incomplete is not
    /// counted: the next call must begin with it.
    #[inline]
    pub fn advance(&mut self, input: &[u8]) -> Result<(usize, bool), ProtocolError> {
        let mut at = 0;
        loop {
            if self.bulk > 0 {
                let bytes = self.bulk.min((input.len() - at) as u64);
                at += bytes as usize;
                self.bulk -= bytes;
                if self.bulk > 0 {
                    return Ok((at, false));
                }
                self.values -= 1;
            }
            if self.values == 0 {
                return Ok((at, true));
            }
            let rest = &input[at..];
            let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return Ok((at, false)) };
            let [tag, text @ .., b'\r'] = &rest[..end] else { return Err(ProtocolError::MissingLineEnd) };
            at += end + 1;
            self.is_new = false;
            self.line(*tag, text)?;
        }
    }

    /// Whether the first byte of the reply has not been counted yet.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    #[inline]
    fn line(&mut self, tag: u8, text: &[u8]) -> Result<(), ProtocolError> {
        let length = || parse_i64(text).filter(|&length| length >= -1).ok_or(ProtocolError::MalformedLength);
        match tag {
            b'$' | b'=' | b'!' => match length()? {
                -1 => self.values -= 1,
                length => self.bulk = length as u64 + 2,
            },
            b'*' | b'~' | b'>' => self.values = self.values - 1 + length()?.max(0) as u64,
            b'%' => self.values = self.values - 1 + 2 * length()?.max(0) as u64,
            // What it is about follows it, and counts for itself.
            b'|' => self.values += 2 * length()?.max(0) as u64,
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => self.values -= 1,
            tag => return Err(ProtocolError::UnknownType { tag }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_it_ends_however_it_arrives() {
        for reply in [
            &b"+OK\r\n"[..],
            b"-ERR no\r\n",
            b":-1\r\n",
            b"$-1\r\n",
            b"_\r\n",
            b"$0\r\n\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n",
            b"%1\r\n+k\r\n~2\r\n,1.5\r\n#t\r\n",
            b"|1\r\n+ttl\r\n:3\r\n*1\r\n=6\r\ntxt:ab\r\n",
            b"*1\r\n|1\r\n+a\r\n+b\r\n(123\r\n",
        ] {
            let behind = [reply, b"+NEXT\r\n"].concat();
            for step in 1..=behind.len() {
                let (mut extent, mut from, mut to) = (Extent::default(), 0, 0);
                loop {
                    to = (to + step).min(behind.len());
                    let (bytes, is_complete) = extent.advance(&behind[from..to]).unwrap();
                    from += bytes;
                    if is_complete {
                        break;
                    }
                    assert!(to < behind.len(), "it has an end");
                }
                assert_eq!(from, reply.len(), "{:?} by {step}", reply.escape_ascii().to_string());
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for broken in [&b"?\r\n"[..], b"$x\r\n", b"*-2\r\n", b"+OK\n", b"\r\n"] {
            assert!(Extent::default().advance(broken).is_err(), "{:?}", broken.escape_ascii().to_string());
        }
    }
}
