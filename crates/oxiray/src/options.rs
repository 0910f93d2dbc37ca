//! What a task or an actor may ask for.

use crate::error::{Error, Result};
use crate::group::PlacementGroup;
use crate::{context, folder, program};
use bytes::Bytes;
use oxiray_client::demand::{ActorDemand, DEFAULT_MAX_RETRIES, Quantities, TaskDemand};
use oxiray_client::{assigned, demand, isolation};
use oxiray_families::{GPU, check_quantity};
use oxiray_ids::{BundleNumber, NodeId};
use oxiray_resources::{Quantity, ResourceName};
use oxiray_runtime::Class;
use oxiray_wire::message::{
    AskedIsolation, Environment, LabelCondition, LabelOperator, LabelSelector, Strategy, StrategyKind, Variable,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a task or an actor is to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// On any machine, chosen the default way.
    #[default]
    Default,
    /// On machines in turn.
    Spread,
    /// On the node with this identifier, 56 hexadecimal digits; with `soft` on another where that one is gone.
    Node {
        /// The node.
        id: String,
        /// Whether another will do.
        soft: bool,
    },
}

/// What tasks and actors have in common.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
    pub(crate) num_cpus: Option<f64>,
    resources: Quantities,
    variables: BTreeMap<String, String>,
    working_dir: Option<PathBuf>,
    scheduling: Scheduling,
    labels: BTreeMap<String, String>,
    group: Option<(PlacementGroup, Option<u32>)>,
    priority: Option<i32>,
    preemptible: Option<bool>,
    device_isolation: Option<String>,
}

/// What a task asks for besides what its `#[remote(…)]` says, which this replaces option by option.
///
/// ```
/// let options = oxiray::TaskOptions::new().num_cpus(2.0).num_gpus(0.5).max_retries(0);
/// # drop(options);
/// ```
#[derive(Debug, Clone, Default)]
pub struct TaskOptions {
    pub(crate) shared: Shared,
    max_calls: Option<u32>,
    max_retries: Option<i32>,
    retry_exceptions: Option<bool>,
    max_unread: Option<u32>,
    name: Option<String>,
}

/// What an actor asks for besides what its `#[remote(…)]` says, which this replaces option by option.
#[derive(Debug, Clone, Default)]
pub struct ActorOptions {
    pub(crate) shared: Shared,
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) detached: Option<bool>,
    pub(crate) get_if_exists: Option<bool>,
    pub(crate) max_concurrency: Option<u32>,
    pub(crate) groups: BTreeMap<String, u32>,
    pub(crate) max_restarts: Option<i32>,
    pub(crate) max_task_retries: Option<i32>,
}

