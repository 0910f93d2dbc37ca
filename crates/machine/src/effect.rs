//! What the shell of a daemon is to do: for its machine, and for the cluster where it is the head.

use crate::confinement::Confinement;
use crate::device_checks::{DeviceQuestion, DeviceSlot};
use crate::device_health::HealthRecord;
use crate::isolation::DeviceFence;
use crate::memory_tiers::DeviceMemoryLimit;
use crate::names::{Key, TemplateKey};
use crate::origin::Origin;
use oxiray_ids::{NodeId, ObjectId};
use oxiray_journal::Change;
use oxiray_wire::Message;
use oxiray_wire::message::{Peer, SubmissionSpec};

/// What the shell is to do.
#[derive(Debug)]
pub enum Effect {
    /// Queue a message on a control stream.
    Send {
        /// Whose.
        to: Key,
        /// What.
        message: Message,
    },
    /// Make a stream between a client and a worker, and hand each its end with a message.
    Join {
        /// The client.
        client: Key,
        /// Goes to the client with its end.
        placed: Message,
        /// The worker.
        worker: Key,
        /// Goes to the worker with its end.
        peer: Peer,
    },
    /// Start a template process.
    StartTemplate {
        /// Its name from here on.
        template: TemplateKey,
        /// What it is.
        origin: Origin,
    },
    /// Have a template end, and its spare workers with it.
    EndTemplate {
        /// Its name.
        template: TemplateKey,
    },
    /// Start the process that makes what an environment needs.
    Prepare {
        /// Names the preparation.
        number: u64,
        /// The interpreter that it runs on.
        interpreter: String,
        /// What to make, for that process.
        specification: String,
        /// The folder of the cache that it uses; empty for none.
        cached: String,
    },
    /// Nothing uses what was prepared any more, or it took too long: end the process where there still is one.
    EndPreparation {
        /// Its name.
        number: u64,
    },
    /// Have a template fork a worker, with a control stream of that key.
    Fork {
        /// The worker.
        worker: Key,
        /// The template.
        template: TemplateKey,
        /// Whether it is born where it can be refused devices ([`Effect::Fence`]).
        is_fenced: bool,
        /// Whether it is forked even where the template has a device open.
        even_with_devices: bool,
    },
    /// Kill the process of a worker of this machine.
    Kill {
        /// Which.
        worker: Key,
    },
    /// Kill the process of a member of this machine.
    KillMember {
        /// Which.
        member: Key,
    },
    /// How much memory a worker may take for itself.
    Confine(Confinement),
    /// A worker is to have so much memory of a device from now on, by the kernel.
    LimitDeviceMemory(DeviceMemoryLimit),
    /// Which devices a worker is refused; where that cannot be, the core is told ([`crate::NodeCore::fence_failed`]).
    Fence(DeviceFence),
    /// What is to become of a submitted job.
    Submission(SubmissionOrder),
    /// End a peer that said what no honest peer says, and tell it why (DOOR-1).
    Expel {
        /// Which: a driver, a visitor, a worker or a member.
        peer: Key,
        /// What it said.
        why: String,
    },
    /// Close a driver's stream when everything queued on it is sent.
    Close {
        /// The driver.
        client: Key,
    },
    /// Where an object lies, for a member that asked or for this node.
    Located(Whereabouts),
    /// Have a copy of an object in this node's store.
    Copy {
        /// The object.
        object: ObjectId,
    },
    /// Delete an object from the store.
    Delete {
        /// The object.
        object: ObjectId,
    },
    /// A client of the store is gone.
    LeaveStore {
        /// The client.
        client: Key,
    },
    /// Ask the vendor's library about a device; [`crate::NodeCore::device_answered`] takes the answer.
    AskDevice(DeviceQuestion),
    /// Look who is in the control group of a worker that is gone; [`crate::NodeCore::group_has`] takes the answer.
    LookAtGroup {
        /// The worker.
        worker: Key,
    },
    /// Measure how much devices are used; [`crate::NodeCore::devices_measured`] takes what is found.
    MeasureDevices,
    /// Check whether a device that nobody has computes and remembers; [`crate::NodeCore::device_tested`] takes the outcome.
    CheckDevice {
        /// The device.
        device: DeviceSlot,
    },
    /// Remember this of devices over a restart of the daemon, in place of what was remembered before.
    RememberHealth(Vec<HealthRecord>),
    /// Look which devices' own nodes the trees of these processes have open; [`crate::NodeCore::nodes_opened`] takes what is
    /// found.
    LookAtOpenNodes {
        /// The processes of workers.
        workers: Vec<u32>,
    },
    /// Have these rows written in one step; the head is told what became of it.
    Write(Vec<Change>),
    /// A line for daemon.log.
    Log(String),
}

impl Effect {
    /// Whether it tells nobody of anything, so that it waits for no row. What is done with the objects in this node's store
    /// is none of the journal's: they end with this daemon. The shell changes them at its clients' words, too, and must
    /// not hear later that one is to be deleted which was made again meanwhile.
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Delete { .. }
            | Self::Copy { .. }
            | Self::LeaveStore { .. }
            | Self::AskDevice(_)
            | Self::LookAtGroup { .. }
            | Self::MeasureDevices
            | Self::LookAtOpenNodes { .. }
            | Self::CheckDevice { .. }
            | Self::RememberHealth(_)
            | Self::Log(_)
            | Self::Write(_) => true,
            Self::Send { .. }
            | Self::Join { .. }
            | Self::Located(_)
            | Self::Expel { .. }
            | Self::Close { .. }
            | Self::StartTemplate { .. }
            | Self::EndTemplate { .. }
            | Self::Prepare { .. }
            | Self::EndPreparation { .. }
            | Self::Fork { .. }
            | Self::Kill { .. }
            | Self::KillMember { .. }
            | Self::Confine(_)
            | Self::LimitDeviceMemory(_)
            | Self::Fence(_)
            | Self::Submission(_) => false,
        }
    }
}

/// What the shell is to do about a submitted job.
#[derive(Debug)]
pub enum SubmissionOrder {
    /// Start the process that runs it.
    Start {
        /// Its name.
        id: String,
        /// What was submitted.
        spec: SubmissionSpec,
    },
    /// Have that process end it.
    End {
        /// Its name.
        id: String,
    },
}

/// What was found out of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whereabouts {
    /// The member that asked; nothing for this node.
    pub asker: Option<Key>,
    /// The object.
    pub object: ObjectId,
    /// The node that has it; nothing where none has.
    pub node: Option<NodeId>,
}
