//! Owns LCS: the longest common subsequence of two strings. Never knows anything of the store but two strings.
//!
//! Redis fills a table of 32-bit lengths, one for each pair of positions. Two neighbouring lengths differ by 0 or 1, so
//! the rows of the table here are bit vectors (Hyyrö 2004, after Allison and Dix). The table is 32 times smaller, and
//! one step handles 64 cells. The walk back through the table turns where Redis turns, so IDX gives the same ranges.

use crate::cx::{Args, Cx};
use crate::number::int_or_error;
use crate::row::{Flag, Group, Keys, Row, is};
use crate::stop::{Run, SYNTAX, Stop};
use resp::reply::Out;
use store::{Kind, Value};

pub const ROWS: &[Row] = &[Row {
    name: "lcs",
    arity: -3,
    keys: Keys::Range { first: 1, last: 2, step: 1 },
    flags: &[Flag::Readonly],
    group: Group::String,
    since: "7.0.0",
    complexity: "O(N*M) where N and M are the lengths of the strings.",
    summary: "Finds the longest common subsequence of two strings, its length, or the positions of its parts.",
    syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
    examples: &[
        is("MSET key1 ohmytext key2 mynewtext", "OK"),
        is("LCS key1 key2", "\"mytext\""),
        is("LCS key1 key2 LEN", "(integer) 6"),
        is(
            "LCS key1 key2 IDX MINMATCHLEN 4 WITHMATCHLEN",
            "1) \"matches\"\n2) 1) 1) 1) (integer) 4\n         2) (integer) 7\n      2) 1) (integer) 5\n         \
             2) (integer) 8\n      3) (integer) 4\n3) \"len\"\n4) (integer) 6",
        ),
        is("LCS key1 key2 LEN IDX", "(error) ERR If you want both the length and indexes, please just use IDX."),
        is("HSET h f v", "(integer) 1"),
        is("LCS key1 h", "(error) ERR The specified keys must contain string values"),
    ],
    run: lcs,
    ..Row::BASE
}];

/// LEN compares at most this many pairs of positions: a quarter of a second of work.
const CELLS_MAX: u64 = 1 << 34;
/// Bits of the table, if the command asks for more than the length: 256 MB.
const TABLE_BITS_MAX: u64 = 1 << 31;

