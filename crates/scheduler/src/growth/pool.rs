//! Machines as a plan fills them.

use std::collections::BTreeMap;

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Inventory, Ledger, ResourceName};

use super::domains::domain_key;
use super::{ReplicaState, Situation};
use crate::NodeView;
use crate::machine::{Machine, Names, ResourceAmount};
use crate::strategy::Selector;

/// What is to be placed.
#[derive(Debug)]
pub(super) struct Ask {
    needs: Vec<ResourceAmount>,
    /// By their numbers.
    devices: Vec<u32>,
    selectors: Vec<Selector>,
}

/// A machine, or one that is to come.
#[derive(Clone, Debug)]
struct Bin {
    machine: Machine,
    /// The accelerators that it has, by their numbers.
    devices: Vec<u32>,
    replica: Option<usize>,
}

/// One host of a group, as it comes.
type Host = (Machine, Vec<u32>);

/// The machines.
#[derive(Debug)]
pub(super) struct Pool {
    names: Names,
    bins: Vec<Bin>,
    /// The hosts of a replica of each group.
    fresh: Vec<Vec<Host>>,
    /// By the place of the replica: something was put there.
    used: Vec<bool>,
}

/// What there was before something was tried.
#[derive(Default)]
pub(super) struct Before(Vec<(usize, Machine)>);

impl Pool {
    /// The machines with what they have in total, or with what is free.
    pub(super) fn new(situation: &Situation, is_total: bool) -> Self {
        let mut names = Names::default();
        let fresh: Vec<Vec<Host>> = situation
            .groups
            .iter()
            .map(|of| {
                let group = &of.group;
                let mut labels = situation.domains_to_come(of);
                labels.extend(group.labels.clone());
                let first = host(&group.resources, Some(&group.first_host), &labels, &mut names);
                let other = host(&group.resources, None, &labels, &mut names);
                std::iter::once(first).chain((1..group.hosts).map(|_| other.clone())).collect()
            })
            .collect();
        let mut bins: Vec<(u64, Bin)> = Vec::with_capacity(situation.machines.len());
        for machine in situation.machines.iter().filter(|machine| !machine.is_leaving) {
            let state = machine.replica.and_then(|replica| situation.replicas.get(replica)).map(|found| found.state);
            if matches!(state, Some(ReplicaState::Leaving | ReplicaState::Coming)) {
                continue;
            }
            let mut seen = if is_total { machine.view.emptied() } else { machine.view.clone() };
            for label in situation.domain_labels() {
                let value = seen.labels.get(label).cloned();
                seen.labels.extend(value.map(|value| (domain_key(label), value)));
            }
            let devices = devices_of(&seen.inventory, &mut names);
            let bin = Bin { machine: Machine::new(&seen, &mut names), devices, replica: machine.replica };
            bins.push((order(state), bin));
        }
        // Who has been idle for long is filled last, so that it may go.
        bins.sort_by_key(|(order, _)| *order);
        let mut pool = Self {
            names,
            bins: bins.into_iter().map(|(_, bin)| bin).collect(),
            fresh,
            used: vec![false; situation.replicas.len()],
        };
        for (index, replica) in situation.replicas.iter().enumerate() {
            let group = situation.groups.iter().position(|of| of.group.name == replica.group);
            if let Some(group) = group.filter(|_| replica.state == ReplicaState::Coming) {
                pool.add(group, Some(index));
            }
        }
        pool
    }

    /// Adds a replica that the plan launches.
    pub(super) fn open(&mut self, group: usize) {
        self.add(group, None);
    }

    fn add(&mut self, group: usize, replica: Option<usize>) {
        let hosts = self.fresh[group].iter();
        let hosts = hosts.map(|(machine, devices)| Bin { machine: machine.clone(), devices: devices.clone(), replica });
        self.bins.extend(hosts);
    }

