//! `host.json` of a recorded machine: what its files cannot tell.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use oxiray_families::{NodeNumber, NvmlAnswers, NvmlFailure};
use serde::Deserialize;

use super::command::OUTPUT_BYTES_LIMIT;

/// Why a recorded machine cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The folder is missing or is no folder.
    #[error("`{}` is no folder: name the folder of a recorded machine, with `dev`, `sys` and `host.json` in it", .0.display())]
    NoFolder(PathBuf),
    /// A file that belongs to the recording cannot be read.
    #[error("cannot read `{}` of the recorded machine", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// `host.json` does not say what it should.
    #[error("`{}` does not describe a recorded machine: see tests/fixtures/hosts/README.md for its form", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Description {
    /// For the reader of the file.
    #[serde(rename = "about")]
    _about: String,
    environment: BTreeMap<String, String>,
    commands: BTreeMap<String, CommandDescription>,
    nvml: Option<NvmlDescription>,
    metadata: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandDescription {
    #[serde(default)]
    status: i32,
    stdout_file: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NvmlDescription {
    failure: Option<String>,
    answers_file: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Recording {
    environment: BTreeMap<String, String>,
    commands: BTreeMap<String, Result<String, String>>,
    nvml: Result<NvmlAnswers, NvmlFailure>,
    metadata: BTreeMap<String, String>,
    nodes: BTreeMap<String, NodeNumber>,
}

impl Recording {
    pub(super) fn read(folder: &Path) -> Result<Self, HostError> {
        if !folder.is_dir() {
            return Err(HostError::NoFolder(folder.to_owned()));
        }
        let file = folder.join("host.json");
        let description: Description = if file.exists() {
            let text = read_text(&file)?;
            serde_json::from_str(&text).map_err(|source| HostError::Malformed { path: file.clone(), source })?
        } else {
            Description::default()
        };
        let mut commands = BTreeMap::new();
        for (line, command) in description.commands {
            let answer = match command.stdout_file {
                Some(file) if command.status == 0 => Ok(read_text(&folder.join(file))?),
                None if command.status == 0 => Ok(String::new()),
                _ => Err(format!("`{line}` failed (exit status: {})", command.status)),
            };
            commands.insert(line, answer);
        }
        let nvml = match description.nvml {
            None => Err(NvmlFailure::NoLibrary("the recorded machine has no NVML library".to_owned())),
            Some(NvmlDescription { failure: Some(reason), .. }) => Err(NvmlFailure::Refused(reason)),
            Some(NvmlDescription { answers_file: Some(file), .. }) => {
                Ok(NvmlAnswers::parse(&read_text(&folder.join(file))?))
            }
            Some(_) => Ok(NvmlAnswers::default()),
        };
        let number = |(path, number): (String, String)| {
            let said = || format!("`nodes` has `{number}` for `{path}`: two numbers are wanted, as in `195:0`");
            let number = number_of(&number).ok_or_else(|| serde::de::Error::custom(said()));
            number.map(|number| (path, number)).map_err(|source| HostError::Malformed { path: file.clone(), source })
        };
        let nodes = description.nodes.into_iter().map(number).collect::<Result<_, _>>()?;
        Ok(Self { environment: description.environment, commands, nvml, metadata: description.metadata, nodes })
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).cloned()
    }

    /// The numbers of a device node.
    pub(super) fn number(&self, path: &str) -> Option<NodeNumber> {
        self.nodes.get(path).copied()
    }

    pub(super) fn run(&self, programs: &[&str], arguments: &[&str]) -> Result<Option<String>, String> {
        for program in programs {
            let line = [&[*program], arguments].concat().join(" ");
            if let Some(answer) = self.commands.get(&line) {
                return answer.clone().map(Some);
            }
        }
        Ok(None)
    }

    pub(super) fn metadata(&self, attribute: &str) -> Option<String> {
        self.metadata.get(attribute).cloned()
    }

    pub(super) fn nvml(&self) -> Result<NvmlAnswers, NvmlFailure> {
        self.nvml.clone()
    }
}

/// Major and minor, as in `195:0`.
fn number_of(text: &str) -> Option<NodeNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(NodeNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn read_text(path: &Path) -> Result<String, HostError> {
    let unreadable = |source| HostError::Unreadable { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(OUTPUT_BYTES_LIMIT as u64).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}
