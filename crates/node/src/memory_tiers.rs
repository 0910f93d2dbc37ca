//! What of that which keeps processes to the memory of a device works on this machine.

use crate::control_groups::why_no_device_memory;
use crate::device_client::sees_all;
use crate::limits::{Limits, read};
use oxiray_accelerators::{DeviceOffer, DeviceProcesses, Host, Offer};
use oxiray_families::HostFacts as _;
use oxiray_machine::{AskedTier, MemoryPlan};
use oxiray_resources::ResourceName;
use oxiray_wire::state::MemoryTier;
use std::collections::BTreeMap;
use std::path::Path;

/// Says which tiers are used, in order.
pub(crate) const ENFORCEMENT_VARIABLE: &str = "OXIRAY_GPU_MEMORY_ENFORCEMENT";
/// Names the library that is loaded before CUDA's.
pub(crate) const LIBRARY_VARIABLE: &str = "OXIRAY_GPU_MEMORY_LIBRARY";
/// Where the control daemon of an MPS server is spoken to.
const PIPES_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Asks that daemon for its servers, which it answers whether there are any or not.
const MPS_QUESTION: &str = "echo get_server_list | nvidia-cuda-mps-control";
/// The only family whose memory is kept by MPS and by libraries before CUDA's.
const NVIDIA: &str = "nvidia";

/// The families whose drivers tell the kernel what processes have of a device's memory.
const LIMITED_BY_KERNEL: [&str; 2] = ["amd", "intel"];
/// The file in the root of all control groups that names devices' memories, each with its size.
const CAPACITY: &str = "dmem.capacity";

/// Why memory of GPUs is not kept as was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryTierError {
    /// There is no such tier.
    #[error(
        "`{name}` is nothing that keeps memory of GPUs; --gpu-memory-enforcement= (or {ENFORCEMENT_VARIABLE}) is a list of {}, \
         each as it is or as `require:NAME`",
        words()
    )]
    Unknown {
        /// What was named.
        name: String,
    },
    /// The node is not to start without it.
    #[error(
        "--gpu-memory-enforcement=require:{tier}: it does not work here: {why}. Name it without `require:` to have it where it \
         works, or leave it out"
    )]
    Missing {
        /// What is required.
        tier: MemoryTier,
        /// Why it does not work.
        why: String,
    },
    /// There is no such library.
    #[error("--gpu-memory-library={path} (or {LIBRARY_VARIABLE}) is to be the absolute path of a library: {why}")]
    Library {
        /// What was named.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A library that nobody would load.
    #[error("--gpu-memory-library={path} is of use with `interposer` in --gpu-memory-enforcement only, which has none")]
    Unused {
        /// The library.
        path: String,
    },
}

fn words() -> String {
    let names: Vec<&str> = MemoryTier::ALL.iter().rev().map(|tier| tier.name()).collect();
    names.join(", ")
}

/// What was asked for, and works here. What was named and does not work comes along in words.
pub(crate) fn memory_plan(
    asked: Option<String>,
    library: Option<String>,
    (host, offer): (&Host, &Offer),
    limits: Option<&Limits>,
) -> Result<(MemoryPlan, Vec<String>), MemoryTierError> {
    let said = |given: Option<String>| given.map(|given| given.trim().to_owned()).filter(|given| !given.is_empty());
    let (asked, library) = (said(asked), said(library).unwrap_or_default());
    check_library(&library)?;
    let listed = asked.as_deref().map(AskedTier::list).transpose();
    let listed = listed.map_err(|name| MemoryTierError::Unknown { name })?;
    let all = || MemoryTier::ALL.iter().rev().map(|tier| AskedTier { tier: *tier, is_required: false }).collect();
    let is_listed = listed.is_some();
    let wanted: Vec<AskedTier> = listed.unwrap_or_else(all);
    if !library.is_empty() && wanted.iter().all(|asked| asked.tier != MemoryTier::Interposer) {
        return Err(MemoryTierError::Unused { path: library });
    }
    let mut plan = MemoryPlan { tiers: Vec::new(), library, regions: BTreeMap::new() };
    let mut warnings = Vec::new();
    let Some(gpus) = offer.of(ResourceName::GPU.as_str()) else { return Ok((plan, warnings)) };
    for AskedTier { tier, is_required } in wanted {
        let works = match tier {
            MemoryTier::Dmem => kernels_regions(gpus, limits).map(|regions| plan.regions = regions),
            _ => why_not(tier, &plan.library, gpus, (host, offer)).map_or(Ok(()), Err),
        };
        match works.err() {
            None => plan.tiers.push(tier),
            Some(why) if is_required => return Err(MemoryTierError::Missing { tier, why }),
            Some(why) if is_listed => {
                warnings.push(format!("memory of GPUs is not kept by `{tier}`, which does not work here: {why}"));
            }
            Some(_) => {}
        }
    }
    Ok((plan, warnings))
}

