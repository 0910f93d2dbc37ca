//! Placement groups: taken on, and waited for. Where their bundles are is in `bundle_placement`, and how they end in
//! `termination`.

use super::HeadCore;
use crate::demands::{Need, group_of};
use crate::journal::{Row, Undo};
use crate::placement_groups::{Awaited, GroupCreated, GroupDescription, GroupOwner, Reservation};
use crate::queue::PendingKind;
use crate::workers::Duty;
use oxiray_ids::{JobId, PlacementGroupId};
use oxiray_machine::{Key, check_name};
use oxiray_scheduler::{Claimant, Group, GroupPlacement, place_group};
use oxiray_wire::message::{Failure, FailureCode, GroupAnswer, GroupAwait, GroupCreate, Notice};
use std::sync::Arc;

/// What became of a request for a group that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    New,
    /// Its maker asked a head that is gone, which had written it down.
    Before,
}

impl HeadCore {
    pub(super) fn group_create(&mut self, from: Key, asked: &GroupCreate) {
        let taken = self.take_group_on(from, asked);
        let id = asked.group;
        // CORE-6 is for who made it: what a repeated request names is not taken back with that request.
        let undo = matches!(taken, Ok(Taken::New)).then_some(Undo::Group { request: asked.request, id });
        if undo.is_some() {
            self.durable.touch(Row::Group(id));
        }
        if taken.is_ok() && asked.tells_when_created {
            if let Some(undo) = undo {
                // It is told when the group is there, now or later; only where its row is safe is there one.
                self.durable.asked(from, undo, None);
            }
            return self.group_await(from, &GroupAwait { request: asked.request, group: asked.group });
        }
        if let Some(undo) = undo {
            self.answered_by_next(from, undo);
        }
        self.send(from, GroupAnswer { request: asked.request, failure: taken.err() });
    }

    /// A client has done with a group. One without a name is known to its own job and to whom that has told of it: another
    /// job, which may mean harm, does not end it.
    pub(super) fn group_remove_asked(&mut self, from: Key, id: PlacementGroupId) {
        let Some(description) = self.groups.known.get(id).map(|group| &group.description) else { return };
        let (job, owner) = (self.clients.job_of(from), description.job);
        let is_others = job != Some(owner) && description.owner != GroupOwner::Nobody && description.name.is_empty();
        if !is_others {
            return self.group_remove(id, "remove_placement_group() was called");
        }
        let text = format!(
            "remove_placement_group() was called for {}, which job {owner} made, without a name and not detached: only that \
             job may remove it",
            id.hex()
        );
        self.log(text.clone());
        if let Some(driver) = job.and_then(|job| self.jobs.driver_of(job)) {
            self.send(driver, Notice { text, ..Notice::default() });
        }
    }

    fn take_group_on(&mut self, from: Key, asked: &GroupCreate) -> Result<Taken, Failure> {
        let invalid = |text: String| FailureCode::Invalid.because(text);
        let job = self.clients.job_of(from).ok_or_else(|| invalid("its maker is gone".into()))?;
        let ending = || invalid("its job is ending".into());
        if !self.may_begin(from, job) {
            return Err(ending());
        }
        let id = asked.group;
        check_name("a placement group's name", &asked.name).map_err(invalid)?;
        let group = Arc::new(group_of(asked).map_err(invalid)?);
        let owner =
            if asked.detached { GroupOwner::Nobody } else { self.owner_of_what(from, job).ok_or_else(ending)? };
        let namespace = self.jobs.known.namespace_of(job);
        let description =
            GroupDescription { id, job, owner, name: asked.name.clone(), namespace, group: group.clone() };
        match self.groups.known.create(description) {
            GroupCreated::New => {}
            GroupCreated::NameTaken(holder) => {
                let text = format!(
                    "the name `{}` is taken by placement group {}; choose another, or get that one with \
                     get_placement_group()",
                    asked.name,
                    holder.hex()
                );
                return Err(FailureCode::System.because(text));
            }
            GroupCreated::Duplicate => {
                let known = self.groups.known.get(id).map(|known| &known.description);
                let is_same =
                    known.is_some_and(|known| (known.job, &known.name, &known.group) == (job, &asked.name, &group));
                return if is_same { Ok(Taken::Before) } else { Err(invalid(taken_by_another(id))) };
            }
        }
        let label = if asked.name.is_empty() { id.hex() } else { asked.name.clone() };
        let queued = self.enqueue(
            PendingKind::Group { id, maker: from },
            Claimant::new(job, asked.priority),
            label,
            Need::Group(group),
        );
        let ticket = queued.map_err(|text| {
            self.groups.known.remove(id, &text);
            FailureCode::System.because(text)
        })?;
        self.groups.reservations.insert(
            id,
            Reservation {
                ticket: Some(ticket),
                since: self.clock.now,
                took: None,
                maker: from,
                asked: self.durable.has_journal().then(|| asked.clone()),
                priority: asked.priority,
                preemptible: asked.preemptible,
            },
        );
        self.groups.unjudged.push(id);
        Ok(Taken::New)
    }

