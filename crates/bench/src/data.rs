//! Owns values: their lengths and bytes. Never knows keys' names or commands.

use std::sync::Arc;

use crate::config::{DataSpec, Fill, KeySpace, SizePattern, SizeSpec};
use crate::rng::Rng;

/// In each stretch of this many bytes of a compressible value, one part is random and the rest constant. The stretch is
/// small enough that a value of a few hundred bytes has the wanted share, and large enough that LZ4 loses little at the
/// seams.
const GRAIN_BYTES: usize = 256;

/// The values of one connection.
pub struct Data {
    size: SizeSpec,
    keys: (u64, u64),
    fill: Bytes,
    list_index: usize,
    list_used: u32,
}

enum Bytes {
    Constant(Arc<[u8]>),
    Mutated { bytes: Vec<u8>, position: usize },
    Compressible { share: f64, rng: Rng, scratch: Vec<u8> },
}

/// Shared by all connections of a workload, so that 512 MB of 'x' exist only once.
pub fn constant(spec: &DataSpec) -> Arc<[u8]> {
    let bytes = if spec.fill == Fill::Constant { spec.size.max() } else { 0 };
    vec![b'x'; bytes].into()
}

impl Data {
    /// `seed` differs for every connection, even if the key sequences do not. The same random values from all
    /// connections would be duplicates, and compression would look too good.
    pub fn new(spec: &DataSpec, keys: &KeySpace, constant: &Arc<[u8]>, seed: u64) -> Data {
        let fill = match spec.fill {
            Fill::Constant => Bytes::Constant(Arc::clone(constant)),
            Fill::Mutated => {
                let mut bytes = vec![0; spec.size.max()];
                Rng::new(seed).fill(&mut bytes);
                Bytes::Mutated { bytes, position: 0 }
            }
            Fill::Compressible(share) => {
                Bytes::Compressible { share, rng: Rng::new(seed), scratch: vec![b'x'; spec.size.max()] }
            }
        };
        Data { size: spec.size.clone(), keys: (keys.min, keys.max), fill, list_index: 0, list_used: 0 }
    }

    /// The length of the next value, which belongs to `key`.
    pub fn next_size(&mut self, key: u64, rng: &mut Rng) -> usize {
        match &self.size {
            SizeSpec::Fixed(size) => *size,
            SizeSpec::Range { min, max, pattern: SizePattern::Random } => rng.range(*min as u64, *max as u64) as usize,
            SizeSpec::Range { min, max, pattern: SizePattern::Sequential } => {
                let span = (self.keys.1 - self.keys.0).max(1);
                let place = key.saturating_sub(self.keys.0).min(span);
                min + (u128::from(place) * (max - min) as u128 / u128::from(span)) as usize
            }
            SizeSpec::List(list) => {
                if self.list_used == list[self.list_index].1 {
                    self.list_index = (self.list_index + 1) % list.len();
                    self.list_used = 0;
                }
                self.list_used += 1;
                list[self.list_index].0
            }
        }
    }

    /// Bytes for the next value of that length.
    pub fn next(&mut self, size: usize) -> &[u8] {
        match &mut self.fill {
            Bytes::Constant(bytes) => &bytes[..size],
            Bytes::Mutated { bytes, position } => {
                *position = if *position + 1 < size { *position + 1 } else { 0 };
                bytes[*position] = bytes[*position].wrapping_add(1);
                &bytes[..size]
            }
            Bytes::Compressible { share, rng, scratch } => {
                let value = &mut scratch[..size];
                for grain in value.chunks_mut(GRAIN_BYTES) {
                    // The random part comes last, because LZ4 never compresses the end of a block.
                    let constant = (grain.len() as f64 * *share).round() as usize;
                    let (head, tail) = grain.split_at_mut(constant);
                    head.fill(b'x');
                    rng.fill(tail);
                }
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(size: SizeSpec, fill: Fill, seed: u64) -> Data {
        let spec = DataSpec { size, offset: 0, fill };
        let keys = KeySpace { min: 100, max: 200, ..KeySpace::default() };
        Data::new(&spec, &keys, &constant(&spec), seed)
    }

    fn sizes(mut data: Data, keys: &[u64]) -> Vec<usize> {
        let mut rng = Rng::new(0);
        keys.iter().map(|&key| data.next_size(key, &mut rng)).collect()
    }

    #[test]
    fn values_are_x_by_default() {
        assert_eq!(data(SizeSpec::Fixed(5), Fill::Constant, 0).next(5), b"xxxxx");
    }

    #[test]
    fn random_data_changes_one_byte_per_request() {
        let mut data = data(SizeSpec::Fixed(40), Fill::Mutated, 3);
        let mut before = data.next(40).to_vec();
        for _ in 0..100 {
            let after = data.next(40).to_vec();
            assert_eq!(before.iter().zip(&after).filter(|(a, b)| a != b).count(), 1);
            before = after;
        }
    }

    #[test]
    fn a_list_gives_each_size_its_weight() {
        let list = SizeSpec::List(vec![(10, 2), (99, 1)]);
        assert_eq!(sizes(data(list, Fill::Constant, 0), &[0; 7]), [10, 10, 99, 10, 10, 99, 10]);
    }

    #[test]
    fn a_range_is_random_or_spread_over_the_keys() {
        let range = |pattern| SizeSpec::Range { min: 10, max: 30, pattern };
        let spread = sizes(data(range(SizePattern::Sequential), Fill::Constant, 0), &[100, 125, 150, 200]);
        assert_eq!(spread, [10, 15, 20, 30]);
        let random = sizes(data(range(SizePattern::Random), Fill::Constant, 0), &[150; 2000]);
        assert_eq!((random.iter().min(), random.iter().max()), (Some(&10), Some(&30)));
        let mean = random.iter().sum::<usize>() as f64 / 2000.0;
        assert!((mean - 20.0).abs() < 0.6, "{mean}");
    }

    /// 200 values of 500 bytes, compressed alone (LZ4) and together (zstd): the remaining share is 1 − R.
    #[test]
    fn compressibility_is_the_share_that_compressors_take_away() {
        for share in [0.0, 0.25, 0.5, 0.9] {
            let mut data = data(SizeSpec::Fixed(500), Fill::Compressible(share), 9);
            let (mut lz4, mut all) = (0, Vec::new());
            for _ in 0..200 {
                let value = data.next(500);
                lz4 += lz4_flex::block::compress(value).len();
                all.extend_from_slice(value);
            }
            let zstd = zstd::bulk::compress(&all, 3).expect("zstd").len();
            for (name, bytes) in [("lz4", lz4), ("zstd", zstd)] {
                let left = bytes as f64 / all.len() as f64;
                assert!((left - (1.0 - share)).abs() < 0.04, "{name} at {share}: {left:.3} left");
            }
        }
    }

    #[test]
    fn compressible_values_never_repeat_over_connections() {
        let mut first = data(SizeSpec::Fixed(64), Fill::Compressible(0.5), 1);
        let mut second = data(SizeSpec::Fixed(64), Fill::Compressible(0.5), 2);
        assert_ne!(first.next(64), second.next(64));
        assert_ne!(first.next(64).to_vec(), first.next(64).to_vec());
    }
}
