//! What a daemon is told at its start, and what the machine makes of it.

use crate::limits::Limits;
use crate::memory_tiers::{ENFORCEMENT_VARIABLE, LIBRARY_VARIABLE, MemoryTierError, memory_plan};
use crate::spill_place::{SpillPlace, SpillPlaceError};
use crate::workers::memory::MonitorOptions;
use crate::{lease, machine};
use oxiray_accelerators::{Detection, Host, Offer, STRATEGY_VARIABLE, SlotDevice, detect, late_nodes, offer};
use oxiray_fence::{Isolation, Means, Mechanism};
use oxiray_ids::NodeId;
use oxiray_journal::EtcdFiles;
use oxiray_machine::{CAP, IsolationPlan, Level, Plan, Rules, SHARE_VARIABLE};
use oxiray_resources::{Inventory, MemoryShares, ResourceName, Topology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How full the file system may get that objects are spilled to, in thousandths, where nothing is said.
const SPILL_FULLNESS_MAX: u32 = 950;
/// The variable that says otherwise, as a share of one.
const SPILL_FULLNESS_VARIABLE: &str = "RAY_local_fs_capacity_threshold";
/// The share of a limit on memory that may be in use before a worker is ended, in thousandths, where nothing is said.
const MEMORY_THRESHOLD: u32 = 950;
/// The variable that says otherwise, as a share of one.
const MEMORY_THRESHOLD_VARIABLE: &str = "RAY_memory_usage_threshold";
/// How often memory is looked at where nothing is said.
const MEMORY_PERIOD_MS: u64 = 250;
/// The variable that says otherwise, in milliseconds; 0 turns the memory monitor off.
const MEMORY_PERIOD_VARIABLE: &str = "RAY_memory_monitor_refresh_ms";
/// The smallest object store.
const STORE_BYTES_MIN: u64 = 1 << 20;

/// Says how many seconds a demand waits for a node that can meet it.
const NODE_WAIT_VARIABLE: &str = "OXIRAY_INFEASIBLE_WAIT_S";
/// Says how many seconds processes wait for each other until a call of theirs fails.
const DEADLOCK_WAIT_VARIABLE: &str = "OXIRAY_DEADLOCK_WAIT_S";
/// Says whether one fails.
const DEADLOCK_VARIABLE: &str = "OXIRAY_DEADLOCK";
/// Says whether preemptible work ends early for work of a higher priority.
const PREEMPTION_VARIABLE: &str = "OXIRAY_PREEMPTION";
/// Says how many seconds it has from the word to its end.
const PREEMPTION_GRACE_VARIABLE: &str = "OXIRAY_PREEMPTION_GRACE_S";
/// Says how jobs of equal priority are served.
const JOB_ORDER_VARIABLE: &str = "OXIRAY_JOB_ORDER";
/// Says how far devices are kept from those that they were not granted to.
const ISOLATION_VARIABLE: &str = "OXIRAY_DEVICE_ISOLATION";
/// Which of several free devices are taken.
const ORDER_VARIABLE: &str = "OXIRAY_DEVICE_ORDER";
/// By what the variables name devices that show them to processes.
const VISIBLE_VARIABLE: &str = "OXIRAY_VISIBLE_DEVICES";
/// Whether workers run on the processors near their devices.
const PIN_VARIABLE: &str = "OXIRAY_PIN_CPUS";
/// Says what becomes of a worker that has a device open which it was not granted.
const VIOLATIONS_VARIABLE: &str = "OXIRAY_DEVICE_VIOLATIONS";

/// How long preempted work has where nothing is said.
const PREEMPTION_GRACE: Duration = Duration::from_secs(30);
/// How long a demand waits for a node where nothing is said.
const NODE_WAIT: Duration = Duration::from_secs(30);
/// The longest wait that may be asked for: a day.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The JSON object of `oxiray daemon --config`. Everything may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What the machine offers, and what it is called.
    pub machine: MachineConfig,
    /// What a head does beside what every machine does.
    pub head: HeadConfig,
    /// The cluster that a machine joins.
    pub member: MemberConfig,
    /// Where metrics are exported, where that is wanted.
    pub metrics: Option<MetricsConfig>,
    /// A port of 127.0.0.1 where it is told that the node is healthy, and nothing else; of a node without a dashboard, which
    /// tells that itself.
    pub health_port: Option<u16>,
    /// Where sessions live; `OXIRAY_TMPDIR` and its like where it is left out.
    pub temp_dir: Option<PathBuf>,
    /// The port that the session's address ends with.
    pub port: Option<u16>,
    /// The Python interpreter whose template process is started at once.
    pub interpreter: Option<String>,
    /// How many forked workers wait unassigned.
    pub spare_workers: Option<usize>,
    /// The process to end with.
    pub starter: Option<u32>,
}

