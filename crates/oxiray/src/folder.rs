//! A folder that goes where the program goes: packed, shipped, unpacked, and the directory that workers are in.
//!
//! The package is the zip file that Python programs make of theirs, so that functions in Python can have it too.
//!
//! - FOLDER-1: a folder is shipped once in the life of a process, as it was when it was first named.
//! - FOLDER-2: nothing is unpacked outside of the folder that it is meant for, and nothing but files and folders is.

use crate::error::{Error, Result};
use crate::packages::{self, Package};
use crate::program;
use oxiray_client::package_cache::PackageCache;
use oxiray_wire::session::{package_file, packages_in};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

/// What the name of a shipped folder follows in an environment.
pub(crate) const SCHEME: &str = "package://";
/// The largest package, in bytes of its content, unless the variable says otherwise.
const BYTES_MAX: u64 = 512 << 20;
const LIMIT_VARIABLE: &str = "OXIRAY_PACKAGE_BYTES_MAX";
/// How many of the largest files an error names.
const FILES_NAMED: usize = 5;
/// What marks a folder as a cache, such as cargo's `target`: <https://bford.info/cachedir/>.
const CACHE_MARK: &str = "CACHEDIR.TAG";
/// How deep folders may be in each other.
const DEPTH_MAX: usize = 64;

/// FOLDER-1.
static SHIPPED: Mutex<BTreeMap<PathBuf, Package>> = Mutex::new(BTreeMap::new());
/// That of the whole job, in its driver.
static OF_JOB: Mutex<Option<Package>> = Mutex::new(None);

/// Has all calls of the job run in that folder.
pub(crate) fn set_of_job(path: Option<&Path>) -> Result<()> {
    let folder = path.map(shipped).transpose()?;
    *OF_JOB.lock() = folder;
    Ok(())
}

/// The folder of a call: its own, or else that of its caller or job.
pub(crate) fn chosen(own: Option<&Path>) -> Result<Option<Package>> {
    match own {
        Some(path) => shipped(path).map(Some),
        None => Ok(program::inherited_folder().or_else(|| OF_JOB.lock().clone())),
    }
}

fn shipped(path: &Path) -> Result<Package> {
    let unfit = |why: String| Error::Environment(format!("working_dir is {}, {why}", path.display()));
    if path.to_str().is_some_and(|text| text.contains("://")) {
        return Err(unfit("and only what is on this machine can be shipped: download it, and name the folder".into()));
    }
    let whole = path.canonicalize().map_err(|error| unfit(format!("which cannot be read ({error}): name a folder")))?;
    let mut shipped = SHIPPED.lock();
    if let Some(known) = shipped.get(&whole) {
        return Ok(known.clone());
    }
    let package = if whole.is_dir() {
        ship_folder(&whole)
    } else if whole.extension().is_some_and(|extension| extension == "zip") {
        ship_archive(&whole)
    } else {
        return Err(unfit("which is neither a folder nor a .zip file: name one of these".into()));
    };
    let package = package.map_err(|error| unfit(format!("which cannot be shipped: {error}")))?;
    shipped.insert(whole, package.clone());
    Ok(package)
}

/// A file that is to travel.
struct Entry {
    name: String,
    path: PathBuf,
    size: u64,
    is_program: bool,
}

fn ship_folder(folder: &Path) -> io::Result<Package> {
    let mut entries = Vec::new();
    collect(folder, "", 0, &mut entries)?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    check_size(&entries)?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for Entry { name, path, size, is_program } in &entries {
        context.update(format!("\0{name}\0{size}\0{is_program}\0").as_bytes());
        packages::digest_file(&mut context, &mut File::open(path)?)?;
    }
    let name = packages::hexadecimal(&context.finish().as_ref()[..16]);
    packages::keep(name, 0o600, |beside| pack(&entries, beside))
}

/// Adds the files of a folder, `within` that of the package. A link is what it leads to.
fn collect(folder: &Path, within: &str, depth: usize, entries: &mut Vec<Entry>) -> io::Result<()> {
    if depth > DEPTH_MAX {
        let text = format!("{} is deeper than {DEPTH_MAX} folders: does a link lead back up?", folder.display());
        return Err(io::Error::other(text));
    }
    let named = |error: io::Error, path: &Path| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    for found in fs::read_dir(folder).map_err(|error| named(error, folder))? {
        let path = found?.path();
        let text = path.file_name().and_then(|name| name.to_str());
        let text = text.ok_or_else(|| io::Error::other(format!("the name of {} is no text", path.display())))?;
        let name = format!("{within}{text}");
        let about = fs::metadata(&path).map_err(|error| named(error, &path))?;
        if about.is_dir() {
            if text != ".git" && !path.join(CACHE_MARK).exists() {
                collect(&path, &format!("{name}/"), depth + 1, entries)?;
            }
        } else if about.is_file() {
            let is_program = about.permissions().mode() & 0o100 != 0;
            entries.push(Entry { name, path, size: about.len(), is_program });
        }
    }
    Ok(())
}

