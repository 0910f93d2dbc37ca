//! Which device nodes a worker is kept from, and by what.
//!
//! - ISOLATION-1: a worker is said to be fenced only where its fence is in force before anything of the user's runs: a
//!   fence that cannot be made ends the worker.
//! - ISOLATION-2: a fence lets a worker open its *realm* and no other device: what it was granted, and within a placement
//!   group the devices of all bundles of that group on this machine.
//! - ISOLATION-3: a request has its worker kept from devices further than its node keeps all, and never less far.

use crate::memory_tiers::MemoryPlan;
use crate::names::Key;
use oxiray_accelerators::{DeviceNode, DeviceOffer, Offer, WorkerEnvironment, chooses_devices, hides_devices};
use oxiray_fence::{DenyList, DenyRule, Isolation, Mechanism, NodeKind};
use oxiray_wire::message::{AskedIsolation, DeviceNumber, Fence};
use oxiray_wire::state::{DeviceIsolation, DeviceTier, IsolationMode, MemoryTier, NodeIsolation};
use std::path::PathBuf;

/// Devices by resource and slot.
pub(crate) type Slots<'a> = Vec<(&'a str, Vec<u32>)>;

/// How far devices are to be kept from those that they were not granted to, and what this machine has for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsolationPlan {
    /// What the node was started with.
    pub asked: Isolation,
    /// Whether a worker is ended that has a device open which it was not granted.
    pub ends_violators: bool,
    /// By what the kernel refuses device nodes here, strongest first.
    pub mechanisms: Vec<Mechanism>,
    /// Why the others are not among them.
    pub why: String,
    /// Whether workers have the rights of root, for which every instance of a partitioned GPU is open, whatever its nodes are.
    pub is_root: bool,
    /// Whether a share of a GPU is a limit on its memory, as bytes that are asked for are.
    pub caps_shares: bool,
    /// What keeps processes to the memory of a device that they asked for.
    pub memory: MemoryPlan,
    /// Where the machine's files are, for one that was recorded; `/` for a real one.
    pub root: PathBuf,
    /// What was done so that fences are possible, for the log.
    pub notes: Vec<String>,
}

impl Default for IsolationPlan {
    fn default() -> Self {
        Self {
            asked: Isolation::Variable,
            ends_violators: false,
            mechanisms: Vec::new(),
            why: String::new(),
            is_root: false,
            caps_shares: false,
            memory: MemoryPlan::default(),
            root: PathBuf::from("/"),
            notes: Vec::new(),
        }
    }
}

/// A worker's cgroup is to refuse these devices from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFence {
    /// The worker.
    pub worker: Key,
    /// What it is refused.
    pub denied: DenyList,
}

/// How one worker is kept from devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// What its holder is shown.
    pub(crate) told: DeviceIsolation,
    /// What its cgroup is to refuse; nothing where it refuses it itself, or nobody does.
    pub(crate) by_cgroup: Option<DenyList>,
    /// What it is told; nothing where the kernel refuses it nothing.
    pub(crate) fence: Option<Fence>,
    /// Whether the fence lets it open a device.
    opens_devices: bool,
}

/// Why a request is not met where it was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It asks for less than its node does for all (ISOLATION-3).
    Weaker {
        /// What it asks for.
        asked: Isolation,
    },
    /// It must be fenced and cannot be.
    Unfenced {
        /// Whether it asked for that itself.
        is_own_wish: bool,
        /// What stands in the way.
        why: String,
    },
}

/// What a request asks for, where it says so.
pub(crate) fn asked_by(request: AskedIsolation) -> Option<Isolation> {
    match request {
        AskedIsolation::Unsaid => None,
        AskedIsolation::Variable => Some(Isolation::Variable),
        AskedIsolation::Watch => Some(Isolation::Watch),
        AskedIsolation::Fence => Some(Isolation::Fence),
        AskedIsolation::Require => Some(Isolation::Require),
    }
}

impl Decision {
    /// Whether it leaves the worker a device that others do not have: nobody else is to have the worker then.
    pub(crate) fn opens_devices(&self) -> bool {
        self.opens_devices
    }