macro_rules! shared_options {
    ($options:ty) => {
        impl $options {
            /// Nothing said yet.
            pub fn new() -> Self {
                Self::default()
            }

            /// How many CPUs; a task takes one where nothing is said.
            #[must_use]
            pub fn num_cpus(mut self, count: f64) -> Self {
                self.shared.num_cpus = Some(count);
                self
            }

            /// How many GPUs: a whole number, or a share of one.
            #[must_use]
            pub fn num_gpus(self, count: f64) -> Self {
                self.resource(GPU.name, count)
            }

            /// How urgent it is, from -1000 to 1000: the higher one goes first. As what calls it where nothing is said.
            #[must_use]
            pub fn priority(mut self, priority: i32) -> Self {
                self.shared.priority = Some(priority);
                self
            }

            /// Whether it may end early where something of a higher priority waits for what it holds, in a cluster with
            /// `--preemption=on`. It is run, or made, again then, whatever retries and restarts it has. It may ask with
            /// [`preempted`](crate::preempted).
            #[must_use]
            pub fn preemptible(mut self, may: bool) -> Self {
                self.shared.preemptible = Some(may);
                self
            }

            /// How far its process is kept from devices that it was not granted: `watch`, `fence` or `require`. As its node was
            /// started where nothing is said; a mode that is weaker than that is refused.
            #[must_use]
            pub fn device_isolation(mut self, mode: &str) -> Self {
                self.shared.device_isolation = Some(mode.to_owned());
                self
            }

            /// Bytes of the memory of one GPU, in place of a number of GPUs or a share of one.
            #[must_use]
            pub fn gpu_memory(self, bytes: u64) -> Self {
                self.resource(ResourceName::GPU_MEMORY.as_str(), bytes as f64)
            }

            /// Bytes of memory.
            #[must_use]
            pub fn memory(self, bytes: u64) -> Self {
                self.resource("memory", bytes as f64)
            }

            /// How much of any resource, such as `TPU`.
            #[must_use]
            pub fn resource(mut self, name: &str, quantity: f64) -> Self {
                self.shared.resources.insert(name.to_owned(), quantity);
                self
            }

            /// Only on machines with this type of accelerator, such as `H100`.
            #[must_use]
            pub fn accelerator_type(self, name: &str) -> Self {
                let (resource, share) = demand::accelerator_type(name);
                self.resource(&resource, share)
            }

            /// An environment variable for its process.
            #[must_use]
            pub fn env_var(mut self, name: &str, value: &str) -> Self {
                self.shared.variables.insert(name.to_owned(), value.to_owned());
                self
            }

            /// A folder, or a `.zip` file, whose content is shipped to wherever it runs, and the directory that it runs in;
            /// its job's where nothing is said.
            ///
            /// It is shipped once, as it is when a call first names it, without `.git` and without folders that are marked
            /// as caches (`CACHEDIR.TAG`), as cargo's `target` is. Processes share what was unpacked: write elsewhere.
            #[must_use]
            pub fn working_dir(mut self, folder: impl AsRef<Path>) -> Self {
                self.shared.working_dir = Some(folder.as_ref().to_owned());
                self
            }

            /// Where it is to run.
            #[must_use]
            pub fn scheduling(mut self, scheduling: Scheduling) -> Self {
                self.shared.scheduling = scheduling;
                self
            }

            /// Only on machines with this label.
            #[must_use]
            pub fn label(mut self, key: &str, value: &str) -> Self {
                self.shared.labels.insert(key.to_owned(), value.to_owned());
                self
            }

            /// Within a placement group, in the bundle of this number, counted from 0, or in any.
            #[must_use]
            pub fn placement_group(mut self, group: &PlacementGroup, bundle: Option<u32>) -> Self {
                self.shared.group = Some((group.clone(), bundle));
                self
            }
        }
    };
}

shared_options!(TaskOptions);
shared_options!(ActorOptions);

impl Shared {
    fn over(self, base: Self) -> Self {
        let mut resources = base.resources;
        resources.extend(self.resources);
        let mut variables = base.variables;
        variables.extend(self.variables);
        let mut labels = base.labels;
        labels.extend(self.labels);
        Self {
            num_cpus: self.num_cpus.or(base.num_cpus),
            resources,
            variables,
            working_dir: self.working_dir.or(base.working_dir),
            scheduling: if self.scheduling == Scheduling::Default { base.scheduling } else { self.scheduling },
            labels,
            group: self.group.or(base.group),
            priority: self.priority.or(base.priority),
            preemptible: self.preemptible.or(base.preemptible),
            device_isolation: self.device_isolation.or(base.device_isolation),
        }
    }

    pub(crate) fn is_preemptible(&self) -> bool {
        self.preemptible.unwrap_or(false)
    }

    /// How urgent it is: as what calls it, unless something is said of it.
    pub(crate) fn priority(&self) -> Result<i32> {
        let priority = self.priority.unwrap_or_else(assigned::priority);
        if assigned::PRIORITIES.contains(&priority) {
            return Ok(priority);
        }
        let (least, most) = (assigned::PRIORITIES.start(), assigned::PRIORITIES.end());
        Err(Error::Invalid(format!("priority is {priority}: it is to be from {least} to {most}, the higher one first")))
    }

    pub(crate) fn environment(&self) -> Result<Environment> {
        let (variables, isolation) = (self.variables(), self.isolation()?);
        Ok(Environment { variables, isolation, ..program::environment(self.working_dir.as_deref())? })
    }

    fn isolation(&self) -> Result<AskedIsolation> {
        isolation::asked(self.device_isolation.as_deref().unwrap_or_default()).map_err(Error::Invalid)
    }

