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

    #[inline(always)]
    pub fn get(&self, at: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(at)?;
        let start = span.start as usize;
        Some(&self.bytes[start..start + span.len as usize])
    }

    /// Whether the command was called by this name, in upper or lower case. The name has letters only.
    #[inline]
    pub fn is_called(&self, name: &str) -> bool {
        const CASE: u8 = b'a' ^ b'A';
        let called = self.get(0).unwrap_or_default();
        // Names are short: a loop that ends at the first difference takes a third of the instructions of one over vectors.
        called.len() == name.len() && called.iter().zip(name.as_bytes()).all(|(a, b)| (a ^ b) & !CASE == 0)
    }

    /// The bytes in which the whole command was sent. `None`: the command does not have the usual form of an array with at
    /// most nine arguments, a name of at most nine bytes, and `\r ` after each line.
    #[inline]
    pub fn sent(&self) -> Option<&'a [u8]> {
        let (first, others) = self.spans.split_first()?;
        if others.len() > 8 || first.len > 9 || first.start != 8 {
            return None;
        }
        let digit = |count: usize| b'0' + count as u8;
        let usual = [b'*', digit(self.spans.len()), b'\r', b'\n', b'$', digit(first.len as usize), b'\r', b'\n'];
        if *self.bytes.first_chunk()? != usual {
            return None;
        }
        let mut end = first.start as usize + first.len as usize;
        for span in others {
            let line = self.bytes.get(end..span.start as usize)?;
            if line.len() < 6 || line[..3] != *b"\r\n$" || line[line.len() - 2..] != *b"\r\n" {
                return None;
            }
            end = span.start as usize + span.len as usize;
        }
        let sent = self.bytes.get(..end + 2)?;
        sent.ends_with(b"\r\n").then_some(sent)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Limits, Parsed, Progress, Source, parse};

    /// The result of [`Args::sent`] for the command at the beginning of the bytes.
    fn sent(input: &[u8]) -> Option<Vec<u8>> {
        let (mut progress, mut spans) = (Progress::default(), Vec::new());
        let parsed = parse(input, &mut progress, &Limits::DEFAULT, &mut spans);
        let bytes = match parsed {
            Ok(Parsed::Complete { source: Source::Input, .. }) => input,
            Ok(Parsed::Complete { source: Source::Unquoted, .. }) => progress.unquoted(),
            other => panic!("{other:?}"),
        };
        Args::new(bytes, &spans).sent().map(<[u8]>::to_vec)
    }

    #[test]
    fn a_usual_command_is_its_own_bytes_and_nothing_behind_them() {
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\na\r\n$1\r\nvalue\r\n";
        assert_eq!(sent(set).as_deref(), Some(&set[..]));
        assert_eq!(sent(&[set, &b"*1\r\n$4\r\nPING\r\n"[..]].concat()).as_deref(), Some(&set[..]));
        let empty = b"*2\r\n$4\r\nINCR\r\n$0\r\n\r\n";
        assert_eq!(sent(empty).as_deref(), Some(&empty[..]));
        assert_eq!(sent(b"*1\r\n$8\r\nFLUSHALL\r\n").as_deref(), Some(&b"*1\r\n$8\r\nFLUSHALL\r\n"[..]));
    }

    #[test]
    fn a_name_is_known_in_upper_and_lower_case() {
        let called = |name: &[u8]| Args::new(name, &[Span { start: 0, len: name.len() as u32 }]).is_called("incrby");
        assert!(called(b"incrby") && called(b"INCRBY") && called(b"iNcRbY"));
        assert!(!called(b"incr") && !called(b"incrbyx") && !called(b"incrbz") && !called(b"ancrby") && !called(b""));
        assert!(!Args::new(b"", &[]).is_called("incrby"));
    }

    #[test]
    fn quoted_arguments_that_look_like_a_command_as_it_is_sent_are_not_passed_on() {
        // Unquoted words are stored one after the other: here the words of the first command look like the head of an
        // array.
        let words = b"*2\r\n$3\r\nDELk\r\n";
        let spans = [Span { start: 8, len: 3 }, Span { start: 11, len: 1 }];
        assert_eq!(Args::new(words, &spans).sent(), None);
    }

    #[test]
    fn long_commands_are_not_passed_on() {
        for count in [10, 207, 208, 255, 256, 265, 70_000] {
            let many = [format!("*{count}\r\n$3\r\nDEL\r\n").into_bytes(), b"$1\r\nk\r\n".repeat(count - 1)].concat();
            assert_eq!(sent(&many), None, "{count} words");
            let name = format!("*1\r\n${count}\r\n{}\r\n", "n".repeat(count));
            assert_eq!(sent(name.as_bytes()), None, "a name of {count} bytes");
        }
    }

    #[test]
    fn unusual_bytes_are_not_passed_on() {
        let unusual: &[&[u8]] = &[
            b"SET k v\r\n",
            b"SET k 'v'\r\n",
            b"*3\r\n$3\r\nSET\r\n$1\r\nkxx$1\r\nv\r\n",
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nvxx",
            b"*3\r\n$3\r\nSETxx$1\r\nk\r\n$1\r\nv\r\n",
            b"*1\r\n$10\r\nBGREWRITES\r\n",
        ];
        for input in unusual {
            assert_eq!(sent(input), None, "{}", input.escape_ascii());
        }
        let mut many = b"*10\r\n$3\r\nDEL\r\n".to_vec();
        (0..9).for_each(|_| many.extend_from_slice(b"$1\r\nk\r\n"));
        assert_eq!(sent(&many), None);
    }

    #[test]
    fn arguments_that_were_copied_have_no_bytes_in_which_they_were_sent() {
        let spans = [Span { start: 0, len: 3 }, Span { start: 3, len: 1 }];
        assert_eq!(Args::new(b"GETk\r\n", &spans).sent(), None);
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let spans = [Span { start: 8, len: 3 }, Span { start: 17, len: 1 }];
        assert_eq!(Args::new(input, &spans).sent(), Some(&input[..]));
        assert_eq!(Args::new(input, &spans).tail(1).sent(), None);
        assert_eq!(Args::new(input, &spans[..1]).sent(), None);
        assert_eq!(Args::new(input, &[]).sent(), None);
        let no_length = b"*2\r\n$3\r\nGET\r\n$\r\nk\r\n";
        let spans = [Span { start: 8, len: 3 }, Span { start: 16, len: 1 }];
        assert_eq!(Args::new(no_length, &spans).sent(), None);
    }
}
