//! Owns a table that grows while other threads read it. Never shrinks, never moves an item.

use std::sync::OnceLock;

/// Items by their number, in chunks of 64, 64, 128, 256 … A reference stays valid while the table grows.
pub struct Growing<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

const FIRST_BITS: u32 = 6;
const CHUNKS: usize = (u32::BITS - FIRST_BITS + 1) as usize;

/// The chunk of item `number`, and the index inside the chunk.
fn place(number: u32) -> (usize, usize) {
    let chunk = (u32::BITS - (number >> FIRST_BITS).leading_zeros()) as usize;
    let first = if chunk == 0 { 0 } else { chunk_len(chunk) };
    (chunk, number as usize - first)
}

/// The length of a chunk. From the second chunk on, this is also the number of its first item.
fn chunk_len(chunk: usize) -> usize {
    1 << (FIRST_BITS as usize + chunk.saturating_sub(1))
}

impl<T> Growing<T> {
    pub fn new() -> Growing<T> {
        Growing { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Makes the missing items up to number `count` − 1, and perhaps some more.
    pub fn reach(&self, count: u32, make: impl Fn() -> T) {
        let Some(last) = count.checked_sub(1) else { return };
        for chunk in 0..=place(last).0 {
            self.chunks[chunk].get_or_init(|| (0..chunk_len(chunk)).map(|_| make()).collect());
        }
    }

    #[inline]
    pub fn get(&self, number: u32) -> &T {
        let (chunk, at) = place(number);
        &self.chunks[chunk].get().expect("the table reaches this number")[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn every_number_has_its_item_and_keeps_it() {
        let table = Growing::new();
        table.reach(0, || 0.into());
        let mut first: Option<&AtomicU32> = None;
        for count in [1, 64, 65, 128, 129, 5_000] {
            table.reach(count, || AtomicU32::new(0));
            first.get_or_insert_with(|| table.get(0)).fetch_add(1, Relaxed);
        }
        assert_eq!(table.get(0).load(Relaxed), 6);
        (1..5_000).for_each(|number| assert_eq!(table.get(number).swap(number, Relaxed), 0));
        assert!((1..5_000).all(|number| table.get(number).load(Relaxed) == number));
        assert_eq!(place(u32::MAX).0, CHUNKS - 1);
    }
}
