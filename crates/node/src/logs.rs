//! A worker's output, cut into whole lines and labelled with who printed them, as [`oxiray_wire::labels`] tells.

use oxiray_ids::TaskId;
use oxiray_logs::Printed;
use oxiray_wire::labels::{LABEL_BYTES_MAX, Label, MARK_BYTE, MARK_BYTES, is_mark};

/// Longer lines are cut into pieces of this size.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// The most calls under way beside each other whose ends are known as such; a worker labels no more.
const SHARED_MAX: usize = 1024;

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
    /// What is neither a whole line nor a whole label yet.
    partial: Vec<u8>,
    /// How much of that holds neither a newline nor the beginning of a mark.
    looked_at: usize,
    /// Calls under way that others run beside.
    shared: Vec<(TaskId, u32)>,
}

/// What comes next in a stream.
enum Next {
    /// This many bytes are a line, and this many follow that are not part of it.
    Line(usize, usize),
    /// This many bytes are left of a line, and a label is in this many bytes.
    Label(usize, usize),
    /// More is to be read; this many bytes need not be looked at again.
    Unknown(usize),
}

impl Splitter {
    /// Takes what was read; returns the lines that are whole now, and the calls that begin and end among them.
    pub(crate) fn feed(&mut self, read: &[u8]) -> Vec<Printed> {
        let mut rest = std::mem::take(&mut self.partial);
        rest.extend_from_slice(read);
        let mut cut = Cut::default();
        let mut at = 0;
        loop {
            let window = &rest[at..];
            let looked_at = std::mem::take(&mut self.looked_at);
            match self.next(window, looked_at) {
                Next::Line(bytes, end) => {
                    cut.line(&self.name, &window[..bytes]);
                    at += bytes + end;
                }
                Next::Label(before, bytes) => {
                    let label = Label::read(&window[before + MARK_BYTES..before + bytes - 1]);
                    if let Some(piece) = label.as_ref().and_then(|label| self.among_others(label)) {
                        cut.mark(piece);
                        rest.drain(at + before..at + before + bytes);
                        self.looked_at = before;
                        continue;
                    }
                    if before > 0 {
                        cut.line(&self.name, &window[..before]);
                    }
                    match label {
                        Some(Label::Name(name)) => self.name = name,
                        Some(Label::Begins(span)) => cut.mark(Printed::Begins(span)),
                        Some(Label::Ends(span)) => cut.mark(Printed::Ends(span)),
                        Some(Label::Fails(span)) => cut.mark(Printed::Fails(span)),
                        // Only who knows the mark can say so: a worker of another version.
                        None => {}
                    }
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
        cut.finish()
    }

    /// What a label says that tells of a call among others: it stands before the line that it falls into, which may be
    /// another's, and divides it not.
    fn among_others(&mut self, label: &Label) -> Option<Printed> {
        match label {
            Label::Begins(span) if span.shared => {
                if self.shared.len() < SHARED_MAX {
                    self.shared.push((span.task, span.attempt));
                }
                Some(Printed::Begins(*span))
            }
            Label::Ends(span) | Label::Fails(span) => {
                let at = self.shared.iter().position(|one| *one == (span.task, span.attempt))?;
                self.shared.swap_remove(at);
                Some(if matches!(label, Label::Fails(_)) { Printed::Fails(*span) } else { Printed::Ends(*span) })
            }
            Label::Begins(_) | Label::Name(_) => None,
        }
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
            match self.label_in(&window[at..]) {
                Some(0) => return Next::Unknown(at),
                Some(bytes) => return Next::Label(at, bytes),
                None => at += 1,
            }
        }
        if window.len() > LINE_BYTES_MAX { Next::Line(LINE_BYTES_MAX, 0) } else { Next::Unknown(window.len()) }
    }

    /// How many bytes of `text` are a label; 0 where more has to be read to tell.
    fn label_in(&self, text: &[u8]) -> Option<usize> {
        let Mark::Is(mark) = &self.mark else { return None };
        if text.len() <= MARK_BYTES {
            return mark.starts_with(text).then_some(0);
        }
        let rest = text.strip_prefix(&mark[..])?;
        let end = rest.iter().take(LABEL_BYTES_MAX + 1).position(|byte| *byte == b'\n');
        match end {
            Some(end) => Some(MARK_BYTES + end + 1),
            None => (rest.len() <= LABEL_BYTES_MAX).then_some(0),
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
}

/// What is cut so far of what was read: lines that follow each other under one name are one piece.
#[derive(Debug, Default)]
struct Cut {
    pieces: Vec<Printed>,
    name: String,
    lines: Vec<u8>,
}

impl Cut {
    fn line(&mut self, name: &str, line: &[u8]) {
        if self.name != name {
            self.end_lines();
            name.clone_into(&mut self.name);
        }
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
    }

    fn mark(&mut self, piece: Printed) {
        self.end_lines();
        self.pieces.push(piece);
    }

    fn end_lines(&mut self) {
        if !self.lines.is_empty() {
            let lines = std::mem::take(&mut self.lines).into();
            self.pieces.push(Printed::Lines { name: self.name.clone(), lines });
        }
    }

    fn finish(mut self) -> Vec<Printed> {
        self.end_lines();
        self.pieces
    }
}

fn is_special(byte: u8) -> bool {
    byte == b'\n' || byte == MARK_BYTE
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::labels::Span;
    use proptest::prelude::*;

    fn printed(name: &str, lines: &[u8]) -> Printed {
        Printed::Lines { name: name.into(), lines: lines.to_vec().into() }
    }

    fn text_of(piece: Printed) -> Vec<u8> {
        match piece {
            Printed::Lines { lines, .. } => lines.to_vec(),
            Printed::Begins(_) | Printed::Ends(_) | Printed::Fails(_) => Vec::new(),
        }
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
    fn calls_begin_and_end_between_lines() {
        let (mut splitter, mark) = of_worker();
        let span = Span { task: TaskId::new([7; 24]), attempt: 2, shared: false };
        let label = |label: Label| format!("{mark}{}\n", label.text());
        let (begins, ends) = (label(Label::Begins(span)), label(Label::Ends(span)));
        let whole = format!("{mark}f\na\n{begins}b\nc{ends}{mark}\x1fnobody knows\nd\n");
        let expected = [
            printed("f", b"a\n"),
            Printed::Begins(span),
            printed("f", b"b\nc\n"),
            Printed::Ends(span),
            printed("f", b"d\n"),
        ];
        assert_eq!(splitter.feed(whole.as_bytes()), expected);
    }

    #[test]
    fn a_call_among_others_divides_no_line() {
        let (mut splitter, mark) = of_worker();
        let span = |shared| Span { task: TaskId::new([7; 24]), attempt: 2, shared };
        let label = |label: Label| format!("{mark}{}\n", label.text());
        let (begins, ends) = (label(Label::Begins(span(true))), label(Label::Ends(span(false))));
        let whole = format!("{mark}f\none {begins}line\nano{ends}ther\n");
        let expected = [
            Printed::Begins(span(true)),
            printed("f", b"one line\n"),
            Printed::Ends(span(false)),
            printed("f", b"another\n"),
        ];
        assert_eq!(splitter.feed(whole.as_bytes()), expected);
        let (mut byte_by_byte, _) = of_worker();
        let parts: Vec<Printed> = whole.bytes().flat_map(|byte| byte_by_byte.feed(&[byte])).collect();
        assert_eq!(parts, expected);
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
        assert_eq!(out.into_iter().flat_map(text_of).count(), (LINE_BYTES_MAX + 1) * 3);
        assert_eq!(splitter.partial.len(), 5);
        let whole = Splitter::default().feed(&[&long[..], b"\n"].concat());
        let whole: Vec<u8> = whole.into_iter().flat_map(text_of).collect();
        assert!(whole.split(|byte| *byte == b'\n').all(|line| line.len() <= LINE_BYTES_MAX));
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
                out.extend(splitter.feed(now).into_iter().flat_map(text_of));
                rest = later;
            }
            out.extend(splitter.finish().into_iter().flat_map(text_of));
            let mut expected = text.clone();
            if expected.last().is_some_and(|last| *last != b'\n') { expected.push(b'\n') }
            prop_assert_eq!(out, expected);
        }
    }
}
