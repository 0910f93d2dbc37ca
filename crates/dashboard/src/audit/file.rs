//! A file that lines are added to, and that is renamed when it has become long.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// How long a file may become, in bytes, and how many there are with those that were renamed.
const FILE_BYTES_MAX: u64 = 16 << 20;
const FILES_MAX: u32 = 4;

/// The file, which is its owner's alone, and those before it: `.1` is the one that was renamed last.
#[derive(Debug)]
pub(super) struct Rotated {
    path: PathBuf,
    open: Option<(File, u64)>,
    bytes_max: u64,
}

impl Rotated {
    /// One that is opened with the first line.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None, bytes_max: FILE_BYTES_MAX }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line, whole or not at all.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let (mut file, length) = match self.open.take() {
            Some(open) => open,
            None => self.opened()?,
        };
        if length > 0 && length + line.len() as u64 > self.bytes_max {
            drop(file);
            self.rename()?;
            return self.append(line);
        }
        if let Err(error) = file.write_all(line) {
            // What a full disk took of it would be half a line.
            file.set_len(length)?;
            return Err(error);
        }
        self.open = Some((file, length + line.len() as u64));
        Ok(())
    }

    fn opened(&self) -> io::Result<(File, u64)> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let file = options.open(&self.path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    fn rename(&self) -> io::Result<()> {
        for number in (1..FILES_MAX).rev() {
            match fs::rename(self.numbered(number - 1), self.numbered(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        if number > 0 {
            path.push(format!(".{number}"));
        }
        path.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn files_are_their_owners_and_the_oldest_makes_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let mut file = Rotated { bytes_max: 20, ..Rotated::new(path.clone()) };
        let line = |number: u32| format!("line {number:04}\n");
        for number in 0..11 {
            file.append(line(number).as_bytes()).expect("added");
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("it is there");
        // What another process finds is gone on with.
        let mut next = Rotated { bytes_max: 20, ..Rotated::new(path.clone()) };
        next.append(line(11).as_bytes()).expect("added");
        assert_eq!(read("audit.jsonl"), line(10) + &line(11));
        assert_eq!(read("audit.jsonl.3"), line(4) + &line(5));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), FILES_MAX as usize, "AUDIT-3");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn no_link_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = folder.path().join("other");
        fs::write(&other, "").expect("written");
        symlink(&other, folder.path().join("audit.jsonl")).expect("linked");
        assert!(Rotated::new(folder.path().join("audit.jsonl")).append(b"x\n").is_err());
        assert_eq!(fs::read(other).expect("it is there"), b"");
    }
}
