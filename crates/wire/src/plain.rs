//! Text of programs, made safe for terminals and logs: whatever would be obeyed there in place of being shown.
//!
//! A program chooses the names of its tasks, actors, groups and resources, and tags of its metrics. Where such text is
//! printed for people, controls (C0, DEL, C1), line separators and marks of writing direction are written as escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text as one line.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// The text, whose newlines stay.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter != '\n' && is_obeyed(letter))
}

/// Whether a terminal or a log does something else with the letter than show it.
fn is_obeyed(letter: char) -> bool {
    let is_direction =
        matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || is_direction || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// The escapes are those of JSON, so that JSON stays what it is.
fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '\n' if is_escaped(letter) => safe.push_str("\\n"),
            _ if is_escaped(letter) => write!(safe, "\\u{:04x}", u32::from(letter)).expect("a string takes all"),
            _ => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let hostile = "a\u{1b}]0;title\u{7}b\nc\r\u{9b}2J\u{7f}\u{202e}d\u{2066}e\u{2028}";
        let expected = r"a\u001b]0;title\u0007b\nc\u000d\u009b2J\u007f\u202ed\u2066e\u2028";
        assert_eq!(plain(hostile), expected);
        assert_eq!(plain_lines("a\nb\u{1b}"), "a\nb\\u001b");
        assert!(matches!(plain("Straße, 東京, שלום, 🚀"), Cow::Borrowed(_)));
    }
}
