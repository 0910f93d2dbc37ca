//! This program as what its workers run: named by its content, so that all machines run the same.
//!
//! The file is copied into the user's cache under its digest. The daemon of this machine starts it from there,
//! and those of other machines fetch it, as they do packages. What is built anew while a cluster runs has another digest.

use crate::error::{Error, Result};
use oxiray_wire::message::Environment;
use oxiray_wire::session::{private_directory, root};
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What is read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// This program's file in the cache, kept there by a lock for as long as this process lives.
#[derive(Debug)]
struct Shipped {
    name: String,
    path: PathBuf,
    _lock: File,
}

/// The environment in which workers are this program.
pub(crate) fn environment() -> Result<Environment> {
    static SHIPPED: OnceLock<std::result::Result<Shipped, String>> = OnceLock::new();
    let shipped = SHIPPED.get_or_init(|| ship().map_err(|error| error.to_string()));
    let Shipped { name, path, .. } = shipped.as_ref().map_err(|text| {
        Error::Environment(format!("this program cannot be made ready for its workers to run: {text}"))
    })?;
    described(name, path)
}

/// The environment in which workers are the program of that name and place.
fn described(name: &str, path: &Path) -> Result<Environment> {
    let text = path.to_str().ok_or_else(|| Error::Environment(format!("{} is no text", path.display())))?;
    let preparation = serde_json::json!({ "packages": [[name, text]], "program": name }).to_string();
    let directory = std::env::current_dir().ok();
    let fields = serde_json::json!({ "directory": directory }).to_string();
    Ok(Environment { preparation, fields, native: true, ..Environment::default() })
}

fn ship() -> io::Result<Shipped> {
    // The running file itself, whatever lies at its path by now.
    let mut file = File::open("/proc/self/exe")?;
    let name = format!("program{}", digest(&mut file)?);
    let cache = root(|name| std::env::var(name).ok())?.join("cache");
    let packages = cache.join("packages");
    private_directory(&cache)?;
    private_directory(&packages)?;
    let path = packages.join(&name);
    loop {
        match File::open(&path) {
            Ok(lock) => {
                rustix::fs::flock(&lock, FlockOperation::LockShared)?;
                // It may have been evicted before it was locked.
                if path.exists() {
                    return Ok(Shipped { name, path, _lock: lock });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => write(&packages, &path, &name)?,
            Err(error) => return Err(error),
        }
    }
}

/// Puts the program into the cache: written under another name and renamed.
fn write(packages: &Path, path: &Path, name: &str) -> io::Result<()> {
    let beside = packages.join(format!("{name}.{}.new", std::process::id()));
    // Not a link: what is built anew may be written into the same file.
    fs::copy("/proc/self/exe", &beside)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o700))?;
    fs::rename(&beside, path)
}

fn digest(file: &mut File) -> io::Result<String> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block)? {
            0 => break,
            read => context.update(&block[..read]),
        }
    }
    let digest = context.finish();
    Ok(digest.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}