    /// What a demand asks for, under any of these labels.
    pub(super) fn ask(&mut self, demand: &Demand, selectors: &[Selector]) -> Ask {
        let devices = demand.devices().map(|(name, _)| self.names.number(name)).collect();
        Ask { needs: self.names.needs(demand), devices, selectors: selectors.to_vec() }
    }

    /// The domains of a label, those first in which the most machines have room for what is asked for.
    pub(super) fn domains(&self, label: &str, ask: &Ask) -> Vec<String> {
        let key = domain_key(label);
        let mut rooms: BTreeMap<&str, usize> = BTreeMap::new();
        for machine in self.fresh.iter().flatten().map(|(machine, _)| machine) {
            if let Some(value) = machine.labels.get(&key) {
                rooms.entry(value).or_default();
            }
        }
        for bin in &self.bins {
            if let Some(value) = bin.machine.labels.get(&key) {
                *rooms.entry(value).or_default() += usize::from(bin.machine.fits(&ask.needs));
            }
        }
        let mut domains: Vec<(&str, usize)> = rooms.into_iter().collect();
        domains.sort_by_key(|(_, rooms)| std::cmp::Reverse(*rooms));
        domains.into_iter().map(|(value, _)| value.to_owned()).collect()
    }

    /// Whether something was put on a replica.
    pub(super) fn is_used(&self, replica: usize) -> bool {
        self.used[replica]
    }

    /// Places as many as there is room for on the machines from `from` on, at most `count`, and says how many.
    pub(super) fn place(&mut self, ask: &Ask, count: u32, from: usize) -> u32 {
        let mut left = count;
        // GROWTH-5: first where nothing is kept from others.
        for spares in [true, false] {
            for index in from..self.bins.len() {
                if left == 0 {
                    return count;
                }
                if (self.bins[index].spared(ask) == 0) == spares {
                    left -= self.fill(index, ask, left);
                }
            }
        }
        count - left
    }

    fn fill(&mut self, index: usize, ask: &Ask, most: u32) -> u32 {
        let bin = &mut self.bins[index];
        if !bin.machine.fits(&ask.needs) || bin.rank(ask).is_none() {
            return 0;
        }
        let mut placed = 0;
        while placed < most && bin.machine.take(&ask.needs) {
            placed += 1;
            // What asks for nothing fits without end.
            if ask.needs.is_empty() {
                placed = most;
            }
        }
        if let Some(replica) = bin.replica {
            self.used[replica] = true;
        }
        placed
    }

    /// How well a new replica of a group serves: the place of the first selector that its machines match, how many
    /// accelerators it has that are not asked for, and how much of it is used then, in thousandths. Nothing where it
    /// does not serve.
    pub(super) fn judge(&self, group: usize, ask: &Ask, left: u32) -> Option<(usize, usize, u64)> {
        let hosts = &self.fresh[group];
        let (first, others) = hosts.split_first()?;
        let is_met = |(machine, _): &&Host| machine.could_ever(&ask.needs);
        let meeting = std::iter::once(first).chain(others.first()).find(is_met)?;
        let rank = rank(&meeting.0, ask)?;
        let spared = meeting.1.iter().filter(|device| !ask.devices.contains(device)).count();
        let fit = u64::from(meeting.0.times(&ask.needs)) * hosts.len() as u64;
        let used = 1000 * u64::from(left).min(fit) / fit.max(1);
        // Of machines that are filled alike, those are better of which more is used.
        Some((rank, spared, used * 1000 + meeting.0.share_of(&ask.needs, fit / hosts.len() as u64)))
    }

    /// Places one on a machine that is not among those, and says which.
    pub(super) fn place_one(&mut self, ask: &Ask, apart_from: &[usize], before: &mut Before) -> Option<usize> {
        let fits = |bin: &usize| {
            let found = &self.bins[*bin];
            found.machine.fits(&ask.needs) && found.rank(ask).is_some() && !apart_from.contains(bin)
        };
        let sparing = (0..self.bins.len()).filter(fits).find(|bin| self.bins[*bin].spared(ask) == 0);
        let bin = sparing.or_else(|| (0..self.bins.len()).find(fits))?;
        before.0.push((bin, self.bins[bin].machine.clone()));
        self.bins[bin].machine.take(&ask.needs);
        Some(bin)
    }

