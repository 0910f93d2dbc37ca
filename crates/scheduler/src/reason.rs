//! Why a demand is not placed, in words for the person who made it.

use std::collections::BTreeSet;
use std::fmt;

use oxiray_ids::NodeId;
use oxiray_resources::{Busy, Demand, Quantity, ResourceName, size_in_words};

use crate::{NodeView, Selector};

/// The most names a message lists.
const LISTED_MAX: usize = 20;

/// Why a demand is not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What was asked for.
    pub demand: Demand,
    /// Which machines it was asked of, in words with a space before them; empty for all.
    pub among: String,
    /// What stands in the way.
    pub obstacle: Obstacle,
}

/// What stands in a demand's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The first machine that could ever meet the demand has too little free of a resource.
    Busy(Busy),
    /// No machine has so much of a resource.
    TooLarge {
        /// The resource.
        resource: ResourceName,
        /// How much was asked for.
        asked: Quantity,
        /// The most that one machine has.
        largest: Quantity,
    },
    /// No machine has an accelerator of the type.
    UnknownAcceleratorType {
        /// The type asked for.
        asked: String,
        /// The types there are, in order.
        existing: Vec<String>,
    },
    /// No machine offers the custom resource.
    UnknownResource {
        /// The resource.
        resource: ResourceName,
        /// How much was asked for.
        asked: Quantity,
        /// The custom resources that are offered, in order.
        existing: Vec<ResourceName>,
    },
    /// Each resource is on some machine, and all together on none.
    NotTogether,
    /// There is no machine.
    NoMachines,
    /// The one machine that may be taken is not part of the cluster.
    Gone(NodeId),
    /// The one machine that may be taken is busy, and the request says not to wait for it.
    Occupied(Busy),
    /// No machine has such labels.
    NoLabels {
        /// What was asked of the labels.
        conditions: String,
        /// What each machine has in place of it.
        machines: Vec<String>,
    },
}

impl Reason {
    fn new(demand: &Demand, among: &str, obstacle: Obstacle) -> Self {
        Self { demand: demand.clone(), among: among.to_owned(), obstacle }
    }

    pub(crate) fn busy(demand: &Demand, busy: Busy, among: &str) -> Self {
        Self::new(demand, among, Obstacle::Busy(busy))
    }

    pub(crate) fn occupied(demand: &Demand, busy: Busy, among: &str) -> Self {
        Self::new(demand, among, Obstacle::Occupied(busy))
    }

    pub(crate) fn gone(demand: &Demand, node: NodeId) -> Self {
        Self::new(demand, "", Obstacle::Gone(node))
    }

    /// Why none of `nodes` could meet `demand` with nothing running on them.
    pub(crate) fn never(nodes: &[&NodeView], demand: &Demand, among: &str) -> Self {
        let obstacle = if nodes.is_empty() { Obstacle::NoMachines } else { obstacle(nodes, demand) };
        Self::new(demand, among, obstacle)
    }

    /// That no machine has labels that `selector` matches.
    pub(crate) fn no_labels(nodes: &[NodeView], demand: &Demand, selector: &Selector) -> Self {
        let machines = nodes.iter().map(|view| {
            let unmet = selector.0.iter().find(|condition| !condition.holds(&view.labels));
            let value = unmet.map(|condition| match view.labels.get(&condition.key) {
                Some(value) => format!("`{}` is `{value}`", condition.key),
                None => format!("there is no `{}`", condition.key),
            });
            format!("on {} {}", view.node.hex(), value.unwrap_or_default())
        });
        let machines = machines.take(LISTED_MAX).collect();
        Self::new(demand, "", Obstacle::NoLabels { conditions: selector.to_string(), machines })
    }

