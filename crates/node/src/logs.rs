//! A worker's output, cut into whole lines and labelled with who printed them, as [`oxiray_wire::labels`] tells.

use bytes::Bytes;
use oxiray_wire::labels::{MARK_BYTE, MARK_BYTES, NAME_BYTES_MAX, is_mark};

/// Longer lines are cut into pieces of this size.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// Lines printed under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Printed {
    /// The task, class or actor that printed.
    pub(crate) name: String,
    /// Whole lines, each with its newline.
    pub(crate) lines: Bytes,
}

/// What a stream's first line says.
#[derive(Debug, Default)]
enum Mark {
    #[default]
    NotRead,
    /// The process ended before it could begin as a worker.
    None,
    Is(Box<[u8]>),
}

/// Cuts one stream of output.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    mark: Mark,
    name: String,
    /// What is neither a whole line nor a whole name yet.
    partial: Vec<u8>,
    /// How much of that holds neither a newline nor the beginning of a mark.
    looked_at: usize,
}

/// What comes next in a stream.
enum Next {
    /// This many bytes are a line, and this many follow that are not part of it.
    Line(usize, usize),
    /// This many bytes are left of a line, and the name of the next is in this many bytes.
    Name(usize, usize),
    /// More is to be read; this many bytes need not be looked at again.
    Unknown(usize),
}

impl Splitter {
    /// Takes what was read; returns the lines that are whole now.
    pub(crate) fn feed(&mut self, read: &[u8]) -> Vec<Printed> {
        let mut rest = std::mem::take(&mut self.partial);
        rest.extend_from_slice(read);
        let mut printed = Vec::new();
        let mut at = 0;
        loop {
            let window = &rest[at..];
            let looked_at = std::mem::take(&mut self.looked_at);
            match self.next(window, looked_at) {
                Next::Line(bytes, end) => {
                    self.line(&window[..bytes], &mut printed);
                    at += bytes + end;
                }
                Next::Name(before, bytes) => {
                    if before > 0 {
                        self.line(&window[..before], &mut printed);
                    }
                    let name = &window[before + MARK_BYTES..before + bytes - 1];
                    self.name = String::from_utf8_lossy(name).into_owned();
                    at += before + bytes;
                }
                Next::Unknown(bytes) => {
                    self.looked_at = bytes;
                    break;
                }
            }
        }
        rest.drain(..at);
        self.partial = rest;
        printed.into_iter().map(|(name, lines)| Printed { name, lines: lines.into() }).collect()
    }

    fn next(&mut self, window: &[u8], looked_at: usize) -> Next {
        if matches!(self.mark, Mark::NotRead) {
            if window.len() <= MARK_BYTES && window.first().is_none_or(|first| *first == MARK_BYTE) {
                return Next::Unknown(0);
            }
            let first = &window[..MARK_BYTES.min(window.len())];
            self.mark = if is_mark(first) { Mark::Is(first.into()) } else { Mark::None };
        }
        let mut at = looked_at;
        while let Some(found) = window[at..].iter().take(LINE_BYTES_MAX + 1 - at).position(|byte| is_special(*byte)) {
            at += found;
            if window[at] == b'\n' {
                return Next::Line(at, 1);
            }
            match self.name_in(&window[at..]) {
                Some(0) => return Next::Unknown(at),
                Some(bytes) => return Next::Name(at, bytes),
                None => at += 1,
            }
        }
        if window.len() > LINE_BYTES_MAX { Next::Line(LINE_BYTES_MAX, 0) } else { Next::Unknown(window.len()) }
    }

    /// How many bytes of `text` are a mark, a name and its newline; 0 where more has to be read to tell.
    fn name_in(&self, text: &[u8]) -> Option<usize> {
        let Mark::Is(mark) = &self.mark else { return None };
        if text.len() <= MARK_BYTES {
            return mark.starts_with(text).then_some(0);
        }
        let rest = text.strip_prefix(&mark[..])?;
        let end = rest.iter().take(NAME_BYTES_MAX + 1).position(|byte| *byte == b'\n');
        match end {
            Some(end) => Some(MARK_BYTES + end + 1),
            None => (rest.len() <= NAME_BYTES_MAX).then_some(0),
        }
    }

    /// The stream is over: what is left is a line too.
    pub(crate) fn finish(&mut self) -> Vec<Printed> {
        if self.partial.is_empty() {
            return Vec::new();
        }
        if matches!(self.mark, Mark::NotRead) {
            self.mark = Mark::None;
        }
        self.feed(b"\n")
    }

