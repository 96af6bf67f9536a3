//! What a run carries to its handler. Personal data: never printed, never logged.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest text of a message, in bytes; a job's body beyond 1 KiB costs more than one write unit each time.
pub const LONGEST_TEXT_BYTES: usize = 2_000;

/// Which handler does the work of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handler {
    /// A text message through the SMS gateway.
    Sms,
}

/// A text message to be sent.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmsPayload {
    /// The phone number, E.164.
    pub to: String,
    /// The text.
    pub text: String,
}

impl SmsPayload {
    /// Stands for a payload that was not read. No job that has it may be written.
    pub fn unread() -> Self {
        SmsPayload { to: String::new(), text: String::new() }
    }

    /// Whether this stands for one that was not read.
    pub fn is_unread(&self) -> bool {
        self.to.is_empty() && self.text.is_empty()
    }

    /// Checks number and text.
    ///
    /// # Errors
    /// Says what was expected, never what was found: both are personal data.
    pub fn check(&self) -> Result<(), String> {
        check_e164(&self.to)?;
        if self.text.trim().is_empty() {
            return Err("the text is empty".into());
        }
        if self.text.len() > LONGEST_TEXT_BYTES {
            return Err(format!("the text has {} bytes: {LONGEST_TEXT_BYTES} are allowed", self.text.len()));
        }
        Ok(())
    }
}

impl fmt::Debug for SmsPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SmsPayload(redacted)")
    }
}

/// Checks a phone number against the E.164 pattern.
///
/// # Errors
/// Says what was expected, never the number itself.
pub fn check_e164(number: &str) -> Result<(), String> {
    let expected = "a phone number is `+`, country code and number, 8 to 15 digits in all, such as +15550100 (E.164)";
    let digits = number.strip_prefix('+').ok_or(expected)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{expected}; found a character that is not a digit"));
    }
    if !(8..=15).contains(&digits.len()) || digits.starts_with('0') {
        return Err(format!("{expected}; found {} digits", digits.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_never_shows_its_number() {
        let payload = SmsPayload { to: "+447700900123".into(), text: "Your bill is due".into() };
        assert!(payload.check().is_ok());
        assert!(!format!("{payload:?}").contains("7700"));
        for bad in ["447700900123", "+44 7700 900123", "+4477", "+0447700900123", "+44770090012345678", "+44x700900123"]
        {
            let error = SmsPayload { to: bad.into(), ..payload.clone() }.check().unwrap_err();
            assert!(error.contains("E.164") && !error.contains("770090"), "{error}");
        }
        assert!(SmsPayload { text: " ".into(), ..payload.clone() }.check().is_err());
        assert!(SmsPayload { text: "x".repeat(2_001), ..payload }.check().is_err());
    }
}
