//! Owns join tokens: the text that an operator copies to a node, and the record that the cluster keeps. Never knows who
//! joins.
//!
//! ```text
//! fkj1    a join token, version 1
//! 120 hexadecimal digits, that is 60 bytes:
//!   0 ..32  SHA-256 of the authority's certificate
//!  32 ..48  the secret
//!  48 ..56  when the token ends, in ms since 1970 by the issuer's clock, big-endian
//!  56 ..60  the first bytes of the SHA-256 of bytes 0 to 55, against slips of the hand
//! ```
//! Letters and digits only: a double click selects the whole token, and no shell changes it.

use crate::certificate::AuthorityCertificate;
use crate::hex::{self, Fingerprint, Hex, sha256};
use crate::id::NodeId;
use crate::limits::TOKEN_LIFE_MS;
use serde::{Deserialize, Serialize};
use std::fmt;

const KIND: &str = "fkj";
const TOKEN_VERSION: &str = "1";
const FINGERPRINT_BYTES: usize = 32;
const SECRET_BYTES: usize = 16;
const EXPIRY_BYTES: usize = 8;
const CHECK_BYTES: usize = 4;
const CHECKED_BYTES: usize = FINGERPRINT_BYTES + SECRET_BYTES + EXPIRY_BYTES;
const _: () = assert!(CHECKED_BYTES + CHECK_BYTES == 60);

/// 128 random bits. No `Display`, no comparison, and `Debug` does not show them; in a message they are text.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenSecret(Hex<SECRET_BYTES>);

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl TokenSecret {
    /// What the cluster keeps of the secret, and the name under which it finds the token's record. A secret of 128
    /// random bits needs no salt and no slow hash.
    pub fn sha256(&self) -> Fingerprint {
        sha256(&self.0.0)
    }
}

/// What an operator copies. It has no `Display`: [`Token::reveal`] is for the one place that prints it.
#[derive(Clone, Debug)]
pub struct Token {
    /// Of the authority's certificate.
    pub authority: Fingerprint,
    pub secret: TokenSecret,
    /// By the issuer's clock, which alone decides: the node that joins only shows it.
    pub expires_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenError {
    NotAToken,
    /// A token of another version of FlintKV.
    OtherVersion,
    /// It was cut off or mistyped.
    Damaged,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenError::NotAToken => "this is no join token, which begins with fkj1",
            TokenError::OtherVersion => "this is a join token of another version of FlintKV",
            TokenError::Damaged => "the join token is not complete, or was mistyped",
        })
    }
}

impl std::error::Error for TokenError {}

impl Token {
    /// A token, and the record of it that the cluster keeps. `authority`: that of the issuer's own certificate, which
    /// the joining node will be shown. `returning`: only this member may use the token, to join again.
    pub fn create(authority: &AuthorityCertificate, returning: Option<NodeId>, now_ms: u64) -> (Token, TokenRecord) {
        let expires_ms = now_ms.saturating_add(TOKEN_LIFE_MS);
        let token = Token { authority: authority.fingerprint(), secret: TokenSecret(Hex::random()), expires_ms };
        let record = TokenRecord { secret_sha256: token.secret.sha256(), expires_ms, returning, used: None };
        (token, record)
    }

    /// The text to print once.
    pub fn reveal(&self) -> String {
        let mut bytes = Vec::with_capacity(CHECKED_BYTES + CHECK_BYTES);
        bytes.extend(self.authority.0);
        bytes.extend(self.secret.0.0);
        bytes.extend(self.expires_ms.to_be_bytes());
        bytes.extend(&sha256(&bytes).0[..CHECK_BYTES]);
        format!("{KIND}{TOKEN_VERSION}{}", hex::encode(&bytes))
    }

    pub fn parse(text: &str) -> Result<Token, TokenError> {
        let rest = text.trim().strip_prefix(KIND).ok_or(TokenError::NotAToken)?;
        let digits = rest.strip_prefix(TOKEN_VERSION).ok_or(TokenError::OtherVersion)?;
        let bytes = hex::decode(digits).ok_or(TokenError::Damaged)?;
        let (fields, check) = bytes.split_at_checked(CHECKED_BYTES).ok_or(TokenError::Damaged)?;
        if *check != sha256(fields).0[..CHECK_BYTES] {
            return Err(TokenError::Damaged);
        }
        let (authority, rest) = fields.split_first_chunk().expect("56 bytes");
        let (secret, rest) = rest.split_first_chunk().expect("24 bytes");
        let (expires, _) = rest.split_first_chunk().expect("8 bytes");
        Ok(Token {
            authority: Hex(*authority),
            secret: TokenSecret(Hex(*secret)),
            expires_ms: u64::from_be_bytes(*expires),
        })
    }
}

/// What the cluster keeps of a token, under the hash of its secret. Whoever admits a node writes the changed record in
/// the transaction that makes the node a member, on the condition that the record is still the one that was read: so a
/// token serves once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    pub secret_sha256: Fingerprint,
    pub expires_ms: u64,
    /// Only this member may use the token, to join again.
    pub returning: Option<NodeId>,
    pub used: Option<TokenUse>,
}

/// The node and the key that a token has served. Until the token ends they may ask again: the answer may have been
/// lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    pub node: NodeId,
    pub key_sha256: Fingerprint,
    pub used_ms: u64,
}

impl TokenRecord {
    /// In a time that does not depend on where they differ.
    #[allow(deprecated, reason = "the comparison in constant time has no other public name in ring 0.17")]
    pub(crate) fn is_of(&self, secret: &TokenSecret) -> bool {
        ring::constant_time::verify_slices_are_equal(&self.secret_sha256.0, &secret.sha256().0).is_ok()
    }

    /// From this moment on nobody needs the record.
    pub fn has_ended(&self, now_ms: u64) -> bool {
        now_ms >= self.expires_ms
    }
}
