//! The index: what is known of each worker's file, for whoever looks after the session has ended.

use crate::archive::KeptFile;
use crate::names::FileName;
use oxiray_ids::{ActorId, JobId, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Where it is, in the folder of logs.
pub(crate) const INDEX: &str = "index.jsonl";
/// The most that is read of one.
const BYTES_MAX: u64 = 64 << 20;
/// So many lines more than files are there before it is written anew.
const LINES_SPARE: usize = 1000;

/// A line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) file: String,
    pub(crate) worker: WorkerId,
    pub(crate) job: JobId,
    pub(crate) actor: Option<ActorId>,
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) stream: String,
    pub(crate) from_ms: u64,
    pub(crate) till_ms: Option<u64>,
    /// The first byte that is kept.
    pub(crate) begin: u64,
    /// How many are kept from there on.
    pub(crate) bytes: u64,
    /// How many files were set aside of it and are kept.
    pub(crate) rotated: usize,
    /// All of it is gone.
    #[serde(default)]
    pub(crate) removed: bool,
}

impl Row {
    pub(crate) fn of(name: &FileName, file: &KeptFile) -> Self {
        Self {
            file: name.to_string(),
            worker: name.worker,
            job: name.job,
            actor: file.actor,
            name: file.label.clone(),
            pid: name.pid,
            stream: if name.is_error { "err" } else { "out" }.to_owned(),
            from_ms: file.began_ms,
            till_ms: file.ended_ms,
            begin: file.begin(),
            bytes: file.end() - file.begin(),
            rotated: file.segments.len() - 1,
            removed: false,
        }
    }
}

/// The last line of each file.
pub(crate) fn read(directory: &Path) -> BTreeMap<FileName, Row> {
    let Ok(file) = File::open(directory.join(INDEX)) else { return BTreeMap::new() };
    let lines = BufReader::new(file.take(BYTES_MAX)).split(b'\n').map_while(Result::ok);
    let rows = lines.filter_map(|line| serde_json::from_slice::<Row>(&line).ok());
    let mut found = BTreeMap::new();
    for row in rows {
        let Some(name) = FileName::read(&row.file) else { continue };
        if row.removed {
            found.remove(&name)
        } else {
            found.insert(name, row)
        };
    }
    found
}

/// The index as its keeper writes it.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    lines: usize,
}

impl Index {
    pub(crate) fn new(directory: &Path) -> Self {
        // Where there is one it is written anew with the next line.
        Self { path: directory.join(INDEX), lines: usize::MAX / 2 }
    }

    /// Whether it has many more lines than there are files, and is to be written anew.
    pub(crate) fn is_long(&self, files: usize) -> bool {
        self.lines > 2 * files + LINES_SPARE
    }

    pub(crate) fn append(&mut self, row: &Row) -> io::Result<()> {
        self.lines += 1;
        OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?.write_all(&line(row)?)
    }

    pub(crate) fn write_anew(&mut self, all: impl Iterator<Item = Row>) -> io::Result<()> {
        let unfinished = self.path.with_extension("jsonl.new");
        let lines = all.map(|row| line(&row)).collect::<io::Result<Vec<_>>>()?;
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        file.write_all(&lines.concat())?;
        fs::rename(unfinished, &self.path)?;
        self.lines = lines.len();
        Ok(())
    }
}

fn line(row: &Row) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(row)?;
    line.push(b'\n');
    Ok(line)
}
