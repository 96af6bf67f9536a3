//! What a job does, read from words and from the file of its secret.

use super::{CommandError, bad, in_option};
use crate::payload_text::PayloadText;
use crate::timetable::NONE;
use punctual_core::address::AllowList;
use punctual_core::payload::{Payload, Secret};
use std::path::Path;

/// The payload that is given, over the one that the job has. Addresses are judged here: where the words say the same, nothing is.
pub(super) fn read_over(text: &PayloadText, old: Option<&Payload>) -> Result<Payload, CommandError> {
    let secret = text.secret_file.as_deref().map(read_secret).transpose()?;
    let payload = text.read_over(old, secret).map_err(in_option)?;
    if old != Some(&payload) {
        let allowed: AllowList = text.webhook_allow.parse().map_err(|e| bad(format!("PUNCTUAL_WEBHOOK_ALLOW: {e}")))?;
        payload.check_address(&allowed).map_err(bad)?;
    }
    Ok(payload)
}

fn read_secret(path: &Path) -> Result<Option<Secret>, CommandError> {
    if path.as_os_str() == NONE {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| bad(format!("--secret-file: {} cannot be read: {e}", path.display())))?;
    let secret = Secret::new(text.trim());
    secret.check().map_err(|expected| bad(format!("--secret-file: {expected}")))?;
    Ok(Some(secret))
}
