//! How a call to a port can fail. Lost races are values of the ports, not errors.

/// A failed call to the store or a queue, classed by what the caller may do about it. Every port fails in these same
/// ways, so there is one type for all of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// It did not happen, and a later try may work.
    #[error("{0}")]
    Temporary(String),
    /// The other side asks for fewer calls. It did not happen.
    #[error("{0}")]
    Throttled(String),
    /// It will never work like this: a missing table, a refused request, missing rights.
    #[error("{0}")]
    Permanent(String),
    /// The answer was lost: it may or may not have happened.
    #[error("{0}")]
    Unknown(String),
}

impl PortError {
    /// The word for metrics and logs.
    pub fn class(&self) -> &'static str {
        match self {
            PortError::Temporary(_) => "temporary",
            PortError::Throttled(_) => "throttled",
            PortError::Permanent(_) => "permanent",
            PortError::Unknown(_) => "unknown",
        }
    }

    /// Whether trying the same call again can help.
    pub fn may_pass(&self) -> bool {
        !matches!(self, PortError::Permanent(_))
    }
}
