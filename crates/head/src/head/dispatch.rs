//! Who says or reports what, what is due, and which operation follows from it; and what is done after a batch of that.
//!
//! Nothing is decided here: there is one place for each direction of messages, where the compiler names what is missing.

use super::HeadCore;
use super::validation::ProtocolError;
use crate::clock::Alarm;
use crate::members::OWN;
use oxiray_machine::{Effect, Key, NodeCore};
use oxiray_wire::message::{ClientToHead, NodeReport, WorkerToNode};

/// What comes from clients and workers.
impl HeadCore {
    /// What a worker says of itself.
    pub(crate) fn worker_said(&mut self, from: Key, message: &WorkerToNode) {
        self.with_own(|own| own.worker_said(from, message));
        match message {
            // What its machine lends is in its state besides.
            WorkerToNode::Blocked(_) => self.pending.fairness.lends_cpu(from, true),
            WorkerToNode::Unblocked(_) => self.pending.fairness.lends_cpu(from, false),
            WorkerToNode::Lingers(_) => self.lingers(from),
            WorkerToNode::ActorReady(said) => self.actor_says(from, said.clone()),
            WorkerToNode::DeviceErrorRaised(said) => self.device_error_raised(from, &said.text),
        }
    }

    /// What a client says that was let in, or a worker.
    pub(crate) fn client_said(&mut self, from: Key, message: ClientToHead) {
        match message {
            ClientToHead::LeaseRequest(asked) => self.lease_request(from, *asked),
            ClientToHead::LeaseCancel(asked) => self.lease_cancel(from, asked.request),
            ClientToHead::LeaseReturn(asked) => self.lease_return(from, asked.lease, asked.retiring),
            ClientToHead::LeaseKill(asked) => self.lease_kill(from, asked.lease),
            ClientToHead::CancelObject(asked) => self.pass_to_owner(asked),
            ClientToHead::ActorFailed(said) => self.actor_failed(from, said.error),
            ClientToHead::ArgumentLost(said) => self.argument_lost(from, &said),
            ClientToHead::ActorLeaving(said) => self.actor_leaving(from, &said),
            ClientToHead::ActorCreate(asked) => self.actor_create(from, *asked),
            ClientToHead::ActorConnect(asked) => self.actor_connect(from, &asked),
            ClientToHead::ActorKill(asked) => self.actor_kill(&asked),
            ClientToHead::ActorLookup(asked) => self.actor_lookup(from, &asked),
            ClientToHead::Promise(said) => self.promise(from, &said.objects),
            ClientToHead::Publish(said) => self.publish(from, *said),
            ClientToHead::Subscribe(asked) => self.subscribe(from, asked.reference),
            ClientToHead::Hold(said) => self.hold(from, &said),
            ClientToHead::Confirm(said) => self.confirm(from, &said),
            ClientToHead::Unhold(said) => self.unhold(from, &said.objects),
            ClientToHead::StateQuery(asked) => self.state_query(from, *asked),
            ClientToHead::TaskLog(told) => self.task_log(from, told),
            ClientToHead::ObjectLog(told) => self.object_log(from, told),
            ClientToHead::ActorMaker(said) => self.actor_maker(from, &said),
            ClientToHead::StackReport(told) => self.stack_report(from, told),
            ClientToHead::WaitsReport(told) => self.pending.deadlocks.hear(from, *told),
            ClientToHead::Metrics(told) => self.metrics_told(from, told),
            ClientToHead::KeyValueRequest(asked) => self.keep(from, *asked),
            ClientToHead::Recover(said) => self.recover(from, said.reference),
            ClientToHead::Free(said) => self.free(from, &said.references),
            ClientToHead::GroupCreate(asked) => self.group_create(from, &asked),
            ClientToHead::GroupAwait(asked) => self.group_await(from, &asked),
            ClientToHead::GroupRemove(asked) => self.group_remove_asked(from, asked.group),
            ClientToHead::GroupQuery(asked) => self.group_query(from, &asked),
            ClientToHead::DrainAsked(asked) => self.drain_asked(from, &asked),
            ClientToHead::CollectGarbage(_) => self.collect_garbage(from),
            ClientToHead::Goodbye(said) => self.goodbye(from, said),
            ClientToHead::ClientResume(told) => self.resume_client(from, &told),
            ClientToHead::ClientSettled(said) => self.client_settled(from, &said),
        }
    }
}

/// What comes from machines.
impl HeadCore {
    /// Tells its machine something, and hears what comes of it.
    pub(crate) fn with_own<T>(&mut self, tell: impl FnOnce(&mut NodeCore) -> T) -> T {
        let told = self.lend_out(tell);
        self.exchange();
        told
    }

    /// What is to be done stands in one list, in order, whoever of the two adds to it.
    fn lend_out<T>(&mut self, tell: impl FnOnce(&mut NodeCore) -> T) -> T {
        self.swap_effects();
        let told = tell(&mut self.own);
        self.swap_effects();
        told
    }

    fn swap_effects(&mut self) {
        std::mem::swap(&mut self.out, self.own.quietly().effects());
    }

