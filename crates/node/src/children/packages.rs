//! Packages that programs ship, and programs themselves, brought to this machine before an environment is made of them.
//!
//! The machine of whoever shipped one has it in its user's cache. A member asks the head, and the head its members of
//! other machines, one after another; a head that has made an environment itself has its packages.
//!
//! - PACKAGE-1: a package's file is written under another name and renamed: it is whole or not there.
//! - PACKAGE-2: a package that nobody has keeps no preparation waiting: that goes on, and says what is missing.

use crate::session::Session;
use bytes::Bytes;
use oxiray_machine::Key;
use oxiray_wire::message::{PackagePiece, PackageWanted};
use oxiray_wire::session::{PROGRAM_PREFIX, package_file, packages_in};
use rustix::fs::Mode;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How much is asked for at once.
const PIECE_BYTES: usize = 1 << 20;

/// Preparations that wait for packages, and packages on their way.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    awaited: BTreeMap<u64, Awaited>,
    downloads: BTreeMap<String, Download>,
}

/// An environment that is to be made.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The program that makes it.
    pub(crate) interpreter: String,
    pub(crate) specification: String,
    /// The folder of the cache that it lies in, or nothing where it lies in none.
    pub(crate) cached: String,
}

/// What came of a piece of a package.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is not what was asked for.
    Unasked,
    /// There is more to be asked for.
    More,
    /// Whoever was asked does not have the package.
    Missing,
    /// It was the last one, or this is why the package cannot be had.
    Settled(io::Result<()>),
}

/// A preparation, and which packages it lacks.
#[derive(Debug)]
struct Awaited {
    wanted: Wanted,
    missing: BTreeSet<String>,
}

#[derive(Debug)]
struct Download {
    /// Who is asked now.
    from: Key,
    /// Who may be asked next.
    others: Vec<Key>,
    file: Option<(File, PathBuf)>,
    offset: u64,
}

/// What of a specification is read here.
#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    packages: Vec<(String, PathBuf)>,
    /// Which of the packages is a program that forks workers; nothing else is made then.
    program: Option<String>,
}

impl Packages {
    /// Nothing waits for its packages under this number any more.
    pub(crate) fn withdraw(&mut self, number: u64) {
        self.awaited.remove(&number);
    }

    /// Has a preparation wait for these packages, which others may have. Returns those that nobody was asked for yet.
    pub(crate) fn await_all(
        &mut self,
        number: u64,
        wanted: Wanted,
        missing: BTreeSet<String>,
        (first, others): (Key, &[Key]),
    ) -> Vec<String> {
        let unasked = missing.iter().filter(|name| !self.downloads.contains_key(*name)).cloned().collect::<Vec<_>>();
        for name in &unasked {
            let download = Download { from: first, others: others.to_vec(), file: None, offset: 0 };
            self.downloads.insert(name.clone(), download);
        }
        self.awaited.insert(number, Awaited { wanted, missing });
        unasked
    }

    /// Who is asked for a package now, and for which of its bytes.
    pub(crate) fn question(&self, name: &str) -> Option<(Key, PackageWanted)> {
        let download = self.downloads.get(name)?;
        Some((download.from, PackageWanted { name: name.to_owned(), offset: download.offset }))
    }

    /// A piece of a package came.
    pub(crate) fn take(&mut self, from: Key, piece: &PackagePiece, session: &Session) -> Taken {
        let is_asked = |download: &&mut Download| download.from == from && download.offset == piece.offset;
        let Some(download) = self.downloads.get_mut(&piece.name).filter(is_asked) else { return Taken::Unasked };
        if piece.total == 0 || piece.bytes.is_empty() {
            return Taken::Missing;
        }
        match download.write(&caches(session).next().unwrap_or_default(), piece) {
            Ok(false) => Taken::More,
            Ok(true) => Taken::Settled(Ok(())),
            Err(error) => Taken::Settled(Err(error)),
        }
    }

    /// Goes on to whoever may have the package too; `false` where there is nobody else, or it is not asked for.
    pub(crate) fn next_source(&mut self, name: &str) -> bool {
        let Some(download) = self.downloads.get_mut(name) else { return false };
        download.start_over();
        if download.others.is_empty() {
            return false;
        }
        download.from = download.others.remove(0);
        true
    }

    /// PACKAGE-2: it is there, or will not be. Returns the preparations that wait for nothing more.
    pub(crate) fn settled(&mut self, name: &str) -> Vec<(u64, Wanted)> {
        if let Some(mut download) = self.downloads.remove(name) {
            download.start_over();
        }
        let mut complete = Vec::new();
        for (number, awaited) in &mut self.awaited {
            if awaited.missing.remove(name) && awaited.missing.is_empty() {
                complete.push(*number);
            }
        }
        complete.into_iter().filter_map(|number| Some((number, self.awaited.remove(&number)?.wanted))).collect()
    }

