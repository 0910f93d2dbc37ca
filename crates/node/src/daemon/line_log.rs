//! Files that lines are appended to and that do not grow without end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// At this size a file is set aside under the name with `.1`, and begun anew.
const LOG_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct LineLog {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl LineLog {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    /// Another handle of the file, for a child's output.
    pub(crate) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// A line with the time. Where the disk is full there is nobody left to tell.
    pub(crate) fn line(&mut self, text: &str) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.append(format!("{}.{:03} {text}\n", time.as_secs(), time.subsec_millis()).as_bytes());
    }

    /// What was written last; where a child writes to the file too, its last words.
    pub(crate) fn last_line(&self) -> Option<String> {
        const TAIL_BYTES: u64 = 4096;
        let reader = File::open(&self.path).ok()?;
        let from = reader.metadata().ok()?.len().saturating_sub(TAIL_BYTES);
        let mut tail = vec![0; TAIL_BYTES as usize];
        let read = reader.read_at(&mut tail, from).ok()?;
        let text = String::from_utf8_lossy(&tail[..read]).into_owned();
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let _ = self.file.write_all(bytes);
        if self.bytes > LOG_BYTES_MAX {
            let _ = fs::rename(&self.path, self.path.with_extension("log.1"));
            if let Ok(fresh) = Self::open(&self.path) {
                *self = fresh;
            }
        }
    }
}