/// What a machine offers in place of what is found there, and what it is called.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineConfig {
    /// What the machine offers in place of what is found: `num_cpus` under `CPU`, `num_gpus` under `GPU`.
    pub resources: BTreeMap<String, f64>,
    /// Labels of the machine.
    pub labels: BTreeMap<String, String>,
    /// Bytes of the object store.
    pub object_store_memory: Option<u64>,
    /// Where objects go that the store has no room for: a directory, or the URL of storage.
    pub spill_directory: Option<PathBuf>,
    /// The name that listings show; the host's own where it is left out.
    pub node_name: Option<String>,
    /// The address of the machine.
    pub node_ip_address: Option<String>,
    /// How far devices are kept from those that they were not granted to; as `OXIRAY_DEVICE_ISOLATION` says where it is
    /// left out.
    pub device_isolation: Option<String>,
    /// What becomes of a worker that has a device open which it was not granted: `report` or `end`; as
    /// `OXIRAY_DEVICE_VIOLATIONS` says where it is left out.
    pub device_violations: Option<String>,
    /// Bytes of memory that each GPU has, in place of what is found.
    pub gpu_memory: Option<u64>,
    /// What keeps processes to memory of GPUs that they asked for, in order; as `OXIRAY_GPU_MEMORY_ENFORCEMENT` says where it is
    /// left out.
    pub gpu_memory_enforcement: Option<String>,
    /// The library that does so before CUDA's; as `OXIRAY_GPU_MEMORY_LIBRARY` says where it is left out.
    pub gpu_memory_library: Option<String>,
    /// Which devices are taken, and how they are shown.
    pub choice: DevicePreferences,
    /// Whether a share of a GPU is a limit on its memory: `cap`, or `promise`; as `OXIRAY_SHARE_MEMORY` says where it is left out.
    pub share_memory: Option<String>,
    /// Whether workers with whole devices run on the processors near these: `local` or `off`; as `OXIRAY_PIN_CPUS` says where it
    /// is left out.
    pub pin_cpus: Option<String>,
    /// How partitioned GPUs are offered: `none`, `single` or `mixed`; as `OXIRAY_MIG_STRATEGY` says where it is left out.
    pub mig: Option<String>,
}

/// Which devices a process is given, and how it is shown them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevicePreferences {
    /// Which of several free devices are taken: `topology` or `lowest`; as `OXIRAY_DEVICE_ORDER` says where it is left out.
    pub order: Option<String>,
    /// What the variables that show devices name them by: `ordinal` or `uuid`; as `OXIRAY_VISIBLE_DEVICES` says where it is left
    /// out.
    pub visible: Option<String>,
}

/// What a head does beside what every machine does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeadConfig {
    /// Where a head listens for nodes of other machines, as `IP:PORT`; nowhere where it is left out.
    pub listen: Option<SocketAddr>,
    /// Whether a head writes down what must outlive it, and goes on with what another at its port wrote down.
    pub keeps: bool,
    /// Forgets what another head at this port wrote down.
    pub fresh: bool,
    /// Where a head writes that down; in its session's directory where it is left out.
    pub store: Option<StoreConfig>,
    /// Waits until no other is the head of the cluster in that store.
    pub standby: bool,
    /// On a head that keeps what must outlive it: a signal ends it as if it had been killed, and the next one goes on.
    pub keeps_cluster: bool,
    /// For how many milliseconds the certificates of nodes are valid, where that is not a day.
    pub certificate_ms: Option<u64>,
    /// The file with the cluster's authority, where a head is not to make one of its own.
    pub authority_file: Option<PathBuf>,
    /// Whether preemptible work ends early for work of a higher priority: `on` or `off`; as `OXIRAY_PREEMPTION` says where it is left out.
    pub preemption: Option<String>,
    /// How many seconds it has from the word to its end; as `OXIRAY_PREEMPTION_GRACE_S` says where it is left out.
    pub preemption_grace_s: Option<f64>,
    /// How jobs of equal priority are served: `fair` or `arrival`; as `OXIRAY_JOB_ORDER` says where it is left out.
    pub job_order: Option<String>,
    /// What answers over HTTP, where that is wanted.
    pub dashboard: Option<DashboardConfig>,
    /// Where what happens in the cluster is written down or sent.
    pub recording: RecordingConfig,
    /// Whether a head keeps what tasks printed last that failed on other nodes, for when these are gone.
    pub keeps_logs: bool,
}

/// Where what happens in a cluster is written down or sent, each by a program beside the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordingConfig {
    /// Where the cluster's history is recorded: a directory, or `s3://bucket/prefix`; nowhere where it is left out.
    pub history: Option<String>,
    /// The collector of OpenTelemetry that calls are sent to as spans, as a URL of plain HTTP; none where it is left out.
    pub spans: Option<String>,
    /// The collector of Ray's events that what happens is sent to, likewise.
    pub events: Option<String>,
}

/// Where a node exports its metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// The address; 127.0.0.1 where it is left out.
    pub host: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// Whether whoever reaches the port reads them, without a token.
    pub open: bool,
}

