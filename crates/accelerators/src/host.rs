//! The one handle through which a machine is read, be it this one or a recorded one.
//!
//! Everything detection may learn comes through [`Host`]: files, device nodes, environment variables, answers of NVML,
//! of vendors' commands and of the cloud's metadata service. A recorded machine (a folder, see [`Host::recorded`]) is
//! therefore detected by the very code that detects a real one.
//!
//! 1. `HOST-1`: a recorded machine never reaches out of its folder: no command runs, no library is loaded (unless
//!    [`Host::with_nvml_library`] says so), no socket is opened.
//! 2. `HOST-2`: everything is bounded: bytes per file, entries per folder, time per command and per metadata request.

mod command;
mod metadata;
mod openers;
mod recording;

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use nvml_wrapper::Nvml;
use oxiray_families::{
    DeviceNode, Hearing, HostFacts, NodeNumber, NvmlAnswers, NvmlFailure, PciFunction, Usage, scan_pci,
};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::nvml;
use recording::Recording;

pub use command::take_left_running;
pub use recording::HostError;

/// Names the folder of a recorded machine that [`Host::from_environment`] reads instead of this machine.
pub const HOST_ROOT_VARIABLE: &str = "OXIRAY_HOST_ROOT";

/// Names the NVML library to load instead of the system's.
pub const NVML_LIBRARY_VARIABLE: &str = "OXIRAY_NVML_LIBRARY";

/// The name under which the NVIDIA driver installs NVML. The bare `.so` exists only where its headers are installed.
const NVML_LIBRARY: &str = "libnvidia-ml.so.1";

/// The most of one file that is read; files in `/sys` and `/proc` hold a page at most.
const FILE_BYTES_LIMIT: u64 = 64 * 1024;

/// The most entries of one folder that are looked at.
const FOLDER_ENTRIES_LIMIT: usize = 4096;

/// How long a vendor's command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// A machine to look at.
#[derive(Clone)]
pub struct Host {
    root: PathBuf,
    world: World,
    nvml_library: Option<PathBuf>,
    pci: OnceLock<Vec<PciFunction>>,
    /// NVML as monitors ask it: opened at the first question, and kept, which keeps the driver ready and later questions
    /// quick. It is never closed: that would wait for the driver when the process wants to end, which closes all anyway.
    live_nvml: OnceLock<Option<&'static Nvml>>,
}

#[derive(Debug, Clone)]
enum World {
    Real,
    Recorded { recording: Recording, inherits_environment: bool },
}

impl Host {
    /// This machine.
    pub fn real() -> Self {
        Self::of(PathBuf::from("/"), World::Real, None)
    }

    /// A machine recorded in a folder: a partial copy of its `/dev`, `/proc` and `/sys`, and `host.json` with its
    /// environment and the answers of its commands, its NVML and its metadata service (see
    /// `tests/fixtures/hosts/README.md`). Variables of this process are not seen.
    pub fn recorded(folder: impl Into<PathBuf>) -> Result<Self, HostError> {
        let root = folder.into();
        let recording = Recording::read(&root)?;
        let world = World::Recorded { recording, inherits_environment: false };
        Ok(Self::of(root, world, None))
    }

    /// This machine, or the recorded one that `OXIRAY_HOST_ROOT` names. A recorded machine then also sees the variables
    /// of this process, where the recording does not set them, so that one can start a node on it with, say,
    /// `CUDA_VISIBLE_DEVICES=1,3`.
    pub fn from_environment() -> Result<Self, HostError> {
        let library = process_variable(NVML_LIBRARY_VARIABLE).map(PathBuf::from);
        let Some(folder) = process_variable(HOST_ROOT_VARIABLE).filter(|folder| !folder.is_empty()) else {
            return Ok(Self::of(PathBuf::from("/"), World::Real, library));
        };
        let root = PathBuf::from(folder);
        let recording = Recording::read(&root)?;
        let world = World::Recorded { recording, inherits_environment: true };
        Ok(Self::of(root, world, library))
    }

    fn of(root: PathBuf, world: World, nvml_library: Option<PathBuf>) -> Self {
        Self { root, world, nvml_library, pci: OnceLock::new(), live_nvml: OnceLock::new() }
    }

    /// The same machine with NVML answered by the library at `path`.
    #[must_use]
    pub fn with_nvml_library(mut self, path: impl Into<PathBuf>) -> Self {
        self.nvml_library = Some(path.into());
        self
    }