fn check_size(entries: &[Entry]) -> io::Result<()> {
    let limit = std::env::var(LIMIT_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(BYTES_MAX);
    let total: u64 = entries.iter().map(|entry| entry.size).sum();
    if total <= limit {
        return Ok(());
    }
    let mut largest: Vec<&Entry> = entries.iter().collect();
    largest.sort_by_key(|entry| std::cmp::Reverse(entry.size));
    let largest: Vec<String> =
        largest.iter().take(FILES_NAMED).map(|entry| format!("{} ({} KiB)", entry.name, entry.size >> 10)).collect();
    Err(io::Error::other(format!(
        "it holds {total} bytes, and a package may have {limit}: name a folder with what is needed alone, put() large data, \
         or raise {LIMIT_VARIABLE}. The largest files are {}",
        largest.join(", ")
    )))
}

fn pack(entries: &[Entry], beside: &Path) -> io::Result<()> {
    let mut archive = ZipWriter::new(File::options().write(true).create(true).truncate(true).open(beside)?);
    for Entry { name, path, is_program, .. } in entries {
        let mode = if *is_program { 0o755 } else { 0o644 };
        let options = SimpleFileOptions::default().compression_level(Some(1)).unix_permissions(mode).large_file(true);
        archive.start_file(name.as_str(), options)?;
        io::copy(&mut File::open(path)?, &mut archive)?;
    }
    archive.finish()?.flush()
}

/// A zip file as it is.
fn ship_archive(path: &Path) -> io::Result<Package> {
    ZipArchive::new(File::open(path)?)?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    packages::digest_file(&mut context, &mut File::open(path)?)?;
    let name = packages::hexadecimal(&context.finish().as_ref()[..16]);
    packages::keep(name, 0o600, |beside| fs::copy(path, beside).map(drop))
}

/// Enters the folder that this worker was given, unpacked where it is the first on this machine.
pub(crate) fn enter(session: &Path, package: &Package) -> Result<()> {
    let into = session.join("packages").join(&package.name);
    let entered = unpack(session, package, &into).and_then(|()| std::env::set_current_dir(&into));
    entered.map_err(|error| Error::Environment(format!("the worker's working_dir cannot be unpacked: {error}")))
}

fn unpack(session: &Path, package: &Package, into: &Path) -> io::Result<()> {
    if into.is_dir() {
        return Ok(());
    }
    let beside_session = session.parent().map(|sessions| package_file(&packages_in(sessions), &package.name));
    let of_user = PackageCache::of_user().ok().map(|cache| cache.file_of(&package.name));
    let mut places = [Some(PathBuf::from(&package.path)), beside_session, of_user].into_iter().flatten();
    let file = places.find(|place| place.is_file()).ok_or_else(|| {
        io::Error::other(format!("its package {} was evicted, or the program's machine has left", package.name))
    })?;
    let beside = into.with_file_name(format!("{}.{}.new", package.name, std::process::id()));
    let made = unpack_into(&file, &beside, package.name.ends_with('s')).and_then(|()| fs::rename(&beside, into));
    if made.is_err() {
        let _ = fs::remove_dir_all(&beside);
    }
    // Another worker may have been faster.
    if into.is_dir() { Ok(()) } else { made }
}

/// FOLDER-2; `strips` leaves out the one folder that all lies in, as Python's names say.
fn unpack_into(file: &Path, beside: &Path, strips: bool) -> io::Result<()> {
    fs::create_dir_all(beside)?;
    let mut archive = ZipArchive::new(File::open(file)?)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index)?;
        let outside = || io::Error::other("what it holds would lie outside of the folder, so that it is refused whole");
        let name = entry.enclosed_name().ok_or_else(outside)?;
        let target = beside.join(name.components().skip(usize::from(strips)).collect::<PathBuf>());
        if entry.is_dir() {
            fs::create_dir_all(target)?;
            continue;
        }
        fs::create_dir_all(target.parent().unwrap_or(beside))?;
        let is_program = entry.unix_mode().is_some_and(|mode| mode & 0o100 != 0);
        io::copy(&mut entry, &mut File::create(&target)?)?;
        if is_program {
            fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}
