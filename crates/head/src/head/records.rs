//! The rows of the journal: each is made from what the head has in mind now, so that what is restored from rows makes
//! the same rows. Their tables and fields are those of `docs/formats/journal.md`; numbers never change their meaning.

use super::HeadCore;
use crate::actors::{Actor, ActorState, Making};
use crate::jobs::JobEnd;
use crate::journal::Row;
use crate::members::DrainRow;
use crate::placement_groups::{GroupOwner, PlacementGroup};
use bytes::Bytes;
use oxiray_ids::{JobId, NodeId};
use oxiray_journal::{Change, Table};
use oxiray_wire::message::{Driver, Failure, GroupCreate};
use prost::Message;
use std::collections::BTreeMap;

/// The kinds of rows.
pub mod table {
    use oxiray_journal::Table;

    /// Of the cluster itself; the daemon's, not the core's.
    pub const ABOUT: Table = 1;
    /// KeyValueStore values, by namespace and key.
    pub const KEPT: Table = 2;
    /// The number of the last job.
    pub const LAST_JOB: Table = 3;
    /// Jobs.
    pub const JOB: Table = 4;
    /// Members, by their nodes.
    pub const MEMBER: Table = 5;
    /// Actors.
    pub const ACTOR: Table = 6;
    /// How actors are made: their own, since they are large and never change.
    pub const CONSTRUCTOR: Table = 7;
    /// Placement groups.
    pub const GROUP: Table = 8;
    /// Values whose owners are gone and that somebody holds.
    pub const ORPHAN: Table = 9;
    /// Submitted jobs.
    pub const SUBMISSION: Table = 10;
    /// Tokens to join with.
    pub const TOKEN: Table = 11;
    /// Tokens that were revoked.
    pub const REVOKED: Table = 12;
}

/// The key of a kept value.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValueRow {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) namespace: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct JobRow {
    /// `WorkerId` of its driver.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) driver: Bytes,
    #[prost(uint32, tag = "2")]
    pub(super) pid: u32,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[prost(bool, tag = "4")]
    pub(super) ended: bool,
    /// What its driver said, as long as something of the job may have to be started.
    #[prost(message, optional, tag = "5")]
    pub(super) told: Option<Driver>,
    /// Why it failed, where it did.
    #[prost(string, optional, tag = "6")]
    pub(super) error: Option<String>,
    #[prost(string, tag = "7")]
    pub(super) entrypoint: String,
    #[prost(btree_map = "string, string", tag = "13")]
    pub(super) metadata: BTreeMap<String, String>,
    #[prost(uint64, tag = "9")]
    pub(super) started_ms: u64,
    #[prost(string, tag = "10")]
    pub(super) ip: String,
    /// `NodeId` of its driver.
    #[prost(bytes = "bytes", tag = "11")]
    pub(super) node: Bytes,
    /// When the head saw its driver leave; 0 where that is not known.
    #[prost(uint64, tag = "12")]
    pub(super) ended_ms: u64,
    /// Its runtime environment, as its user wrote it: JSON.
    #[prost(string, tag = "14")]
    pub(super) runtime_env: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberRow {
    #[prost(string, tag = "1")]
    pub(super) ip: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    /// How it is being emptied, where it is.
    #[prost(message, optional, tag = "3")]
    pub(super) drain: Option<DrainRow>,
    /// The devices for which its machine is to be started again.
    #[prost(message, repeated, tag = "4")]
    pub(super) restarts_for: Vec<DeviceRow>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeviceRow {
    #[prost(string, tag = "1")]
    pub(super) resource: String,
    #[prost(uint32, tag = "2")]
    pub(super) slot: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ActorRow {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) job: Bytes,
    /// `WorkerId` of who made it.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) creator: Bytes,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) namespace: String,
    #[prost(string, tag = "5")]
    pub(super) class_name: String,
    #[prost(bool, tag = "6")]
    pub(super) detached: bool,
    #[prost(int32, tag = "7")]
    pub(super) max_restarts: i32,
    #[prost(uint32, tag = "8")]
    pub(super) restarts: u32,
    #[prost(bool, tag = "9")]
    pub(super) is_unreferenced: bool,
    #[prost(bytes = "bytes", tag = "10")]
    pub(super) handle: Bytes,
    /// Its constructor's arguments are awaited where it is made.
    #[prost(bool, tag = "11")]
    pub(super) is_unfinished: bool,
    /// `NodeId` of the node that has its process, or was ordered to; empty for none.
    #[prost(bytes = "bytes", tag = "12")]
    pub(super) node: Bytes,
    /// Why it is dead.
    #[prost(message, optional, tag = "13")]
    pub(super) death: Option<Failure>,
    /// How many of its restarts are not counted.
    #[prost(uint32, tag = "14")]
    pub(super) moves: u32,
    #[prost(bool, tag = "15")]
    pub(super) preemptible: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GroupRow {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) job: Bytes,
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    /// What it asks for.
    #[prost(message, optional, tag = "3")]
    pub(super) asked: Option<GroupCreate>,
    /// The detached actor that it ends with; empty for none.
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) actor: Bytes,
    #[prost(bool, tag = "5")]
    pub(super) was_created: bool,
    /// `NodeId` of each bundle that was set aside for good; empty where it has none.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub(super) nodes: Vec<Bytes>,
}

