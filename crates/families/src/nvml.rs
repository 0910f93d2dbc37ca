//! What NVIDIA's management library answers when it is asked what a machine has.

use crate::Recovery;
use crate::mig::{MigInstance, profile_in};
use crate::pairs::{Pair, PeerFault};

/// What NVML calls the fields that count a GPU's pages of memory that were taken out of use: after single-bit errors, and after
/// double-bit ones.
pub const RETIRED_PAGES: [usize; 2] = [29, 30];

/// What is said of GPUs besides their lines.
const SAID: &[&str] = &["driver", "mig", "minor", "fabric", "recovery", "persistence", "field", "pair", FAULTS];
/// What is said of the links between two.
const FAULTS: &str = "p2p";

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
    /// Whether its driver keeps it ready while nobody uses it (persistence mode).
    pub is_persistent: Option<bool>,
    /// How many pages of its memory were taken out of use, where it does that.
    pub retired_pages: Option<u64>,
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
    /// is partitioned, `mig=0:1:0:MIG-5a:1g.5gb:4294967296` that it has an instance (those of the GPU and of the processors in it by the driver's numbers), `fabric=0:9a5c1f00-2b3d-4e5f-8a9b-0c1d2e3f4a5b:3` that NVLink connects it to part 3 of that cluster, `minor=0:2` that its device node is `/dev/nvidia2` (else the one of its place), `recovery=0:3` that its driver needs recovery action 3, `persistence=0:1` that its driver keeps it ready, `field=0:30:2` that NVML's field 30 of it is 2, `pair=0:1:NODE,NV4` how two are connected (see [`Pair`]), `p2p=0:1:4` that their links are of no use (see [`PeerFault`]), and `#` starts a
    /// comment.
    pub fn parse(text: &str) -> Self {
        let (mut answers, mut said) = (Self::default(), Vec::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once('=') {
                Some((what, of)) if SAID.contains(&what) => said.push((what, of)),
                // Who uses an instance, and other things that only the library reads.
                Some(("uses", _)) => {}
                _ => answers.gpus.push(Gpu { minor: Some(answers.gpus.len() as u32), ..Gpu::parse(line) }),
            }
        }
        // What is wrong here says nothing.
        // Links are known before it is said of them that they are of no use.
        let (faults, facts): (Vec<_>, Vec<_>) = said.into_iter().partition(|(what, _)| *what == FAULTS);
        for (what, of) in facts {
            let _ = answers.take(what, of);
        }
        for (_, of) in faults {
            let _ = answers.take_fault(of);
        }
        answers
    }

    fn take(&mut self, what: &str, of: &str) -> Option<()> {
        match what {
            "driver" => self.driver = Some(of.to_owned()),
            "pair" => self.pairs.push(Pair::parse(of)?),
            "mig" if !of.contains(':') => self.gpus.get_mut(of.parse::<usize>().ok()?)?.partitioned = true,
            _ => {
                let (index, of) = of.split_once(':')?;
                self.gpus.get_mut(index.parse::<usize>().ok()?)?.take(what, of)?;
            }
        }
        Some(())
    }

    /// Two GPUs and a number, as in `0:1:4`.
    fn take_fault(&mut self, of: &str) -> Option<()> {
        let (one, of) = of.split_once(':')?;
        let (one, (other, number)) = (one.parse().ok()?, numbered(of)?);
        let is_it = |pair: &&mut Pair| (pair.one, pair.other) == (one, other) && pair.links > 0;
        self.pairs.iter_mut().find(is_it)?.fault = PeerFault::of(number);
        Some(())
    }
}

impl Gpu {
    /// What is said of it besides its line.
    fn take(&mut self, what: &str, of: &str) -> Option<()> {
        match what {
            "mig" => {
                self.instances.push(instance(of)?);
                self.partitioned = true;
            }
            "minor" => self.minor = Some(of.parse().ok()?),
            "fabric" => {
                let (cluster, part) = of.split_once(':')?;
                self.fabric = Some(format!("{cluster}.{part}"));
            }
            "recovery" => self.needs = Recovery::of(of.parse().ok()?).needed(),
            "persistence" => self.is_persistent = Some(of != "0"),
            "field" => {
                let (field, value) = numbered(of)?;
                if RETIRED_PAGES.contains(&field) {
                    *self.retired_pages.get_or_insert(0) += u64::from(value);
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn parse(line: &str) -> Self {
        let mut fields = line.split('|').map(str::trim).map(|field| (!field.is_empty()).then_some(field));
        let mut next = || fields.next().flatten();
        Self {
            name: next().map(str::to_owned),
            uuid: next().map(str::to_owned),
            pci_address: next().map(short_address),
            memory_bytes: next().and_then(|bytes| bytes.parse().ok()),
            ..Self::default()
        }
    }
}

/// A number and what is said of it in another one, as in `0:2`.
fn numbered(of: &str) -> Option<(usize, u32)> {
    let (index, number) = of.split_once(':')?;
    Some((index.parse().ok()?, number.parse().ok()?))
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
