//! What NVIDIA's management library answers when it is asked what a machine has.

use crate::Recovery;
use crate::mig::{MigInstance, profile_in};
use crate::pairs::Pair;

/// What NVML says of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvmlAnswers {
    /// The version of the driver.
    pub driver: Option<String>,
    /// Its GPUs, by their index.
    pub gpus: Vec<Gpu>,
    /// Devices that NVML counts but cannot open, each with its reason.
    pub lost: Vec<String>,
    /// How each two of its GPUs are connected, where NVML tells.
    pub pairs: Vec<Pair>,
}

/// One GPU as NVML shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpu {
    /// The vendor's name for it.
    pub name: Option<String>,
    /// Its unique id.
    pub uuid: Option<String>,
    /// Its place on the PCI bus.
    pub pci_address: Option<String>,
    /// Its own memory.
    pub memory_bytes: Option<u64>,
    /// The number of its device node, which is not its index.
    pub minor: Option<u32>,
    /// Whether the GPU is cut into instances (MIG).
    pub partitioned: bool,
    /// The instances, where it is.
    pub instances: Vec<MigInstance>,
    /// The GPUs, of this and of other machines, that NVLink connects it to: the cluster's UUID and the number of its part.
    pub fabric: Option<String>,
    /// What its driver needs before all of it can be relied on; nothing where that is nothing, or not told.
    pub needs: Option<Recovery>,
}

/// Why NVML answers nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvmlFailure {
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
    /// is partitioned, `mig=0:1:0:MIG-5a:1g.5gb:4294967296` that it has an instance (those of the GPU and of the processors in it by the driver's numbers), `fabric=0:9a5c1f00-2b3d-4e5f-8a9b-0c1d2e3f4a5b:3` that NVLink connects it to part 3 of that cluster, `minor=0:2` that its device node is `/dev/nvidia2` (else the one of its place), `recovery=0:3` that its driver needs recovery action 3, `pair=0:1:NODE,NV4` how two are connected (see [`Pair`]), and `#` starts a
    /// comment.
    pub fn parse(text: &str) -> Self {
        let mut answers = Self::default();
        let (mut partitioned, mut minors, mut instances) = (Vec::new(), Vec::new(), Vec::new());
        let (mut fabrics, mut needs) = (Vec::new(), Vec::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once('=') {
                Some(("driver", version)) => answers.driver = Some(version.to_owned()),
                Some(("mig", of)) => match of.split_once(':') {
                    Some((index, of)) => instances.extend(index.parse::<usize>().ok().zip(instance(of))),
                    None => partitioned.extend(of.parse::<usize>()),
                },
                // Who uses an instance, and other things that only the library reads.
                Some(("uses", _)) => {}
                Some(("minor", of)) => minors.extend(numbered(of)),
                Some(("fabric", of)) => fabrics.extend(fabric(of)),
                Some(("recovery", of)) => needs.extend(numbered(of)),
                Some(("pair", of)) => answers.pairs.extend(Pair::parse(of)),
                _ => answers.gpus.push(Gpu { minor: Some(answers.gpus.len() as u32), ..Gpu::parse(line) }),
            }
        }
        for (index, instance) in instances {
            partitioned.push(index);
            if let Some(gpu) = answers.gpus.get_mut(index) {
                gpu.instances.push(instance);
            }
        }
        for index in partitioned {
            if let Some(gpu) = answers.gpus.get_mut(index) {
                gpu.partitioned = true;
            }
        }
        for (index, fabric) in fabrics {
            if let Some(gpu) = answers.gpus.get_mut(index) {
                gpu.fabric = Some(fabric);
            }
        }
        for (index, number) in needs {
            if let Some(gpu) = answers.gpus.get_mut(index) {
                gpu.needs = Recovery::of(number).needed();
            }
        }
        for (index, minor) in minors {
            if let Some(gpu) = answers.gpus.get_mut(index) {
                gpu.minor = Some(minor);
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
            minor: None,
            partitioned: false,
            instances: Vec::new(),
            fabric: None,
            needs: None,
        }
    }
}

/// A GPU's index and a number that is said of it, as in `0:2`.
fn numbered(of: &str) -> Option<(usize, u32)> {
    let (index, number) = of.split_once(':')?;
    Some((index.parse().ok()?, number.parse().ok()?))
}

/// A GPU's index and what NVLink connects it to, as in `0:9a5c1f00-2b3d-4e5f-8a9b-0c1d2e3f4a5b:3`.
fn fabric(of: &str) -> Option<(usize, String)> {
    let (index, of) = of.split_once(':')?;
    let (cluster, part) = of.split_once(':')?;
    Some((index.parse().ok()?, format!("{cluster}.{part}")))
}

/// An instance, as in `1:0:MIG-5a:1g.5gb:4294967296`.
fn instance(of: &str) -> Option<MigInstance> {
    let mut parts = of.split(':');
    let mut next = || parts.next().map(str::trim);
    let (gpu_instance, compute_instance) = (next()?.parse().ok(), next()?.parse().ok());
    let uuid = next().filter(|uuid| !uuid.is_empty()).map(str::to_owned);
    let profile = profile_in(&format!("MIG {}", next()?))?;
    let memory_bytes = next().and_then(|bytes| bytes.parse().ok());
    Some(MigInstance { uuid, profile, memory_bytes, gpu_instance, compute_instance, nodes: Vec::new() })
}

/// A place on the PCI bus as the kernel writes it: NVML writes the domain with eight digits, the kernel with four.
pub fn short_address(address: &str) -> String {
    let lower = address.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => format!("{}:{rest}", &domain[4..]),
        _ => lower,
    }
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
            Gpu {
                name: Some("NVIDIA L4".to_owned()),
                pci_address: Some("0000:5e:00.0".to_owned()),
                minor: Some(1),
                ..Gpu::default()
            }
        );
    }
}