/// Where the dashboard answers, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DashboardConfig {
    /// The address; 127.0.0.1 where it is left out.
    pub host: Option<IpAddr>,
    /// The port; the first free one from Ray's on where it is left out.
    pub port: Option<u16>,
    /// A further port, where the node's health is told and nothing else.
    pub agent_port: Option<u16>,
    /// Names that requests may bear, beside addresses and `localhost`.
    pub allow_hosts: Vec<String>,
    /// The certificate by which it is known, as PEM.
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key.
    pub tls_key: Option<PathBuf>,
    /// Whether other machines are answered without TLS.
    pub plaintext: bool,
}

impl DashboardConfig {
    /// Whether other machines are to be answered over TLS with a certificate that nobody has given: the cluster's authority makes it.
    pub fn needs_certificate(&self) -> bool {
        self.host.is_some_and(|host| !host.is_loopback()) && self.tls_cert.is_none() && !self.plaintext
    }
}

/// The cluster that a machine joins, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemberConfig {
    /// The address of the cluster to join.
    pub join: Option<String>,
    /// The file with the token of the cluster to join, where it is on another machine, or treated as if it were.
    pub token_file: Option<PathBuf>,
    /// The port at which a node of another machine listens for the others; any where it is left out.
    pub node_manager_port: Option<u16>,
    /// How long a node of another machine may go on without a word from the head, in milliseconds.
    pub lease_ms: Option<u64>,
    /// For how many milliseconds a node of another machine tries to reach a head that is not there yet.
    pub join_wait_ms: Option<u64>,
}

/// An etcd that keeps what must outlive a head.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `etcd://HOST:PORT[,...][/NAME]`.
    pub address: String,
    /// The file with the certificates by which etcd's is verified: with it, TLS is spoken.
    pub authority: Option<PathBuf>,
    /// The file with the certificate that is shown to etcd.
    pub certificate: Option<PathBuf>,
    /// The file with the key of that certificate.
    pub key: Option<PathBuf>,
    /// The user of etcd.
    pub user: Option<String>,
    /// The file with that user's password.
    pub password_file: Option<PathBuf>,
}

impl StoreConfig {
    /// The files by which etcd knows the head.
    pub(crate) fn files(&self) -> EtcdFiles {
        EtcdFiles {
            authority: self.authority.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            user: self.user.clone().zip(self.password_file.clone()),
        }
    }
}

/// For how long the certificate of a node is valid where nothing else is said. It is renewed when half of that is over.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(24 * 3600);

impl Config {
    /// For how long the certificates of nodes are valid.
    pub fn certificate_lifetime(&self) -> Duration {
        self.head.certificate_ms.map_or(CERTIFICATE_LIFETIME, Duration::from_millis)
    }

    /// Whether this is a node of another machine than its head's, or treated as if it were: such a node has a lease.
    pub fn has_lease(&self) -> bool {
        self.member.join.is_some() && self.member.token_file.is_some()
    }

    /// How long a node of another machine may go on without a word from the head.
    pub fn lease(&self) -> Duration {
        self.member.lease_ms.map_or(lease::LEASE, Duration::from_millis).max(lease::LEASE_MIN)
    }
}

