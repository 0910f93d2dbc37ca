//! Folders that go with the program.

use crate::LIMIT;
use oxiray::{ActorOptions, Error, Result, TaskOptions};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

#[oxiray::remote(num_cpus = 0)]
fn read(path: String) -> std::io::Result<String> {
    fs::read_to_string(path)
}

/// What a call that this one makes reads.
#[oxiray::remote(num_cpus = 0)]
fn read_within(path: String) -> Result<String> {
    read::remote(path)?.get()
}

/// What lies here: names, and whether each is a program.
#[oxiray::remote(num_cpus = 0)]
fn listed(path: String) -> std::io::Result<Vec<(String, bool)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_program = entry.file_type()?.is_file() && entry.metadata()?.permissions().mode() & 0o100 != 0;
        all.push((entry.file_name().to_string_lossy().into_owned(), is_program));
    }
    all.sort();
    Ok(all)
}

struct Reader {
    content: std::io::Result<String>,
}

#[oxiray::remote(num_cpus = 0)]
impl Reader {
    pub fn new(path: String) -> Self {
        Self { content: fs::read_to_string(path) }
    }

    pub fn content(&self) -> std::result::Result<String, String> {
        self.content.as_ref().map(Clone::clone).map_err(ToString::to_string)
    }
}

pub(crate) fn a_folder_goes_where_the_call_runs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for inner in ["data/deeper", "target/release", ".git"] {
        fs::create_dir_all(at(inner)).unwrap();
    }
    fs::write(at("data/deeper/words.txt"), "in the folder").unwrap();
    fs::write(at("run.sh"), "#!/bin/sh").unwrap();
    fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at("target/CACHEDIR.TAG"), "").unwrap();
    fs::write(at("target/release/large"), "not shipped").unwrap();
    let there = || TaskOptions::new().working_dir(folder.path());
    let words = "data/deeper/words.txt";
    let read_there = |path: &str| read::remote_with(there(), path).unwrap().get_timeout(LIMIT);
    assert_eq!(read_there(words).unwrap(), "in the folder");
    let listed = listed::remote_with(there(), ".").unwrap().get_timeout(LIMIT).unwrap();
    assert_eq!(listed, [("data".to_owned(), false), ("run.sh".to_owned(), true)]);
    // What a call calls is in the same folder, and other calls are not.
    let within = read_within::remote_with(there(), words).unwrap();
    assert_eq!(within.get_timeout(LIMIT).unwrap(), "in the folder");
    assert!(read::remote(words).unwrap().get_timeout(LIMIT).is_err());
    let reader = Reader::remote_with(ActorOptions::new().working_dir(folder.path()), words).unwrap();
    assert_eq!(reader.content().unwrap().get_timeout(LIMIT).unwrap(), "in the folder");
    // It was shipped once, as it was.
    fs::write(at(words), "changed since").unwrap();
    assert_eq!(read_there(words).unwrap(), "in the folder");
}

pub(crate) fn what_cannot_be_shipped_is_refused() {
    let refused = |path: &str| match read::remote_with(TaskOptions::new().working_dir(path), "words") {
        Err(Error::Environment(text)) => text,
        other => panic!("{other:?}"),
    };
    for (path, reason) in [
        ("/nowhere/at/all", "name a folder"),
        ("https://example.org/data.zip", "download it"),
        ("/proc/self/exe", "neither a folder nor a .zip file"),
    ] {
        let text = refused(path);
        assert!(text.contains(path) && text.contains(reason), "{text}");
    }
}
