//! The state of a cluster as types: what the head says of nodes, devices, actors, groups, tasks, jobs, workers, objects and
//! environments, why something waits, and what the autoscaler plans from.
//!
//! The head makes them and they travel as bodies of messages. Their serde forms are what programs read as JSON: the command
//! line, the Python API and plans in files use these and no others. Amounts of resources are by the resource's name, 1.0
//! for a whole unit, and bytes for `memory` and `object_store_memory`.

mod chronicle;
mod cluster;
mod device_memory;
mod explanation;
mod growth;
mod holdings;
mod rows;
mod statistics;
mod summary;
mod words;

pub use chronicle::{ChronicleCursor, ChronicleEntry, ChronicleGap, DevicePart};
pub use cluster::{
    ClusterState, ConnectedJob, DaemonState, DeviceCondition, DeviceFile, DeviceFiles, DeviceHolder, DeviceIsolation,
    DeviceRow, DeviceTold, DrainState, DrainTold, EndTold, ForeignUse, LeftOnNode, MemoryLevel, NodeIsolation,
    RealmDevices, StoreState, TurnFigures, WaitingRow, WorkerLimits,
};
pub use device_memory::DeviceMemory;
pub use explanation::{DeadlockFound, DevicesChosen, Explanation, NodeVerdict};
pub use growth::{
    AutoscalerState, BundleRecord, DomainsRecord, FreeShare, FreeShares, GroupEntry, GroupStatus, GrowthView,
    IDLE_TIMEOUT_S, MachineRecord, PlanRecord, ReplicaLimits, ReplicaPhase, ReplicaRecord, SelectorRecord,
    SingleDevices, StandingRecord, WaitingRecord,
};
pub use holdings::{Holding, ObjectHolder, ObjectProcess};
pub use rows::{
    ActorRow, ActorSurroundings, BundleRow, DriverProcess, EnvironmentRow, GoneRow, GroupRow, JobRow, Lifetime,
    NodeDaemon, NodeRow, ObjectRow, ProcessStacks, Slots, Tables, TaskRow, TaskSurroundings, WorkerExit, WorkerRow,
};
pub use statistics::{
    DaemonStatistics, DiskSpace, Flow, MeasuredNode, MemoryStatistics, MetricsPlace, NodeStatistics, TURN_STEPS_MS,
    WorkerStatistics,
};
pub use summary::{AttemptCount, CallCounts, ObjectCounts, Summary};
pub use words::{
    ActorPhase, ChronicleEvent, ChronicleKind, DemandKind, DeviceService, DeviceTier, ExitKind, GroupScheduling,
    GroupState, HealthState, IsolationMode, MemoryTier, ProcessRole, ProfileKind, ServiceCause, Severity, StateKind,
    TaskKind, WorkerDuty,
};

use oxiray_fields::Fields;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of these types. It grows when a field changes its meaning; a reader refuses another one.
pub const STATE_VERSION: u32 = 1;

/// Amounts by the resource's name, where there may be none to tell.
#[derive(Debug, Clone, PartialEq, Default, Fields, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amounts {
    /// 1.0 for a whole unit.
    #[field(1)]
    pub by_name: BTreeMap<String, f64>,
}

impl From<BTreeMap<String, f64>> for Amounts {
    fn from(by_name: BTreeMap<String, f64>) -> Self {
        Self { by_name }
    }
}