    /// An environment variable of the machine. One that is not valid text counts as unset.
    pub fn variable(&self, name: &str) -> Option<String> {
        match &self.world {
            World::Real => process_variable(name),
            World::Recorded { recording, inherits_environment } => {
                recording.variable(name).or_else(|| if *inherits_environment { process_variable(name) } else { None })
            }
        }
    }

    /// The folder that holds the machine's `/proc` and `/sys`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the machine was read from, for people.
    pub fn description(&self) -> String {
        match self.world {
            World::Real => "this machine".to_owned(),
            World::Recorded { .. } => format!("the machine recorded in {}", self.root.display()),
        }
    }

    fn live_nvml(&self) -> Option<&'static Nvml> {
        *self.live_nvml.get_or_init(|| {
            let opened = nvml::open(self.nvml_source().ok()?).ok()?;
            Some(Box::leak(Box::new(opened)))
        })
    }

    fn nvml_source(&self) -> Result<&Path, &Recording> {
        match (&self.nvml_library, &self.world) {
            (Some(library), _) => Ok(library),
            (None, World::Real) => Ok(Path::new(NVML_LIBRARY)),
            (None, World::Recorded { recording, .. }) => Err(recording),
        }
    }

    // Asking elsewhere would send a request into an unknown network and wait for its time limit.
    fn is_google_machine(&self) -> bool {
        ["product_name", "sys_vendor"]
            .iter()
            .filter_map(|name| self.read(&format!("/sys/class/dmi/id/{name}")))
            .any(|text| text.starts_with("Google"))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl HostFacts for Host {
    fn variable(&self, name: &str) -> Option<String> {
        Self::variable(self, name)
    }

    fn read(&self, path: &str) -> Option<String> {
        let file = File::open(self.path(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_LIMIT).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn list(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.take(FOLDER_ENTRIES_LIMIT).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    fn link(&self, path: &str) -> Option<String> {
        std::fs::read_link(self.path(path)).ok()?.into_os_string().into_string().ok()
    }

    fn node(&self, path: &str) -> Option<DeviceNode> {
        let found = std::fs::metadata(self.path(path)).ok()?;
        let number = match &self.world {
            World::Real if !found.file_type().is_char_device() => return None,
            World::Real => Some(number_of(found.rdev())),
            World::Recorded { recording, .. } => recording.number(path),
        };
        Some(DeviceNode { path: path.to_owned(), number })
    }

    fn is_refused(&self, node: &DeviceNode) -> bool {
        // Without opening it, which may wake the device. Who lacks rights on the file is told EACCES.
        rustix::fs::access(self.path(&node.path), Access::READ_OK | Access::WRITE_OK) == Err(Errno::PERM)
    }

    fn pci(&self) -> &[PciFunction] {
        self.pci.get_or_init(|| scan_pci(self))
    }

    fn run(&self, programs: &[&str], arguments: &[&str]) -> Result<Option<String>, String> {
        match &self.world {
            World::Recorded { recording, .. } => recording.run(programs, arguments),
            World::Real => {
                for program in programs {
                    if let Some(output) = command::run(Path::new(program), arguments, COMMAND_LIMIT)? {
                        return Ok(Some(output));
                    }
                }
                Ok(None)
            }
        }
    }

    fn metadata(&self, attribute: &str) -> Option<String> {
        match &self.world {
            World::Recorded { recording, .. } => recording.metadata(attribute),
            World::Real if self.is_google_machine() => metadata::attribute(attribute),
            World::Real => None,
        }
    }

    fn nvml(&self) -> Result<NvmlAnswers, NvmlFailure> {
        match self.nvml_source() {
            Ok(library) => nvml::load(library),
            Err(recording) => recording.nvml(),
        }
    }

    fn has_live_nvml(&self) -> bool {
        self.nvml_source().is_ok()
    }

    fn openers(&self, nodes: &[DeviceNode]) -> Option<Vec<u32>> {
        let is_recorded = matches!(self.world, World::Recorded { .. });
        openers::of(&self.path("/proc"), nodes, is_recorded)
    }

    fn nvml_holders(&self, id: &str) -> Option<Vec<u32>> {
        nvml::holders(self.live_nvml()?, id)
    }

    fn nvml_usage(&self, id: &str) -> Option<Usage> {
        nvml::usage(self.live_nvml()?, id)
    }

    fn nvml_errors(&self, ids: &[String], hearing: &mut Hearing<'_>) {
        if let Some(nvml) = self.live_nvml() {
            nvml::hear_errors(nvml, ids, hearing);
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Host").field(&self.description()).finish()
    }
}

fn number_of(device: u64) -> NodeNumber {
    NodeNumber { major: libc::major(device), minor: libc::minor(device) }
}

fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