#[derive(Default)]
struct Options {
    len: bool,
    idx: bool,
    with_match_len: bool,
    min_match_len: usize,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, Stop> {
        let mut options = Options::default();
        let mut at = 3;
        while let Some(word) = args.get(at) {
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            match args.get(at + 1) {
                _ if says("idx") => options.idx = true,
                _ if says("len") => options.len = true,
                _ if says("withmatchlen") => options.with_match_len = true,
                Some(least) if says("minmatchlen") => {
                    options.min_match_len = int_or_error(least)?.max(0) as usize;
                    at += 1;
                }
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        if options.len && options.idx {
            return Err(Stop::error("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

fn lcs(cx: &mut Cx<'_>) -> Run {
    // Copies, because the keyspace lends one value at a time.
    let mut strings = [Vec::new(), Vec::new()];
    for (key, string) in cx.keys.iter().zip(&mut strings) {
        match cx.ks.get(key)? {
            None => {}
            Some(Value::Inline(Kind::String, bytes)) => *string = bytes.to_vec(),
            Some(_) => return Err(Stop::error("ERR The specified keys must contain string values")),
        }
    }
    let [a, b] = &strings;
    let options = Options::parse(cx.args)?;
    let cells = a.len() as u64 * b.len() as u64;
    if cells > CELLS_MAX {
        return Err(Stop::error("ERR String too long for LCS"));
    }
    if options.len {
        cx.out.int(length(a, b) as i64);
        return Ok(());
    }
    if cells > TABLE_BITS_MAX {
        return Err(Stop::error("ERR Insufficient memory, failed allocating transient memory for LCS"));
    }
    let table = Table::fill(a, b);
    if options.idx {
        ranges_reply(&mut cx.out, &table.ranges(a, b), &options);
    } else {
        cx.out.bulk(&table.subsequence(a, b));
    }
    Ok(())
}

fn ranges_reply(out: &mut Out<'_>, ranges: &[Match], options: &Options) {
    let total: usize = ranges.iter().map(|range| range.len).sum();
    let shown = ranges.iter().filter(|range| range.len >= options.min_match_len);
    out.map(2);
    out.bulk(b"matches");
    out.array(shown.clone().count());
    for range in shown {
        out.array(if options.with_match_len { 3 } else { 2 });
        for start in [range.a, range.b] {
            out.array(2);
            out.int(start as i64);
            out.int((start + range.len - 1) as i64);
        }
        if options.with_match_len {
            out.int(range.len as i64);
        }
    }
    out.bulk(b"len");
    out.int(total as i64);
}

/// For each byte value, its positions in a string, one bit for each position.
struct Positions {
    words: usize,
    /// Byte value → the number of its vector in `bits`; 0 for values that do not occur.
    vector: [u16; 256],
    bits: Vec<u64>,
}

impl Positions {
    fn of(b: &[u8]) -> Positions {
        let words = b.len().div_ceil(64);
        let mut vector = [0; 256];
        let mut vectors = 1;
        for &byte in b {
            if vector[byte as usize] == 0 {
                vector[byte as usize] = vectors;
                vectors += 1;
            }
        }
        let mut bits = vec![0; words * vectors as usize];
        for (at, &byte) in b.iter().enumerate() {
            bits[vector[byte as usize] as usize * words + at / 64] |= 1 << (at % 64);
        }
        Positions { words, vector, bits }
    }

    fn get(&self, byte: u8) -> &[u64] {
        let start = self.vector[byte as usize] as usize * self.words;
        &self.bits[start..start + self.words]
    }
}

/// Computes the next row. Bit j is clear where one more byte of `b` makes the common subsequence longer.
fn step(row: &mut [u64], matches: &[u64]) {
    let mut carry = false;
    for (word, &matches) in row.iter_mut().zip(matches) {
        let (sum, first) = word.overflowing_add(*word & matches);
        let (sum, second) = sum.overflowing_add(u64::from(carry));
        carry = first || second;
        *word = sum | (*word & !matches);
    }
}

fn length(a: &[u8], b: &[u8]) -> usize {
    let positions = Positions::of(b);
    let mut row = vec![u64::MAX; positions.words];
    for &byte in a {
        step(&mut row, positions.get(byte));
    }
    // Bits beyond the end of `b` stay set.
    row.iter().map(|word| word.count_zeros() as usize).sum()
}

/// A run of bytes that both strings contain.
#[derive(Debug, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// All rows, one for each byte of `a`.
struct Table {
    words: usize,
    rows: Vec<u64>,
}

impl Table {
    fn fill(a: &[u8], b: &[u8]) -> Table {
        let positions = Positions::of(b);
        let mut rows = Vec::with_capacity(a.len() * positions.words);
        let mut row = vec![u64::MAX; positions.words];
        for &byte in a {
            step(&mut row, positions.get(byte));
            rows.extend_from_slice(&row);
        }
        Table { words: positions.words, rows }
    }

    /// The pairs of equal bytes, from the last to the first. Where the bytes at the ends differ: drop the byte of `a`
    /// if only that keeps the length, otherwise the byte of `b`. Redis does the same.
    fn walk(&self, a: &[u8], b: &[u8], mut pair: impl FnMut(usize, usize)) {
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                i -= 1;
                j -= 1;
                pair(i, j);
            } else if self.rows[(i - 1) * self.words + (j - 1) / 64] >> ((j - 1) % 64) & 1 == 0 {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }

    fn subsequence(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.walk(a, b, |i, _| bytes.push(a[i]));
        bytes.reverse();
        bytes
    }

    /// Ranges from the end of the strings to their start.
    fn ranges(&self, a: &[u8], b: &[u8]) -> Vec<Match> {
        let mut ranges: Vec<Match> = Vec::new();
        self.walk(a, b, |i, j| match ranges.last_mut() {
            Some(range) if range.a == i + 1 && range.b == j + 1 => {
                *range = Match { a: i, b: j, len: range.len + 1 };
            }
            _ => ranges.push(Match { a: i, b: j, len: 1 }),
        });
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// The textbook's table of lengths.
    fn lengths(a: &[u8], b: &[u8]) -> Vec<Vec<usize>> {
        let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                table[i + 1][j + 1] = if x == y { table[i][j] + 1 } else { table[i][j + 1].max(table[i + 1][j]) };
            }
        }
        table
    }

    #[test]
    fn walk_agrees_with_the_table_of_lengths() {
        let mut seed = 1u64;
        let mut letter = |letters: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b'a' + ((seed >> 33) % letters) as u8
        };
        for round in 0..300u64 {
            let letters = 1 + round % 5;
            let a: Vec<u8> = (0..round % 83).map(|_| letter(letters)).collect();
            let b: Vec<u8> = (0..round * 7 % 200).map(|_| letter(letters)).collect();
            let table = lengths(&a, &b);
            assert_eq!(length(&a, &b), table[a.len()][b.len()]);
            let (mut i, mut j, mut expected) = (a.len(), b.len(), Vec::new());
            while i > 0 && j > 0 {
                if a[i - 1] == b[j - 1] {
                    (i, j) = (i - 1, j - 1);
                    expected.push((i, j));
                } else if table[i - 1][j] > table[i][j - 1] {
                    i -= 1;
                } else {
                    j -= 1;
                }
            }
            let mut pairs = Vec::new();
            Table::fill(&a, &b).walk(&a, &b, |i, j| pairs.push((i, j)));
            assert_eq!(pairs, expected);
        }
    }

    #[test]
    fn runs_are_joined_and_come_from_the_end() {
        let (a, b) = (&b"ohmytext"[..], &b"mynewtext"[..]);
        let table = Table::fill(a, b);
        assert_eq!(table.subsequence(a, b), b"mytext");
        let ranges: Vec<Range<usize>> = table.ranges(a, b).iter().map(|found| found.a..found.a + found.len).collect();
        assert_eq!(ranges, [4..8, 2..4]);
    }
}
