//! Owns the HyperLogLog in Redis's own representation, byte by byte, so that values move between the two servers with
//! GET and SET. Never knows keys or replies.
//!
//! ```text
//! "HYLL"     4 bytes
//! encoding   1 byte: 0 dense, 1 sparse
//! unused     3 bytes
//! count      8 bytes, little-endian: the last estimate; the top bit says that it no longer holds
//! registers
//!   dense    16,384 of 6 bits, the lowest bits of the first byte first
//!   sparse   runs of registers: 00nnnnnn             n + 1 of value 0
//!                               01nnnnnn nnnnnnnn    n + 1 of value 0
//!                               1vvvvvnn             n + 1 of value v + 1
//! ```
//! Sparse runs are split and merged as in Redis, so the same elements give the same bytes. The estimator is Ertl's
//! ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6). The bytes are never trusted:
//! whatever a client has SET gives an error at worst.

use crate::{Buffer, Corrupt};

pub const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// Bits of the hash that determine the rank.
const RANK_BITS: u32 = 64 - INDEX_BITS;
const HEADER_BYTES: usize = 16;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS / 4 * 3;
/// The largest rank that a sparse run can hold.
const SPARSE_RANK_MAX: u8 = 32;
const ZERO_RUN_MAX: usize = 64;
const VALUE_RUN_MAX: usize = 4;
/// After a change, this many runs, starting with the one before, are checked for neighbours to merge.
const JOINED_RUNS_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Dense,
    Sparse,
}

/// The encoding of these bytes. `None`: not a HyperLogLog.
pub fn encoding(bytes: &[u8]) -> Option<Encoding> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(b"HYLL") {
        return None;
    }
    match bytes[4] {
        0 if bytes.len() == DENSE_BYTES => Some(Encoding::Dense),
        1 => Some(Encoding::Sparse),
        _ => None,
    }
}

/// An empty HyperLogLog.
pub fn empty() -> Vec<u8> {
    let mut bytes = header(1).to_vec();
    Run { value: 0, len: REGISTERS }.write(&mut bytes);
    bytes
}

fn header(encoding: u8) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(b"HYLL");
    header[4] = encoding;
    header
}

/// The last estimate, if no register has changed since.
pub fn cached(bytes: &[u8]) -> Option<u64> {
    let count = u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    (count >> 63 == 0).then_some(count)
}

pub fn cache(bytes: &mut [u8], count: u64) {
    bytes[8..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
}

pub fn invalidate(bytes: &mut [u8]) {
    bytes[HEADER_BYTES - 1] |= 0x80;
}

/// An element's register, and the rank that the element has.
pub fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, 0xadc8_3b19);
    let index = hash as usize & (REGISTERS - 1);
    let rest = hash >> INDEX_BITS | 1 << RANK_BITS;
    (index, rest.trailing_zeros() as u8 + 1)
}

/// MurmurHash64A (Austin Appleby), little-endian on every machine.
fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mixed = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        let mixed = (mixed ^ mixed >> SHIFT).wrapping_mul(MULTIPLIER);
        hash = (hash ^ mixed).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

/// Consecutive registers with the same value: the element of the sparse encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub value: u8,
    pub len: usize,
}

impl Run {
    /// The run at `at` and its length in bytes. `None`: the bytes end inside the run.
    fn read(bytes: &[u8], at: usize) -> Option<(Run, usize)> {
        let first = *bytes.get(at)?;
        Some(match first >> 6 {
            0 => (Run { value: 0, len: usize::from(first) + 1 }, 1),
            1 => {
                let second = *bytes.get(at + 1)?;
                (Run { value: 0, len: (usize::from(first & 0x3f) << 8 | usize::from(second)) + 1 }, 2)
            }
            _ => (Run { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1 }, 1),
        })
    }

    fn write(self, out: &mut Vec<u8>) {
        let less = self.len - 1;
        match self.value {
            0 if self.len <= ZERO_RUN_MAX => out.push(less as u8),
            0 => out.extend_from_slice(&[0x40 | (less >> 8) as u8, less as u8]),
            value => out.push(0x80 | (value - 1) << 2 | less as u8),
        }
    }
}

/// The runs of a sparse HyperLogLog, each with whether it has the long form. Ends early at truncated bytes.
pub fn runs(bytes: &[u8]) -> impl Iterator<Item = (Run, bool)> {
    let mut at = HEADER_BYTES;
    std::iter::from_fn(move || {
        let (run, taken) = Run::read(bytes, at)?;
        at += taken;
        Some((run, taken == 2))
    })
}