    /// The same where workers are Python's.
    pub(crate) fn environment_of_python(&self) -> Result<Environment> {
        let (variables, isolation) = (self.variables(), self.isolation()?);
        let Some(folder) = folder::chosen(self.working_dir.as_deref())? else {
            return Ok(Environment { variables, isolation, ..Environment::default() });
        };
        let preparation = serde_json::json!({ "packages": [(&folder.name, &folder.path)] }).to_string();
        let fields = serde_json::json!({ "working_dir": format!("{}{}", folder::SCHEME, folder.name) }).to_string();
        Ok(Environment { variables, preparation, fields, isolation, ..Environment::default() })
    }

    fn variables(&self) -> Vec<Variable> {
        let variable = |(name, value): (&String, &String)| Variable { name: name.clone(), value: Some(value.clone()) };
        self.variables.iter().map(variable).collect()
    }

    pub(crate) fn strategy(&self) -> Result<Option<Strategy>> {
        let selectors: Vec<LabelSelector> = if self.labels.is_empty() {
            Vec::new()
        } else {
            let condition = |(key, value): (&String, &String)| LabelCondition {
                key: key.clone(),
                operator: LabelOperator::In,
                values: vec![value.clone()],
            };
            vec![LabelSelector { conditions: self.labels.iter().map(condition).collect() }]
        };
        if let Some((group, bundle)) = &self.group {
            return Ok(Some(Strategy {
                kind: StrategyKind::Group,
                group: Some(group.id()),
                bundle: bundle.map(BundleNumber),
                ..Strategy::default()
            }));
        }
        if let (Scheduling::Default, Some(group)) = (&self.scheduling, context::capturing_group()) {
            return Ok(Some(Strategy {
                kind: StrategyKind::Group,
                group: Some(group),
                captures: true,
                ..Strategy::default()
            }));
        }
        Ok(match &self.scheduling {
            Scheduling::Default if selectors.is_empty() => None,
            Scheduling::Default => Some(Strategy { selectors, ..Strategy::default() }),
            Scheduling::Spread => Some(Strategy { kind: StrategyKind::Spread, selectors, ..Strategy::default() }),
            Scheduling::Node { id, soft } => {
                let node = NodeId::from_hex(id).map_err(|error| Error::Invalid(error.to_string()))?;
                Some(Strategy {
                    kind: StrategyKind::Node,
                    node: Some(node),
                    soft: *soft,
                    selectors,
                    ..Strategy::default()
                })
            }
        })
    }
}

/// Quantities as the ledger counts them; those of nothing are left out.
pub(crate) fn units(resources: &Quantities) -> Result<Units> {
    let mut counted = Vec::with_capacity(resources.len());
    for (name, quantity) in resources {
        check_quantity(name, *quantity).map_err(|error| Error::Invalid(error.to_string()))?;
        let units = Quantity::from_f64(*quantity)
            .map_err(|error| Error::Invalid(format!("{quantity} of resource `{name}` was asked for: {error}")))?
            .units();
        if units > 0 {
            counted.push((name.clone(), units));
        }
    }
    Ok(counted)
}

/// Which errors a call is retried for, as it travels: none, or any. A worker in Python unpickles it: `True`.
pub(crate) fn retried(any: bool) -> Bytes {
    if any { Bytes::from_static(b"\x80\x02\x88.") } else { Bytes::new() }
}

/// Quantities by resource, in 1/10,000.
pub(crate) type Units = Vec<(String, u64)>;

/// A task's options, settled.
pub(crate) struct Settled {
    pub(crate) class: Class,
    pub(crate) max_calls: u32,
    pub(crate) max_retries: i32,
    pub(crate) retry_exceptions: bool,
    pub(crate) max_unread: u32,
    pub(crate) name: Option<String>,
}

impl TaskOptions {
    /// After how many calls its process ends; 0 for never. A task with devices ends its process after one, where nothing
    /// is said.
    #[must_use]
    pub fn max_calls(mut self, count: u32) -> Self {
        self.max_calls = Some(count);
        self
    }

    /// How often it is run again after its process died; -1 for always. 3 where nothing is said.
    #[must_use]
    pub fn max_retries(mut self, count: i32) -> Self {
        self.max_retries = Some(count);
        self
    }

    /// Whether it is run again after an error or a panic, too, as often as [`TaskOptions::max_retries`] says.
    #[must_use]
    pub fn retry_exceptions(mut self, retries: bool) -> Self {
        self.retry_exceptions = Some(retries);
        self
    }

