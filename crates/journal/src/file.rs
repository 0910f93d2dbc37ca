//! Rows in a file that batches are appended to, and that is written anew when most of it is out of date.

use crate::record::{FIRST, HEADER_BYTES, MAGIC, Read, Seal, VERSION, follows, header, read, write};
use crate::{Change, Fault, Rows, Store};
use bytes::Bytes;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file below this size is not written anew for its size.
const SLACK_BYTES: u64 = 1 << 20;
/// How many times the bytes of its rows a file may have.
const GROWTH: u64 = 3;
/// About how many bytes go into one record of a file that is written anew.
const RECORD_BYTES: usize = 4 << 20;
/// What a row takes beside its key and its value, at most.
const ROW_BYTES: usize = 24;

/// A journal in one file.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// Bytes of the file that are safe: everything beyond was never acknowledged.
    length: u64,
    seal: Seal,
    rows: Rows,
    /// Bytes of the rows.
    live: u64,
    /// What the file holds on disk is not known any more: it is to be written anew.
    is_suspect: bool,
}

/// A journal that was opened.
#[derive(Debug)]
pub struct Opened {
    /// It.
    pub journal: LogFile,
    /// How many bytes of a batch were dropped that was never acknowledged, since writing it was cut short.
    pub torn: u64,
    /// The file with those bytes, where they are not what a batch begins with: the machine may have stopped while they were
    /// written, or something else has written them.
    pub kept: Option<PathBuf>,
}

impl LogFile {
    /// Opens the journal at `path`, which is made where it is missing, with mode 0600.
    ///
    /// # Errors
    /// Where it cannot be read or written, or is not what was written (JOURNAL-3).
    pub fn open(path: &Path) -> Result<Opened, Fault> {
        let fault = |step| move |source| Fault::System { path: path.to_owned(), step, source };
        let file = open(path).map_err(fault("opened"))?;
        let bytes = Bytes::from(fs::read(path).map_err(fault("read"))?);
        let size = bytes.len() as u64;
        let mut journal =
            Self { path: path.to_owned(), file, length: 0, seal: FIRST, rows: Rows::new(), live: 0, is_suspect: false };
        if bytes.len() < HEADER_BYTES {
            // Killed before its first write was safe: nothing was acknowledged.
            journal.rewrite().map_err(fault("written"))?;
            return Ok(Opened { journal, torn: size, kept: None });
        }
        journal.read_header(&bytes)?;
        let is_strange = journal.read_records(&bytes)?;
        let tail = &bytes[journal.length as usize..];
        let kept = is_strange.then(|| path.with_extension(format!("cut-{}", journal.length)));
        if let Some(kept) = &kept {
            let written = fresh(kept).and_then(|mut file| file.write_all(tail).and_then(|()| file.sync_all()));
            written.map_err(|source| Fault::System { path: kept.clone(), step: "written", source })?;
        }
        if !tail.is_empty() {
            journal.file.set_len(journal.length).map_err(fault("written"))?;
        }
        Ok(Opened { torn: tail.len() as u64, journal, kept })
    }

    fn read_header(&mut self, bytes: &Bytes) -> Result<(), Fault> {
        if bytes[..4] != MAGIC {
            return Err(self.corrupt("it does not begin as a journal does", 0, bytes));
        }
        let version = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if version > VERSION {
            return Err(Fault::Later { path: self.path.clone(), found: version, known: VERSION });
        }
        if version != VERSION {
            return Err(self.corrupt("its version is none", 4, bytes));
        }
        self.length = HEADER_BYTES as u64;
        Ok(())
    }

    /// What is behind the last record was never acknowledged; returns whether it is something else than the beginning of
    /// another one.
    fn read_records(&mut self, bytes: &Bytes) -> Result<bool, Fault> {
        loop {
            let rest = bytes.slice(self.length as usize..);
            if rest.is_empty() {
                return Ok(false);
            }
            match read(self.seal, &rest) {
                Read::Whole { changes, bytes, seal } => {
                    self.length += bytes as u64;
                    self.seal = seal;
                    for change in &changes {
                        self.apply(copied(change));
                    }
                }
                Read::Torn => return Ok(false),
                Read::Strange(_) if !follows(self.seal, &rest) => return Ok(true),
                Read::Strange(what) | Read::Wrong(what) => return Err(self.corrupt(what, self.length, bytes)),
            }
        }
    }

