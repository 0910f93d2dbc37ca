//! Where files of history lie: in a folder, or in storage that speaks S3.
//!
//! A file of a folder is appended to. Storage knows no appending: what is one file in a folder are parts there, numbered from
//! 1 on, of which the last is written anew until it is full.

use super::storage::StorageProgram;
use rustix::fs::Mode;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// How the names of files end.
const ENDING: &str = ".jsonl.gz";

/// Why a shelf did not do what it was asked.
#[derive(Debug, Error)]
pub(crate) enum ShelfError {
    /// What was named is no place for history.
    #[error(
        "`{given}` is of {scheme}://, and history is kept in a folder or in storage that speaks S3: name one as DIRECTORY or s3://bucket/prefix"
    )]
    Scheme {
        /// What was named.
        given: String,
        /// Its scheme.
        scheme: String,
    },
    /// This machine.
    #[error("{path}: {error}")]
    Here {
        /// What was tried with.
        path: String,
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// Another program writes there.
    #[error("{0} is locked: another recorder writes there, or the last one has not ended yet")]
    Busy(String),
    /// The storage, in its own words.
    #[error("{0}")]
    Storage(String),
}

/// A file of history, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileName {
    /// The session.
    pub(crate) session: String,
    /// The job; `cluster` for what belongs to none.
    pub(crate) job: String,
    /// Its place among those of the job: 0 for the one that a folder's recorder writes, which comes last.
    pub(crate) part: u32,
}

impl FileName {
    /// The name in a folder: the part is 0 for the file that is written, and 1 for the one that was full before it.
    pub(crate) fn in_folder(&self) -> String {
        let Self { session, job, part } = self;
        if *part == 0 { format!("{session}/{job}{ENDING}") } else { format!("{session}/{job}.{part}{ENDING}") }
    }

    /// The name in storage.
    pub(crate) fn in_storage(&self) -> String {
        format!("{}/{}/{:06}{ENDING}", self.session, self.job, self.part)
    }

    /// What a name says; nothing where it is none of history's.
    pub(crate) fn read(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.strip_suffix(ENDING)?.split('/').collect();
        let (session, job, part) = match parts[..] {
            [session, job, part] => (session, job, part.parse().ok()?),
            [session, file] => match file.rsplit_once('.') {
                Some((job, part)) => (session, job, part.parse().ok()?),
                None => (session, file, 0),
            },
            _ => return None,
        };
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        (is_word(session) && is_word(job)).then(|| Self { session: session.to_owned(), job: job.to_owned(), part })
    }

    /// What files of a job are put in order by: the one with number 0 is the newest.
    pub(crate) fn order(&self) -> (u32, u32) {
        if self.part == 0 { (1, 0) } else { (0, self.part) }
    }
}

/// A file that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFile {
    /// Its name on the shelf.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: u64,
    /// When it was written last, in milliseconds since 1970.
    pub(crate) changed_ms: u64,
}

/// What can be read, and read again.
pub(crate) trait Reads: Read + Seek {}

impl<R: Read + Seek> Reads for R {}

/// A file by its name, opened, or why it cannot be.
pub(crate) type Opened = (String, Result<Box<dyn Reads>, ShelfError>);

/// A place for files of history.
#[derive(Debug)]
pub(crate) enum Shelf {
    /// A folder.
    Folder(PathBuf),
    /// Storage, which a program speaks to.
    Storage(StorageProgram),
}

impl Shelf {
    /// The place that is named so.
    pub(crate) fn of(given: &str) -> Result<Self, ShelfError> {
        match given.split_once("://") {
            None => Ok(Self::Folder(PathBuf::from(given))),
            Some(("s3", _)) => Ok(Self::Storage(StorageProgram::new(given.to_owned()))),
            Some((scheme, _)) => Err(ShelfError::Scheme { given: given.to_owned(), scheme: scheme.to_owned() }),
        }
    }

    /// All files below it; none where there is no such place.
    pub(crate) fn list(&mut self) -> Result<Vec<FoundFile>, ShelfError> {
        match self {
            Self::Folder(root) => {
                let mut found = Vec::new();
                collect(root, "", &mut found).map_err(|error| here(root, error))?;
                Ok(found)
            }
            Self::Storage(program) => program.list(),
        }
    }

    /// The bytes of a file.
    pub(crate) fn open(&mut self, name: &str) -> Result<Box<dyn Reads>, ShelfError> {
        match self {
            Self::Folder(root) => {
                let path = root.join(name);
                File::open(&path).map(|file| Box::new(file) as _).map_err(|error| here(&path, error))
            }
            Self::Storage(program) => program.get(name).map(|bytes| Box::new(io::Cursor::new(bytes)) as _),
        }
    }