    fn unfenced() -> Self {
        Self { told: DeviceIsolation::default(), by_cgroup: None, fence: None, opens_devices: false }
    }

    /// What is open of devices is looked at, where all their nodes are known. `why` nothing refuses it others, where that
    /// was asked for.
    fn watched(offer: &Offer, granted: &Slots<'_>, why: Option<String>) -> Self {
        let unknown = open_nodes(offer, granted, &Vec::new()).and_then(|_| numbers_of(&offer.device_nodes)).err();
        let tier = if unknown.is_none() { DeviceTier::Watched } else { DeviceTier::Variable };
        Self {
            told: DeviceIsolation { tier, reason: why.or(unknown).unwrap_or_default(), ..DeviceIsolation::default() },
            by_cgroup: None,
            fence: None,
            opens_devices: false,
        }
    }
}

impl IsolationPlan {
    /// Whether every worker is born in a cgroup that can refuse it devices at any time.
    pub(crate) fn births_fenced(&self) -> bool {
        self.asked >= Isolation::Fence && self.mechanisms.iter().any(|mechanism| *mechanism != Mechanism::Landlock)
    }

    /// How far a worker of a request is to be kept from devices (ISOLATION-3).
    pub(crate) fn of(&self, request: AskedIsolation) -> Isolation {
        asked_by(request).map_or(self.asked, |asked| asked.max(self.asked))
    }

    /// How a worker with these devices is kept from others, where its request asks for that.
    pub(crate) fn decide(
        &self,
        request: AskedIsolation,
        offer: &Offer,
        (granted, realm): (&Slots<'_>, &Slots<'_>),
        around: WorkerEnvironment<'_>,
    ) -> Result<Decision, Refusal> {
        if let Some(asked) = asked_by(request).filter(|asked| *asked < self.asked) {
            return Err(Refusal::Weaker { asked });
        }
        let wanted = self.of(request);
        let is_required = wanted == Isolation::Require;
        if wanted == Isolation::Watch {
            return Ok(Decision::watched(offer, granted, None));
        }
        if wanted < Isolation::Fence || granted.is_empty() && !is_required && !hides_devices(around) {
            return Ok(Decision::unfenced());
        }
        match self.fenced(offer, granted, realm, around) {
            Err(why) if is_required => Err(Refusal::Unfenced { is_own_wish: self.asked < Isolation::Require, why }),
            Err(why) => Ok(Decision::watched(offer, granted, Some(why))),
            Ok(fenced) => Ok(fenced),
        }
    }

    fn fenced(
        &self,
        offer: &Offer,
        granted: &Slots<'_>,
        realm: &Slots<'_>,
        around: WorkerEnvironment<'_>,
    ) -> Result<Decision, String> {
        if let Some(variable) = granted.iter().find_map(|(resource, _)| chooses_devices(offer, resource, around)) {
            return Err(format!("{variable} in its environment chooses devices past its grant"));
        }
        let is_of_parts = |resource: &str| offer.of(resource).is_some_and(DeviceOffer::is_of_parts);
        if self.is_root && granted.iter().any(|(resource, _)| is_of_parts(resource)) {
            return Err("root may use every MIG instance of a GPU that it can open".into());
        }
        if granted.is_empty() && offer.device_nodes.is_empty() {
            // There is no device that it could open.
            return Ok(Decision::unfenced());
        }
        let open = open_nodes(offer, granted, realm)?;
        let denied: Vec<&DeviceNode> = offer.device_nodes.iter().filter(|node| !open.contains(node)).collect();
        let numbers = numbers_of(denied.iter().copied())?;
        let bears = |mechanism: &&Mechanism| {
            **mechanism != Mechanism::Landlock || offer.devices.iter().all(|of| of.family.fencing.bears_landlock)
        };
        let Some(mechanism) = self.mechanisms.iter().find(bears) else {
            let unfit = "the libraries of these devices fail where Landlock refuses a node";
            return Err(if self.mechanisms.is_empty() { self.why.clone() } else { format!("{unfit}; {}", self.why) });
        };
        let rule = |of: &DeviceNumber| DenyRule { kind: NodeKind::Char, major: of.major, minor: Some(of.minor) };
        let list = DenyList::new(numbers.iter().map(rule)).map_err(|error| error.to_string())?;
        let (tier, is_by_cgroup) = (tier_of(*mechanism), *mechanism != Mechanism::Landlock);
        let path = |node: &&DeviceNode| self.root.join(node.path.trim_start_matches('/')).display().to_string();
        let paths = if is_by_cgroup { Vec::new() } else { denied.iter().map(path).collect() };
        Ok(Decision {
            told: DeviceIsolation { tier, ..DeviceIsolation::default() },
            by_cgroup: is_by_cgroup.then_some(list),
            fence: Some(Fence { denied: numbers, paths }),
            opens_devices: !open.is_empty(),
        })
    }

