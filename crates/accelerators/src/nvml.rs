//! NVIDIA's management library, asked once for what detection needs.

use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The most devices NVML is believed to have; a machine has 16 at most today.
pub(crate) const DEVICES_LIMIT: u32 = 1024;

/// What NVML says of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NvmlAnswers {
    pub(crate) driver: Option<String>,
    pub(crate) gpus: Vec<Gpu>,
    /// Devices that NVML counts but cannot open, each with its reason.
    pub(crate) lost: Vec<String>,
}

/// One GPU as NVML shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) name: Option<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) pci_address: Option<String>,
    pub(crate) memory_bytes: Option<u64>,
    /// Whether the GPU is cut into instances (MIG).
    pub(crate) partitioned: bool,
}

/// Why NVML answers nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NvmlFailure {
    /// The machine does not have the library.
    #[error("its library cannot be loaded ({0})")]
    NoLibrary(String),
    /// The library is there and refuses to work.
    #[error("its library refuses to work ({0})")]
    Refused(String),
}

impl NvmlAnswers {
    /// Reads the text form shared by recorded machines and `oxiray-nvml-fixture`, one GPU per line:
    /// `name|uuid|pci address|memory bytes|used bytes|pid:bytes,…` (what follows is the library's); `driver=` names the driver, `mig=0` says that GPU 0
    /// is partitioned, and `#` starts a comment.
    pub(crate) fn parse(text: &str) -> Self {
        let mut answers = Self::default();
        let mut partitioned = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once('=') {
                Some(("driver", version)) => answers.driver = Some(version.to_owned()),
                Some(("mig", index)) => partitioned.extend(index.parse::<usize>()),
                _ => answers.gpus.push(Gpu::parse(line)),
            }
        }
        for index in partitioned {
            if let Some(gpu) = answers.gpus.get_mut(index) {
                gpu.partitioned = true;
            }
        }
        answers
    }
}

impl Gpu {
    fn parse(line: &str) -> Self {
        let mut fields = line.split('|').map(str::trim).map(|field| (!field.is_empty()).then_some(field));
        let mut next = || fields.next().flatten();
        Self {
            name: next().map(str::to_owned),
            uuid: next().map(str::to_owned),
            pci_address: next().map(short_address),
            memory_bytes: next().and_then(|bytes| bytes.parse().ok()),
            partitioned: false,
        }
    }
}

/// Loads the library.
pub(crate) fn open(library: &Path) -> Result<Nvml, NvmlFailure> {
    Nvml::builder().lib_path(library.as_os_str()).init().map_err(|error| match error {
        NvmlError::LibloadingError(source) => NvmlFailure::NoLibrary(chain(&source)),
        other => NvmlFailure::Refused(chain(&other)),
    })
}

/// Loads the library and asks it.
pub(crate) fn load(library: &Path) -> Result<NvmlAnswers, NvmlFailure> {
    let nvml = open(library)?;
    let count = nvml.device_count().map_err(|error| NvmlFailure::Refused(chain(&error)))?;
    let mut answers = NvmlAnswers { driver: nvml.sys_driver_version().ok(), ..NvmlAnswers::default() };
    for index in 0..count.min(DEVICES_LIMIT) {
        match nvml.device_by_index(index) {
            Ok(device) => answers.gpus.push(Gpu {
                name: device.name().ok(),
                uuid: device.uuid().ok(),
                pci_address: device.pci_info().ok().map(|pci| short_address(&pci.bus_id)),
                memory_bytes: device.memory_info().ok().map(|memory| memory.total),
                partitioned: device.mig_mode().is_ok_and(|mode| mode.current != 0),
            }),
            Err(error) => answers.lost.push(format!("NVML cannot open GPU {index}: {}", chain(&error))),
        }
    }
    Ok(answers)
}

// NVML writes the domain with eight digits, the kernel with four.
fn short_address(address: &str) -> String {
    let lower = address.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => format!("{}:{rest}", &domain[4..]),
        _ => lower,
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        let text =
            "# two cards\ndriver=550.54.15\nNVIDIA L4|GPU-1|00000000:3B:00.0|24000|1|7:1\n\nNVIDIA L4||0000:5e:00.0\n";
        let answers = NvmlAnswers::parse(text);
        assert_eq!(answers.driver.as_deref(), Some("550.54.15"));
        assert_eq!(answers.gpus.len(), 2);
        assert_eq!(answers.gpus[0].pci_address.as_deref(), Some("0000:3b:00.0"));
        assert_eq!(answers.gpus[0].memory_bytes, Some(24000));
        assert_eq!(
            answers.gpus[1],
            Gpu { name: Some("NVIDIA L4".to_owned()), pci_address: Some("0000:5e:00.0".to_owned()), ..Gpu::default() }
        );
    }

    #[test]
    fn a_missing_library_is_told_from_a_broken_one() {
        assert!(matches!(load(Path::new("/no/such/library.so")), Err(NvmlFailure::NoLibrary(_))));
    }
}
