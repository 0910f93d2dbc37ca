//! Files that lines are appended to and that do not grow without end.

use crate::descriptors::with_reserve;
use oxiray_wire::plain;
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

    /// A line with the time; what programs chose of it is shown and not obeyed. Where the disk is full there is nobody left
    /// to tell.
    pub(crate) fn line(&mut self, text: &str) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.append(format!("{}.{:03} {}\n", time.as_secs(), time.subsec_millis(), plain(text)).as_bytes());
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
            // Where there can be no other file, this one goes on.
            let _ = with_reserve(|| self.begin_anew());
        }
    }

    /// The new file is there before the old one gives up its name.
    fn begin_anew(&mut self) -> io::Result<()> {
        let unnamed = self.path.with_extension("log.new");
        let fresh = Self::open(&unnamed)?;
        fs::rename(&self.path, self.path.with_extension("log.1"))?;
        fs::rename(&unnamed, &self.path)?;
        *self = Self { path: std::mem::take(&mut self.path), ..fresh };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_set_aside_and_goes_on_where_there_can_be_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("daemon.log");
        let mut log = LineLog::open(&path).expect("a log");
        // Nothing can be opened under this name.
        fs::create_dir(folder.path().join("daemon.log.new")).expect("a folder");
        log.line("first");
        log.bytes = LOG_BYTES_MAX;
        log.line("second");
        log.line("third");
        assert_eq!(fs::read_to_string(&path).expect("it is there").lines().count(), 3);
        fs::remove_dir(folder.path().join("daemon.log.new")).expect("it is empty");
        log.line("fourth");
        log.line("fifth");
        assert_eq!(fs::read_to_string(path.with_extension("log.1")).expect("set aside").lines().count(), 4);
        assert!(fs::read_to_string(&path).expect("begun anew").ends_with("fifth\n"));
        assert_eq!(log.last_line().map(|line| line.ends_with("fifth")), Some(true));
    }
}
