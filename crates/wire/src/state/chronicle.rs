//! The chronicle: what happened in the cluster, each entry with a number and a time, as long as the head remembers it.
//!
//! ```text
//! device_granted ─▶ device_granted (another share) ─▶ device_returning ─▶ device_free        of one grant on one device
//! device_out_of_service ─▶ device_in_service          device_ill ─▶ device_well              of one device
//! ```
//!
//! Who applies the entries of devices in the order of their numbers has who holds what: an entry about a grant takes the place
//! of the one before, and `device_free` takes it away.

use super::words::{ChronicleEvent, ChronicleKind, DemandKind, Severity};
use oxiray_fields::Fields;
use oxiray_ids::{ActorId, JobId, NodeId, PlacementGroupId, WorkerId};
use serde::{Deserialize, Serialize};

/// Something that happened. What an event does not concern is left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ChronicleEntry {
    /// Its place among all entries of this head, counted from 1 without a gap.
    #[field(1)]
    pub number: u64,
    /// When, in milliseconds since 1970 by the head's clock.
    #[field(2)]
    pub at_ms: u64,
    /// What.
    #[field(3)]
    pub event: ChronicleEvent,
    /// The node.
    #[field(4)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The device, and which part of it.
    #[field(5)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DevicePart>,
    /// The job.
    #[field(6)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The actor.
    #[field(7)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorId>,
    /// The placement group.
    #[field(8)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<PlacementGroupId>,
    /// The worker: rows of tasks name it too.
    #[field(9)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// Its process; 0 where there is none yet.
    #[field(10)]
    #[serde(skip_serializing_if = "is_nothing")]
    pub pid: u32,
    /// The name of what it is about: the task, actor or group that holds a device; a node, a submitted job, a replica, a
    /// training run.
    #[field(11)]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Why, or how, for people; cut where it is long. Of a training run: `NAME=NUMBER`, with commas between.
    #[field(12)]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// A part of a device, or a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DevicePart {
    /// The resource, such as `GPU`.
    #[field(1)]
    pub resource: String,
    /// The device's number among those of its node.
    #[field(2)]
    pub slot: u32,
    /// Its UUID, or what the variable that shows devices to programs calls it.
    #[field(3)]
    pub id: String,
    /// Names the grant on its node, as long as the node's daemon lives; 0 where the entry is about the device itself.
    #[field(4)]
    #[serde(skip_serializing_if = "is_no_number")]
    pub grant: u64,
    /// How much of the device is granted, in 1/10,000.
    #[field(5)]
    #[serde(skip_serializing_if = "is_no_number")]
    pub share: u64,
    /// What holds it: a placement group holds what nobody within it has.
    #[field(6)]
    pub holder: DemandKind,
    /// When it was granted, in milliseconds since 1970; 0 where the entry is about the device itself.
    #[field(7)]
    #[serde(skip_serializing_if = "is_no_number")]
    pub since_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over the field as it is")]
fn is_nothing(pid: &u32) -> bool {
    *pid == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over the field as it is")]
fn is_no_number(number: &u64) -> bool {
    *number == 0
}

/// Entries that a follower was not told of, and never will be: the head has forgotten them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
pub struct ChronicleGap {
    /// The number of the first.
    #[field(1)]
    pub from: u64,
    /// The number of the last.
    #[field(2)]
    pub to: u64,
}

/// Up to where a follower knows the chronicle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ChronicleCursor {
    /// Tells the numbers of one head from those of another.
    #[field(1)]
    pub origin: u64,
    /// The number of the last entry that is known.
    #[field(2)]
    pub number: u64,
    /// Below this, only what still holds is told: where the follower began. It is the head's to read; 0 will do.
    #[field(3)]
    pub begun: u64,
}

impl ChronicleEvent {
    /// What it is about.
    pub fn kind(self) -> ChronicleKind {
        match self {
            Self::DeviceGranted
            | Self::DeviceReturning
            | Self::DeviceFree
            | Self::DeviceOutOfService
            | Self::DeviceInService
            | Self::DeviceIll
            | Self::DeviceWell
            | Self::DeviceNoted
            | Self::DeviceKept => ChronicleKind::Device,
            Self::NodeJoined | Self::NodeReturned | Self::NodeLost | Self::NodeDraining | Self::NodeKept => {
                ChronicleKind::Node
            }
            Self::ActorWaiting | Self::ActorStarting | Self::ActorAlive | Self::ActorRestarting | Self::ActorDead => {
                ChronicleKind::Actor
            }
            Self::GroupPending | Self::GroupCreated | Self::GroupRescheduling | Self::GroupRemoved => {
                ChronicleKind::PlacementGroup
            }
            Self::JobStarted
            | Self::JobEnded
            | Self::SubmissionPending
            | Self::SubmissionRunning
            | Self::SubmissionSucceeded
            | Self::SubmissionFailed
            | Self::SubmissionStopped => ChronicleKind::Job,
            Self::WorkerDied => ChronicleKind::Worker,
            Self::AutoscalerJoined
            | Self::AutoscalerLeft
            | Self::AutoscalerTroubled
            | Self::ReplicaChanged
            | Self::ReplicaGone => ChronicleKind::Autoscaler,
            Self::HeadStarted | Self::HeadCameBack => ChronicleKind::Head,
            Self::TrainReported => ChronicleKind::Train,
        }
    }

    /// How much it matters to people.
    pub fn severity(self) -> Severity {
        match self {
            Self::DeviceOutOfService
            | Self::DeviceIll
            | Self::NodeLost
            | Self::SubmissionFailed
            | Self::WorkerDied
            | Self::AutoscalerTroubled => Severity::Error,
            Self::DeviceNoted
            | Self::DeviceKept
            | Self::NodeDraining
            | Self::ActorRestarting
            | Self::GroupRescheduling
            | Self::SubmissionStopped
            | Self::AutoscalerLeft
            | Self::HeadCameBack => Severity::Warning,
            _ => Severity::Info,
        }
    }
}
