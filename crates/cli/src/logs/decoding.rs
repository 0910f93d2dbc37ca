//! Bytes of log files as text: which encoding they are in, and what becomes of those that are not.

use anyhow::bail;
use clap::ValueEnum;

/// What bytes of a file stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Ascii,
    Latin1,
}

impl Encoding {
    /// By a name that Python has for it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let name: String = text.chars().filter(|one| !matches!(one, '-' | '_' | ' ')).collect();
        match name.to_ascii_lowercase().as_str() {
            "utf8" | "u8" => Ok(Self::Utf8),
            "ascii" | "usascii" | "646" => Ok(Self::Ascii),
            "latin1" | "latin" | "l1" | "iso88591" | "88591" => Ok(Self::Latin1),
            _ => Err(format!(
                "`{text}` is none of utf-8, ascii and latin-1: `ray.util.state.get_log(encoding=...)` reads a log in any encoding \
                 that Python knows"
            )),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Ascii => "ascii",
            Self::Latin1 => "latin-1",
        }
    }
}

/// What becomes of bytes that stand for nothing: the names are Python's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OnError {
    /// The command fails.
    Strict,
    /// They are left out.
    Ignore,
    /// U+FFFD stands for them.
    Replace,
    /// They are shown as `\xff`.
    Backslashreplace,
}

/// Turns bytes into text, piece by piece.
#[derive(Debug)]
pub(super) struct Decoder {
    encoding: Encoding,
    on_error: OnError,
    /// The beginning of a letter whose rest has not come.
    rest: Vec<u8>,
    read: u64,
}

impl Decoder {
    pub(super) fn new(encoding: Encoding, on_error: OnError) -> Self {
        Self { encoding, on_error, rest: Vec::new(), read: 0 }
    }

    /// What the bytes stand for, as far as their letters are whole.
    pub(super) fn text(&mut self, bytes: &[u8]) -> anyhow::Result<String> {
        let mut text = String::with_capacity(bytes.len());
        match self.encoding {
            Encoding::Latin1 => text.extend(bytes.iter().map(|byte| char::from(*byte))),
            Encoding::Ascii => {
                for chunk in bytes.chunk_by(|one, other| one.is_ascii() == other.is_ascii()) {
                    match str::from_utf8(chunk).ok().filter(|chunk| chunk.is_ascii()) {
                        Some(chunk) => text += chunk,
                        None => chunk.iter().try_for_each(|byte| self.wrong(&[*byte], &mut text))?,
                    }
                    self.read += chunk.len() as u64;
                }
            }
            Encoding::Utf8 => self.utf8(bytes, &mut text)?,
        }
        Ok(text)
    }

    /// What is left at the end of the file.
    pub(super) fn finish(&mut self) -> anyhow::Result<String> {
        let (rest, mut text) = (std::mem::take(&mut self.rest), String::new());
        if !rest.is_empty() {
            self.wrong(&rest, &mut text)?;
        }
        Ok(text)
    }

    fn utf8(&mut self, bytes: &[u8], text: &mut String) -> anyhow::Result<()> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut left = &all[..];
        while !left.is_empty() {
            let (whole, rest) = match str::from_utf8(left) {
                Ok(whole) => (whole, &left[left.len()..]),
                Err(error) => {
                    let (valid, rest) = left.split_at(error.valid_up_to());
                    let whole = str::from_utf8(valid).unwrap_or_default();
                    text.push_str(whole);
                    self.read += whole.len() as u64;
                    let Some(bytes) = error.error_len() else {
                        rest.clone_into(&mut self.rest);
                        return Ok(());
                    };
                    self.wrong(&rest[..bytes], text)?;
                    self.read += bytes as u64;
                    ("", &rest[bytes..])
                }
            };
            text.push_str(whole);
            self.read += whole.len() as u64;
            left = rest;
        }
        Ok(())
    }

    fn wrong(&self, bytes: &[u8], text: &mut String) -> anyhow::Result<()> {
        let shown = || bytes.escape_ascii().to_string();
        match self.on_error {
            OnError::Ignore => {}
            OnError::Replace => text.push('\u{fffd}'),
            OnError::Backslashreplace => text.push_str(&shown()),
            OnError::Strict => bail!(
                "byte {} of what is printed, {}, is not {}: --encoding-errors=replace prints the rest, and without --encoding \
                 everything is printed as it is",
                self.read,
                shown(),
                self.encoding.name()
            ),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(encoding: &str, on_error: OnError, pieces: &[&[u8]]) -> Result<String, String> {
        let mut decoder = Decoder::new(Encoding::read(encoding)?, on_error);
        let mut text = String::new();
        for piece in pieces {
            text += &decoder.text(piece).map_err(|error| error.to_string())?;
        }
        text += &decoder.finish().map_err(|error| error.to_string())?;
        Ok(text)
    }

    #[test]
    fn letters_may_lie_in_two_pieces() {
        assert_eq!(decoded("UTF-8", OnError::Strict, &[b"a\xc3", b"\xa4b"]), Ok("aäb".into()));
        assert_eq!(decoded("latin_1", OnError::Strict, &[b"a\xe4"]), Ok("aä".into()));
        assert_eq!(decoded("ascii", OnError::Strict, &[b"ab", b"c"]), Ok("abc".into()));
    }

    #[test]
    fn what_stands_for_nothing_is_treated_as_is_said() {
        let of = |encoding: &str, on_error| decoded(encoding, on_error, &[b"a\xff", b"b\xc3"]);
        for encoding in ["utf8", "us-ascii"] {
            assert_eq!(of(encoding, OnError::Ignore), Ok("ab".into()));
            assert_eq!(of(encoding, OnError::Replace), Ok("a\u{fffd}b\u{fffd}".into()));
            assert_eq!(of(encoding, OnError::Backslashreplace), Ok("a\\xffb\\xc3".into()));
            let said = of(encoding, OnError::Strict).expect_err("it is wrong");
            assert!(said.starts_with("byte 1 of what is printed, \\xff, is not"), "{said}");
        }
        let said = decoded("utf-16", OnError::Strict, &[]).expect_err("it is not known");
        assert!(said.contains("get_log"), "{said}");
    }
}