/// An identifier as rows have it.
fn bytes_of(id: &[u8]) -> Bytes {
    Bytes::copy_from_slice(id)
}

impl HeadCore {
    /// What a row is to hold now.
    pub(super) fn change_of(&self, row: &Row) -> Change {
        let encoded = |message: &dyn Fn() -> Vec<u8>| Some(Bytes::from(message()));
        let (table, key, value): (Table, Bytes, Option<Bytes>) = match row {
            Row::KeyValueStore(namespace, key) => {
                let name = (namespace.clone(), key.clone());
                let value = self.durable.kept.get(&name).cloned();
                let (namespace, key) = name;
                (table::KEPT, KeyValueRow { namespace, key }.encode_to_vec().into(), value)
            }
            Row::LastJob => {
                let number = Bytes::copy_from_slice(&self.jobs.known.last_number().to_le_bytes());
                (table::LAST_JOB, Bytes::new(), Some(number))
            }
            Row::Job(id) => {
                let row = self.job_row(*id);
                (table::JOB, bytes_of(id.as_bytes()), row.and_then(|row| encoded(&|| row.encode_to_vec())))
            }
            Row::Member(id) => {
                let row = self.member_row(*id);
                (table::MEMBER, bytes_of(id.as_bytes()), row.and_then(|row| encoded(&|| row.encode_to_vec())))
            }
            Row::Actor(id) => {
                let row = self.actors.known.get(*id).map(|actor| self.actor_row(actor, self.actors.making.get(id)));
                (table::ACTOR, bytes_of(id.as_bytes()), row.and_then(|row| encoded(&|| row.encode_to_vec())))
            }
            Row::Constructor(id) => {
                let spec = self.actors.making.get(id).and_then(|making| making.spec.as_ref());
                (table::CONSTRUCTOR, bytes_of(id.as_bytes()), spec.and_then(|spec| encoded(&|| spec.encode_to_vec())))
            }
            Row::Group(id) => {
                let row = self.groups.known.get(*id).and_then(|group| self.group_row(group));
                (table::GROUP, bytes_of(id.as_bytes()), row.and_then(|row| encoded(&|| row.encode_to_vec())))
            }
            Row::Orphan(id) => {
                let value = self.objects.known.orphan(*id);
                (table::ORPHAN, bytes_of(id.as_bytes()), value.and_then(|value| encoded(&|| value.encode_to_vec())))
            }
            Row::Submission(id) => {
                let row = self.jobs.submitted.get(id);
                let key = Bytes::copy_from_slice(id.as_bytes());
                (table::SUBMISSION, key, row.and_then(|row| encoded(&|| row.encode_to_vec())))
            }
        };
        Change { table, key, value }
    }