/// Why no daemon can be started.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The recorded machine that the environment names cannot be read.
    #[error(transparent)]
    Host(#[from] oxiray_accelerators::HostError),
    /// The accelerators asked for are not to be had.
    #[error(transparent)]
    Offer(#[from] oxiray_accelerators::OfferError),
    /// A resource has no proper name.
    #[error(transparent)]
    Name(#[from] oxiray_resources::NameError),
    /// A resource has no proper amount.
    #[error(transparent)]
    Inventory(#[from] oxiray_resources::InventoryError),
    /// Where objects are to be spilled to is not said so that it can be followed.
    #[error(transparent)]
    SpillPlace(#[from] SpillPlaceError),
    /// How full the disk may get is no share.
    #[error("{SPILL_FULLNESS_VARIABLE} is `{given}`: it is to be a share of the file system between 0 and 1")]
    Fullness {
        /// What the variable says.
        given: String,
    },
    /// How much memory may be in use is no share.
    #[error("{MEMORY_THRESHOLD_VARIABLE} is `{given}`: it is to be a share of the memory limit between 0 and 1")]
    MemoryThreshold {
        /// What the variable says.
        given: String,
    },
    /// The time between two looks at memory is none.
    #[error("{MEMORY_PERIOD_VARIABLE} is `{given}`: it is to be a number of milliseconds, or 0 for no memory monitor")]
    MemoryPeriod {
        /// What the variable says.
        given: String,
    },
    /// A wait is no length of time.
    #[error("{setting} is `{given}`; it is a number of seconds, from 0 to {}", WAIT_MAX.as_secs())]
    Wait {
        /// The variable or the option that says it.
        setting: &'static str,
        /// What was asked for.
        given: String,
    },
    /// Nothing of the kind can be done about deadlocks.
    #[error("{DEADLOCK_VARIABLE} is `{given}`; it is to be `report` or `fail`")]
    Deadlock {
        /// What was asked for.
        given: String,
    },
    /// There is no such mode of the memory of shares.
    #[error(
        "the mode of shares' memory is `{given}`; it is to be `promise` or `cap`, as --share-memory= or in {SHARE_VARIABLE}"
    )]
    ShareMemory {
        /// What was asked for.
        given: String,
    },
    /// Memory of GPUs is not kept as was asked for.
    #[error(transparent)]
    MemoryTiers(#[from] MemoryTierError),
    /// There is no such mode of CPU pinning.
    #[error("CPU pinning is `{given}`; it is to be `local` or `off`, as --pin-cpus= or in {PIN_VARIABLE}")]
    Pin {
        /// What was asked for.
        given: String,
    },
    /// Preemption is neither on nor off.
    #[error("preemption is `{given}`; it is to be `on` or `off`, as --preemption= or in {PREEMPTION_VARIABLE}")]
    Preemption {
        /// What was asked for.
        given: String,
    },
    /// Jobs are not served in that order.
    #[error(
        "the order of jobs is `{given}`; it is to be `fair` or `arrival`, as --job-order= or in {JOB_ORDER_VARIABLE}"
    )]
    JobOrder {
        /// What was asked for.
        given: String,
    },
    /// Nothing of the kind becomes of a worker.
    #[error(
        "what becomes of a process with a device that it was not granted is `{given}`; it is to be `report` or `end`, as \
         --device-violations= or in {VIOLATIONS_VARIABLE}"
    )]
    Violations {
        /// What was asked for.
        given: String,
    },
    /// There is no such name for devices.
    #[error(
        "devices are shown by `{given}`; it is to be `ordinal` or `uuid`, as --visible-devices= or in {VISIBLE_VARIABLE}"
    )]
    Visible {
        /// What was asked for.
        given: String,
    },
    /// There is no such order of devices.
    #[error(
        "the order of devices is `{given}`; it is to be `topology` or `lowest`, as --device-order= or in {ORDER_VARIABLE}"
    )]
    Order {
        /// What was asked for.
        given: String,
    },
    /// There is no such isolation.
    #[error(
        "the isolation of devices is `{given}`; it is to be one of {}, as --device-isolation= or in {ISOLATION_VARIABLE}",
        Isolation::words()
    )]
    Isolation {
        /// What was asked for.
        given: String,
    },
    /// A fence is required, and the kernel offers none.
    #[error(
        "--device-isolation=require: no kernel fence is possible here. {why}. Start with --device-isolation=fence to have \
         fences where they are possible, or with --device-isolation=variable for none"
    )]
    Unfenced {
        /// What stands in the way of each.
        why: String,
    },
    /// The object store would be too small to hold anything.
    #[error("object_store_memory is {given} bytes; it needs {STORE_BYTES_MIN} or more")]
    StoreTooSmall {
        /// What was asked for.
        given: u64,
    },
}

/// What bounds the processes of a machine.
#[derive(Debug)]
pub struct Bounds {
    /// Nothing where neither the machine nor the kernel tells.
    pub limits: Option<Limits>,
    /// When a worker is ended for want of memory.
    pub monitor: MonitorOptions,
    /// How full the file system may get that objects are spilled to, in thousandths.
    pub spill_fullness_max: u32,
    /// Where objects are spilled to; the session's own folder where nothing is said.
    pub spill_place: Option<SpillPlace>,
}

/// Variables that say of the machine what it is labelled with.
const VARIABLE_LABELS: [(&str, &str); 4] = [
    ("RAY_NODE_MARKET_TYPE", "ray.io/market-type"),
    ("RAY_NODE_TYPE_NAME", "ray.io/node-group"),
    ("RAY_NODE_REGION", "ray.io/availability-region"),
    ("RAY_NODE_ZONE", "ray.io/availability-zone"),
];

