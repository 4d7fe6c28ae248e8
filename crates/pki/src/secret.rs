//! Owns text that neither a log nor an error may show. Never knows what it is.

use std::fmt;

/// Key material as text. It has no `Display`, and `Debug` does not show it.
#[derive(Clone)]
pub struct SecretText(String);

impl SecretText {
    pub fn new(text: String) -> SecretText {
        SecretText(text)
    }

    /// The secret itself, for the one place that writes or sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
