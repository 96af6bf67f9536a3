//! What webhooks are signed by.

use std::fmt;

/// A Standard Webhooks secret: `whsec_` and 24 to 64 bytes in base64. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

const PREFIX: &str = "whsec_";

impl Secret {
    /// A secret as it was given; [`Secret::check`] says whether it is one.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text itself, for the store and for signing.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The base64 text of the key.
    pub fn key_text(&self) -> &str {
        self.0.strip_prefix(PREFIX).unwrap_or_default()
    }

    /// Checks the form.
    ///
    /// # Errors
    /// Says what was expected, never the secret.
    pub fn check(&self) -> Result<(), String> {
        let expected = "a secret is `whsec_` and 24 to 64 bytes in base64; `openssl rand -base64 32` makes such bytes";
        let text = self.key_text();
        let digits = text.trim_end_matches('=');
        let is_base64 = digits.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
        let padding = text.len() - digits.len();
        let is_whole = digits.len() % 4 != 1 && (padding == 0 || (text.len().is_multiple_of(4) && padding <= 2));
        if is_base64 && is_whole && (24..=64).contains(&(digits.len() * 3 / 4)) { Ok(()) } else { Err(expected.into()) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}
