//! What a job does, read from words and from the file of its secret.

use super::{CommandError, bad, in_option};
use crate::payload_text::PayloadText;
use crate::timetable::NONE;
use punctual_core::payload::{Payload, Secret};

/// The payload that is given, over the one that the job has. The API judges its addresses.
pub(super) fn read_over(
    text: &PayloadText,
    old: Option<&Payload>,
    secret: Option<Option<Secret>>,
) -> Result<Payload, CommandError> {
    text.read_over(old, secret).map_err(in_option)
}

/// What the file of the secret holds: none = nothing is said of it, and inside, none = it is to be taken away.
pub(super) fn read_secret_file(text: &PayloadText) -> Result<Option<Option<Secret>>, CommandError> {
    let Some(path) = text.secret_file.as_deref() else { return Ok(None) };
    if path.as_os_str() == NONE {
        return Ok(Some(None));
    }
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| bad(format!("--secret-file: {} cannot be read: {e}", path.display())))?;
    let secret = Secret::new(text.trim());
    secret.check().map_err(|expected| bad(format!("--secret-file: {expected}")))?;
    Ok(Some(Some(secret)))
}
