//! Owns fixed numbers of bytes that people and records see in hexadecimal. Never knows what the bytes mean.

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// `N` bytes; as text, and in records, `2 * N` lower-case digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex<const N: usize>(pub [u8; N]);

/// The SHA-256 of a certificate's DER bytes.
pub type Fingerprint = Hex<32>;
/// A certificate's serial number.
pub type Serial = Hex<16>;

impl<const N: usize> Hex<N> {
    /// Bytes that nobody can guess.
    pub fn random() -> Hex<N> {
        let mut bytes = [0; N];
        // This fails only if the system has no random generator.
        SystemRandom::new().fill(&mut bytes).expect("the system gives random bytes");
        Hex(bytes)
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Hex<32> {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    Hex(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None`: not an even number of digits. Capital letters are accepted, as a person may type them.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(&self.0))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> FromStr for Hex<N> {
    type Err = String;

    /// The error does not repeat the text: it may have been meant to be secret.
    fn from_str(text: &str) -> Result<Hex<N>, String> {
        let bytes = decode(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Hex).ok_or_else(|| format!("not {} hexadecimal digits", 2 * N))
    }
}

impl<const N: usize> TryFrom<String> for Hex<N> {
    type Error = String;

    fn try_from(text: String) -> Result<Hex<N>, String> {
        text.parse()
    }
}

impl<const N: usize> From<Hex<N>> for String {
    fn from(hex: Hex<N>) -> String {
        hex.to_string()
    }
}