/// Calls `visit` for all runs of a sparse HyperLogLog. The runs must cover exactly all registers.
fn for_each_run(bytes: &[u8], mut visit: impl FnMut(usize, Run)) -> Result<(), Corrupt> {
    let (mut at, mut register) = (HEADER_BYTES, 0);
    while at < bytes.len() {
        let (run, taken) = Run::read(bytes, at).ok_or(Corrupt)?;
        if register + run.len > REGISTERS {
            return Err(Corrupt);
        }
        visit(register, run);
        register += run.len;
        at += taken;
    }
    if register == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// The position of a register among the sparse runs.
struct Found {
    /// The start of the run before it, or of the first run.
    before: usize,
    at: usize,
    taken: usize,
    run: Run,
    /// The run's first register.
    first: usize,
}

/// Whether every run of a sparse HyperLogLog is valid. Then a change cannot fail halfway.
pub fn check(bytes: &[u8]) -> Result<(), Corrupt> {
    match encoding(bytes).ok_or(Corrupt)? {
        Encoding::Dense => Ok(()),
        Encoding::Sparse => for_each_run(bytes, |_, _| {}),
    }
}

fn find(bytes: &[u8], index: usize) -> Result<Found, Corrupt> {
    let (mut before, mut at, mut first) = (HEADER_BYTES, HEADER_BYTES, 0);
    loop {
        let (run, taken) = Run::read(bytes, at).ok_or(Corrupt)?;
        if index < first + run.len {
            return Ok(Found { before, at, taken, run, first });
        }
        first += run.len;
        before = at;
        at += taken;
    }
}

pub fn register(bytes: &[u8], index: usize) -> Result<u8, Corrupt> {
    match encoding(bytes).ok_or(Corrupt)? {
        Encoding::Dense => Ok(dense_register(&bytes[HEADER_BYTES..], index)),
        Encoding::Sparse => find(bytes, index).map(|found| found.run.value),
    }
}

/// Raises a register to `rank`. True: the register was lower. A sparse HyperLogLog that would grow beyond
/// `sparse_bytes_max` becomes dense.
pub fn raise<B: Buffer + ?Sized>(
    buffer: &mut B,
    index: usize,
    rank: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupt> {
    if encoding(buffer.bytes()).ok_or(Corrupt)? == Encoding::Dense {
        return Ok(dense_raise(&mut buffer.bytes_mut()[HEADER_BYTES..], index, rank));
    }
    if rank > SPARSE_RANK_MAX {
        return make_dense_and_raise(buffer, index, rank);
    }
    let found = find(buffer.bytes(), index)?;
    if found.run.value >= rank {
        return Ok(false);
    }
    let mut new = Vec::with_capacity(5);
    let (head, tail) = (index - found.first, found.first + found.run.len - index - 1);
    for run in [Run { len: head, ..found.run }, Run { value: rank, len: 1 }, Run { len: tail, ..found.run }] {
        if run.len > 0 {
            run.write(&mut new);
        }
    }
    if new.len() > found.taken && buffer.bytes().len() + new.len() - found.taken > sparse_bytes_max {
        return make_dense_and_raise(buffer, index, rank);
    }
    if new.len() == found.taken {
        buffer.bytes_mut()[found.at..found.at + new.len()].copy_from_slice(&new);
    } else {
        buffer.splice(found.at..found.at + found.taken, &[&new]);
    }
    join(buffer, found.before);
    // Invalidate first: the next register may be corrupt, and the cached count is no longer true.
    invalidate(buffer.bytes_mut());
    Ok(true)
}

fn make_dense_and_raise<B: Buffer + ?Sized>(buffer: &mut B, index: usize, rank: u8) -> Result<bool, Corrupt> {
    make_dense(buffer)?;
    Ok(dense_raise(&mut buffer.bytes_mut()[HEADER_BYTES..], index, rank))
}

/// Merges neighbours with the same value if they fit into one run.
fn join<B: Buffer + ?Sized>(buffer: &mut B, from: usize) {
    let mut at = from;
    for _ in 0..JOINED_RUNS_MAX {
        let bytes = buffer.bytes();
        let Some((run, taken)) = Run::read(bytes, at) else { return };
        if run.value > 0
            && let Some((next, _)) = Run::read(bytes, at + taken)
            && next.value == run.value
            && run.len + next.len <= VALUE_RUN_MAX
        {
            let mut joined = Vec::with_capacity(1);
            Run { value: run.value, len: run.len + next.len }.write(&mut joined);
            buffer.splice(at..at + 2, &[&joined]);
            continue;
        }
        at += taken;
    }
}

/// Makes the HyperLogLog dense. True: it was sparse.
pub fn make_dense<B: Buffer + ?Sized>(buffer: &mut B) -> Result<bool, Corrupt> {
    let bytes = buffer.bytes();
    if encoding(bytes).ok_or(Corrupt)? == Encoding::Dense {
        return Ok(false);
    }
    let mut dense = vec![0; DENSE_BYTES];
    dense[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
    dense[4] = 0;
    for_each_run(bytes, |first, run| {
        if run.value > 0 {
            (first..first + run.len).for_each(|index| _ = dense_raise(&mut dense[HEADER_BYTES..], index, run.value));
        }
    })?;
    let len = bytes.len();
    buffer.splice(0..len, &[&dense]);
    Ok(true)
}

fn dense_register(registers: &[u8], index: usize) -> u8 {
    let (at, shift) = (index * 6 / 8, index * 6 % 8);
    let low = u16::from(registers[at]);
    let high = registers.get(at + 1).map_or(0, |&byte| u16::from(byte) << 8);
    ((low | high) >> shift) as u8 & 0x3f
}

fn dense_raise(registers: &mut [u8], index: usize, rank: u8) -> bool {
    if dense_register(registers, index) >= rank {
        return false;
    }
    let (at, shift) = (index * 6 / 8, index * 6 % 8);
    let (mask, value) = (0x3fu16 << shift, u16::from(rank) << shift);
    registers[at] = registers[at] & !(mask as u8) | value as u8;
    if let Some(next) = registers.get_mut(at + 1) {
        *next = *next & !((mask >> 8) as u8) | (value >> 8) as u8;
    }
    true
}

/// The registers one by one, to unite several HyperLogLogs.
pub struct Union {
    registers: Box<[u8; REGISTERS]>,
}

impl Default for Union {
    fn default() -> Union {
        Union { registers: vec![0; REGISTERS].try_into().expect("its length") }
    }
}

impl Union {
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), Corrupt> {
        match encoding(bytes).ok_or(Corrupt)? {
            Encoding::Dense => {
                let (groups, _) = bytes[HEADER_BYTES..].as_chunks::<3>();
                for (to, from) in self.registers.as_chunks_mut::<4>().0.iter_mut().zip(groups) {
                    to.iter_mut().zip(group(from)).for_each(|(to, from)| *to = (*to).max(from));
                }
                Ok(())
            }
            Encoding::Sparse => for_each_run(bytes, |first, run| {
                if run.value > 0 {
                    self.registers[first..first + run.len].iter_mut().for_each(|to| *to = (*to).max(run.value));
                }
            }),
        }
    }

    pub fn registers(&self) -> &[u8; REGISTERS] {
        &self.registers
    }

    pub fn estimate(&self) -> u64 {
        let mut counts = [0; 64];
        self.registers.iter().for_each(|&register| counts[usize::from(register & 0x3f)] += 1);
        estimate(&counts)
    }
}

/// Four dense registers.
fn group(bytes: &[u8; 3]) -> [u8; 4] {
    let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
    [0, 6, 12, 18].map(|shift| (bits >> shift) as u8 & 0x3f)
}

/// The estimated number of distinct elements.
pub fn count(bytes: &[u8]) -> Result<u64, Corrupt> {
    let mut counts = [0u32; 64];
    match encoding(bytes).ok_or(Corrupt)? {
        Encoding::Dense => {
            let (groups, _) = bytes[HEADER_BYTES..].as_chunks::<3>();
            groups.iter().flat_map(group).for_each(|register| counts[usize::from(register)] += 1);
        }
        Encoding::Sparse => for_each_run(bytes, |_, run| counts[usize::from(run.value)] += run.len as u32)?,
    }
    Ok(estimate(&counts))
}

/// `counts[v]` registers have the value v.
fn estimate(counts: &[u32; 64]) -> u64 {
    /// 1 / (2 ln 2), as Redis writes it.
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let registers = REGISTERS as f64;
    let mut sum = registers * tau((registers - f64::from(counts[RANK_BITS as usize + 1])) / registers);
    for &count in counts[1..=RANK_BITS as usize].iter().rev() {
        sum = (sum + f64::from(count)) * 0.5;
    }
    sum += registers * sigma(f64::from(counts[0]) / registers);
    (ALPHA * registers * registers / sum).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut factor, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut factor, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(elements: impl Iterator<Item = u64>, sparse_bytes_max: usize) -> Vec<u8> {
        let mut bytes = empty();
        for element in elements {
            let (index, rank) = place(&element.to_le_bytes());
            raise(&mut bytes, index, rank, sparse_bytes_max).unwrap();
        }
        bytes
    }

    #[test]
    fn the_cached_count_is_invalid_after_the_first_raised_register() {
        let mut bytes = of(0..3, 3000);
        cache(&mut bytes, 3);
        let (index, rank) = place(&0u64.to_le_bytes());
        assert!(!raise(&mut bytes, index, rank, 3000).unwrap());
        assert_eq!(cached(&bytes), Some(3));
        assert!(raise(&mut bytes, index, rank + 1, 3000).unwrap());
        assert_eq!(cached(&bytes), None);
    }

    #[test]
    fn the_hash_equals_murmur_s() {
        // As redis-server shows it after PFADD h a b c.
        let mut bytes = empty();
        for element in [b"a", b"b", b"c"] {
            let (index, rank) = place(element);
            assert!(raise(&mut bytes, index, rank, 3000).unwrap());
            assert!(!raise(&mut bytes, index, rank, 3000).unwrap());
        }
        let shown: Vec<(u8, usize)> = runs(&bytes).map(|(run, _)| (run.value, run.len)).collect();
        assert_eq!(shown, [(0, 8436), (1, 1), (0, 4274), (2, 1), (0, 3068), (1, 1), (0, 603)]);
        assert_eq!(count(&bytes), Ok(3));
    }

    #[test]
    fn estimates_are_near_and_the_same_in_both_forms() {
        for elements in [0, 1, 10, 100, 1000, 10_000, 100_000] {
            let (sparse, dense) = (of(0..elements, usize::MAX), of(0..elements, 0));
            assert_eq!(encoding(&dense), Some(if elements == 0 { Encoding::Sparse } else { Encoding::Dense }));
            assert_eq!(count(&sparse), count(&dense));
            let mut union = Union::default();
            union.add(&sparse).unwrap();
            union.add(&dense).unwrap();
            assert_eq!(union.estimate(), count(&dense).unwrap());
            let off = count(&sparse).unwrap().abs_diff(elements) as f64 / (elements.max(1) as f64);
            assert!(off < 0.03, "{elements}: off by {off}");
        }
    }

    #[test]
    fn an_estimate_is_kept_until_something_changes() {
        let mut bytes = of(0..100, 3000);
        cache(&mut bytes, 99);
        assert_eq!(cached(&bytes), Some(99));
        invalidate(&mut bytes);
        assert_eq!(cached(&bytes), None);
    }

    #[test]
    fn too_many_or_too_few_runs_are_corrupt() {
        let mut long = empty();
        long.push(0);
        let mut short = empty();
        short[HEADER_BYTES + 1] -= 1;
        let mut cut = empty();
        cut.pop();
        for bytes in [long, short, cut, header(1).to_vec()] {
            assert_eq!(count(&bytes), Err(Corrupt));
            assert_eq!(make_dense(&mut bytes.clone()), Err(Corrupt));
            assert_eq!(Union::default().add(&bytes), Err(Corrupt));
        }
        assert_eq!(encoding(b"HYLL"), None);
        assert_eq!(encoding(&header(0)), None, "dense has one length");
        assert_eq!(encoding(&header(2)), None);
    }

    proptest! {
        #[test]
        fn behaves_as_an_array_of_registers(
            ops in proptest::collection::vec((0..REGISTERS, 1..45u8), 1..300),
            close in proptest::collection::vec((0..30usize, 1..4u8), 0..300),
            sparse_bytes_max in prop_oneof![Just(0usize), Just(60), Just(3000)],
        ) {
            let (mut bytes, mut model) = (empty(), vec![0u8; REGISTERS]);
            for (index, rank) in ops.into_iter().chain(close) {
                let lower = model[index] < rank;
                model[index] = model[index].max(rank);
                prop_assert_eq!(raise(&mut bytes, index, rank, sparse_bytes_max), Ok(lower));
            }
            let mut union = Union::default();
            union.add(&bytes).unwrap();
            prop_assert_eq!(&union.registers()[..], &model[..]);
            for (index, &rank) in model.iter().enumerate() {
                if rank > 0 {
                    prop_assert_eq!(register(&bytes, index), Ok(rank));
                }
            }
        }

        #[test]
        fn hostile_runs_never_panic(
            tail in proptest::collection::vec(any::<u8>(), 0..100),
            kind in 0..3u8,
            index in 0..REGISTERS,
            rank in 1..51u8,
        ) {
            let mut bytes = header(kind).to_vec();
            bytes.extend(tail);
            let _ = (count(&bytes), register(&bytes, index), Union::default().add(&bytes), runs(&bytes).count());
            let _ = raise(&mut bytes, index, rank, 3000);
            let _ = make_dense(&mut bytes);
        }
    }
}