/// Looks at the machine and at what was asked for.
pub fn plan(config: &Config, host: &Host) -> Result<(Plan, Bounds), PlanError> {
    let detection = detect(host);
    let ip = config.machine.node_ip_address.clone().unwrap_or_else(machine::address);
    // Most recorded machines tell of devices only.
    let limits = Limits::under(host.root()).or_else(|| Limits::under(Path::new("/")));
    let given = config.machine.resources.get("memory").map(|bytes| *bytes as u64);
    let MemoryShares { store: store_bytes, memory } =
        MemoryShares::of(free_bytes(limits.as_ref()), config.machine.object_store_memory, given);
    if store_bytes < STORE_BYTES_MIN {
        return Err(PlanError::StoreTooSmall { given: store_bytes });
    }
    let mut requested = config.machine.resources.clone();
    requested.entry("CPU".into()).or_insert_with(|| {
        let quota = limits.as_ref().and_then(Limits::cpu);
        machine::processors(quota.map(|quota| quota.limit)) as f64
    });
    requested.entry("memory".into()).or_insert(memory as f64);
    requested.insert("object_store_memory".into(), store_bytes as f64);
    requested.insert(format!("node:{ip}"), 1.0);
    if config.member.join.is_none() {
        requested.insert("node:__internal_head__".into(), 1.0);
    } else if config.member.token_file.is_none() {
        // The head, on the same machine, offers the devices there are: what a member has is said.
        for resource in ResourceName::devices() {
            requested.entry(resource.to_string()).or_insert(0.0);
        }
    }
    let offer = offered(config, host, &detection, &requested)?;
    let named = offer.totals().into_iter().map(|(name, total)| Ok((ResourceName::new(&name)?, total)));
    let inventory = Inventory::new(named.collect::<Result<Vec<_>, PlanError>>()?)?;
    let inventory = with_gpu_memory(inventory, &offer, config.machine.gpu_memory);
    let order = config.machine.choice.order.clone().or_else(|| host.variable(ORDER_VARIABLE));
    let inventory = if takes_near_ones(order.as_deref())? { with_topologies(inventory, &offer)? } else { inventory };
    let node = NodeId::generate();
    let mut labels = BTreeMap::from([("ray.io/node-id".to_owned(), node.hex())]);
    labels.extend(offer.labels.clone());
    let said = |(variable, label): &(&str, &str)| Some(((*label).to_owned(), host.variable(variable)?));
    labels.extend(VARIABLE_LABELS.iter().filter_map(said).filter(|(_, value)| !value.is_empty()));
    labels.extend(config.machine.labels.clone());
    let (memory, unused) = memory_plan(
        config.machine.gpu_memory_enforcement.clone().or_else(|| host.variable(ENFORCEMENT_VARIABLE)),
        config.machine.gpu_memory_library.clone().or_else(|| host.variable(LIBRARY_VARIABLE)),
        (host, &offer),
        limits.as_ref(),
    )?;
    let warnings = detection.warnings.iter().chain(&offer.warnings).cloned().chain(unused).collect();
    let bounds = Bounds {
        monitor: monitor(host.variable(MEMORY_THRESHOLD_VARIABLE), host.variable(MEMORY_PERIOD_VARIABLE))?,
        spill_fullness_max: fullness(host.variable(SPILL_FULLNESS_VARIABLE))?,
        spill_place: SpillPlace::settle(config.machine.spill_directory.as_deref(), |name| host.variable(name))?,
        limits,
    };
    let plan = Plan {
        node,
        inventory,
        isolation: IsolationPlan { memory, ..isolation_plan(config, host, &offer)? },
        labels,
        store_bytes,
        hostname: machine::hostname(),
        started_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        name: config.machine.node_name.clone().unwrap_or_else(|| ip.clone()),
        ip,
        variables: std::env::vars().collect(),
        spare_workers: config.spare_workers.unwrap_or(2),
        rules: rules(&config.head, |name| std::env::var(name).ok())?,
        warnings,
        epoch: 0,
        offer,
    };
    Ok((plan, bounds))
}

/// What the machine offers, and how processes are given it.
fn offered(
    config: &Config,
    host: &Host,
    detection: &Detection,
    requested: &BTreeMap<String, f64>,
) -> Result<Offer, PlanError> {
    let said = |name: &str| config.machine.mig.clone().filter(|_| name == STRATEGY_VARIABLE);
    let offer = offer(detection, &|name| said(name).or_else(|| host.variable(name)), requested)?;
    let pins = config.machine.pin_cpus.clone().or_else(|| host.variable(PIN_VARIABLE));
    let offer = if pins_workers(pins.as_deref())? { offer.with_processors(host) } else { offer };
    let visible = config.machine.choice.visible.clone().or_else(|| host.variable(VISIBLE_VARIABLE));
    Ok(Offer { shows_uuids: shows_uuids(visible.as_deref())?, ..offer })
}

/// The machine with the memory of its GPUs: as it was given, or as it is found.
fn with_gpu_memory(inventory: Inventory, offer: &Offer, given: Option<u64>) -> Inventory {
    let count = inventory.total(ResourceName::GPU.as_str()).wholes() as usize;
    let slots = offer.of(ResourceName::GPU.as_str()).map_or(&[][..], |of| &of.slots);
    let found = (0..count).map(|slot| slots.get(slot).and_then(|device| device.as_ref()?.memory_bytes).unwrap_or(0));
    let sizes = found.map(|found| given.unwrap_or(found)).collect();
    inventory.with_device_memory(ResourceName::GPU, sizes)
}

/// What was asked for, of which devices are taken where several are free.
fn takes_near_ones(asked: Option<&str>) -> Result<bool, PlanError> {
    match asked.map(str::trim) {
        None | Some("" | "topology") => Ok(true),
        Some("lowest") => Ok(false),
        Some(given) => Err(PlanError::Order { given: given.to_owned() }),
    }
}

/// What was asked for, of how processes are shown their devices.
fn shows_uuids(asked: Option<&str>) -> Result<bool, PlanError> {
    match asked.map(str::trim) {
        None | Some("" | "ordinal") => Ok(false),
        Some("uuid") => Ok(true),
        Some(given) => Err(PlanError::Visible { given: given.to_owned() }),
    }
}