    /// Another head is there: it is asked for what the last one did not give. Returns what that is.
    pub(crate) fn ask_head(&mut self, head: Key) -> Vec<String> {
        for download in self.downloads.values_mut() {
            download.start_over();
            download.from = head;
        }
        self.downloads.keys().cloned().collect()
    }

    /// A node is gone: somebody else may have what it was asked for. Returns what that is.
    pub(crate) fn without(&mut self, node: Key) -> Vec<String> {
        let mut asked = Vec::new();
        for (name, download) in &mut self.downloads {
            download.others.retain(|other| *other != node);
            if download.from == node {
                asked.push(name.clone());
            }
        }
        asked
    }

    /// The packages of a specification that are not on this machine.
    pub(crate) fn missing(specification: &str, session: &Session) -> BTreeSet<String> {
        let named: Named = serde_json::from_str(specification).unwrap_or_default();
        let is_missing =
            |(name, given): &(String, PathBuf)| is_name(name) && !given.is_file() && file_of(name, session).is_none();
        named.packages.into_iter().filter(is_missing).map(|(name, _)| name).collect()
    }

    /// The program that the specification is about, opened, and where it lies; nothing where it is about none.
    pub(crate) fn program(specification: &str, session: &Session) -> Option<io::Result<(File, PathBuf)>> {
        let named: Named = serde_json::from_str(specification).unwrap_or_default();
        let name = named.program?;
        let given = named.packages.into_iter().find(|(package, _)| *package == name).map(|(_, given)| given);
        // The file in the cache is what its name says; the one given was when the driver looked.
        let found = file_of(&name, session).or(given).filter(|path| path.is_file());
        let missing = || {
            let text = format!("{name} is neither on this machine nor on one that was asked for it");
            io::Error::new(io::ErrorKind::NotFound, text)
        };
        let opened = found.ok_or_else(missing).and_then(|path| {
            let file = File::open(&path)?;
            // Nobody evicts it meanwhile; where a lock cannot be had, nobody is there who would.
            let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared);
            Ok((file, path))
        });
        Some(opened)
    }

    /// A piece of a package for another node; nothing of one that is not on this machine.
    pub(crate) fn piece(asked: PackageWanted, session: &Session) -> PackagePiece {
        let PackageWanted { name, offset } = asked;
        let path = if is_name(&name) { file_of(&name, session) } else { None };
        let (total, bytes) = path.and_then(|path| read_piece(&path, offset).ok()).unwrap_or_default();
        PackagePiece { name, offset, total, bytes }
    }
}

/// The caches of this user's that packages may lie in: the session's, and the one that programs write to.
fn caches(session: &Session) -> impl Iterator<Item = PathBuf> {
    let directory = session.directory();
    let of_session = directory.parent().unwrap_or(directory).to_owned();
    let of_programs = oxiray_visitor::session::root().ok();
    std::iter::once(of_session).chain(of_programs).map(|root| packages_in(&root))
}

fn file_of(name: &str, session: &Session) -> Option<PathBuf> {
    caches(session).map(|cache| package_file(&cache, name)).find(|path| path.is_file())
}

impl Download {
    /// Writes a piece; whether it was the last one.
    fn write(&mut self, cache: &Path, piece: &PackagePiece) -> io::Result<bool> {
        if self.file.is_none() {
            make_private(cache.parent().unwrap_or(cache))?;
            make_private(cache)?;
            let path = cache.join(format!("{}.{}.new", piece.name, std::process::id()));
            let mode = if piece.name.starts_with(PROGRAM_PREFIX) { 0o700 } else { 0o600 };
            let file = File::options().write(true).create(true).truncate(true).mode(mode).open(&path)?;
            self.file = Some((file, path));
        }
        let (file, path) = self.file.as_ref().expect("it was just made");
        file.write_all_at(&piece.bytes, self.offset)?;
        self.offset += piece.bytes.len() as u64;
        if self.offset < piece.total {
            return Ok(false);
        }
        std::fs::rename(path, package_file(cache, &piece.name))?;
        self.file = None;
        Ok(true)
    }

    /// Forgets what came.
    fn start_over(&mut self) {
        self.offset = 0;
        if let Some((_, path)) = self.file.take() {
            // What cannot be removed is swept with the cache.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn read_piece(path: &Path, offset: u64) -> io::Result<(u64, Bytes)> {
    let file = File::open(path)?;
    let total = file.metadata()?.len();
    let left = usize::try_from(total.saturating_sub(offset)).unwrap_or(PIECE_BYTES);
    let mut bytes = vec![0; left.min(PIECE_BYTES)];
    file.read_exact_at(&mut bytes, offset)?;
    Ok((total, bytes.into()))
}

/// Whether it can be the name of a package: it becomes part of a path.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 96 && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn make_private(directory: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(directory, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