    /// How many items of a function that returns an `impl Iterator` may be there without having been read: it waits with
    /// the next. As many as it likes where nothing is said.
    #[must_use]
    pub fn max_unread(mut self, count: u32) -> Self {
        self.max_unread = Some(count);
        self
    }

    /// What the call is named in listings and errors.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    pub(crate) fn over(self, base: Self) -> Self {
        Self {
            shared: self.shared.over(base.shared),
            max_calls: self.max_calls.or(base.max_calls),
            max_retries: self.max_retries.or(base.max_retries),
            retry_exceptions: self.retry_exceptions.or(base.retry_exceptions),
            max_unread: self.max_unread.or(base.max_unread),
            name: self.name.or(base.name),
        }
    }

    /// With the environment of a program of ours, or of Python.
    pub(crate) fn settle(self, environment: Option<Environment>) -> Result<Settled> {
        let Shared { num_cpus, resources, .. } = &self.shared;
        let TaskDemand { resources, max_calls, fresh } = demand::of_task(resources.clone(), *num_cpus, self.max_calls);
        let environment = match environment {
            Some(environment) => environment,
            None => self.shared.environment()?,
        };
        let strategy = self.shared.strategy()?;
        Ok(Settled {
            class: Class {
                demand: units(&resources)?,
                environment,
                fresh,
                strategy,
                near: Vec::new(),
                priority: self.shared.priority()?,
                preemptible: self.shared.is_preemptible(),
            },
            max_calls,
            max_retries: self.max_retries.unwrap_or(DEFAULT_MAX_RETRIES),
            retry_exceptions: self.retry_exceptions.unwrap_or(false),
            max_unread: self.max_unread.unwrap_or(0),
            name: self.name,
        })
    }
}

impl ActorOptions {
    /// The name by which [`crate::get_actor`] finds it.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Where its name lives; the job's namespace where nothing is said.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Whether it outlives the program that made it.
    #[must_use]
    pub fn detached(mut self, detached: bool) -> Self {
        self.detached = Some(detached);
        self
    }

    /// Whether an actor of that name is returned where there is one.
    #[must_use]
    pub fn get_if_exists(mut self, get: bool) -> Self {
        self.get_if_exists = Some(get);
        self
    }

    /// How many calls run at once, each in a thread of its own; those of methods that take `&mut self` run alone all the
    /// same.
    #[must_use]
    pub fn max_concurrency(mut self, count: u32) -> Self {
        self.max_concurrency = Some(count);
        self
    }

    /// A group of methods, those with `#[remote(concurrency_group = "…")]`, whose calls queue for themselves and run in as
    /// many threads of their own.
    #[must_use]
    pub fn concurrency_group(mut self, name: &str, count: u32) -> Self {
        self.groups.insert(name.to_owned(), count);
        self
    }

    /// How often it is made anew after its process died; -1 for always.
    #[must_use]
    pub fn max_restarts(mut self, count: i32) -> Self {
        self.max_restarts = Some(count);
        self
    }

    /// How often a call is sent again after the actor's process died under it; -1 for always.
    #[must_use]
    pub fn max_task_retries(mut self, count: i32) -> Self {
        self.max_task_retries = Some(count);
        self
    }

    pub(crate) fn over(self, base: Self) -> Self {
        Self {
            shared: self.shared.over(base.shared),
            name: self.name.or(base.name),
            namespace: self.namespace.or(base.namespace),
            detached: self.detached.or(base.detached),
            get_if_exists: self.get_if_exists.or(base.get_if_exists),
            max_concurrency: self.max_concurrency.or(base.max_concurrency),
            groups: base.groups.into_iter().chain(self.groups).collect(),
            max_restarts: self.max_restarts.or(base.max_restarts),
            max_task_retries: self.max_task_retries.or(base.max_task_retries),
        }
    }

    /// What a machine must have to take the actor, and what that holds for life.
    pub(crate) fn demands(&self) -> Result<(Units, Units)> {
        let Shared { num_cpus, resources, .. } = &self.shared;
        let ActorDemand { placement, running } = demand::of_actor(resources.clone(), *num_cpus);
        Ok((units(&placement)?, units(&running)?))
    }
}