    /// Places all asks on one machine.
    pub(super) fn place_together(&mut self, asks: &[&Ask]) -> bool {
        for bin in 0..self.bins.len() {
            let mut machine = self.bins[bin].machine.clone();
            let fits = |ask: &&&Ask| rank(&self.bins[bin].machine, ask).is_some();
            if asks.iter().filter(fits).count() == asks.len() && asks.iter().all(|ask| machine.take(&ask.needs)) {
                self.bins[bin].machine = machine;
                self.use_all(&[bin]);
                return true;
            }
        }
        false
    }

    /// Whether one new host of a group has room for all asks.
    pub(super) fn has_together(&self, group: usize, asks: &[&Ask]) -> bool {
        let hosts = &self.fresh[group];
        [hosts.first(), hosts.last()].into_iter().flatten().any(|(host, _)| {
            let mut machine = host.clone();
            asks.iter().all(|ask| rank(host, ask).is_some() && machine.take(&ask.needs))
        })
    }

    /// Something was put on these machines.
    pub(super) fn use_all(&mut self, bins: &[usize]) {
        for replica in bins.iter().filter_map(|bin| self.bins[*bin].replica) {
            self.used[replica] = true;
        }
    }

    /// Takes back what was tried.
    pub(super) fn restore(&mut self, before: Before) {
        for (bin, machine) in before.0.into_iter().rev() {
            self.bins[bin].machine = machine;
        }
    }

    /// How many machines there are.
    pub(super) fn len(&self) -> usize {
        self.bins.len()
    }

    /// Takes back machines that were opened last.
    pub(super) fn close(&mut self, len: usize) {
        self.bins.truncate(len);
    }
}

impl Bin {
    fn rank(&self, ask: &Ask) -> Option<usize> {
        rank(&self.machine, ask)
    }

    /// How many of its accelerators are not asked for.
    fn spared(&self, ask: &Ask) -> usize {
        self.devices.iter().filter(|device| !ask.devices.contains(device)).count()
    }
}

fn rank(machine: &Machine, ask: &Ask) -> Option<usize> {
    ask.selectors.iter().position(|selector| selector.matches(&machine.labels))
}

/// What stays is filled first, then what may go, those that were used last first.
fn order(state: Option<ReplicaState>) -> u64 {
    match state {
        None => 0,
        Some(ReplicaState::Idle(idle_ms)) => idle_ms.saturating_add(2),
        Some(_) => 1,
    }
}

fn devices_of(inventory: &Inventory, names: &mut Names) -> Vec<u32> {
    inventory.totals().filter(|(name, _)| name.is_device()).map(|(name, _)| names.number(name)).collect()
}

/// A host with nothing on it.
fn host(resources: &Inventory, more: Option<&Inventory>, labels: &BTreeMap<String, String>, names: &mut Names) -> Host {
    let both = more.map_or_else(|| resources.clone(), |more| sum(resources, more));
    let view = NodeView::new(NodeId::NIL, &Ledger::new(both), labels.clone());
    (Machine::new(&view, names), devices_of(&view.inventory, names))
}

/// What two inventories offer together.
pub(super) fn sum(one: &Inventory, other: &Inventory) -> Inventory {
    let named: std::collections::BTreeSet<&ResourceName> =
        one.totals().chain(other.totals()).map(|(name, _)| name).collect();
    let amounts = named.into_iter().map(|name| {
        let amount = one.total(name.as_str()).as_f64() + other.total(name.as_str()).as_f64();
        (name.clone(), amount)
    });
    let Ok(mut both) = Inventory::new(amounts) else { return one.clone() };
    for resource in ResourceName::devices() {
        let sizes: Vec<u64> = [one, other].into_iter().flat_map(|part| part.device_memory(resource.as_str())).collect();
        both = both.with_device_memory(resource, sizes);
    }
    both
}