    /// The files of a job, opened, in the order in which they were written, each with its name.
    ///
    /// Where a recorder begins another file meanwhile (WRITER-2), what was the last one becomes the full one: so the last one is opened
    /// first, and the full one after it, whether or not it was among those found. Nothing between them is missed, nor read twice.
    pub(crate) fn open_in_order(&mut self, mut found: Vec<(FileName, String)>) -> Vec<Opened> {
        let Self::Folder(root) = self else {
            found.sort_by_key(|(name, _)| name.order());
            return found.into_iter().map(|(_, name)| (name.clone(), self.open(&name))).collect();
        };
        if let Some((first, _)) = found.first().cloned() {
            for part in (0..=1).filter(|part| !found.iter().any(|(name, _)| name.part == *part)).collect::<Vec<u32>>() {
                let name = FileName { part, ..first.clone() };
                found.push((name.clone(), name.in_folder()));
            }
        }
        found.sort_by_key(|(name, _)| std::cmp::Reverse(name.order()));
        let mut seen = BTreeSet::new();
        let mut opened: Vec<Opened> = Vec::new();
        for (_, name) in found {
            let path = root.join(&name);
            let file = File::open(&path).and_then(|file| file.metadata().map(|about| (file, about)));
            match file {
                Ok((file, about)) if seen.insert((about.dev(), about.ino())) => opened.push((name, Ok(Box::new(file)))),
                Ok(_) => {}
                // It has another name by now, or was removed for the bounds.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => opened.push((name, Err(here(&path, error)))),
            }
        }
        opened.reverse();
        opened
    }

    /// Writes a file that is there whole, or as it was.
    pub(crate) fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), ShelfError> {
        match self {
            Self::Folder(root) => {
                let path = root.join(name);
                let beside = path.with_extension("new");
                let written = own_file(&beside, |options| options.write(true).truncate(true))
                    .and_then(|mut file| file.write_all(bytes))
                    .and_then(|()| fs::rename(&beside, &path));
                written.map_err(|error| here(&path, error))
            }
            Self::Storage(program) => program.put(name, bytes),
        }
    }

    /// Removes a file, where it is there.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), ShelfError> {
        match self {
            Self::Folder(root) => {
                let path = root.join(name);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(here(&path, error)),
                    _ => {}
                }
                // The folder of a session goes with its last file.
                let _ = path.parent().filter(|folder| *folder != root.as_path()).map(fs::remove_dir);
                Ok(())
            }
            Self::Storage(program) => program.remove(name),
        }
    }
}

/// What this machine said of a path.
pub(crate) fn here(path: &Path, error: io::Error) -> ShelfError {
    ShelfError::Here { path: path.display().to_string(), error }
}

/// A file that its owner alone reads.
pub(crate) fn own_file(path: &Path, how: impl FnOnce(&mut OpenOptions) -> &mut OpenOptions) -> io::Result<File> {
    how(OpenOptions::new().create(true).mode(0o600)).open(path)
}

/// A folder that its owner alone enters; one that there is keeps what was said of it.
pub(crate) fn own_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(Mode::RWXU.bits()).create(path)
}

/// The files in a folder and in those within, two deep.
fn collect(root: &Path, below: &str, found: &mut Vec<FoundFile>) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(below)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        // Whoever removes old files may be faster.
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() && name.matches('/').count() < 2 {
            collect(root, &name, found)?;
        } else if about.is_file() {
            let changed_ms = u64::try_from(about.mtime()).unwrap_or_default() * 1_000;
            found.push(FoundFile { name, bytes: about.len(), changed_ms });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(job: &str, part: u32) -> FileName {
        FileName { session: "session_1_2_ab".into(), job: job.into(), part }
    }

    #[test]
    fn a_name_is_read_as_it_was_made() {
        for one in [file("01000000", 0), file("cluster", 1), file("cluster", 7)] {
            assert_eq!(FileName::read(&one.in_folder()), Some(one.clone()));
        }
        assert_eq!(FileName::read(&file("cluster", 12).in_storage()), Some(file("cluster", 12)));
        for other in
            ["s/index.json", "a.jsonl.gz", "s/../x.jsonl.gz", "s/a/b/1.jsonl.gz", "s/a.b.jsonl.gz", "s/.jsonl.gz"]
        {
            assert_eq!(FileName::read(other), None, "{other}");
        }
    }

    #[test]
    fn the_file_that_is_written_comes_last() {
        let mut files = [file("a", 0), file("a", 2), file("a", 1)];
        files.sort_by_key(FileName::order);
        assert_eq!(files.map(|file| file.part), [1, 2, 0]);
    }

    #[test]
    fn a_folder_is_its_owners_and_goes_with_its_last_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let session = folder.path().join("history/s");
        own_folder(&session).expect("made");
        let mut shelf = Shelf::of(folder.path().join("history").to_str().expect("text")).expect("a folder");
        shelf.put("s/index.json", b"{}").expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&session), mode(&session.join("index.json"))), (0o700, 0o600));
        let found = shelf.list().expect("listed");
        assert_eq!((found.len(), found[0].name.as_str(), found[0].bytes), (1, "s/index.json", 2));
        shelf.remove("s/index.json").expect("removed");
        assert!(!session.exists() && shelf.remove("s/index.json").is_ok());
    }

    #[test]
    fn a_place_that_is_none_is_refused_with_the_rule() {
        let said = Shelf::of("gs://bucket/a").expect_err("refused").to_string();
        assert!(said.contains("gs://") && said.ends_with("s3://bucket/prefix"), "{said}");
    }
}
