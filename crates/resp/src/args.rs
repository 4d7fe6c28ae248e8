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
