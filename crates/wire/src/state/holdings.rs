//! Which processes hold which objects.

use super::words::ProcessRole;
use oxiray_fields::Fields;
use oxiray_ids::{NodeId, ObjectId, WorkerId};
use serde::{Deserialize, Serialize};

/// An object and who holds it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct Holding {
    /// The object.
    #[field(1)]
    pub object: ObjectId,
    /// The process that made it.
    #[field(2)]
    pub owner: Option<ObjectProcess>,
    /// Who refers to it.
    #[field(3)]
    pub holders: Vec<ObjectHolder>,
    /// How many objects contain a reference to it.
    #[field(4)]
    pub containers: u64,
    /// Its bytes in the head's store, where it is there.
    #[field(5)]
    pub size: Option<u64>,
    /// Where it lies there.
    #[field(6)]
    pub place: Option<String>,
    /// The nodes whose stores have it.
    #[field(7)]
    pub nodes: Vec<NodeId>,
    /// Whether it was written to disk, on any of them.
    #[field(8)]
    pub was_spilled: bool,
}

/// A process and how often it refers to an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectHolder {
    /// The process.
    #[field(1)]
    pub process: Option<ObjectProcess>,
    /// How many references it told of.
    #[field(2)]
    pub count: u64,
}

/// A process that refers to objects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectProcess {
    /// The process.
    #[field(1)]
    pub id: WorkerId,
    /// What it is.
    #[field(2)]
    pub role: ProcessRole,
    /// The same as a number of its machine, where it is a worker.
    #[field(3)]
    pub pid: Option<u32>,
    /// The task, class or actor that it runs.
    #[field(4)]
    pub label: Option<String>,
}