/// The same with what is known of how near devices are to each other.
fn with_topologies(mut inventory: Inventory, offer: &Offer) -> Result<Inventory, PlanError> {
    for offered in &offer.devices {
        let numa = |slot: &Option<SlotDevice>| slot.as_ref().and_then(|device| device.numa_node);
        let numa: Vec<Option<u32>> = offered.slots.iter().map(numa).collect();
        if let Some(topology) = Topology::new(&numa, offered.nearness()) {
            inventory = inventory.with_topology(ResourceName::new(offered.resource())?, topology);
        }
    }
    Ok(inventory)
}

/// How devices are kept from those that they were not granted to, and memory of them.
fn isolation_plan(config: &Config, host: &Host, offer: &Offer) -> Result<IsolationPlan, PlanError> {
    let asked = config.machine.device_isolation.clone().or_else(|| host.variable(ISOLATION_VARIABLE));
    let violations = config.machine.device_violations.clone().or_else(|| host.variable(VIOLATIONS_VARIABLE));
    let shares = config.machine.share_memory.clone().or_else(|| host.variable(SHARE_VARIABLE));
    Ok(IsolationPlan {
        ends_violators: ends_violators(violations.as_deref())?,
        is_root: rustix::process::geteuid().is_root(),
        caps_shares: caps_shares(shares.as_deref())?,
        ..isolation(asked, offer, host)?
    })
}

/// Whether a share of a GPU is a limit on its memory.
fn caps_shares(asked: Option<&str>) -> Result<bool, PlanError> {
    match asked.map(str::trim) {
        None | Some("" | "promise") => Ok(false),
        Some(CAP) => Ok(true),
        Some(given) => Err(PlanError::ShareMemory { given: given.to_owned() }),
    }
}

/// Whether workers with whole devices run on the processors near these.
fn pins_workers(asked: Option<&str>) -> Result<bool, PlanError> {
    match asked.map(str::trim) {
        None | Some("" | "off") => Ok(false),
        Some("local") => Ok(true),
        Some(given) => Err(PlanError::Pin { given: given.to_owned() }),
    }
}

/// What was asked for, of workers that have devices open which they were not granted.
fn ends_violators(asked: Option<&str>) -> Result<bool, PlanError> {
    match asked.map(str::trim) {
        // `tell` is what `report` was called first.
        None | Some("" | "report" | "tell") => Ok(false),
        Some("end") => Ok(true),
        Some(given) => Err(PlanError::Violations { given: given.to_owned() }),
    }
}

/// What was asked for, and which mechanisms work here: they are tried where one is wanted, and where there are devices that a
/// request may want to be kept from.
fn isolation(asked: Option<String>, offer: &Offer, host: &Host) -> Result<IsolationPlan, PlanError> {
    let asked = match asked.filter(|given| !given.trim().is_empty()) {
        None => Isolation::Variable,
        Some(given) => Isolation::from_word(given.trim()).ok_or(PlanError::Isolation { given })?,
    };
    let root = host.root().to_owned();
    if asked < Isolation::Fence && offer.device_nodes.is_empty() {
        let why = "no device nodes are known here".to_owned();
        return Ok(IsolationPlan { asked, root, why, ..IsolationPlan::default() });
    }
    let means = Means::probe(&format!("probe-{}", std::process::id()));
    let bears_landlock = offer.devices.iter().all(|of| of.family.fencing.bears_landlock);
    let suited: Vec<Mechanism> =
        Mechanism::ALL.into_iter().filter(|one| *one != Mechanism::Landlock || bears_landlock).collect();
    let (mut mechanisms, mut why) = (means.usable(&suited), means.why_unfenced(&suited));
    let mut notes = Vec::new();
    if mechanisms.contains(&Mechanism::Landlock) {
        // What is made later is not covered by a ruleset, and cannot be made within one.
        for node in late_nodes(host, offer, asked >= Isolation::Fence) {
            if !node.is_there {
                mechanisms.retain(|one| *one != Mechanism::Landlock);
                let reason = format!("{}: {}.", Mechanism::Landlock, node.how);
                why = if why.is_empty() { reason } else { format!("{why} {reason}") };
            }
            notes.push(node.how);
        }
    }
    if asked == Isolation::Require && mechanisms.is_empty() {
        return Err(PlanError::Unfenced { why });
    }
    Ok(IsolationPlan { asked, mechanisms, why, root, notes, ..IsolationPlan::default() })
}

/// Bytes that this process may still use, by the tightest of its limits; 1 GiB where the kernel does not tell.
fn free_bytes(limits: Option<&Limits>) -> u64 {
    let levels = limits.map(Limits::memory).unwrap_or_default();
    levels.iter().map(Level::free).min().unwrap_or(1 << 30)
}

