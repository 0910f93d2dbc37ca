//! Packages that this program ships: named by their content, and kept in the user's cache.

use oxiray_client::package_cache::PackageCache;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// What is read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// A package: its name, and where its file is, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) path: String,
}

/// The package of this name, written to the path that `write` is given where it is not there yet.
pub(crate) fn keep(name: String, mode: u32, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<Package> {
    let path = PackageCache::of_user()?.keep(&name, mode, write)?;
    let text = path.to_str().ok_or_else(|| io::Error::other(format!("{} is no text", path.display())))?;
    Ok(Package { name, path: text.to_owned() })
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
