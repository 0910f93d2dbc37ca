//! What happened, line by line: a hash of all of it, and the last lines for whoever looks into a failure.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;

/// How many of the last lines are kept.
const LINES_KEPT: usize = 400;
/// The longest line, in bytes; messages with much in them are cut.
const LINE_BYTES_MAX: usize = 300;

/// The log of one run.
#[derive(Debug)]
pub(crate) struct Log {
    hash: u64,
    lines: VecDeque<String>,
    events: u64,
    file: Option<File>,
}

/// Text that ends at [`LINE_BYTES_MAX`].
struct Cut<'line>(&'line mut String);

impl fmt::Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES_MAX.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.extend(text.chars().take(room));
        Err(fmt::Error)
    }
}

impl Log {
    /// Everything goes to `file` as well, where there is one.
    pub(crate) fn new(file: Option<File>) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new(), events: 0, file }
    }

    /// Something happened at a moment, in µs.
    pub(crate) fn line(&mut self, at: u64, what: fmt::Arguments<'_>) {
        let mut line = if self.lines.len() == LINES_KEPT { self.lines.pop_front() } else { None }.unwrap_or_default();
        line.clear();
        // What does not fit is cut: that is no error.
        let _ = write!(Cut(&mut line), "{:>5}.{:06} {what}", at / 1_000_000, at % 1_000_000);
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.events += 1;
        if let Some(file) = &mut self.file {
            // A full disk costs the log, not the run.
            let _ = writeln!(file, "{line}");
        }
        self.lines.push_back(line);
    }

    /// Two runs with the same hash were the same.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// How many lines there were.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The last lines, oldest first.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}