    /// How devices are kept, as people are told of a node: `one` is what a process with one device of it is told.
    pub(crate) fn of_node(&self, one: Result<Decision, Refusal>, watch_period_s: Option<u32>) -> NodeIsolation {
        let in_force = match one {
            Ok(decision) => decision.told,
            Err(Refusal::Unfenced { why, .. }) => DeviceIsolation { reason: why, ..DeviceIsolation::default() },
            Err(Refusal::Weaker { .. }) => DeviceIsolation::default(),
        };
        NodeIsolation {
            asked: match self.asked {
                Isolation::Variable => IsolationMode::Variable,
                Isolation::Watch => IsolationMode::Watch,
                Isolation::Fence => IsolationMode::Fence,
                Isolation::Require => IsolationMode::Require,
            },
            means: self.mechanisms.iter().copied().map(tier_of).collect(),
            in_force: in_force.tier,
            reason: in_force.reason,
            watch_period_s,
            memory_tiers: self.memory.tiers.iter().copied().filter(|tier| *tier != MemoryTier::None).collect(),
        }
    }

    /// A worker's cgroup did not take its fence, although one had when it was tried: no cgroup is counted on any more.
    pub(crate) fn breaks(&mut self, why: &str) {
        self.mechanisms.retain(|mechanism| *mechanism == Mechanism::Landlock);
        self.why = format!("a fence of another worker failed: {why}");
    }
}

/// What is in force by a mechanism.
fn tier_of(mechanism: Mechanism) -> DeviceTier {
    match mechanism {
        Mechanism::Cgroup => DeviceTier::Cgroup,
        Mechanism::Cgroup1 => DeviceTier::Cgroup1,
        Mechanism::Landlock => DeviceTier::Landlock,
    }
}

/// The kernel's numbers of nodes; an error where one is not known.
fn numbers_of<'a>(nodes: impl IntoIterator<Item = &'a DeviceNode>) -> Result<Vec<DeviceNumber>, String> {
    let numbers = nodes.into_iter().map(|node| {
        let number = node.number.ok_or_else(|| format!("the device number of {} is not known", node.path))?;
        Ok(DeviceNumber { major: number.major, minor: number.minor })
    });
    numbers.collect()
}

/// The nodes of a worker's realm; an error where it is not known which nodes a device of its own has.
fn open_nodes<'a>(offer: &'a Offer, granted: &Slots<'_>, realm: &Slots<'_>) -> Result<Vec<&'a DeviceNode>, String> {
    let nodes = |resource: &str, slot: u32| {
        let of = offer.of(resource)?.slots.get(slot as usize)?.as_ref()?;
        Some(of.nodes.as_slice()).filter(|nodes| !nodes.is_empty())
    };
    let each = |slots: &Slots<'_>| -> Vec<(String, u32)> {
        slots.iter().flat_map(|(name, of)| of.iter().map(|slot| ((*name).to_owned(), *slot))).collect()
    };
    if let Some((resource, slot)) = each(granted).iter().find(|(resource, slot)| nodes(resource, *slot).is_none()) {
        return Err(format!("it is not known which device nodes {resource} {slot} has"));
    }
    let all = each(granted).into_iter().chain(each(realm));
    Ok(all.filter_map(|(resource, slot)| nodes(&resource, slot)).flatten().collect())
}

#[cfg(test)]
mod tests;