fn fullness(given: Option<String>) -> Result<u32, PlanError> {
    let Some(given) = given else { return Ok(SPILL_FULLNESS_MAX) };
    thousandths(&given).ok_or(PlanError::Fullness { given })
}

/// A share of one, in thousandths.
fn thousandths(given: &str) -> Option<u32> {
    let share = given.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.map(|share| (share * 1000.0).round() as u32)
}

fn monitor(threshold: Option<String>, period: Option<String>) -> Result<MonitorOptions, PlanError> {
    let threshold = match threshold {
        None => MEMORY_THRESHOLD,
        Some(given) => thousandths(&given).ok_or(PlanError::MemoryThreshold { given })?,
    };
    let period = match period {
        None => MEMORY_PERIOD_MS,
        Some(given) => given.trim().parse().map_err(|_| PlanError::MemoryPeriod { given })?,
    };
    Ok(MonitorOptions { threshold, period: Duration::from_millis(period) })
}

/// What a variable or an option says, in seconds.
fn seconds(setting: &'static str, given: Option<String>) -> Result<Option<Duration>, PlanError> {
    let Some(given) = given.filter(|given| !given.trim().is_empty()) else { return Ok(None) };
    let seconds = given.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|wait| *wait <= WAIT_MAX).map(Some).ok_or(PlanError::Wait { setting, given })
}

/// What a head goes by.
fn rules(head: &HeadConfig, variable: impl Fn(&str) -> Option<String>) -> Result<Rules, PlanError> {
    let said = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let grace = match head.preemption_grace_s {
        Some(given) => seconds("--preemption-grace-s", Some(given.to_string()))?,
        None => seconds(PREEMPTION_GRACE_VARIABLE, said(PREEMPTION_GRACE_VARIABLE))?,
    };
    let grace = grace.unwrap_or(PREEMPTION_GRACE);
    let preemption_grace = match head.preemption.clone().or_else(|| said(PREEMPTION_VARIABLE)).as_deref() {
        None | Some("off") => None,
        Some("on") => Some(grace),
        Some(given) => return Err(PlanError::Preemption { given: given.to_owned() }),
    };
    let jobs_by_arrival = match head.job_order.clone().or_else(|| said(JOB_ORDER_VARIABLE)).as_deref() {
        None | Some("fair") => false,
        Some("arrival") => true,
        Some(given) => return Err(PlanError::JobOrder { given: given.to_owned() }),
    };
    let node = seconds(NODE_WAIT_VARIABLE, variable(NODE_WAIT_VARIABLE))?.unwrap_or(NODE_WAIT);
    Ok(Rules { node, deadlock: deadlock_wait(variable)?, preemption_grace, jobs_by_arrival })
}

