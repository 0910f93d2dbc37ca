//! How far a request has its process kept from devices that it was not granted, as programs write it.

use oxiray_fence::Isolation;
use oxiray_wire::message::AskedIsolation;

/// What a mode's word asks for; an empty text asks for nothing.
///
/// # Errors
/// Where there is no such mode, in words.
pub fn asked(word: &str) -> Result<AskedIsolation, String> {
    if word.is_empty() {
        return Ok(AskedIsolation::Unsaid);
    }
    match Isolation::from_word(word) {
        Some(Isolation::Variable) => Ok(AskedIsolation::Variable),
        Some(Isolation::Watch) => Ok(AskedIsolation::Watch),
        Some(Isolation::Fence) => Ok(AskedIsolation::Fence),
        Some(Isolation::Require) => Ok(AskedIsolation::Require),
        None => Err(format!("device_isolation is `{word}`; it is to be one of {}", Isolation::words())),
    }
}
