//! What a family may ask of the host that it is looked for on.

use crate::monitor::{Hearing, Usage};
use crate::nodes::DeviceNode;
use crate::nvml::{NvmlAnswers, NvmlFailure};
use crate::pci::PciFunction;

/// A host as detection and monitors see it: its files, variables, commands and libraries, a recorded one's alike.
pub trait HostFacts {
    /// An environment variable.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of a file, without surrounding blanks; `None` where it cannot be read.
    fn read(&self, path: &str) -> Option<String>;

    /// The names in a folder, sorted; empty where it cannot be read.
    fn list(&self, path: &str) -> Vec<String>;

    /// Whether a path exists.
    fn exists(&self, path: &str) -> bool;

    /// Where a symbolic link leads, as it is written; `None` where there is none at the path.
    fn link(&self, path: &str) -> Option<String>;

    /// The device node at a path; `None` where there is none.
    fn node(&self, path: &str) -> Option<DeviceNode>;

    /// Whether the control group of this process refuses it a device node, whatever its rights.
    fn is_refused(&self, node: &DeviceNode) -> bool;

    /// The devices on the PCI bus, by address.
    fn pci(&self) -> &[PciFunction];

    /// What a vendor's command prints: the first of `programs` that the host has (a path, or a name to be found in
    /// `PATH`). `Ok(None)` where it has none of them; an error says which command failed and how.
    fn run(&self, programs: &[&str], arguments: &[&str]) -> Result<Option<String>, String>;

    /// An attribute of a Google Compute Engine instance; `None` on any other host, or without an answer.
    fn metadata(&self, attribute: &str) -> Option<String>;

    /// What NVML answers.
    fn nvml(&self) -> Result<NvmlAnswers, NvmlFailure>;

    /// Whether NVML can be asked about the processes of now: a recording has its answers only about the host's devices.
    fn has_live_nvml(&self) -> bool;

    /// The processes that have one of these device nodes open, as far as they may be looked at; `None` where no process can be
    /// seen.
    fn openers(&self, nodes: &[DeviceNode]) -> Option<Vec<u32>>;

    /// The processes that hold memory of the device that NVIDIA's libraries call `id`; `None` where NVML does not tell.
    fn nvml_holders(&self, id: &str) -> Option<Vec<u32>>;

    /// How much that device is used now; `None` where NVML tells nothing of it.
    fn nvml_usage(&self, id: &str) -> Option<Usage>;

    /// Hears the errors that NVIDIA's driver reports of the devices which its libraries call so, as
    /// [`Monitor::hear_errors`](crate::Monitor::hear_errors) does.
    fn nvml_errors(&self, ids: &[String], hearing: &mut Hearing<'_>);

    /// A number in a file, as the kernel writes it: `0x10de` or `4318`.
    fn read_number(&self, path: &str) -> Option<u64> {
        let text = self.read(path)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// The numbers `n` of the entries named `<prefix><n>` in a folder, ascending.
    fn list_numbered(&self, path: &str, prefix: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> =
            self.list(path).iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }
}
