//! The user's cache of what workers are made of: packages, programs and installed environments. Programs of every language
//! have it in the same place.
//!
//! ```text
//! <sessions>/cache/
//!   packages/NAME.zip         what programs shipped
//!   packages/programDIGEST    programs that are their own workers
//!   environments/NAME/        installed packages; whole once it holds `complete`
//!   environments/NAME.lock    locked exclusively while it is made, shared while a daemon uses it
//! ```
//!
//! - PACKAGE-1: a package is named by the digest of its content, and its file is whole or not there: it is written under
//!   another name and renamed. An environment is marked last.
//! - PACKAGE-2: nothing that some process has locked is evicted.

use oxiray_wire::session::{package_file, packages_in, private_directory, root};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The cache is kept below this, in bytes, unless the variable says otherwise.
const BYTES_MAX: u64 = 10 << 30;
const BYTES_VARIABLE: &str = "OXIRAY_ENVIRONMENT_CACHE_BYTES";
/// Marks an environment that is whole; holds how many bytes it has.
pub const COMPLETE: &str = "complete";

/// Packages that this process wants kept, by their files; the locks end with the process.
static HELD: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// One user's cache.
#[derive(Debug, Clone)]
pub struct PackageCache {
    folder: PathBuf,
}

/// Something that may be evicted.
struct Entry {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
    /// Whose lock says that it is in use.
    guard: PathBuf,
    is_whole: bool,
}

/// The most bytes that the cache keeps.
///
/// # Errors
/// Where the variable is no number.
pub fn bytes_max() -> Result<u64, String> {
    match std::env::var(BYTES_VARIABLE).ok().filter(|text| !text.is_empty()) {
        None => Ok(BYTES_MAX),
        Some(text) => text.parse().map_err(|_| {
            format!("the environment variable {BYTES_VARIABLE} is {text:?}, but must be a number of bytes")
        }),
    }
}

/// The bytes of everything below a folder.
#[must_use]
pub fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Whether an environment was finished.
#[must_use]
pub fn is_whole(environment: &Path) -> bool {
    environment.join(COMPLETE).is_file()
}

/// Says that an environment is finished, and how large it is (PACKAGE-1).
///
/// # Errors
/// Where that cannot be written.
pub fn mark_whole(environment: &Path) -> io::Result<()> {
    let beside = environment.join(format!("{COMPLETE}.new"));
    fs::write(&beside, format!("{{\"bytes\": {}}}", bytes_below(environment)))?;
    fs::rename(beside, environment.join(COMPLETE))
}

fn bytes_told(marker: &str) -> Option<u64> {
    marker.strip_prefix("{\"bytes\": ")?.strip_suffix('}')?.parse().ok()
}

impl PackageCache {
    /// The cache of this user, as the daemon chooses its place.
    ///
    /// # Errors
    /// Where the folder of the user's sessions cannot be made, or is open to others.
    pub fn of_user() -> io::Result<Self> {
        Ok(Self { folder: root(|name| std::env::var(name).ok())?.join("cache") })
    }

    /// The cache in a folder.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The folder of environments, made where it is missing, and nobody else's.
    ///
    /// # Errors
    /// Where it cannot be made, or others may write to it.
    pub fn environments(&self) -> io::Result<PathBuf> {
        self.made("environments")
    }

    /// Where a package's file is, or would be.
    #[must_use]
    pub fn file_of(&self, package: &str) -> PathBuf {
        package_file(&packages_in(self.folder.parent().unwrap_or(&self.folder)), package)
    }