/// After how long a call fails that waits for who waits for it; nothing where that is only told.
fn deadlock_wait(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Duration>, PlanError> {
    let wait = seconds(DEADLOCK_WAIT_VARIABLE, variable(DEADLOCK_WAIT_VARIABLE))?;
    match variable(DEADLOCK_VARIABLE).as_deref().map(str::trim) {
        None | Some("" | "fail") => Ok(wait.or(Rules::default().deadlock)),
        // `tell` is what `report` was called first.
        Some("report" | "tell") => Ok(None),
        Some(given) => Err(PlanError::Deadlock { given: given.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stands_in_place_of_what_is_found() {
        let config: Config = serde_json::from_str(
            r#"{"machine": {"resources": {"CPU": 3, "widgets": 2.5}, "object_store_memory": 104857600, "labels": {"zone": "a"}}}"#,
        )
        .expect("a config");
        let (plan, _) = plan(&config, &Host::real()).expect("a plan");
        assert_eq!(plan.inventory.total("CPU").units(), 30_000);
        assert_eq!(plan.inventory.total("widgets").units(), 25_000);
        assert_eq!(plan.inventory.total("object_store_memory").wholes(), 100 << 20);
        assert_eq!(plan.inventory.total("node:__internal_head__").units(), 10_000);
        assert_eq!(plan.labels["zone"], "a");
        assert!(plan.inventory.total("memory").wholes() > 0);
    }

    #[test]
    fn a_container_offers_what_it_has() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().expect("a path has a folder")).expect("a folder");
            std::fs::write(file, text).expect("a file");
        };
        write("host.json", "{}");
        write("proc/meminfo", "MemTotal: 536870912 kB\nMemAvailable: 536870912 kB\n");
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "1 2 0:27 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
        write("sys/fs/cgroup/memory.max", "2147483648\n");
        write("sys/fs/cgroup/memory.current", "147483648\n");
        write("sys/fs/cgroup/cpu.max", "100000 100000\n");
        let host = Host::recorded(root.path()).expect("a host");
        let (plan, _) = plan(&Config::default(), &host).expect("a plan");
        assert_eq!(plan.inventory.total("memory").wholes(), 1_200_000_000);
        assert_eq!(plan.store_bytes, 600_000_000);
        assert_eq!(plan.inventory.total("CPU").wholes(), 1);
    }

    #[test]
    fn the_memory_monitor_follows_rays_variables() {
        let options = |threshold: &str, period: &str| monitor(Some(threshold.into()), Some(period.into()));
        let default = MonitorOptions { threshold: 950, period: Duration::from_millis(250) };
        assert_eq!(monitor(None, None).expect("options"), default);
        let given = MonitorOptions { threshold: 800, period: Duration::ZERO };
        assert_eq!(options("0.8", "0").expect("options"), given);
        assert!(options("95", "0").is_err_and(|error| error.to_string().contains("RAY_memory_usage_threshold")));
        assert!(options("0.9", "-1").is_err_and(|error| error.to_string().contains("RAY_memory_monitor_refresh_ms")));
    }

    #[test]
    fn the_wait_for_nodes_is_a_number_of_seconds() {
        let wait = |given: &str| seconds(NODE_WAIT_VARIABLE, Some(given.to_owned())).map_err(|error| error.to_string());
        assert_eq!(seconds(NODE_WAIT_VARIABLE, None).expect("nothing is wrong"), None);
        assert_eq!(wait("0"), Ok(Some(Duration::ZERO)));
        assert_eq!(wait(" 1.5 "), Ok(Some(Duration::from_millis(1500))));
        for wrong in ["-1", "soon", "NaN", "1e9"] {
            assert!(wait(wrong).is_err_and(|text| text.contains("OXIRAY_INFEASIBLE_WAIT_S")), "{wrong}");
        }
    }

    #[test]
    fn rules_are_what_is_said_or_else_what_the_environment_says() {
        let variables = BTreeMap::from([
            (PREEMPTION_VARIABLE, "on"),
            (PREEMPTION_GRACE_VARIABLE, "2.5"),
            (JOB_ORDER_VARIABLE, " arrival "),
        ]);
        let of = |head: &HeadConfig| {
            let said = |name: &str| variables.get(name).map(|text| (*text).to_owned());
            rules(head, said).map_err(|error| error.to_string())
        };
        let found = of(&HeadConfig::default()).expect("they are proper");
        assert_eq!((found.preemption_grace, found.jobs_by_arrival), (Some(Duration::from_millis(2500)), true));
        let (off, fair) = (Some("off".to_owned()), Some("fair".to_owned()));
        let found = of(&HeadConfig { preemption: off, job_order: fair, ..HeadConfig::default() }).expect("proper too");
        assert_eq!((found.preemption_grace, found.jobs_by_arrival), (None, false));
        let nothing = rules(&HeadConfig::default(), |_| None).expect("nothing is said");
        assert_eq!((nothing.preemption_grace, nothing.jobs_by_arrival), (None, false));
        let long = HeadConfig { preemption_grace_s: Some(-1.0), ..HeadConfig::default() };
        assert!(of(&long).is_err_and(|text| text.contains("--preemption-grace-s is `-1`")));
        let unknown = HeadConfig { preemption: Some("perhaps".to_owned()), ..HeadConfig::default() };
        assert!(of(&unknown).is_err_and(|text| text.contains("`on` or `off`, as --preemption=")));
        let unknown = HeadConfig { job_order: Some("lifo".to_owned()), ..HeadConfig::default() };
        assert!(of(&unknown).is_err_and(|text| text.contains("`fair` or `arrival`")));
    }

    #[test]
    fn a_deadlock_is_told_or_one_of_its_calls_fails() {
        let wait = |mode: &str, seconds: &str| {
            let variables = BTreeMap::from([(DEADLOCK_VARIABLE, mode), (DEADLOCK_WAIT_VARIABLE, seconds)]);
            let said = |name: &str| variables.get(name).filter(|said| !said.is_empty()).map(|said| (*said).to_owned());
            deadlock_wait(said).map_err(|error| error.to_string())
        };
        assert_eq!(wait("", ""), Ok(Some(Duration::from_secs(10))));
        assert_eq!(wait("fail", "2.5"), Ok(Some(Duration::from_millis(2500))));
        assert_eq!(wait("report", "2.5"), Ok(None));
        assert_eq!(wait("tell", "2.5"), Ok(None));
        assert!(wait("hang", "").is_err_and(|text| text.contains("`report` or `fail`")));
        assert!(wait("", "never").is_err_and(|text| text.contains("OXIRAY_DEADLOCK_WAIT_S is `never`")));
    }

    #[test]
    fn a_misspelt_setting_and_a_tiny_store_are_refused() {
        assert!(serde_json::from_str::<Config>(r#"{"machine": {"resorces": {}}}"#).is_err());
        let machine = MachineConfig { object_store_memory: Some(5), ..MachineConfig::default() };
        let config = Config { machine, ..Config::default() };
        assert!(matches!(plan(&config, &Host::real()), Err(PlanError::StoreTooSmall { given: 5 })));
        assert_eq!(fullness(Some("0.5".into())).expect("a share"), 500);
        assert!(fullness(Some("95".into())).is_err() && fullness(Some("full".into())).is_err());
    }
}
