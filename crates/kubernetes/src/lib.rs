//! `RayCluster` objects: which pods they want, and what each pod's node will offer.
//!
//! ```text
//! template, rayStartParams ──capacity──▶ PodCapacity      {CPU: 3, GPU: 1}, at zero replicas too
//! RayCluster, pods         ──plan──────▶ Plan          objects and pods to apply, pods to delete, what to say
//! RayCluster, pods         ──status────▶ status        conditions, and the capacity of every group
//! RayCluster, pods, requests ──Scaling───▶ JSON patch    replicas and pods to go, as an autoscaler wants them
//! RayJob, cluster, head    ──job_step──▶ JobStep       what is to be made, submitted, deleted, and told of a job
//! ```
//!
//! Everything here is a function of objects as the API tells them: no client, no clock, no state but what is passed in.
//! So whatever order events come in, and wherever an operator was killed, the next plan begins from what is there.

mod accelerators;
mod applied;
mod capacity;
mod claims;
mod cluster;
mod command;
mod crd;
mod devices;
mod failures;
mod gang;
mod job;
mod job_ends;
mod job_step;
mod machine_labels;
mod objects;
mod observed;
mod plan;
mod pods;
mod quantity;
mod scaling;
mod settings;
mod status;
mod validate;

pub use capacity::{Catalogue, PROFILE_LABEL, PodCapacity, Shape, TYPE_LABEL, capacity};
pub use claims::{Claims, references};
pub use cluster::{
    API_GROUP, API_VERSION, AutoscalerOptions, FaultTolerance, HEAD_GROUP, HeadGroup, Metadata, RayCluster,
    ScaleStrategy, Spec, Storage, UpgradeStrategy, WorkerGroup, hash_of,
};
pub use crd::definitions;
pub use devices::{MoreDevices, Unit};
pub use failures::{Failures, FailuresByGroup};
pub use job::{JobSpec, JobStatus, RayJob, Stage as JobStage};
pub use job_step::{Heard, JobAction, JobCluster, JobSituation, JobStep, asks_head, step as job_step};
pub use machine_labels::{MACHINE_LABELS_ANNOTATION, machine_labels};
pub use observed::{ObservedPod, Phase};
pub use plan::{Deletion, NewPod, Plan, Remark, Situation, owner, plan};
pub use pods::{
    CLUSTER_LABEL, CREATED_BY, CREATED_BY_LABEL, GROUP_LABEL, HASH_LABEL, HOST_LABEL, REPLICA_LABEL, head_capacity,
    worker_capacity,
};
pub use quantity::{NoQuantity, quantity};
pub use scaling::{Look, ScaledGroup, ScaledPod, Scaling, Stage, Undelivered, scaled_groups};
pub use settings::Settings;
pub use status::{Refusals, StatusInputs, failures_of, seconds, status, timestamp};

#[cfg(test)]
mod tests;
