//! A head that goes on with what another wrote down.
//!
//! What ran on the machine of the other head died with it, and is known to have; what ran on members is theirs to tell.

use super::HeadCore;
use super::records::{ActorRow, GroupRow, JobRow, KeyValueRow, MemberRow, table};
use crate::actors::{Actor, ActorState, Description, Making};
use crate::demands::group_of;
use crate::failures::death;
use crate::jobs::{Job, JobDetail, JobEnd, JobFacts};
use crate::journal::Row;
use crate::objects::contained_in;
use crate::placement_groups::{GroupDescription, GroupOwner, Reservation};
use bytes::Bytes;
use oxiray_ids::{ActorId, JobId, NodeId, ObjectId, PlacementGroupId, WorkerId};
use oxiray_journal::{Rows, Table};
use oxiray_wire::message::{ActorCreate, Value};
use prost::Message;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// An identifier within a row. Rows are the head's own; one that is empty names nothing.
macro_rules! id_in {
    ($kind:ty, $bytes:expr) => {
        <$kind>::from_slice($bytes).unwrap_or(<$kind>::NIL)
    };
}

/// Rows are not such as this version writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRestored {
    /// A later version wrote rows of this kind.
    #[error(
        "the head's journal has rows of a kind ({0}) that this version of Oxiray does not know: start the version that wrote them, or give up what it holds with `oxiray start --head --fresh`"
    )]
    Table(Table),
    /// A row has another form.
    #[error(
        "a row of kind {0} in the head's journal cannot be read: start the version of Oxiray that wrote it, or give up what it holds with `oxiray start --head --fresh`"
    )]
    Row(Table),
}

impl HeadCore {
    /// Goes on with what a head has written down, and writes down what changes from here on. To be called once, before
    /// anything else. Members that there were are waited for so long. Returns what there is, in words.
    ///
    /// # Errors
    /// Where it cannot be read; the core is of no use then.
    pub(crate) fn restore(&mut self, rows: &Rows, patience: Duration) -> Result<Vec<String>, NotRestored> {
        let members = self.read_rows(rows)?;
        self.durable.begin_journal();
        let living = self.go_on(&members);
        let until = self.clock.now + patience;
        self.begin_resumption(members.into_iter().map(|node| (node, until)).collect());
        let count = |table: Table| rows.range((table, Bytes::new())..(table + 1, Bytes::new())).count();
        Ok(counted(&[
            (count(table::KEPT), "kept value", "kept values"),
            (living, "actor", "actors"),
            (count(table::GROUP), "placement group", "placement groups"),
        ]))
    }

    /// Has everything as the rows say. Returns the members that there were.
    pub(super) fn read_rows(&mut self, rows: &Rows) -> Result<BTreeSet<NodeId>, NotRestored> {
        let mut members = BTreeSet::new();
        for ((table, key), value) in rows {
            match *table {
                // The daemon's own.
                table::ABOUT | table::TOKEN | table::REVOKED => {}
                table::KEPT => self.restore_kept(key, value)?,
                table::LAST_JOB => {
                    let number = value[..].try_into().map_err(|_| NotRestored::Row(*table))?;
                    self.jobs.known.set_last_number(u32::from_le_bytes(number));
                }
                table::JOB => self.restore_job(identifier(key, *table, JobId::from_slice)?, row(*table, value)?),
                table::MEMBER => {
                    let node = identifier(key, *table, NodeId::from_slice)?;
                    let MemberRow { drain, restarts_for, .. } = row(*table, value)?;
                    self.members.drained_before.extend(drain.map(|drain| (node, drain)));
                    let restarts_for = restarts_for.into_iter().map(|of| (of.resource, of.slot)).collect();
                    self.members.restarts_before.insert(node, restarts_for);
                    members.insert(node);
                }
                table::ACTOR => {
                    self.restore_actor(identifier(key, *table, ActorId::from_slice)?, row(*table, value)?);
                }
                table::CONSTRUCTOR => {
                    let id = identifier(key, *table, ActorId::from_slice)?;
                    let spec: ActorCreate = row(*table, value)?;
                    self.know_constructor(id, spec);
                }
                table::GROUP => {
                    let id = identifier(key, *table, PlacementGroupId::from_slice)?;
                    self.restore_group(id, row(*table, value)?)?;
                }
                table::ORPHAN => {
                    let value: Value = row(*table, value)?;
                    let contained = contained_in(&value.contained);
                    self.objects.known.restore(identifier(key, *table, ObjectId::from_slice)?, value, &contained);
                }
                table::SUBMISSION => self.jobs.submitted.restore(row(*table, value)?),
                other => return Err(NotRestored::Table(other)),
            }
        }
        Ok(members)
    }

    fn restore_kept(&mut self, key: &Bytes, value: &Bytes) -> Result<(), NotRestored> {
        let name = KeyValueRow::decode(key.clone()).map_err(|_| NotRestored::Row(table::KEPT))?;
        self.durable.kept.set(name.namespace, name.key, Some(value.clone()));
        Ok(())
    }