    /// The drivers of groups that are new and wait are told where this cluster has no place for them.
    pub(super) fn notice_never_placed(&mut self) {
        for id in std::mem::take(&mut self.groups.unjudged) {
            let ticket = self.groups.reservations.get(&id).and_then(|reservation| reservation.ticket);
            let waiting = ticket.and_then(|ticket| self.pending.wanted.get(&ticket));
            if let (Some(waiting), Some(found)) = (waiting, self.groups.known.get(id)) {
                let (job, label, group) =
                    (found.description.job, waiting.label.clone(), found.description.group.clone());
                self.notice_if_never(job, &label, &group);
            }
        }
    }

    fn notice_if_never(&mut self, job: JobId, label: &str, group: &Arc<Group>) {
        let has_no_place = !self.members.fleet.could_ever_place(group);
        let need = Need::Group(group.clone());
        if has_no_place
            && self.members.withdrawn_for_group(group).is_none()
            && let views = self.members.all_views()
            && !self.growth.is_brought(&views, &need)
            && let GroupPlacement::Never(reason) = place_group(&views, group)
            && let never = self.growth.never_brought(&views, &need)
            && let Some(detail) = self.jobs.details.get_mut(&job)
            && detail.is_news(&need)
        {
            let driver = detail.driver;
            let why = format!("{}{never}", reason.message(true));
            let text = format!(
                "placement group `{label}` can never be placed on this cluster, and waits in case it grows: {why}"
            );
            self.send(driver, Notice { text, ..Notice::default() });
        }
    }

    /// With whom a group ends that `client` makes: with its job, or with the detached actor that it works for; with
    /// nobody where that is over already.
    fn owner_of_what(&self, client: Key, job: JobId) -> Option<GroupOwner> {
        let mut client = client;
        while let Some(worker) = self.workers.by_key.get(&client).filter(|worker| worker.outlives_job) {
            match worker.duty {
                // These may be the last words of a process that is being killed.
                Duty::Actor(actor) => {
                    return self.actors.making.contains_key(&actor).then_some(GroupOwner::Actor(actor));
                }
                Duty::Leased(lease) => match self.workers.leases.get(&lease) {
                    Some(lease) => client = lease.owner,
                    None => break,
                },
                Duty::Idle | Duty::Ending => break,
            }
        }
        (!self.jobs.is_ending(job)).then_some(GroupOwner::Job(job))
    }

    pub(super) fn group_await(&mut self, from: Key, asked: &GroupAwait) {
        let Some(client) = self.clients.id_of(from) else { return };
        let id = asked.group;
        let failure = match self.groups.known.await_created(id, client, asked.request) {
            Awaited::Later => return,
            Awaited::Now => None,
            Awaited::Removed(_) | Awaited::Unknown => Some(self.groups.gone(id)),
        };
        self.send(from, GroupAnswer { request: asked.request, failure });
    }
}

fn taken_by_another(id: PlacementGroupId) -> String {
    let id = id.hex();
    format!("the identifier {id} is that of another placement group; each group is made under an identifier of its own")
}
