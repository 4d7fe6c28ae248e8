//! Owns how runs of bytes grow and shrink: by the allocator's size classes. Never knows what the bytes mean.

use crate::malloc_bytes;

/// Shrinks an allocation of more than twice what is needed.
pub(crate) fn shrink(bytes: &mut Vec<u8>) {
    let wanted = malloc_bytes(bytes.len());
    if wanted < bytes.capacity() / 2 {
        bytes.shrink_to(wanted);
    }
}

/// A copy whose capacity equals an allocator size class.
pub(crate) fn fitted(bytes: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(malloc_bytes(bytes.len()));
    copy.extend_from_slice(bytes);
    copy
}

/// Makes room for `len` bytes at `at`. The capacity grows to the next size class, not to twice its size.
pub(crate) fn gap(bytes: &mut Vec<u8>, at: usize, len: usize) -> &mut [u8] {
    let end = bytes.len();
    if bytes.capacity() - end < len {
        bytes.reserve_exact(malloc_bytes(end + len) - end);
    }
    bytes.resize(end + len, 0);
    bytes.copy_within(at..end, at + len);
    &mut bytes[at..at + len]
}