    fn line(&mut self, line: &[u8], printed: &mut Vec<(String, Vec<u8>)>) {
        if printed.last().is_none_or(|(name, _)| *name != self.name) {
            printed.push((self.name.clone(), Vec::new()));
        }
        let (_, lines) = printed.last_mut().expect("one was just pushed where there was none");
        lines.extend_from_slice(line);
        lines.push(b'\n');
    }
}

fn is_special(byte: u8) -> bool {
    byte == b'\n' || byte == MARK_BYTE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn printed(name: &str, lines: &[u8]) -> Printed {
        Printed { name: name.into(), lines: Bytes::copy_from_slice(lines) }
    }

    fn of_worker() -> (Splitter, String) {
        let (mut splitter, mark) = (Splitter::default(), oxiray_wire::labels::mark(7));
        assert_eq!(splitter.feed(format!("{mark}\n").as_bytes()), []);
        (splitter, mark)
    }

    #[test]
    fn lines_carry_the_name_in_force_and_marks_are_not_shown() {
        let (mut splitter, mark) = of_worker();
        assert_eq!(splitter.feed(b"a\nb"), [printed("", b"a\n")]);
        let more = splitter.feed(format!("\n{mark}f\nc\n\nd\n{mark}g\ne\nhalf").as_bytes());
        assert_eq!(more, [printed("", b"b\n"), printed("f", b"c\n\nd\n"), printed("g", b"e\n")]);
        assert_eq!(splitter.finish(), [printed("g", b"half\n")]);
        assert_eq!(splitter.finish(), []);
    }

    #[test]
    fn what_a_task_left_without_a_newline_is_a_line_of_that_task() {
        let (mut splitter, mark) = of_worker();
        let whole = format!("{mark}f\n50%{mark}g\nhello\n");
        assert_eq!(splitter.feed(whole.as_bytes()), [printed("f", b"50%\n"), printed("g", b"hello\n")]);
        let (mut byte_by_byte, _) = of_worker();
        let parts: Vec<Printed> = whole.bytes().flat_map(|byte| byte_by_byte.feed(&[byte])).collect();
        assert_eq!(parts, [printed("f", b"50%\n"), printed("g", b"hello\n")]);
    }

    #[test]
    fn a_program_prints_no_mark() {
        let (mut splitter, mark) = of_worker();
        splitter.feed(format!("{mark}f\n").as_bytes());
        let other = oxiray_wire::labels::mark(8);
        for text in ["\u{1e}oxiray-name:g\n", "\u{1e}\n", &format!("{other}g\n"), "\u{1e}\u{1e}\u{1e}a\n"] {
            assert_eq!(splitter.feed(text.as_bytes()), [printed("f", text.as_bytes())], "{text:?}");
        }
        assert_eq!(splitter.feed(&[b"\x1e", mark.as_bytes(), b"h\ni\n"].concat())[1], printed("h", b"i\n"));
    }

    #[test]
    fn a_process_that_could_not_begin_has_no_mark() {
        for text in ["cannot begin\n", "\u{1e}no mark, though it is long enough for one\n"] {
            assert_eq!(Splitter::default().feed(text.as_bytes()), [printed("", text.as_bytes())]);
        }
        let mut short = Splitter::default();
        assert_eq!(short.feed(b"\x1ea"), []);
        assert_eq!(short.finish(), [printed("", b"\x1ea\n")]);
    }

    #[test]
    fn a_line_without_end_is_cut_and_nothing_grows() {
        let mut splitter = Splitter::default();
        let long = vec![b'x'; LINE_BYTES_MAX * 3 + 5];
        let out = splitter.feed(&long);
        assert_eq!(out[0].lines.len(), (LINE_BYTES_MAX + 1) * 3);
        assert_eq!(splitter.partial.len(), 5);
        let whole = Splitter::default().feed(&[&long[..], b"\n"].concat());
        assert!(whole[0].lines.split(|byte| *byte == b'\n').all(|line| line.len() <= LINE_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn how_reads_are_cut_changes_nothing(text in prop::collection::vec(prop::sample::select(b"ab\x1e\n".to_vec()), 0..200), cuts in prop::collection::vec(1usize..9, 1..100)) {
            let (mut splitter, _) = of_worker();
            let mut out = Vec::new();
            let mut rest = &text[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                out.extend(splitter.feed(now).into_iter().flat_map(|printed| printed.lines.to_vec()));
                rest = later;
            }
            out.extend(splitter.finish().into_iter().flat_map(|printed| printed.lines.to_vec()));
            let mut expected = text.clone();
            if expected.last().is_some_and(|last| *last != b'\n') { expected.push(b'\n') }
            prop_assert_eq!(out, expected);
        }
    }
}
