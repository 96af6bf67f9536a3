//! Tests over the whole of Punctual: what they share.