    /// The package's file, which `write` makes at the path it is given where it is not there yet. It is kept from being
    /// evicted while this process lives.
    ///
    /// # Errors
    /// Those of `write`, and where the cache cannot be written to.
    pub fn keep(&self, package: &str, mode: u32, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
        let path = self.file_of(package);
        if self.hold(package)? {
            return Ok(path);
        }
        self.made("packages")?;
        let beside = path.with_file_name(format!("{package}.{}.new", std::process::id()));
        let written = write(&beside)
            .and_then(|()| fs::set_permissions(&beside, fs::Permissions::from_mode(mode)))
            .and_then(|()| fs::rename(&beside, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        if !self.hold(package)? {
            return Err(io::Error::other(format!(
                "the package {} went as soon as it was made: is it larger than {BYTES_VARIABLE} allows?",
                path.display()
            )));
        }
        self.evict(bytes_max().unwrap_or(BYTES_MAX));
        Ok(path)
    }

    /// Keeps a package from being evicted while this process lives; whether there is one.
    ///
    /// # Errors
    /// Where it is there and cannot be opened or locked.
    pub fn hold(&self, package: &str) -> io::Result<bool> {
        let path = self.file_of(package);
        let mut held = HELD.lock();
        if held.contains_key(&path) && path.exists() {
            return Ok(true);
        }
        loop {
            let lock = match rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
            {
                Ok(opened) => File::from(opened),
                Err(rustix::io::Errno::NOENT) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            rustix::fs::flock(&lock, FlockOperation::LockShared)?;
            // It may have been evicted before it was locked.
            if fs::metadata(&path).is_ok_and(|found| lock.metadata().is_ok_and(|locked| locked.ino() == found.ino())) {
                // What was used last is evicted last.
                let _ = lock.set_modified(SystemTime::now());
                held.insert(path, lock);
                return Ok(true);
            }
        }
    }

    /// Removes what the dead left unfinished, and what was used longest ago until the rest fits; returns the names. What
    /// cannot be removed stays: it is only room.
    pub fn evict(&self, bytes_max: u64) -> Vec<String> {
        let mut entries: Vec<Entry> = self.found_environments().into_iter().chain(self.found_packages()).collect();
        entries
            .sort_by(|one, other| (one.is_whole, one.used, &one.path).cmp(&(other.is_whole, other.used, &other.path)));
        let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut gone = Vec::new();
        for entry in entries {
            if total <= bytes_max && entry.is_whole {
                break;
            }
            if entry.remove().unwrap_or(false) {
                total = total.saturating_sub(entry.bytes);
                gone.extend(entry.path.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        gone
    }

    fn made(&self, kind: &str) -> io::Result<PathBuf> {
        let made = self.folder.join(kind);
        if let Some(sessions) = self.folder.parent() {
            private_directory(sessions)?;
        }
        private_directory(&self.folder)?;
        private_directory(&made)?;
        Ok(made)
    }

    fn found_environments(&self) -> Vec<Entry> {
        let folders = fs::read_dir(self.folder.join("environments")).into_iter().flatten().flatten();
        let described = |entry: fs::DirEntry| {
            let path = entry.path();
            if !entry.file_type().ok()?.is_dir() {
                return None;
            }
            let marked = fs::metadata(path.join(COMPLETE)).and_then(|found| found.modified()).ok();
            let told = fs::read_to_string(path.join(COMPLETE)).ok().and_then(|text| bytes_told(&text));
            let mut guard = path.clone().into_os_string();
            guard.push(".lock");
            Some(Entry {
                // One that is half made belongs to somebody who has it locked, or who died.
                is_whole: marked.is_some() && told.is_some(),
                used: marked.unwrap_or(SystemTime::UNIX_EPOCH),
                bytes: told.unwrap_or_else(|| bytes_below(&path)),
                guard: guard.into(),
                path,
            })
        };
        folders.filter_map(described).collect()
    }

    fn found_packages(&self) -> Vec<Entry> {
        let files = fs::read_dir(self.folder.join("packages")).into_iter().flatten().flatten();
        let described = |entry: fs::DirEntry| {
            let (path, found) = (entry.path(), entry.metadata().ok()?);
            // What is being written has another name, and no lock.
            let is_package = path.extension().is_none_or(|extension| extension == "zip");
            (is_package && found.is_file()).then(|| Entry {
                used: found.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                bytes: found.len(),
                guard: path.clone(),
                path,
                is_whole: true,
            })
        };
        files.filter_map(described).collect()
    }
}

impl Entry {
    /// Removes it unless somebody has it locked (PACKAGE-2); whether it went.
    fn remove(&self) -> io::Result<bool> {
        // A program that runs cannot be opened for writing.
        let access = if self.guard == self.path { OFlags::RDONLY } else { OFlags::RDWR | OFlags::CREATE };
        let lock = rustix::fs::open(&self.guard, access | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR)?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        if self.guard == self.path {
            fs::remove_file(&self.path)?;
        } else {
            // Without its mark first: what is half removed is not whole.
            let _ = fs::remove_file(self.path.join(COMPLETE));
            fs::remove_dir_all(&self.path)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn cache() -> (tempfile::TempDir, PackageCache) {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let cache = PackageCache::at(folder.path().join("cache"));
        (folder, cache)
    }

    /// A package that no living process has locked, as old as told.
    fn left_behind(cache: &PackageCache, name: &str, bytes: usize, seconds_ago: u64) {
        cache.made("packages").unwrap();
        let file = File::create(cache.file_of(name)).unwrap();
        file.set_len(bytes as u64).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds_ago)).unwrap();
    }

    fn environment(cache: &PackageCache, name: &str) -> PathBuf {
        let made = cache.environments().unwrap().join(name);
        fs::create_dir_all(made.join("lib")).unwrap();
        fs::write(made.join("lib/module.py"), [0; 100]).unwrap();
        made
    }

    #[test]
    fn a_package_is_written_once_and_kept_by_its_process() {
        let (_folder, cache) = cache();
        let path = cache.keep("abc", 0o600, |beside| fs::write(beside, b"first")).unwrap();
        let again = cache.keep("abc", 0o600, |_| panic!("it is there")).unwrap();
        assert_eq!((again == path, fs::read(&path).unwrap()), (true, b"first".to_vec()));
        assert_eq!(cache.evict(0), [""; 0]);
        assert!(path.exists());
    }

    #[test]
    fn what_could_not_be_written_is_not_there() {
        let (_folder, cache) = cache();
        let failing = |beside: &Path| fs::write(beside, b"half").and(Err(io::Error::other("no room")));
        assert_eq!(cache.keep("abc", 0o600, failing).unwrap_err().to_string(), "no room");
        assert_eq!(fs::read_dir(cache.made("packages").unwrap()).unwrap().count(), 0);
        assert!(!cache.hold("abc").unwrap());
    }

    #[test]
    fn what_was_used_longest_ago_is_evicted_first_and_no_more_than_needed() {
        let (_folder, cache) = cache();
        for (name, seconds_ago) in [("new", 10), ("old", 1000), ("middle", 100)] {
            left_behind(&cache, name, 100, seconds_ago);
        }
        assert_eq!(cache.evict(250), ["old.zip"]);
        assert_eq!(cache.evict(250), [""; 0]);
    }

    #[test]
    fn an_environment_that_nobody_finished_goes_and_one_that_is_locked_stays() {
        let (_folder, cache) = cache();
        let (whole, half, under_way) =
            (environment(&cache, "whole"), environment(&cache, "half"), environment(&cache, "under-way"));
        mark_whole(&whole).unwrap();
        assert!(is_whole(&whole) && !is_whole(&half));
        let lock = File::create(under_way.with_extension("lock")).unwrap();
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
        assert_eq!(cache.evict(1 << 20), ["half"]);
        assert!(whole.exists() && !half.exists() && under_way.exists());
        assert_eq!(cache.evict(0), ["whole"]);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let (folder, cache) = cache();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = cache.keep("abc", 0o600, |beside| fs::write(beside, b"")).unwrap_err().to_string();
        assert!(refused.contains("must be a directory of user"), "{refused}");
    }
}