    /// Has its machine settle, where that was told something or its alarm rings.
    fn settle_own(&mut self) {
        self.exchange();
        if self.own.take_told() || self.own.next_alarm().is_some_and(|at| at <= self.clock.now) {
            self.swap_effects();
            self.own.quietly().settle();
            self.swap_effects();
            self.exchange();
        }
    }

    /// Passes on what its machine reports and is ordered to do, until neither has anything to say.
    fn exchange(&mut self) {
        loop {
            for report in self.own.quietly().reports() {
                self.own_said(report);
            }
            let orders = self.members.orders_of_own();
            if orders.is_empty() {
                return;
            }
            self.lend_out(|own| orders.into_iter().for_each(|order| own.head_said(order)));
        }
    }

    /// What the head's own machine reports.
    fn own_said(&mut self, report: NodeReport) {
        if let Err(error) = self.member_told(OWN, report) {
            self.log(format!("the head's own node broke the protocol, which is a defect: {error}"));
        }
    }

    /// What a member reports.
    pub(crate) fn member_said(&mut self, from: Key, report: NodeReport) {
        if let Err(error) = self.member_told(from, report) {
            self.expel(from, &error);
        }
    }

    fn member_told(&mut self, from: Key, report: NodeReport) -> Result<(), ProtocolError> {
        match report {
            NodeReport::NodeJoin(told) => self.member_joined(from, *told)?,
            NodeReport::NodeResume(told) => {
                self.resume_member(from, *told)?;
                self.note_all_holders(from);
            }
            NodeReport::NodeState(state) => {
                self.note_holders(from, &state.holdings);
                self.pending.is_due |= self.state_told(from, *state);
                self.see_to_devices(from);
            }
            NodeReport::ProxiedClientJoined(said) => self.proxied_client_joined(from, *said)?,
            NodeReport::ProxiedClientLeft(said) => self.proxied_client_left(from, said.proxied_client),
            NodeReport::Placed(said) => self.placed(from, &said)?,
            NodeReport::Sought(said) => self.sought(from, &said),
            NodeReport::PlaceRefused(said) => self.place_refused(from, *said)?,
            NodeReport::GroupPrepared(said) => self.prepared_there(from, &said)?,
            NodeReport::WorkerForked(said) => {
                if let Some(key) = self.worker_of(from, said.worker)? {
                    self.worker_forked(key, said.pid);
                }
            }
            NodeReport::WorkerSpent(said) => {
                if let Some(key) = self.worker_of(from, said.worker)? {
                    self.worker_spent(key);
                }
            }
            NodeReport::WorkerDied(said) => {
                if let Some(key) = self.worker_of(from, said.worker)? {
                    self.worker_died(key, &said);
                }
            }
            NodeReport::WorkerGone(said) => {
                if let Some(key) = self.worker_of(from, said.worker)? {
                    self.members.remove_route(key);
                    self.worker_gone(key, &said);
                }
            }
            NodeReport::Notice(said) => self.pass_notice(from, said),
        }
        Ok(())
    }
}

/// What is due, and what follows from a batch of events.
impl HeadCore {
    /// Serves whoever waits, after a batch of events, and returns what is to be done.
    pub(crate) fn settle(&mut self) -> Vec<Effect> {
        self.settle_own();
        self.run_alarms();
        self.refuse_unprepared();
        self.serve_whoever_waits();
        self.answer_census();
        self.tell_growth();
        self.tell_changes();
        self.tell_chronicle();
        let made = std::mem::take(&mut self.out);
        self.hold_back(made)
    }

    /// Until nothing becomes free by what follows.
    fn serve_whoever_waits(&mut self) {
        loop {
            while self.serve() {
                self.exchange();
            }
            self.notice_never_placed();
            self.look_after_waiting();
            self.start_submissions();
            self.settle_own();
            if !self.pending.is_due {
                return;
            }
        }
    }

    fn run_alarms(&mut self) {
        while let Some(alarm) = self.clock.take_due() {
            match alarm {
                Alarm::Reclaim => self.reclaim_again(),
                Alarm::Notice => self.notice(),
                Alarm::NoNodeCame => self.look_at_shortages(),
                Alarm::Census(number) => self.figures.census.is_late(number),
                Alarm::Overdue(worker) => self.is_overdue(worker),
                Alarm::Undying(worker) => self.worker_does_not_die(worker),
                Alarm::Environment(alarm) => self.environment_alarm(alarm),
                Alarm::Restart(actor) => self.restart(actor),
                Alarm::Unmade(actor) => self.never_made(actor),
                Alarm::Silent(member) => self.end_silent_member(member),
                Alarm::Prefetches(ticket) => self.travelled(ticket),
                Alarm::Drain(member) => self.drain_on(member),
                Alarm::Growth => self.growth.alarm_rang(),
                Alarm::Changes => self.figures.following.alarm_rang(),
                Alarm::Chronicle => self.figures.readers.alarm_rang(),
                Alarm::Recall => self.recall_leases(),
                Alarm::QueueScan => self.pending.scan.alarm_rang(),
                Alarm::KeptRoom => self.room_is_kept_no_longer(),
                Alarm::Preemption => self.look_for_preemption(),
                Alarm::Deadlocks => self.look_for_deadlocks(),
                Alarm::Resumption => self.give_up_missing(),
                Alarm::Reconnect(client, worker) => self.reconnect(client, worker),
            }
        }
    }
}
