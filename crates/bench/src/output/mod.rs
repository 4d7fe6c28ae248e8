//! Owns the format of results: tables, JSON, HDR files, files per client. Never knows how results were measured, and
//! writes no files: every function returns text.

mod client;
mod hdr;
mod json;
mod settings;
mod table;

pub use client::client_csv;
pub use hdr::{hdr_log, hgrm};
pub use json::json;
pub use settings::{Setting, settings, settings_text};
pub use table::{distribution, table};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::stats::RunStats;

/// A run, or several merged runs, with the title that the report shows.
pub struct Titled<'a> {
    pub title: String,
    pub stats: &'a RunStats,
    /// The number of merged runs.
    pub runs: u32,
}

/// The compressed form that every HDR tool reads.
fn compressed(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).expect("memory takes any histogram");
    base64(&bytes)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let letter = char::from(LETTERS[(bits >> (18 - 6 * index)) as usize & 63]);
            text.push(if index <= three.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_rfc_4648() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