fn check_library(path: &str) -> Result<(), MemoryTierError> {
    let wrong = |why: &str| Err(MemoryTierError::Library { path: path.to_owned(), why: why.to_owned() });
    match Path::new(path) {
        _ if path.is_empty() => Ok(()),
        file if !file.is_absolute() => wrong("it is not absolute"),
        _ if path.contains([':', ' ']) => wrong("the dynamic linker takes no colons and no spaces"),
        file if !file.is_file() => wrong("there is no such file"),
        _ => Ok(()),
    }
}

/// Why a tier does not work for these GPUs; nothing where it does.
fn why_not(tier: MemoryTier, library: &str, gpus: &DeviceOffer, (host, offer): (&Host, &Offer)) -> Option<String> {
    let is_nvidias = gpus.family.key == NVIDIA;
    match tier {
        MemoryTier::None | MemoryTier::Framework | MemoryTier::Dmem => None,
        MemoryTier::Mig => {
            let has_parts = gpus.slots.iter().flatten().any(|slot| slot.is_part);
            (!has_parts).then(|| "no GPU that is offered here is an instance of a partitioned one (MIG)".to_owned())
        }
        MemoryTier::Watched => {
            let is_told = DeviceProcesses::of(host, offer).iter().any(|of| of.resource() == gpus.resource());
            let why = if !is_told {
                "no library reports who has memory of these GPUs"
            } else if !sees_all() {
                "processes have other numbers here than the GPUs' library gives them, as in most containers"
            } else {
                return None;
            };
            Some(why.to_owned())
        }
        MemoryTier::Interposer | MemoryTier::Mps if !is_nvidias => Some("these GPUs are not NVIDIA's".to_owned()),
        MemoryTier::Interposer => library.is_empty().then(|| "--gpu-memory-library names no library".to_owned()),
        MemoryTier::Mps => no_mps(host),
    }
}

/// What the kernel calls the memory of each GPU, by its place on the PCI bus, where it can keep processes to some of it; why it
/// cannot.
fn kernels_regions(gpus: &DeviceOffer, limits: Option<&Limits>) -> Result<BTreeMap<String, String>, String> {
    if !LIMITED_BY_KERNEL.contains(&gpus.family.key) {
        return Err(
            "only drivers of AMD's and Intel's GPUs are known to report to the kernel what processes have".to_owned()
        );
    }
    let limits = limits.ok_or("the limits of this process cannot be read")?;
    let root = limits.unified_root().ok_or("no control groups of version 2 are mounted, or this process is in none")?;
    let file = root.join(CAPACITY);
    let capacity = read(&file).ok_or_else(|| {
        format!("there is no {}: that takes Linux 6.14 or later with CONFIG_CGROUP_DMEM, and the root of all control groups", file.display())
    })?;
    let mut regions = BTreeMap::new();
    for address in gpus.slots.iter().flatten().filter_map(|slot| slot.pci_address.as_deref()) {
        let prefix = format!("drm/{address}/vram");
        let names = capacity.lines().filter_map(|line| line.split_whitespace().next());
        let mut of_device = names.filter(|name| name.starts_with(&prefix));
        match (of_device.next(), of_device.next()) {
            (Some(region), None) => drop(regions.insert(address.to_owned(), region.to_owned())),
            (None, _) => return Err(format!("{} has nothing about the GPU at {address}", file.display())),
            // Whose tiles are devices of their own here, and not to the kernel, or the other way round.
            (Some(_), Some(_)) => {
                return Err(format!("{} lists several memories of the GPU at {address}", file.display()));
            }
        }
    }
    if regions.is_empty() {
        return Err("the PCI addresses of the GPUs are not known".to_owned());
    }
    why_no_device_memory(limits).map_or(Ok(regions), Err)
}

