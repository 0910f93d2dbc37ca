//! What clients put there for jobs: files in a folder of the session, under the names that Ray's clients give them.
//!
//! A job that names one is given its path, and takes it over by the rules that hold for every archive: nothing leaves its folder,
//! nothing is too large. That is looked at where it is unpacked, not here.

use anyhow::Context as _;
use oxiray_ray_api::jobs::is_package;
use oxiray_wire::session::private_directory;
use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The largest package, in bytes.
pub(crate) const PACKAGE_BYTES_MAX: u64 = 512 << 20;
/// How many are kept, and how many bytes of them; those that were not used for longest go first.
const PACKAGES_MAX: usize = 1000;
const KEPT_BYTES_MAX: u64 = 8 << 30;
/// How many may come at once.
pub(crate) const COMING_MAX: usize = 4;

/// The folder with what was uploaded.
#[derive(Debug)]
pub(crate) struct Uploads {
    folder: PathBuf,
    coming: Cell<usize>,
    last: Cell<u64>,
}

/// A file that comes; it is gone with this unless it was kept.
pub(crate) struct Coming<'uploads> {
    uploads: &'uploads Uploads,
    path: PathBuf,
    file: File,
    length: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.uploads.coming.set(self.uploads.coming.get() - 1);
        // Where it was kept it has another name.
        let _ = fs::remove_file(&self.path);
    }
}

impl Coming<'_> {
    /// More of it has come; `false` where it is too large.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.length += bytes.len() as u64;
        if self.length > PACKAGE_BYTES_MAX {
            return Ok(false);
        }
        self.file.write_all(bytes).map(|()| true)
    }

    /// It is whole, and has this name from now on.
    pub(crate) fn keep(self, name: &str) -> io::Result<()> {
        fs::rename(&self.path, self.uploads.folder.join(name))?;
        self.uploads.make_room();
        Ok(())
    }
}

impl Uploads {
    pub(crate) fn new(session: &Path) -> anyhow::Result<Self> {
        let folder = session.join("uploads");
        private_directory(&folder).context("the folder of uploads cannot be made")?;
        let uploads = Self { folder, coming: Cell::new(0), last: Cell::new(0) };
        // What a process before this one had not finished.
        for (path, ..) in uploads.files().into_iter().filter(|(path, ..)| is_coming(path)) {
            fs::remove_file(path).context("an upload that was not finished cannot be removed")?;
        }
        Ok(uploads)
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a package that was uploaded, which is used now.
    pub(crate) fn find(&self, name: &str) -> Option<String> {
        let path = self.folder.join(Some(name).filter(|name| is_package("gcs", name))?);
        let file = File::options().append(true).open(&path).ok()?;
        // It is kept longest of all from now on. Where the clock cannot be set the file is there all the same.
        let _ = file.set_modified(SystemTime::now());
        path.to_str().map(str::to_owned)
    }

    /// A package comes; `None` where too many do already.
    pub(crate) fn begin(&self) -> Option<io::Result<Coming<'_>>> {
        if self.coming.get() >= COMING_MAX {
            return None;
        }
        self.last.set(self.last.get() + 1);
        let path = self.folder.join(format!(".{}.new", self.last.get()));
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        Some(opened.map(|file| {
            self.coming.set(self.coming.get() + 1);
            Coming { uploads: self, path, file, length: 0 }
        }))
    }

    /// Removes those that were not used for longest, where there are too many or too large ones.
    fn make_room(&self) {
        let mut files = self.files();
        files.retain(|(path, ..)| !is_coming(path));
        files.sort_by_key(|(_, used, _)| std::cmp::Reverse(*used));
        let mut bytes = 0;
        for (index, (path, _, length)) in files.iter().enumerate() {
            bytes += length;
            if index >= PACKAGES_MAX || bytes > KEPT_BYTES_MAX {
                // What cannot be removed now is tried again with the next one.
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Each file with when it was used last, and how long it is.
    fn files(&self) -> Vec<(PathBuf, SystemTime, u64)> {
        let about = |entry: fs::DirEntry| {
            let known = entry.metadata().ok()?;
            Some((entry.path(), known.modified().ok()?, known.len()))
        };
        fs::read_dir(&self.folder).into_iter().flatten().flatten().filter_map(about).collect()
    }
}

fn is_coming(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}
