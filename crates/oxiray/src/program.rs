//! This program as what its workers run: named by its content, so that all machines run the same.
//!
//! The file is copied into the user's cache under its digest. The daemon of this machine starts it from there,
//! and those of other machines fetch it, as they do packages. What is built anew while a cluster runs has another digest.

use crate::error::{Error, Result};
use crate::folder;
use crate::packages::{self, Package};
use oxiray_wire::message::Environment;
use oxiray_wire::session::PROGRAM_PREFIX;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// What a worker was started as and where, and what it calls is to be as well.
#[derive(Debug, Clone, Default)]
struct Inherited {
    program: Option<Package>,
    folder: Option<Package>,
    directory: Option<String>,
}

static INHERITED: Mutex<Option<Inherited>> = Mutex::new(None);

/// This worker has that environment.
pub(crate) fn inherit(environment: &Environment) {
    let preparation: serde_json::Value = serde_json::from_str(&environment.preparation).unwrap_or_default();
    let fields: serde_json::Value = serde_json::from_str(&environment.fields).unwrap_or_default();
    let package = |name: &str| {
        let all = preparation["packages"].as_array()?;
        let path = all.iter().find(|one| one[0] == name)?[1].as_str()?.to_owned();
        Some(Package { name: name.to_owned(), path })
    };
    let program = preparation["program"].as_str().and_then(package);
    let folder = fields["working_dir"].as_str().and_then(|text| package(text.strip_prefix(folder::SCHEME)?));
    let directory = fields["directory"].as_str().map(str::to_owned);
    *INHERITED.lock() = Some(Inherited { program, folder, directory });
}

/// What this worker was given as its folder.
pub(crate) fn inherited_folder() -> Option<Package> {
    INHERITED.lock().as_ref().and_then(|inherited| inherited.folder.clone())
}

/// The directory that this worker was told to be in, where it has no folder.
pub(crate) fn inherited_directory() -> Option<String> {
    INHERITED.lock().as_ref().and_then(|inherited| inherited.directory.clone())
}

/// The environment in which workers are this program, with the files of a folder where one is named.
pub(crate) fn environment(working_dir: Option<&Path>) -> Result<Environment> {
    let inherited = INHERITED.lock().clone();
    let program = match inherited.as_ref().and_then(|inherited| inherited.program.clone()) {
        Some(program) => program,
        None => shipped()?,
    };
    let folder = folder::chosen(working_dir)?;
    let mut named = vec![(&program.name, &program.path)];
    named.extend(folder.as_ref().map(|folder| (&folder.name, &folder.path)));
    let preparation = serde_json::json!({ "packages": named, "program": program.name }).to_string();
    let fields = if let Some(folder) = &folder {
        serde_json::json!({ "working_dir": format!("{}{}", folder::SCHEME, folder.name) })
    } else {
        let own = || std::env::current_dir().ok().and_then(|directory| directory.to_str().map(str::to_owned));
        let directory = inherited.map_or_else(own, |inherited| inherited.directory);
        serde_json::json!({ "directory": directory })
    };
    Ok(Environment { preparation, fields: fields.to_string(), native: true, ..Environment::default() })
}

/// This program's file in the cache.
fn shipped() -> Result<Package> {
    static SHIPPED: OnceLock<std::result::Result<Package, String>> = OnceLock::new();
    let shipped = SHIPPED.get_or_init(|| ship().map_err(|error| error.to_string()));
    shipped
        .clone()
        .map_err(|text| Error::Environment(format!("this program cannot be made ready for its workers to run: {text}")))
}

fn ship() -> io::Result<Package> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    // The running file itself, whatever lies at its path by now.
    packages::digest_file(&mut context, &mut File::open("/proc/self/exe")?)?;
    let name = format!("{PROGRAM_PREFIX}{}", packages::hexadecimal(context.finish().as_ref()));
    // Not a link: what is built anew may be written into the same file.
    packages::keep(name, 0o700, |beside| fs::copy("/proc/self/exe", beside).map(drop))
}