/// Why no MPS server keeps memory; nothing where its control daemon answers.
fn no_mps(host: &Host) -> Option<String> {
    if host.variable(PIPES_VARIABLE).is_none_or(|given| given.trim().is_empty()) {
        return Some(format!("{PIPES_VARIABLE} is not set where the node is started"));
    }
    match host.run(&["/bin/sh"], &["-c", MPS_QUESTION]) {
        // Each server is a number on a line of its own.
        Ok(Some(said)) if said.split_whitespace().all(|word| word.parse::<u32>().is_ok()) => None,
        Ok(Some(said)) => Some(format!("the MPS control daemon says `{}`", said.trim())),
        Ok(None) => Some("there is no /bin/sh to ask the MPS control daemon with".to_owned()),
        Err(why) => Some(format!("the MPS control daemon does not answer: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_accelerators::{detect, offer};

    /// What a machine makes of a list and a library, whose MPS control daemon says this, where there is one.
    fn planned(asked: &str, library: &str, mps: Option<&str>) -> Result<(MemoryPlan, Vec<String>), MemoryTierError> {
        let root = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).expect("a file");
        let mut description = serde_json::json!({"environment": {}, "commands": {}});
        if let Some(said) = mps {
            description["environment"][PIPES_VARIABLE] = "/run/mps".into();
            description["commands"][format!("/bin/sh -c {MPS_QUESTION}")] =
                serde_json::json!({"stdout_file": "mps.txt"});
            write("mps.txt", said);
        }
        write("host.json", &description.to_string());
        let host = Host::recorded(root.path()).expect("a machine");
        let gpus = BTreeMap::from([("GPU".to_owned(), 1.0)]);
        let offer = offer(&detect(&host), &|_| None, &gpus).expect("an offer");
        memory_plan(Some(asked.to_owned()), Some(library.to_owned()), (&host, &offer), None)
    }

    #[test]
    fn what_does_not_work_is_told_of_and_refused_where_it_is_required() {
        let (plan, warnings) = planned("mps,framework,watched", "", None).expect("a plan");
        assert_eq!(plan.tiers, [MemoryTier::Framework]);
        assert!(
            warnings.len() == 2 && warnings[0].contains("`mps`") && warnings[0].contains(PIPES_VARIABLE),
            "{warnings:?}"
        );
        let error = planned("require:mps,framework", "", None).expect_err("there is none").to_string();
        assert!(error.starts_with("--gpu-memory-enforcement=require:mps: it does not work here"), "{error}");
        assert!(planned("", "", None).expect("by default").1.is_empty());
        let error = planned("framework,magic", "", None).expect_err("there is none").to_string();
        assert!(
            error.contains("`magic`") && error.contains("mig, dmem, mps, interposer, framework, watched, none"),
            "{error}"
        );
    }

    #[test]
    fn mps_is_used_where_its_control_daemon_answers() {
        assert_eq!(planned("", "", Some("4711\n")).expect("a plan").0.tiers[0], MemoryTier::Mps);
        assert_eq!(planned("require:mps", "", Some("")).expect("no server yet").0.tiers, [MemoryTier::Mps]);
        let error = planned("require:mps", "", Some("Cannot find MPS control daemon process\n")).expect_err("none");
        assert!(error.to_string().contains("says `Cannot find MPS control daemon process`"), "{error}");
    }

    #[test]
    fn a_library_is_there_and_used_or_refused() {
        let library = std::env::current_exe().expect("some file").display().to_string();
        let (plan, _) = planned("", &library, None).expect("a plan");
        assert_eq!((plan.tiers[0], &plan.library), (MemoryTier::Interposer, &library));
        assert!(matches!(planned("framework", &library, None), Err(MemoryTierError::Unused { .. })));
        assert!(matches!(planned("require:interposer", "", None), Err(MemoryTierError::Missing { .. })));
        for wrong in ["limit.so", "/no/such/library.so", "/lib/a:b.so"] {
            assert!(matches!(planned("", wrong, None), Err(MemoryTierError::Library { .. })), "{wrong}");
        }
    }

    /// What a recorded machine with eight GPUs of AMD's makes of a list, whose kernel tells this of their memory.
    fn planned_by_kernel(asked: &str, capacity: &str) -> Result<(MemoryPlan, Vec<String>), MemoryTierError> {
        let root = tempfile::tempdir().expect("a folder");
        let group = root.path().join("sys/fs/cgroup/node");
        std::fs::create_dir_all(root.path().join("proc/self")).expect("made");
        std::fs::create_dir_all(&group).expect("made");
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).expect("a file");
        write("proc/meminfo", "MemTotal: 1024 kB\n");
        write("proc/self/cgroup", "0::/node\n");
        write("proc/self/mountinfo", "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        if !capacity.is_empty() {
            write("sys/fs/cgroup/dmem.capacity", capacity);
        }
        write("sys/fs/cgroup/node/cgroup.controllers", "cpu dmem memory pids");
        write("sys/fs/cgroup/node/cgroup.subtree_control", "dmem");
        write("sys/fs/cgroup/node/cgroup.procs", &std::process::id().to_string());
        let limits = Limits::under(root.path());
        let (host, offer) = mi300x();
        memory_plan(Some(asked.to_owned()), None, (&host, &offer), limits.as_ref())
    }

    /// A recorded machine with eight GPUs.
    fn mi300x() -> (Host, Offer) {
        let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
        let host = Host::recorded(hosts.join("amd-mi300x8")).expect("a machine");
        let offer = offer(&detect(&host), &|_| None, &BTreeMap::new()).expect("an offer");
        (host, offer)
    }

    #[test]
    fn the_kernel_keeps_memory_where_it_knows_that_of_every_gpu() {
        let hint = |capacity: &str| match planned_by_kernel("require:dmem", capacity) {
            Err(MemoryTierError::Missing { tier: MemoryTier::Dmem, why }) => why,
            other => panic!("{capacity}: {other:?}"),
        };
        assert!(hint("").contains("dmem.capacity: that takes Linux 6.14"), "{}", hint(""));
        let other = hint("drm/0000:ff:00.0/vram 17163091968\n");
        assert!(other.contains("has nothing about the GPU at "), "{other}");
        let offer = mi300x().1;
        let slots = offer.of(ResourceName::GPU.as_str()).expect("GPUs").slots.iter().flatten();
        let regions: Vec<String> =
            slots.filter_map(|slot| Some(format!("drm/{}/vram", slot.pci_address.as_ref()?))).collect();
        let all = format!("{} 1000\n", regions.join(" 1000\n"));
        let (plan, _) = planned_by_kernel("require:dmem", &all).expect("it works");
        assert_eq!((plan.tiers, plan.regions.len()), (vec![MemoryTier::Dmem], 8));
        assert!(plan.regions.values().all(|region| regions.contains(region)));
        let tiles = hint(&format!("{all}{}1 1000\n", regions[7]));
        assert!(tiles.contains("lists several memories of the GPU at "), "{tiles}");
        let (_, warnings) = planned_by_kernel("dmem,framework", "").expect("it is not required");
        assert!(warnings[0].contains("not kept by `dmem`, which does not work here"), "{warnings:?}");
        let error = planned("require:dmem", "", None).expect_err("there is none").to_string();
        assert!(error.contains("only drivers of AMD's and Intel's GPUs"), "{error}");
    }

    #[test]
    fn parts_of_gpus_keep_memory_where_some_are_offered() {
        let error = planned("require:mig", "", None).expect_err("none is partitioned").to_string();
        assert!(error.contains("is an instance of a partitioned one (MIG)"), "{error}");
    }
}
