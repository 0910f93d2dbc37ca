//! Texts that peers chose.
//!
//! - DOOR-3: a text that names something has at most [`NAME_BYTES_MAX`] bytes, or is refused; one that only describes
//!   something is cut there. So what is told of it fits into an answer, however many there are.

/// The most bytes of a name.
pub const NAME_BYTES_MAX: usize = 1024;
/// How much of a name that is too long its refusal shows.
const NAME_BYTES_SHOWN: usize = 64;

/// DOOR-3, for what a client names something, or asks for by name.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let (begin, bytes) = (beginning(name, NAME_BYTES_SHOWN), name.len());
    Err(format!("{what} has at most {NAME_BYTES_MAX} bytes, and `{begin}…` has {bytes}: use a shorter one"))
}

/// DOOR-3, for what is only shown.
pub fn cut(mut text: String) -> String {
    if text.len() > NAME_BYTES_MAX {
        text.truncate(beginning(&text, NAME_BYTES_MAX - '…'.len_utf8()).len());
        text.push('…');
    }
    text
}

/// At most so many bytes of a text, whole characters.
fn beginning(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
