//! Files in storage, through the program that speaks to it ([decision 36](../../../../docs/decisions/0036-objects-go-to-storage-through-a-program.md)):
//! orders and answers are lines over its standard input and output (`crates/storage/src/files.rs`).

use super::shelf::{FoundFile, ShelfError};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The program, beside this one.
const PROGRAM: &str = "oxiray-storage";
/// The longest line of an answer, in bytes.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The most files that are listened to.
const FILES_MAX: usize = 1_000_000;

/// The program, started when something is asked, and again after it ended.
#[derive(Debug)]
pub(crate) struct StorageProgram {
    url: String,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    asked: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(url: &str) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?.with_file_name(PROGRAM))
            .args(["files", "--url", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let asked = child.stdin.take().ok_or_else(missing)?;
        let told = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, asked, told })
    }

    fn ask(&mut self, order: &str, body: &[u8]) -> io::Result<String> {
        writeln!(self.asked, "{order}")?;
        self.asked.write_all(body)?;
        self.asked.flush()?;
        self.line()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.told.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
        line.strip_suffix('\n').map(str::to_owned).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn bytes(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if count > FILE_BYTES_MAX || self.told.by_ref().take(count).read_to_end(&mut bytes)? as u64 != count {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Done,
    Bytes(u64),
    Files(usize),
    Trouble(String),
}

fn said(line: &str) -> Option<Said> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "done" => Some(Said::Done),
        "bytes" => rest.parse().ok().map(Said::Bytes),
        "files" => rest.parse().ok().map(Said::Files),
        "gone" | "refused" | "away" => Some(Said::Trouble(rest.to_owned())),
        _ => None,
    }
}

impl StorageProgram {
    /// One for files below this URL.
    pub(crate) fn new(url: String) -> Self {
        Self { url, running: None }
    }

    /// Has an order carried out. A program that does not answer is ended, and the next order starts another.
    fn order<T>(
        &mut self,
        (order, body): (&str, &[u8]),
        take: impl FnOnce(&mut Running, Said) -> io::Result<T>,
    ) -> Result<T, ShelfError> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.url).map_err(|error| self.broken(&error))?,
        };
        let asked = running.ask(order, body).and_then(|line| said(&line).ok_or_else(|| io::Error::other(line)));
        let taken = match asked {
            Ok(Said::Trouble(text)) => Err(ShelfError::Storage(text)),
            Ok(told) => take(&mut running, told).map_err(|error| self.broken(&error)),
            Err(error) => return Err(self.broken(&error)),
        };
        self.running = Some(running);
        taken
    }

    fn broken(&self, error: &io::Error) -> ShelfError {
        ShelfError::Storage(format!(
            "`{}` cannot be reached through {PROGRAM}: {error}; its own words stand above",
            self.url
        ))
    }

    /// Writes a file.
    pub(crate) fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), ShelfError> {
        self.order((&format!("put {name} {}", bytes.len()), bytes), |_, told| expect(&told, &Said::Done))
    }

    /// Reads a file.
    pub(crate) fn get(&mut self, name: &str) -> Result<Vec<u8>, ShelfError> {
        self.order((&format!("get {name}"), &[]), |running, told| match told {
            Said::Bytes(count) => running.bytes(count),
            other => Err(io::Error::other(format!("{other:?}"))),
        })
    }

    /// Removes a file.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), ShelfError> {
        self.order((&format!("remove {name}"), &[]), |_, told| expect(&told, &Said::Done))
    }

    /// All files.
    pub(crate) fn list(&mut self) -> Result<Vec<FoundFile>, ShelfError> {
        self.order(("list", &[]), |running, told| {
            let Said::Files(count) = told else { return Err(io::Error::other(format!("{told:?}"))) };
            (0..count.min(FILES_MAX)).map(|_| found(&running.line()?)).collect()
        })
    }
}

fn expect(told: &Said, wanted: &Said) -> io::Result<()> {
    if told == wanted { Ok(()) } else { Err(io::Error::other(format!("{told:?}"))) }
}

fn found(line: &str) -> io::Result<FoundFile> {
    let words: Vec<&str> = line.split(' ').collect();
    let read = match words[..] {
        [name, bytes, changed_ms] => bytes
            .parse()
            .ok()
            .zip(changed_ms.parse().ok())
            .map(|(bytes, changed_ms)| FoundFile { name: name.to_owned(), bytes, changed_ms }),
        _ => None,
    };
    read.ok_or_else(|| io::Error::other(format!("`{line}` is no file")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_word_by_word() {
        assert_eq!(said("done"), Some(Said::Done));
        assert_eq!(said("bytes 12"), Some(Said::Bytes(12)));
        assert_eq!(said("away it is slow"), Some(Said::Trouble("it is slow".into())));
        assert_eq!((said("bytes x"), said("what")), (None, None));
        let file = found("s/a.jsonl.gz 3 4").expect("a file");
        assert_eq!((file.name.as_str(), file.bytes, file.changed_ms), ("s/a.jsonl.gz", 3, 4));
        assert!(found("s/a 3").is_err());
    }
}
