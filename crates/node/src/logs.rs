//! A worker's output, cut into whole lines and labelled with who printed them.
//!
//! A worker says whose output follows with a line of its own that nobody sees:
//! the byte `0x1e`, `oxiray-name:`, the name.

use bytes::Bytes;

/// Longer lines are cut into pieces of this size.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

const MARK: &[u8] = b"\x1eoxiray-name:";

/// Lines printed under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Printed {
    /// The task, class or actor that printed.
    pub(crate) name: String,
    /// Whole lines, each with its newline.
    pub(crate) lines: Bytes,
}

/// Cuts one stream of output.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    name: String,
    partial: Vec<u8>,
}

impl Splitter {
    /// Takes what was read; returns the lines that are whole now.
    pub(crate) fn feed(&mut self, read: &[u8]) -> Vec<Printed> {
        self.partial.extend_from_slice(read);
        let mut printed = Vec::new();
        let mut rest = std::mem::take(&mut self.partial);
        let mut at = 0;
        loop {
            let window = &rest[at..];
            let end = window.iter().position(|byte| *byte == b'\n');
            match end {
                Some(end) => self.line(&window[..end], &mut printed),
                None if window.len() >= LINE_BYTES_MAX => {
                    self.line(&window[..LINE_BYTES_MAX], &mut printed);
                    at += LINE_BYTES_MAX;
                    continue;
                }
                None => break,
            }
            at += end.map_or(0, |end| end + 1);
        }
        rest.drain(..at);
        self.partial = rest;
        printed.into_iter().map(|(name, lines)| Printed { name, lines: lines.into() }).collect()
    }

    /// The stream is over: what is left is a line too.
    pub(crate) fn finish(&mut self) -> Vec<Printed> {
        if self.partial.is_empty() { Vec::new() } else { self.feed(b"\n") }
    }

    fn line(&mut self, line: &[u8], printed: &mut Vec<(String, Vec<u8>)>) {
        if let Some(name) = line.strip_prefix(MARK) {
            self.name = String::from_utf8_lossy(name).into_owned();
            return;
        }
        if printed.last().is_none_or(|(name, _)| *name != self.name) {
            printed.push((self.name.clone(), Vec::new()));
        }
        let (_, lines) = printed.last_mut().expect("one was just pushed where there was none");
        for piece in line.chunks(LINE_BYTES_MAX).chain(line.is_empty().then_some(&b""[..])) {
            lines.extend_from_slice(piece);
            lines.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn printed(name: &str, lines: &[u8]) -> Printed {
        Printed { name: name.into(), lines: Bytes::copy_from_slice(lines) }
    }

    #[test]
    fn lines_carry_the_name_in_force_and_marks_are_not_shown() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.feed(b"a\nb"), [printed("", b"a\n")]);
        let more = splitter.feed(b"\n\x1eoxiray-name:f\nc\n\nd\n\x1eoxiray-name:g\ne\nhalf");
        assert_eq!(more, [printed("", b"b\n"), printed("f", b"c\n\nd\n"), printed("g", b"e\n")]);
        assert_eq!(splitter.finish(), [printed("g", b"half\n")]);
        assert_eq!(splitter.finish(), []);
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
        fn how_reads_are_cut_changes_nothing(text in prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..200), cuts in prop::collection::vec(1usize..9, 1..100)) {
            let mut splitter = Splitter::default();
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
