//! What the program says, in the session's log of it.

/// Says a line.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    // Standard error is the session's log; where it is gone nobody reads.
    let _ = writeln!(std::io::stderr(), "{line}");
}
