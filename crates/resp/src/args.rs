//! Owns a command's arguments as a handler sees them: borrowed slices of the received bytes. Never knows a command.

use crate::request::Span;

/// A command's arguments as borrowed slices; 0 is its name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, spans }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    #[inline]
    pub fn get(&self, at: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(at)?;
        let start = span.start as usize;
        Some(&self.bytes[start..start + span.len as usize])
    }

    /// The whole command in the bytes in which it was sent. `None`: they are not the usual ones of a command that is sent as an array:
    /// at most nine arguments, a name of at most nine bytes, and `\r\n` behind each line.
    #[inline]
    pub fn sent(&self) -> Option<&'a [u8]> {
        let (first, last) = (self.spans.first()?, self.spans.last()?);
        let sent = self.bytes.get(..(last.start + last.len) as usize + 2)?;
        let digit = |count: usize| b'0' + count as u8;
        let usual = [b'*', digit(self.spans.len()), b'\r', b'\n', b'$', digit(first.len as usize), b'\r', b'\n'];
        let begins = first.len <= 9 && self.spans.len() <= 9 && first.start == 8 && sent.first_chunk() == Some(&usual);
        let goes_on = self.spans.windows(2).all(|pair| {
            let line = &sent[(pair[0].start + pair[0].len) as usize..pair[1].start as usize];
            matches!(line, [b'\r', b'\n', b'$', _, .., b'\r', b'\n'])
        });
        (begins && goes_on && sent.ends_with(b"\r\n")).then_some(sent)
    }

    /// The arguments from `from` on, as a command of their own.
    #[inline]
    pub fn tail(&self, from: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: &self.spans[from.min(self.spans.len())..] }
    }

    /// The arguments from `from` on.
    #[inline]
    pub fn from(&self, from: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans[from.min(self.spans.len())..]
            .iter()
            .map(move |span| &bytes[span.start as usize..span.start as usize + span.len as usize])
    }
}

impl<'a> std::ops::Index<usize> for Args<'a> {
    type Output = [u8];
    #[inline]
    fn index(&self, at: usize) -> &[u8] {
        let span = self.spans[at];
        &self.bytes[span.start as usize..span.start as usize + span.len as usize]
    }
}
