//! Packages that programs ship, and programs themselves, brought to this machine before an environment is made of them.
//!
//! The machine of whoever shipped one has it in its user's cache. A member asks the head, and the head its members of
//! other machines, one after another; a head that has made an environment itself has its packages.
//!
//! - PACKAGE-1: a package's file is written under another name and renamed: it is whole or not there.
//! - PACKAGE-2: a package that nobody has keeps no preparation waiting: that goes on, and says what is missing.

use super::Daemon;
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
pub(super) struct Packages {
    awaited: BTreeMap<u64, Awaited>,
    downloads: BTreeMap<String, Download>,
}

/// A preparation, and which packages it lacks.
#[derive(Debug)]
struct Awaited {
    interpreter: String,
    specification: String,
    cached: String,
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
    pub(super) fn withdraw(&mut self, number: u64) {
        self.awaited.remove(&number);
    }
}

impl Daemon {
    /// Has the packages of a preparation brought here first; `false` where nothing is missing, or nobody could have it.
    pub(super) fn await_packages(&mut self, number: u64, interpreter: &str, specification: &str, cached: &str) -> bool {
        let missing = self.missing_packages(specification);
        let sources = self.package_sources();
        if missing.is_empty() || sources.is_empty() {
            return false;
        }
        for name in &missing {
            if !self.packages.downloads.contains_key(name) {
                self.log.line(&format!("package {name} is not on this machine, and is asked for"));
                let mut others = sources.clone();
                let from = others.remove(0);
                let download = Download { from, others, file: None, offset: 0 };
                self.packages.downloads.insert(name.clone(), download);
                self.ask_for_package(name);
            }
        }
        let (interpreter, specification, cached) =
            (interpreter.to_owned(), specification.to_owned(), cached.to_owned());
        self.packages.awaited.insert(number, Awaited { interpreter, specification, cached, missing });
        true
    }

    fn missing_packages(&self, specification: &str) -> BTreeSet<String> {
        let named: Named = serde_json::from_str(specification).unwrap_or_default();
        let is_missing =
            |(name, given): &(String, PathBuf)| is_name(name) && !given.is_file() && self.package_file(name).is_none();
        named.packages.into_iter().filter(is_missing).map(|(name, _)| name).collect()
    }

    /// The program that the specification is about, opened, and where it lies; nothing where it is about none.
    pub(super) fn program(&self, specification: &str) -> Option<io::Result<(File, PathBuf)>> {
        let named: Named = serde_json::from_str(specification).unwrap_or_default();
        let name = named.program?;
        let given = named.packages.into_iter().find(|(package, _)| *package == name).map(|(_, given)| given);
        // The file in the cache is what its name says; the one given was when the driver looked.
        let found = self.package_file(&name).or(given).filter(|path| path.is_file());
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

    /// The nodes of other machines that may have a package.
    fn package_sources(&self) -> Vec<Key> {
        let Some(network) = &self.network else { return Vec::new() };
        match self.core.head_key() {
            Some(head) => vec![head],
            None => network.remotes.keys().copied().collect(),
        }
    }

    /// The caches of this user's that packages may lie in: the session's, and the one that programs write to.
    fn package_caches(&self) -> impl Iterator<Item = PathBuf> {
        let session = self.session.directory();
        let of_session = session.parent().unwrap_or(session).to_owned();
        let of_programs = oxiray_visitor::session::root().ok();
        std::iter::once(of_session).chain(of_programs).map(|root| packages_in(&root))
    }

    fn package_file(&self, name: &str) -> Option<PathBuf> {
        self.package_caches().map(|cache| package_file(&cache, name)).find(|path| path.is_file())
    }

    fn ask_for_package(&mut self, name: &str) {
        if let Some(Download { from, offset, .. }) = self.packages.downloads.get(name) {
            let (from, offset) = (*from, *offset);
            self.queue(from, &PackageWanted { name: name.to_owned(), offset }.into(), Vec::new());
        }
    }

    /// Another node wants a piece of a package.
    pub(super) fn give_package(&mut self, to: Key, asked: PackageWanted) {
        let PackageWanted { name, offset } = asked;
        let path = if is_name(&name) { self.package_file(&name) } else { None };
        let (total, bytes) = path.and_then(|path| read_piece(&path, offset).ok()).unwrap_or_default();
        self.queue(to, &PackagePiece { name, offset, total, bytes }.into(), Vec::new());
    }

    /// A piece of a package that was asked for.
    pub(super) fn take_package(&mut self, from: Key, piece: &PackagePiece) {
        let is_asked = |download: &&mut Download| download.from == from && download.offset == piece.offset;
        let cache = self.package_caches().next().unwrap_or_default();
        let Some(download) = self.packages.downloads.get_mut(&piece.name).filter(is_asked) else { return };
        if piece.total == 0 || piece.bytes.is_empty() {
            return self.ask_next_for_package(&piece.name);
        }
        match download.write(&cache, piece) {
            Ok(false) => self.ask_for_package(&piece.name),
            Ok(true) => self.package_settled(&piece.name),
            Err(error) => {
                self.log.line(&format!("package {} cannot be written: {error}", piece.name));
                self.package_settled(&piece.name);
            }
        }
    }

    fn ask_next_for_package(&mut self, name: &str) {
        let Some(download) = self.packages.downloads.get_mut(name) else { return };
        download.start_over();
        if download.others.is_empty() {
            self.log.line(&format!("package {name} is on no node that was asked"));
            return self.package_settled(name);
        }
        download.from = download.others.remove(0);
        self.ask_for_package(name);
    }

    /// PACKAGE-2: it is there, or will not be.
    fn package_settled(&mut self, name: &str) {
        if let Some(mut download) = self.packages.downloads.remove(name) {
            download.start_over();
        }
        let mut complete = Vec::new();
        for (number, awaited) in &mut self.packages.awaited {
            if awaited.missing.remove(name) && awaited.missing.is_empty() {
                complete.push(*number);
            }
        }
        for number in complete {
            let awaited = self.packages.awaited.remove(&number).expect("it was just found");
            self.begin_preparation(number, &awaited.interpreter, &awaited.specification, &awaited.cached);
        }
    }

    /// Another head is there: it is asked for what the last one did not give.
    pub(super) fn ask_next_head(&mut self, head: Key) {
        let names: Vec<String> = self.packages.downloads.keys().cloned().collect();
        for download in self.packages.downloads.values_mut() {
            download.start_over();
            download.from = head;
        }
        for name in names {
            self.ask_for_package(&name);
        }
    }

    /// A node is gone: somebody else may have what it was asked for.
    pub(super) fn packages_without(&mut self, node: Key) {
        let mut asked = Vec::new();
        for (name, download) in &mut self.packages.downloads {
            download.others.retain(|other| *other != node);
            if download.from == node {
                asked.push(name.clone());
            }
        }
        for name in asked {
            self.ask_next_for_package(&name);
        }
    }
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
