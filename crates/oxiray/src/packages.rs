//! The user's cache of what workers are made of: programs, and folders that go with them.
//!
//! Python programs keep theirs in the same place, in the same form (`python/oxiray/_environment_cache.py`).
//!
//! - PACKAGE-1: a package is named by the digest of its content, and its file is whole or not there: it is written under
//!   another name and renamed.
//! - PACKAGE-2: nothing that some process has locked is evicted.

use oxiray_wire::session::{package_file, packages_in, private_directory, root};
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The cache's packages are kept below this, in bytes, unless the variable says otherwise.
const CACHE_BYTES_MAX: u64 = 10 << 30;
const CACHE_VARIABLE: &str = "OXIRAY_ENVIRONMENT_CACHE_BYTES";
/// What is read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// What this process ships, kept in the cache by these locks for as long as it lives.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A package: its name, and where its file is, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) path: String,
}

/// The folder of this user's sessions.
pub(crate) fn sessions() -> io::Result<PathBuf> {
    root(|name| std::env::var(name).ok())
}

/// The package of this name, written to the path that `write` is given where it is not there yet.
pub(crate) fn keep(name: String, mode: u32, write: impl Fn(&Path) -> io::Result<()>) -> io::Result<Package> {
    let root = sessions()?;
    let packages = packages_in(&root);
    let path = package_file(&packages, &name);
    private_directory(packages.parent().unwrap_or(&root))?;
    private_directory(&packages)?;
    loop {
        match File::open(&path) {
            Ok(lock) => {
                rustix::fs::flock(&lock, FlockOperation::LockShared)?;
                // It may have been evicted before it was locked.
                if path.exists() {
                    // What was used last is evicted last.
                    let _ = lock.set_modified(SystemTime::now());
                    HELD.lock().push(lock);
                    let text = path.to_str().ok_or_else(|| io::Error::other(format!("{} is no text", path.display())));
                    return Ok(Package { name, path: text?.to_owned() });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let beside = path.with_file_name(format!("{name}.{}.new", std::process::id()));
                let written = write(&beside)
                    .and_then(|()| fs::set_permissions(&beside, fs::Permissions::from_mode(mode)))
                    .and_then(|()| fs::rename(&beside, &path));
                if let Err(error) = written {
                    let _ = fs::remove_file(&beside);
                    return Err(error);
                }
                evict(&packages, &path);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Removes what was used longest ago until the rest fits. What cannot be removed stays: it is only room.
fn evict(packages: &Path, newest: &Path) {
    let limit = std::env::var(CACHE_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(CACHE_BYTES_MAX);
    let described = |entry: fs::DirEntry| {
        let found = entry.metadata().ok()?;
        Some((found.modified().ok()?, found.len(), entry.path()))
    };
    let mut entries: Vec<_> = fs::read_dir(packages).into_iter().flatten().flatten().filter_map(described).collect();
    entries.sort();
    let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in entries {
        let is_whole = path.extension().is_none_or(|extension| extension == "zip");
        if total <= limit {
            return;
        }
        // PACKAGE-2; what is being written has no lock, and another name.
        if is_whole
            && path != newest
            && let Ok(file) = File::open(&path)
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && fs::remove_file(&path).is_ok()
        {
            total -= size;
        }
    }
}

/// Adds what a file holds to a digest.
pub(crate) fn digest_file(context: &mut ring::digest::Context, file: &mut File) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(()),
            read => context.update(&block[..read]),
        }
    }
}

/// A digest as text.
pub(crate) fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