    /// All rows that there may be.
    #[cfg(test)]
    pub(super) fn all_rows(&self) -> Vec<Row> {
        let kept = self.durable.kept.iter().map(|(namespace, key)| Row::KeyValueStore(namespace.clone(), key.clone()));
        let jobs = self.jobs.known.iter().map(|job| Row::Job(job.id));
        let actors = self.actors.known.iter().map(|actor| actor.description.id);
        let actors = actors.flat_map(|id| [Row::Actor(id), Row::Constructor(id)]);
        let groups = self.groups.known.iter().map(|group| Row::Group(group.description.id));
        let orphans = self.objects.known.orphans().map(Row::Orphan);
        let submissions = self.jobs.submitted.all().into_iter().map(|job| Row::Submission(job.id));
        let rows = kept.chain([Row::LastJob]).chain(jobs).chain(actors).chain(groups).chain(orphans);
        rows.chain(submissions).collect()
    }

    fn job_row(&self, id: JobId) -> Option<JobRow> {
        let job = self.jobs.known.get(id)?;
        Some(JobRow {
            driver: bytes_of(job.driver.as_bytes()),
            pid: job.pid,
            namespace: job.namespace.clone(),
            ended: job.end.is_some(),
            told: self.jobs.details.get(&id).map(|detail| detail.told.clone()),
            error: match &job.end {
                Some(JobEnd::Failed(text)) => Some(text.clone()),
                Some(JobEnd::Succeeded) | None => None,
            },
            entrypoint: job.facts.entrypoint.clone(),
            metadata: job.facts.metadata.clone(),
            started_ms: job.facts.started_ms,
            ended_ms: job.ended_ms,
            ip: job.facts.ip.clone(),
            node: bytes_of(job.facts.node.as_bytes()),
            runtime_env: job.facts.runtime_env.clone(),
        })
    }

    fn member_row(&self, id: NodeId) -> Option<MemberRow> {
        let key = self.members.by_node.get(&id)?;
        let member = self.members.by_key.get(key)?;
        let drain = self.members.drains.get(key).map(|drain| drain.asked.clone());
        let device = |(resource, slot): &(String, u32)| DeviceRow { resource: resource.clone(), slot: *slot };
        let restarts_for = member.restarts_for.iter().map(device).collect();
        Some(MemberRow { ip: member.told.ip.clone(), name: member.told.name.clone(), drain, restarts_for })
    }

    fn actor_row(&self, actor: &Actor<Failure>, making: Option<&Making>) -> ActorRow {
        let death = match &actor.state {
            ActorState::Dead(failure) => Some(failure.clone()),
            _ => None,
        };
        let placed = actor.worker().map(|worker| self.node_of_worker(worker));
        let node = placed.or_else(|| making.and_then(|making| making.post.or(making.ordered_to)));
        let description = &actor.description;
        ActorRow {
            job: bytes_of(description.job.as_bytes()),
            creator: bytes_of(description.creator.as_bytes()),
            name: description.name.clone(),
            namespace: description.namespace.clone(),
            class_name: description.class_name.clone(),
            detached: description.detached,
            max_restarts: description.max_restarts,
            preemptible: description.preemptible,
            restarts: actor.restarts,
            moves: actor.moves,
            is_unreferenced: actor.is_unreferenced,
            handle: making.map(|making| making.handle.clone()).unwrap_or_default(),
            is_unfinished: making.is_some_and(|making| making.is_unfinished),
            node: node.map(|node| bytes_of(node.as_bytes())).unwrap_or_default(),
            death,
        }
    }

    fn group_row(&self, group: &PlacementGroup) -> Option<GroupRow> {
        let description = &group.description;
        let reservation = self.groups.reservations.get(&description.id)?;
        let actor = match description.owner {
            GroupOwner::Actor(actor) => bytes_of(actor.as_bytes()),
            GroupOwner::Job(_) | GroupOwner::Nobody => Bytes::new(),
        };
        let kept = group.kept_nodes().into_iter();
        Some(GroupRow {
            job: bytes_of(description.job.as_bytes()),
            namespace: description.namespace.clone(),
            asked: reservation.asked.clone(),
            actor,
            was_created: group.was_created(),
            nodes: kept.map(|node| node.map(|node| bytes_of(node.as_bytes())).unwrap_or_default()).collect(),
        })
    }
}
