//! In-memory adapters.