    fn corrupt(&self, what: &'static str, at: u64, bytes: &Bytes) -> Fault {
        Fault::Corrupt { path: self.path.clone(), what, at, size: bytes.len() as u64 }
    }

    fn apply(&mut self, change: Change) {
        let Change { table, key, value } = change;
        let key_bytes = key.len();
        let bytes = |value: &Bytes| (key_bytes + value.len() + ROW_BYTES) as u64;
        self.live += value.as_ref().map_or(0, bytes);
        let before = match value {
            Some(value) => self.rows.insert((table, key), value),
            None => self.rows.remove(&(table, key)),
        };
        self.live -= before.as_ref().map_or(0, bytes);
    }

    fn append(&mut self, batch: &[Change]) -> io::Result<()> {
        let (record, seal) = write(self.seal, batch);
        if let Err(error) = self.file.write_all_at(&record, self.length) {
            self.is_suspect = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        if let Err(error) = self.file.sync_data() {
            // The kernel forgets what it could not write: only a new file is sure to have everything.
            self.is_suspect = true;
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += record.len() as u64;
        self.seal = seal;
        Ok(())
    }

    /// Writes all rows to a new file, which takes the place of the old one.
    fn rewrite(&mut self) -> io::Result<()> {
        let unfinished = self.path.with_extension("new");
        let mut file = fresh(&unfinished)?;
        let written = self.write_all(&mut file).and_then(|written| {
            file.sync_all()?;
            fs::rename(&unfinished, &self.path)?;
            sync_folder_of(&self.path)?;
            Ok(written)
        });
        match written {
            Ok((length, seal)) => {
                (self.file, self.length, self.seal, self.is_suspect) = (file, length, seal, false);
                Ok(())
            }
            Err(error) => {
                let _ = fs::remove_file(&unfinished);
                Err(error)
            }
        }
    }

    fn write_all(&self, file: &mut File) -> io::Result<(u64, Seal)> {
        file.write_all(&header())?;
        let (mut length, mut seal) = (HEADER_BYTES as u64, FIRST);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut rows = self.rows.iter().peekable();
        while let Some(((table, key), value)) = rows.next() {
            bytes += key.len() + value.len();
            batch.push(Change { table: *table, key: key.clone(), value: Some(value.clone()) });
            if bytes >= RECORD_BYTES || rows.peek().is_none() {
                let (record, next) = write(seal, &batch);
                file.write_all(&record)?;
                length += record.len() as u64;
                seal = next;
                batch.clear();
                bytes = 0;
            }
        }
        Ok((length, seal))
    }
}

impl Store for LogFile {
    fn commit(&mut self, batch: &[Change]) -> Result<(), Fault> {
        let written = if self.is_suspect { self.rewrite() } else { Ok(()) };
        let written = written.and_then(|()| self.append(batch));
        written.map_err(|source| Fault::System { path: self.path.clone(), step: "written", source })?;
        for change in batch {
            self.apply(change.clone());
        }
        if self.length > SLACK_BYTES + GROWTH * self.live {
            // The batch is safe either way; where there is no room for a second file, the first one goes on.
            let _ = self.rewrite();
        }
        Ok(())
    }

    fn rows(&self) -> &Rows {
        &self.rows
    }
}

/// A change that does not keep all of the bytes it was read from.
fn copied(change: &Change) -> Change {
    let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
    Change { table: change.table, key: own(&change.key), value: change.value.as_ref().map(own) }
}

fn open(path: &Path) -> io::Result<File> {
    let is_new = !path.exists();
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
    if is_new {
        sync_folder_of(path)?;
    }
    Ok(file)
}

fn fresh(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o600).open(path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