    /// The sentence for the person who asked; `label` says on whose behalf: "task `train`".
    pub fn message(&self, label: &str) -> String {
        let demand = format!("{}{}", self.demand, self.among);
        match &self.obstacle {
            Obstacle::Busy(busy) => format!("{label} waits for {demand}: {busy}"),
            Obstacle::TooLarge { resource, asked, largest } => {
                let most = if resource.is_device_memory() {
                    let devices = resource.source();
                    match largest.wholes() {
                        0 => format!("no machine has a {devices} of a known size"),
                        bytes => format!("the largest {devices} has {}", size_in_words(bytes)),
                    }
                } else if largest.is_zero() {
                    format!("no machine has any {resource}")
                } else {
                    format!("the largest machine has {largest} {resource}")
                };
                format!("{label} asks for {demand}, but {most}; {}", advice(resource, *asked))
            }
            Obstacle::UnknownAcceleratorType { asked, existing } => {
                let there_is = list("the types there are", "no machine names the type of its accelerators", existing);
                format!(
                    "{label} asks for {demand}, but no machine has accelerators of type `{asked}`; {there_is}; \
                     change accelerator_type, or add a machine that has them"
                )
            }
            Obstacle::UnknownResource { resource, asked, existing } => {
                let there_is = list("the custom resources there are", "there are no custom resources", existing);
                let advice = advice(resource, *asked);
                format!("{label} asks for {demand}, but no machine offers `{resource}`; {there_is}; {advice}")
            }
            Obstacle::NotTogether => format!(
                "{label} asks for {demand}; each is on some machine, but no machine has all of it; ask for less at \
                 once, or add a machine that has all of it"
            ),
            Obstacle::Gone(node) => format!(
                "{label} asks for {demand} on machine {}, which is dead or never was in this cluster; name one that \
                 nodes() shows alive, or pass soft=True to run elsewhere",
                node.hex()
            ),
            Obstacle::Occupied(busy) => format!(
                "{label} asks for {demand}, which is busy: {busy}; leave _fail_on_unavailable out to wait for it"
            ),
            Obstacle::NoLabels { conditions, machines } => format!(
                "{label} asks for {demand} where {conditions}, but no machine has such labels ({}); change the \
                 selector, or start a machine with these labels",
                machines.join(", ")
            ),
            Obstacle::NoMachines => {
                format!("{label} asks for {demand}, but the cluster has no machines; start one with `oxiray start`")
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message("a request"))
    }
}

fn obstacle(nodes: &[&NodeView], demand: &Demand) -> Obstacle {
    for (resource, asked) in demand.iter() {
        let largest = nodes.iter().map(|view| view.inventory.most(resource)).max().unwrap_or_default();
        if asked <= largest {
            continue;
        }
        if largest.is_zero()
            && let Some(accelerator) = resource.as_accelerator_type()
        {
            let existing = offered(nodes, |name| name.as_accelerator_type().map(str::to_owned));
            return Obstacle::UnknownAcceleratorType { asked: accelerator.to_owned(), existing };
        }
        if largest.is_zero() && resource.is_custom() {
            let existing = offered(nodes, |name| name.is_custom().then(|| name.clone()));
            return Obstacle::UnknownResource { resource: resource.clone(), asked, existing };
        }
        return Obstacle::TooLarge { resource: resource.clone(), asked, largest };
    }
    Obstacle::NotTogether
}

/// What `select` makes of the resources of all machines: each once, in order.
fn offered<T: Ord>(nodes: &[&NodeView], select: impl Fn(&ResourceName) -> Option<T>) -> Vec<T> {
    let names = nodes.iter().flat_map(|view| view.inventory.totals().map(|(name, _)| name));
    names.filter_map(select).collect::<BTreeSet<T>>().into_iter().collect()
}

fn list(title: &str, none: &str, names: &[impl fmt::Display]) -> String {
    if names.is_empty() {
        return none.to_owned();
    }
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{title}: {}{more}", shown.join(", "))
}

/// What to change where `asked` of `resource` is more than any machine has.
fn advice(resource: &ResourceName, asked: Quantity) -> String {
    let wholes = asked.units().div_ceil(Quantity::UNITS_PER_WHOLE);
    match resource.as_str() {
        "CPU" => start_with_more("num_cpus", wholes),
        "GPU" => start_with_more("num_gpus", wholes),
        "object_store_memory" => start_with_more("object_store_memory", wholes),
        _ if resource.is_device_memory() => {
            "lower gpu_memory, or add a machine with larger GPUs; where the size of GPUs \
             is not found, say it: init(gpu_memory=BYTES) or `oxiray start --gpu-memory=BYTES`"
                .to_owned()
        }
        "memory" => "lower memory, or add a machine that has as much".to_owned(),
        name => format!(
            "lower it in resources, or start the cluster with more: init(resources={{\"{name}\": {wholes}}}) or \
             `oxiray start --resources='{{\"{name}\": {wholes}}}'`"
        ),
    }
}

fn start_with_more(option: &str, wholes: u64) -> String {
    let flag = option.replace('_', "-");
    format!(
        "lower {option}, or start the cluster with more: init({option}={wholes}) or `oxiray start --{flag}={wholes}`"
    )
}
