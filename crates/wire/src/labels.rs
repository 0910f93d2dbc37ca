//! How a worker's output says whose it is.
//!
//! Names travel within standard output and standard error, since nothing else keeps the order of names and text. A mark
//! of 128 random bits, which the worker writes as the first line of both before any code of the user's runs, tells a name
//! from text: a program can print whatever it likes, and prints no mark.
//!
//! - LABELS-1: the first line of a stream is the mark.
//! - LABELS-2: a label is the mark, a text and a newline, written in one piece that the kernel does not divide. What
//!   precedes it and has no newline is a line of its own.
//! - LABELS-3: what a call printed lies between the label that it begins and the one that it is over. A call that printed
//!   nothing may have neither; one whose process dies has no end.

use oxiray_ids::TaskId;

/// A mark begins with this byte; what follows are hexadecimal digits.
pub const MARK_BYTE: u8 = 0x1e;

/// The length of a mark.
pub const MARK_BYTES: usize = 33;

/// The letters of a name at most.
pub const NAME_LETTERS_MAX: usize = 512;

/// The bytes that the text of a label takes at most: with mark and newline they are less than `PIPE_BUF`. That of a call is
/// shorter than the longest name.
pub const LABEL_BYTES_MAX: usize = 4 * NAME_LETTERS_MAX;

/// What the text of a label begins with that tells of a call; no name begins with it.
const CALL_LETTER: char = '\x1f';

/// What a worker says of the output that follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Label {
    /// It is printed under this name.
    Name(String),
    /// An attempt of a task begins.
    Begins(Span),
    /// It is over.
    Ends(Span),
    /// It is over, and failed.
    Fails(Span),
}

/// One attempt of a task, as far as its output is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The task.
    pub task: TaskId,
    /// Which attempt, counted from 0.
    pub attempt: u32,
    /// Whether others run in the same process meanwhile.
    pub shared: bool,
}

impl Label {
    /// Its text, in one line.
    pub fn text(&self) -> String {
        let call = |span: &Span, kind: char| format!("{CALL_LETTER}{kind}{}:{}", span.task, span.attempt);
        match self {
            Self::Name(name) => name
                .chars()
                .take(NAME_LETTERS_MAX)
                .map(|one| if one == '\n' || one == CALL_LETTER { ' ' } else { one })
                .collect(),
            Self::Begins(span) => call(span, if span.shared { 's' } else { 'b' }),
            Self::Ends(span) => call(span, 'e'),
            Self::Fails(span) => call(span, 'f'),
        }
    }

    /// What a text says; nothing where it tells of a call in a way that nobody knows.
    pub fn read(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let Some(call) = text.strip_prefix(CALL_LETTER) else { return Some(Self::Name(text.into_owned())) };
        let (task, attempt) = call.get(1..)?.split_once(':')?;
        let (task, attempt) = (TaskId::from_hex(task).ok()?, attempt.parse().ok()?);
        match call.chars().next()? {
            'b' => Some(Self::Begins(Span { task, attempt, shared: false })),
            's' => Some(Self::Begins(Span { task, attempt, shared: true })),
            'e' => Some(Self::Ends(Span { task, attempt, shared: false })),
            'f' => Some(Self::Fails(Span { task, attempt, shared: false })),
            _ => None,
        }
    }
}

/// A mark made of these random bits.
pub fn mark(chance: u128) -> String {
    format!("{}{chance:032x}", char::from(MARK_BYTE))
}

/// Whether these bytes can be a mark.
pub fn is_mark(bytes: &[u8]) -> bool {
    bytes.len() == MARK_BYTES && bytes[0] == MARK_BYTE && bytes[1..].iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written() {
        let span = |shared| Span { task: TaskId::new([7; 24]), attempt: u32::MAX, shared };
        for label in [
            Label::Name("f".into()),
            Label::Name(String::new()),
            Label::Begins(span(false)),
            Label::Begins(span(true)),
            Label::Ends(span(false)),
            Label::Fails(span(false)),
        ] {
            assert!(label.text().len() <= LABEL_BYTES_MAX);
            assert_eq!(Label::read(label.text().as_bytes()), Some(label));
        }
    }

    #[test]
    fn a_name_is_one_line_and_no_call() {
        let name = Label::Name(format!("\x1fb\n{}", "ä".repeat(2 * NAME_LETTERS_MAX))).text();
        assert!(name.starts_with(" b ä") && name.len() <= LABEL_BYTES_MAX, "{name}");
        for text in ["\x1f", "\x1fb", "\x1fbx:1", "\x1fq:", "\x1f\u{e4}:1"] {
            assert_eq!(Label::read(text.as_bytes()), None, "{text:?}");
        }
    }
}