    fn restore_job(&mut self, id: JobId, row: JobRow) {
        let driver_id = id_in!(WorkerId, &row.driver);
        let facts = JobFacts {
            entrypoint: row.entrypoint,
            metadata: row.metadata,
            started_ms: row.started_ms,
            ip: row.ip,
            node: id_in!(NodeId, &row.node),
            runtime_env: row.runtime_env,
        };
        let end = row.ended.then(|| row.error.map_or(JobEnd::Succeeded, JobEnd::Failed));
        self.jobs.known.restore(Job {
            id,
            driver: driver_id,
            pid: row.pid,
            namespace: row.namespace,
            facts,
            end,
            ended_ms: row.ended_ms,
        });
        if let Some(told) = row.told {
            // Nobody's, until the driver is back.
            let driver = self.new_key();
            let mut detail = JobDetail::new(driver, driver_id, told);
            detail.is_over = row.ended;
            self.jobs.details.insert(id, detail);
        }
    }

    fn restore_actor(&mut self, id: ActorId, row: ActorRow) {
        let description = Description {
            id,
            job: id_in!(JobId, &row.job),
            creator: id_in!(WorkerId, &row.creator),
            name: row.name,
            namespace: row.namespace,
            class_name: row.class_name,
            detached: row.detached,
            max_restarts: row.max_restarts,
            preemptible: row.preemptible,
        };
        let job = description.job;
        let is_dead = row.death.is_some();
        let state = match row.death {
            Some(failure) => ActorState::Dead(failure),
            None if row.restarts > 0 => ActorState::Restarting,
            None => ActorState::Waiting,
        };
        let mut actor = Actor::new(description, state, row.restarts, row.is_unreferenced);
        actor.moves = row.moves.min(row.restarts);
        self.actors.known.restore(actor);
        if !is_dead {
            let mut making = Making::unfinished(job, row.handle);
            making.post = NodeId::from_slice(&row.node);
            making.is_unfinished = row.is_unfinished;
            self.actors.making.insert(id, making);
        }
    }

    fn restore_group(&mut self, id: PlacementGroupId, row: GroupRow) -> Result<(), NotRestored> {
        let unread = || NotRestored::Row(table::GROUP);
        let asked = row.asked.ok_or_else(unread)?;
        let group = group_of(&asked).map_err(|_| unread())?;
        let job = id_in!(JobId, &row.job);
        let owner = match ActorId::from_slice(&row.actor) {
            Some(actor) => GroupOwner::Actor(actor),
            None if asked.detached => GroupOwner::Nobody,
            None => GroupOwner::Job(job),
        };
        let nodes: Vec<Option<NodeId>> = row.nodes.iter().map(|node| NodeId::from_slice(node)).collect();
        if nodes.len() != group.bundles.len() {
            return Err(unread());
        }
        let name = asked.name.clone();
        let description = GroupDescription { id, job, owner, name, namespace: row.namespace, group: Arc::new(group) };
        self.groups.known.restore(description, nodes, row.was_created);
        let maker = self.new_key();
        let (since, priority, preemptible) = (self.clock.now, asked.priority, asked.preemptible);
        let asked = Some(asked);
        let reservation = Reservation { ticket: None, since, took: None, maker, asked, priority, preemptible };
        self.groups.reservations.insert(id, reservation);
        self.count_bundles(id);
        Ok(())
    }

    /// Has wait what waits and end what ended with the other head. Returns how many actors there are.
    fn go_on(&mut self, members: &BTreeSet<NodeId>) -> usize {
        // What was set aside on the machine of the other head is free again.
        let used: BTreeSet<NodeId> =
            self.groups.known.iter().flat_map(|group| &group.nodes).flatten().copied().collect();
        for node in used.difference(members) {
            self.groups.known.machine_died(*node);
        }
        for id in self.jobs.submitted.head_ended() {
            self.durable.touch(Row::Submission(id));
        }
        let incomplete = self.groups.known.iter().filter(|group| group.nodes.contains(&None));
        for id in incomplete.map(|group| group.description.id).collect::<Vec<_>>() {
            self.durable.touch(Row::Group(id));
            self.group_waits_again(id);
        }
        let living: Vec<ActorId> = self.actors.making.keys().copied().collect();
        for id in &living {
            let making = self.actors.making.get_mut(id);
            match making.and_then(|making| making.post.take_if(|node| !members.contains(node))) {
                Some(_) => self.actor_ended_with_head(*id),
                None if self.actors.making.get(id).is_some_and(|making| making.post.is_none()) => self.queue_actor(*id),
                None => {}
            }
        }
        living.len()
    }

    /// The actor's process died with the head of before.
    fn actor_ended_with_head(&mut self, id: ActorId) {
        self.durable.touch(Row::Actor(id));
        if self.actors.known.missing(id).is_some() {
            return self.queue_actor(id);
        }
        let restarts = self.actors.known.get(id).map_or(0, |actor| actor.restarts);
        let spent = if restarts == 0 { String::new() } else { format!(" It was restarted {restarts} times before.") };
        let why = format!("its process ended with the daemon of the head's machine, which was killed.{spent}");
        self.actor_died(id, &death(&why));
    }
}

fn row<M: Message + Default>(table: Table, value: &Bytes) -> Result<M, NotRestored> {
    M::decode(value.clone()).map_err(|_| NotRestored::Row(table))
}

fn identifier<T>(key: &Bytes, table: Table, read: impl Fn(&[u8]) -> Option<T>) -> Result<T, NotRestored> {
    read(key).ok_or(NotRestored::Row(table))
}

fn counted(numbers: &[(usize, &str, &str)]) -> Vec<String> {
    let there = numbers.iter().filter(|(count, ..)| *count > 0);
    there.map(|(count, one, more)| format!("{count} {}", if *count == 1 { one } else { more })).collect()
}
