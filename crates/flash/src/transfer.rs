//! Owns how a partly completed read or write continues. Never knows which driver it belongs to.

use crate::io::PAGE_BYTES;
use std::io;

/// How often in a row an operation may be restarted without moving a whole page. If the kernel reports EINTR, EAGAIN or
/// a part of a page more often, its answer is passed on.
const RETRIES_MAX: u8 = 64;

/// A read or write of `bytes` bytes. The first `moved` of them (whole pages) are done.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub bytes: usize,
    pub moved: usize,
    write: bool,
    retries: u8,
}

#[derive(Debug)]
pub(crate) enum Step {
    /// Start the operation again for the rest, from `moved` on.
    Again,
    Finished(io::Result<()>),
}

impl Transfer {
    pub fn read(bytes: usize) -> Transfer {
        Transfer { bytes, moved: 0, write: false, retries: 0 }
    }

    pub fn write(bytes: usize) -> Transfer {
        Transfer { bytes, moved: 0, write: true, retries: 0 }
    }

    /// Handles the kernel's answer for the bytes from `moved` on.
    pub fn advance(&mut self, answer: io::Result<usize>) -> Step {
        let count = match answer {
            Ok(count) => count,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) if self.retry() => return Step::Again,
                _ => return Step::Finished(Err(error)),
            },
        };
        assert!(count <= self.bytes - self.moved, "the kernel moved more than it was asked to");
        if count == 0 {
            return Step::Finished(Err(self.ended()));
        }
        if self.moved + count == self.bytes {
            self.moved = self.bytes;
            return Step::Finished(Ok(()));
        }
        // O_DIRECT can continue only at a page, so a part of a page is moved again.
        let moved = (self.moved + count) / PAGE_BYTES * PAGE_BYTES;
        if moved > self.moved {
            self.moved = moved;
            self.retries = 0;
        } else if !self.retry() {
            return Step::Finished(Err(self.ended()));
        }
        Step::Again
    }

    fn retry(&mut self) -> bool {
        self.retries += 1;
        self.retries <= RETRIES_MAX
    }

    fn ended(&self) -> io::Error {
        if self.write { io::ErrorKind::WriteZero } else { io::ErrorKind::UnexpectedEof }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(step: Step) -> io::Result<()> {
        match step {
            Step::Finished(result) => result,
            Step::Again => panic!("not finished"),
        }
    }

    fn errno(code: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(code))
    }

    #[test]
    fn a_short_read_continues_at_the_last_whole_page() {
        let mut read = Transfer::read(4 * PAGE_BYTES);
        assert!(matches!(read.advance(Ok(PAGE_BYTES + 512)), Step::Again));
        assert_eq!(read.moved, PAGE_BYTES);
        assert!(matches!(read.advance(errno(libc::EINTR)), Step::Again));
        assert_eq!(read.moved, PAGE_BYTES);
        finished(read.advance(Ok(3 * PAGE_BYTES))).unwrap();
        assert_eq!(read.moved, 4 * PAGE_BYTES);
    }

    #[test]
    fn the_end_of_the_file_is_an_error() {
        let error = finished(Transfer::read(PAGE_BYTES).advance(Ok(0))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = finished(Transfer::write(PAGE_BYTES).advance(Ok(0))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }

    /// A file that ends inside a page answers 512 for ever; a broken kernel answers EAGAIN for ever.
    #[test]
    fn no_answer_is_retried_for_ever() {
        for (answer, kind) in [(None, io::ErrorKind::UnexpectedEof), (Some(libc::EAGAIN), io::ErrorKind::WouldBlock)] {
            let mut read = Transfer::read(PAGE_BYTES);
            let mut starts = 0;
            let error = loop {
                starts += 1;
                assert!(starts < 1000);
                match read.advance(answer.map_or(Ok(512), errno)) {
                    Step::Again => {}
                    Step::Finished(result) => break result.unwrap_err(),
                }
            };
            assert_eq!(error.kind(), kind);
            assert_eq!(starts, RETRIES_MAX as usize + 1);
        }
    }

    #[test]
    fn a_device_error_is_passed_on_at_once() {
        let error = finished(Transfer::write(PAGE_BYTES).advance(errno(libc::EIO))).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}
