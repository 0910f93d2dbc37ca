//! What a daemon decides: no I/O and no clock.
//!
//! Events go in through methods, one per thing that can happen; what is to be done comes out of
//! [`Core::settle`], in order. The shell carries it out.
//!
//! A daemon is a node ([`NodeCore`]), and the head's is the head of the cluster besides ([`HeadCore`]). Its own machine
//! gets the same orders as every other, in this process.

use crate::Word;
use crate::head::{HeadCore, NotRestored, StoreFigures};
use oxiray_ids::{JobId, NodeId, ObjectId, PlacementGroupId, WorkerId, WorkerNumber};
use oxiray_journal::Rows;
use oxiray_machine::{
    DeviceQuestion, DeviceSlot, Effect, Exceeded, Key, Level, Measured, Monitored, NodeCore, Numbers, Plan, Residue,
    Settled, TemplateKey,
};
use oxiray_resources::{Quantity, ResourceName};
use oxiray_wire::message::{
    ChronicleFollow, ClientToHead, ClusterReport, DeviceAsked, DrainAsked, Driver, EndAsked, Failure, GrowthState,
    HeadOrder, Holdings, HoldingsQuery, MetricsQuery, NodeReport, Returning, StateFollow, StateQuery, Submission,
    SubmissionAsked, TemplateHolds, WorkerToMachine, WorkerToNode,
};
use oxiray_wire::state::{DaemonStatistics, NodeStatistics};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The daemon's mind.
#[derive(Debug)]
pub struct Core {
    role: Role,
    numbers: Numbers,
    now: Instant,
}

#[derive(Debug)]
enum Role {
    /// The head of a cluster, and its machine.
    Head(Box<Settled<HeadCore>>),
    /// A machine that serves a head elsewhere.
    Member(Box<Settled<NodeCore>>),
}

impl Core {
    /// The head of a cluster of one machine, with nothing running.
    ///
    /// `monitored`: the resources whose devices somebody can be asked about.
    pub fn new(plan: Plan, session: String, address: String, monitored: Monitored, now: Instant) -> Self {
        let numbers = Numbers::default();
        let head = HeadCore::new(plan, (session, address), monitored, numbers.clone(), now);
        Self { role: Role::Head(Box::new(Settled::new(head))), numbers, now }
    }

    /// A number that names nothing else.
    pub fn new_key(&mut self) -> Key {
        self.numbers.next()
    }

    /// A machine that is to serve a head elsewhere ([`Core::serve_head`]), with nothing running.
    pub fn member(plan: Plan, session: String, address: String, monitored: Monitored, now: Instant) -> Self {
        let numbers = Numbers::default();
        let node = NodeCore::new(plan, (session, address), monitored, numbers.clone(), now);
        Self { role: Role::Member(Box::new(Settled::new(node))), numbers, now }
    }

    fn head(&self) -> Option<&HeadCore> {
        match &self.role {
            Role::Head(head) => Some(head),
            Role::Member(_) => None,
        }
    }

    /// Has the head do something; nothing is done on a member.
    fn at_head<T: Default>(&mut self, act: impl FnOnce(&mut HeadCore) -> T) -> T {
        match &mut self.role {
            Role::Head(head) => act(head),
            Role::Member(_) => T::default(),
        }
    }

    pub(crate) fn node(&self) -> &NodeCore {
        match &self.role {
            Role::Head(head) => head.own(),
            Role::Member(node) => node,
        }
    }

    /// Something happened on this machine.
    fn at_node<T>(&mut self, act: impl FnOnce(&mut NodeCore) -> T) -> T {
        match &mut self.role {
            Role::Head(head) => head.with_own(act),
            Role::Member(node) => act(node),
        }
    }
}

/// Time, and what is to be done.
impl Core {
    /// Tells what time it is; call it before a batch of events.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
        match &mut self.role {
            Role::Head(head) => head.quietly().set_now(now),
            Role::Member(node) => node.quietly().set_now(now),
        }
    }

    /// Tells what the wall clock shows, in milliseconds since 1970; nothing but what listings say follows from it.
    pub fn set_wall_clock(&mut self, now_ms: u64) {
        if let Role::Head(head) = &mut self.role {
            head.quietly().set_wall_clock(now_ms);
        }
    }

    /// Serves whoever waits, after a batch of events, and returns what is to be done: nothing, and at once, where none of
    /// the events was for the core and no alarm rings.
    pub fn settle(&mut self) -> Vec<Effect> {
        let is_due = self.next_alarm().is_some_and(|at| at <= self.now);
        match &mut self.role {
            Role::Head(head) => head.settle_where(is_due, HeadCore::settle),
            Role::Member(node) => node.settle_where(is_due, |node| {
                node.settle();
                std::mem::take(node.effects())
            }),
        }
    }

    /// When [`Core::settle`] is to be called next, whatever happens.
    pub fn next_alarm(&self) -> Option<Instant> {
        match &self.role {
            Role::Head(head) => head.next_alarm(),
            Role::Member(node) => node.next_alarm(),
        }
    }
}

/// This machine: its processes, devices and store.
impl Core {
    /// What this machine is and offers.
    pub fn plan(&self) -> &Plan {
        self.node().plan()
    }

    /// This node.
    pub fn own_node(&self) -> NodeId {
        self.plan().node
    }

    /// The address of this node.
    pub fn own_ip(&self) -> &str {
        &self.plan().ip
    }

    /// Starts the template of an interpreter ahead of the first job.
    pub fn prepare(&mut self, interpreter: &str) {
        self.at_node(|node| node.prepare(interpreter));
    }

    /// What vendors' libraries said at the start: devices that still hold memory of processes which are dead, from before
    /// this daemon, or of which nothing was said in time, are out of service until they have forgotten them (CORE-4). Other
    /// processes' devices are left alone.
    pub fn doubt_devices(&mut self, found: Vec<(DeviceSlot, Option<Residue>)>) {
        self.at_node(|node| node.doubt_devices(found));
    }

    /// What was remembered of the devices of this machine, as far as it is still true.
    pub fn recall_health(&mut self, records: &[oxiray_machine::HealthRecord]) {
        self.at_node(|node| node.recall_health(records));
    }

    /// The answer to [`Effect::AskDevice`]; it may come late, or never.
    pub fn device_answered(&mut self, question: &DeviceQuestion, residue: Residue) {
        self.at_node(|node| node.device_answered(question, residue));
    }

    /// How much all devices are used of which anybody says something.
    pub fn devices_measured(&mut self, found: Vec<oxiray_accelerators::DeviceUse>) {
        self.at_node(|node| node.devices_measured(found));
    }

    /// How the machine and its workers' processes are.
    pub fn machine_measured(&mut self, found: NodeStatistics) {
        self.at_node(|node| node.machine_measured(found));
    }

    /// How the daemon is; told with the machine's statistics.
    pub fn daemon_measured(&mut self, found: DaemonStatistics) {
        self.at_node(|node| node.daemon_measured(found));
    }

    /// Drivers reported errors of devices.
    pub fn devices_failed(&mut self, seen: Vec<oxiray_machine::DeviceErrorSeen>) {
        self.at_node(|node| node.devices_failed(seen));
    }

    /// What the check of a device came to ([`Effect::CheckDevice`]).
    pub fn device_tested(&mut self, device: &DeviceSlot, outcome: oxiray_machine::CheckOutcome) {
        self.at_node(|node| node.device_tested(device, outcome));
    }

    /// Which devices' own nodes the processes of workers have open.
    pub fn nodes_opened(&mut self, found: &oxiray_machine::OpenNodes) {
        self.at_node(|node| node.nodes_opened(found));
    }

    /// Every device: resource and slot.
    pub fn devices(&self) -> Vec<(&'static str, u32)> {
        self.node().devices()
    }

    /// What a template has to say to those who use it.
    pub fn template_says(&mut self, template: TemplateKey, text: &str) {
        self.at_node(|node| node.template_says(template, text));
    }

    /// A template has a device open, which whatever it forks would inherit.
    pub fn template_holds(&mut self, template: TemplateKey, told: &TemplateHolds) {
        self.at_node(|node| node.template_holds(template, told));
    }

    /// A template is gone, and with it every worker it had forked; those are reported on their own.
    pub fn template_gone(&mut self, template: TemplateKey) {
        self.at_node(|node| node.template_gone(template));
    }

    /// The worker has a process.
    pub fn forked(&mut self, worker: Key, pid: u32) {
        self.at_node(|node| node.forked(worker, pid));
    }

    /// Its template did not fork the worker, since that has a device open. Whether another one does.
    pub fn fork_given_back(&mut self, template: TemplateKey, worker: Key) -> bool {
        self.at_node(|node| node.fork_given_back(template, worker))
    }

    /// The worker closed its control stream: it is dead or about to be.
    pub fn worker_left(&mut self, worker: Key) {
        self.at_node(|node| node.worker_left(worker));
    }

    /// The worker's process is dead; what descends from it may not be.
    pub fn worker_died(&mut self, worker: Key) {
        self.at_node(|node| node.worker_died(worker));
    }

    /// The worker and everything that descends from it are dead and reaped.
    pub fn worker_gone(&mut self, worker: Key, text: &str) {
        self.at_node(|node| node.worker_gone(worker, text));
    }

    /// A worker is to end, here or on a member.
    pub fn kill_worker(&mut self, worker: Key) {
        match &mut self.role {
            Role::Head(head) => head.kill_broken_worker(worker),
            Role::Member(node) => node.kill_worker(worker),
        }
    }

    /// Ends a worker, since memory is short; `None` where there is none whose end would help.
    pub fn end_for_memory(&mut self, measured: &Measured) -> Option<Key> {
        self.at_node(|node| node.end_for_memory(measured))
    }

    /// The kernel killed the worker for want of memory.
    pub fn killed_for_memory(&mut self, worker: Key, level: Option<&Level>) {
        self.at_node(|node| node.killed_for_memory(worker, level));
    }

    /// The devices that are set aside on this machine for each placement group, of which some may have none.
    pub fn devices_of_groups(&self) -> BTreeMap<PlacementGroupId, BTreeSet<DeviceSlot>> {
        self.node().devices_of_groups()
    }

    /// Whether it matters who is in the worker's control group.
    pub fn holds_devices(&self, worker: Key) -> bool {
        self.node().holds_devices(worker)
    }

    /// Who is in the control group of a worker whose end is about to be told, or that is gone.
    pub fn group_has(&mut self, worker: Key, pids: Vec<u32>) {
        self.at_node(|node| node.group_has(worker, pids));
    }

    /// The kernel ended a process of the worker's, since its group met the limit of its memory.
    pub fn exceeded_memory(&mut self, worker: Key, found: Exceeded) {
        self.at_node(|node| node.exceeded_memory(worker, found));
    }

    /// The kernel does not keep a worker to its memory of a device.
    pub fn device_memory_unlimited(&mut self, worker: Key, why: &str) {
        self.at_node(|node| node.device_memory_unlimited(worker, why));
    }

    /// A worker's fence could not be made.
    pub fn fence_failed(&mut self, worker: Key, why: &str) {
        self.at_node(|node| node.fence_failed(worker, why));
    }

    /// Forks of the worker fail, since its group has as many processes as it may have.
    pub fn met_process_limit(&mut self, worker: Key, limit: u64) {
        self.at_node(|node| node.met_process_limit(worker, limit));
    }

    /// Bytes that objects take in this node's store.
    pub fn store_holds(&mut self, bytes: u64) {
        match &mut self.role {
            // It is told of when the core settles.
            Role::Head(head) => head.tell(|head| head.store_holds(bytes)),
            Role::Member(node) => node.tell(|node| node.store_holds(bytes)),
        };
    }

    /// A preparation is done, with the command that starts interpreters in it, or with the reason why not.
    pub fn prepared(&mut self, number: u64, result: Result<Vec<String>, String>) {
        match &mut self.role {
            Role::Head(head) => head.prepared(number, result),
            Role::Member(node) => node.prepared(number, result),
        }
    }

    /// Whose output a worker's is: the worker and the job that it works for, of none where it is a spare one.
    pub fn named_in_logs(&self, worker: Key) -> Option<(WorkerId, JobId)> {
        self.node().named_in_logs(worker)
    }

    /// Who wants to see a worker's output: its driver, or the head that passes it on.
    pub fn log_target(&self, worker: Key) -> Option<Key> {
        match &self.role {
            Role::Head(head) => head.log_target(worker),
            Role::Member(node) => node.head_key().filter(|_| node.is_wanted_in_logs(worker)),
        }
    }

    /// Whether others are awaited who have yet to come back to this head.
    pub fn is_resuming(&self) -> bool {
        self.head().is_some_and(HeadCore::is_resuming)
    }

    /// The driver of a job, where it is there and shows what its workers print.
    pub fn driver_shown_logs(&self, job: JobId) -> Option<Key> {
        self.head()?.driver_shown_logs(job)
    }

    /// The job that a process works for: a driver, or a worker that was given to a job.
    pub fn job_of_process(&self, key: Key) -> Option<JobId> {
        match &self.role {
            Role::Head(head) => head.job_of_process(key),
            Role::Member(node) => node.job_of(key),
        }
    }
}

/// This machine as a member of a head elsewhere.
impl Core {
    /// From here on this member serves the head at the other end of a stream. `listens` is where nodes of other machines
    /// reach it; empty where there are none.
    pub fn serve_head(&mut self, key: Key, listens: String) {
        if let Role::Member(node) = &mut self.role {
            let join = node.serve(Some(key), listens);
            node.effects().push(Effect::Send { to: key, message: join.into() });
        }
    }

    /// The head's stream, where this node serves one elsewhere.
    pub fn head_key(&self) -> Option<Key> {
        self.node().head_key()
    }

    /// What the head orders.
    pub fn head_said(&mut self, order: HeadOrder) {
        self.at_node(|node| node.head_said(order));
    }

    /// From here on this node serves the next head, at the other end of a stream. `stored` is what lies in its store.
    /// Returns the workers, each of which tells the head of itself before anything else that it says is for the head.
    pub fn serve_next_head(&mut self, key: Key, epoch: u64, listens: String, stored: Vec<ObjectId>) -> Vec<Key> {
        self.at_node(|node| node.serve_next_head(key, epoch, listens, stored))
    }

    /// Counts the heads of this cluster; 0 where the end of this one is final.
    pub fn epoch(&self) -> u64 {
        self.node().epoch()
    }

    /// This daemon is, or serves, the head of that number.
    pub fn begin_epoch(&mut self, epoch: u64) {
        match &mut self.role {
            Role::Head(head) => head.begin_epoch(epoch),
            Role::Member(node) => node.begin_epoch(epoch),
        }
    }
}

/// This daemon as the head of its cluster: clients and members. On a member there is none of that, and nothing is done.
impl Core {
    /// What a client that was let in says, or a worker.
    pub fn client_said(&mut self, from: Key, message: ClientToHead) {
        self.at_head(|head| head.client_said(from, message));
    }

    /// What a worker says of itself: on a member, as far as it is about its own ledger.
    pub fn worker_said(&mut self, from: Key, message: &WorkerToNode) {
        match &mut self.role {
            Role::Head(head) => head.worker_said(from, message),
            Role::Member(node) => node.worker_said(from, message),
        }
    }

    /// What a worker asks of this machine, which knows it alone.
    pub fn worker_asked(&mut self, from: Key, asked: &WorkerToMachine) {
        self.at_node(|node| node.worker_asked(from, asked));
    }

    /// A driver was let in.
    pub fn driver_joined(&mut self, key: Key, told: Driver) {
        self.at_head(|head| head.driver_joined(key, told));
    }

    /// A driver that the last head had let in. The error says why it is not.
    pub fn resume_driver(&mut self, key: Key, told: Driver, who: &Returning) -> Result<(), String> {
        match &mut self.role {
            Role::Head(head) => head.resume_driver(key, told, who),
            Role::Member(_) => Err("drivers come back to the head".to_owned()),
        }
    }

    /// A driver is gone, with or without a word.
    pub fn driver_left(&mut self, key: Key) {
        self.at_head(|head| head.driver_left(key));
    }

    /// A visitor is gone: perhaps the autoscaler.
    pub fn visitor_left(&mut self, key: Key) {
        self.at_head(|head| head.visitor_left(key));
    }

    /// The worker or proxied client that a member calls `number`; nothing where it is gone.
    pub fn process_of(&self, member: Key, number: WorkerNumber) -> Option<Key> {
        self.head().and_then(|head| head.members().process_of(member, number))
    }

    /// What a member reports.
    pub fn member_said(&mut self, from: Key, report: NodeReport) {
        self.at_head(|head| head.member_said(from, report));
    }

    /// The member's stream is over: it is dead or about to be. One on another machine has a lease.
    pub fn member_silent(&mut self, key: Key, is_far: bool) {
        self.at_head(|head| head.member_silent(key, is_far));
    }

    /// The member's process is gone, and its workers with it.
    pub fn member_gone(&mut self, key: Key) {
        self.at_head(|head| head.member_gone(key));
    }

    /// The member that has the client, and what it calls it; nothing for one of this machine.
    pub fn route(&self, client: Key) -> Option<(Key, WorkerNumber)> {
        self.head()?.members().route(client)
    }

    /// Whether it is the command line, which asks through a member.
    pub fn is_visiting(&self, key: Key) -> bool {
        self.head().is_some_and(|head| head.members().is_visiting(key))
    }

    /// Whether a worker's driver is on another node than it is, as far as the head that this is knows.
    pub fn is_apart(&self, worker: Key, driver: Key) -> bool {
        self.head().is_some_and(|head| head.members().node_of(worker) != head.members().node_of(driver))
    }

    /// The member of a node, but for the head's own, whose store this process has.
    pub fn member_of(&self, node: NodeId) -> Option<Key> {
        self.head()?.members().member_of(node)
    }

    /// The node of a member.
    pub fn node_of_member(&self, member: Key) -> Option<NodeId> {
        self.head()?.members().node_of_member(member)
    }

    /// Whether objects may lie in other nodes' stores.
    pub fn has_members(&self) -> bool {
        self.head().is_some_and(HeadCore::has_members)
    }

    /// Whether there is a node of that identity, or one is awaited.
    pub fn knows_node(&self, node: NodeId) -> bool {
        self.head().is_some_and(|head| head.members().knows_node(node))
    }

    /// The one member that is meant, which can be drained.
    pub fn drainable(&self, text: &str) -> Result<(Key, NodeId), String> {
        match self.head() {
            Some(head) => head.members().drainable(text),
            None => Err("nodes are drained by the head".to_owned()),
        }
    }

    /// A client or the command line wants a node emptied.
    pub fn drain_asked(&mut self, from: Key, asked: &DrainAsked) {
        self.at_head(|head| head.drain_asked(from, asked));
    }

    /// The command line wants something of a device.
    pub fn device_asked(&mut self, from: Key, asked: &DeviceAsked) {
        self.at_head(|head| head.device_asked(from, asked));
    }

    /// The command line wants an actor killed or a task cancelled.
    pub fn end_asked(&mut self, from: Key, asked: &EndAsked) {
        self.at_head(|head| head.end_asked(from, asked));
    }

    /// Whether a member was told to end.
    pub fn is_dismissed(&self, member: Key) -> bool {
        self.head().is_some_and(|head| head.members().is_dismissed(member))
    }

    /// The autoscaler says what it may bring.
    pub fn growth_state(&mut self, from: Key, state: &GrowthState) {
        self.at_head(|head| head.growth_state(from, state));
    }

    /// The command line asks what the autoscaler would be told.
    pub fn growth_query(&mut self, from: Key, request: u64) {
        self.at_head(|head| head.growth_query(from, request));
    }
}

/// Objects, as the head knows them.
impl Core {
    /// Finds an object for a member, or for this node; `without` turned out not to have it, and `is_here` tells whether
    /// this node's store has it. Answered by [`Effect::Located`].
    pub fn locate(&mut self, asker: Option<Key>, object: ObjectId, without: Option<NodeId>, is_here: bool) {
        self.at_head(|head| head.locate(asker, object, without, is_here));
    }

    /// The store has room for an object, and `client` writes it: it is the first holder. `false` where the client
    /// is gone already.
    pub fn stored(&mut self, client: Key, object: ObjectId) -> bool {
        self.at_head(|head| head.stored(client, object))
    }

    /// The same for a client and the store of this node.
    pub fn stored_here(&mut self, client: Key, object: ObjectId) -> bool {
        self.at_head(|head| head.stored_here(client, object))
    }

    /// A client of this node will not write the object after all.
    pub fn unstored_here(&mut self, client: Key, object: ObjectId) {
        self.at_head(|head| head.unstored_here(client, object));
    }

    /// A worker of a member has room for an object in the store there.
    pub fn stored_elsewhere(&mut self, worker: Key, object: ObjectId) {
        self.at_head(|head| head.stored_elsewhere(worker, object));
    }

    /// A worker of a member will not write the object after all.
    pub fn unstored_elsewhere(&mut self, worker: Key, object: ObjectId) {
        self.at_head(|head| head.unstored_elsewhere(worker, object));
    }

    /// A member has a copy. One that came too late is deleted at once.
    pub fn copied(&mut self, member: Key, object: ObjectId) {
        self.at_head(|head| head.copied(member, object));
    }

    /// This node's own store has the object.
    pub fn copied_here(&mut self, object: ObjectId) {
        self.at_head(|head| head.copied_here(object));
    }

    /// An object was written to disk, on a member or here.
    pub fn spilled(&mut self, object: ObjectId) {
        self.at_head(|head| head.spilled(object));
    }

    /// A node, a member or this one, cannot have a copy of an object: whoever reads it there is told why.
    pub fn cannot_come(&mut self, member: Option<Key>, object: ObjectId) {
        self.at_head(|head| head.cannot_come(member, object));
    }

    /// Whether anybody refers to an object that this node has fetched a copy of.
    pub fn is_stored(&self, object: ObjectId) -> bool {
        self.head().is_some_and(|head| head.is_stored(object))
    }

    /// A member that has the object and can be asked for it, with its node.
    pub fn holder_of(&self, object: ObjectId) -> Option<(Key, NodeId)> {
        self.head()?.holder_of(object)
    }

    /// Why an object is not to be read any more, where it is not.
    pub fn freed(&self, object: ObjectId) -> Option<Failure> {
        self.head()?.freed(object)
    }
}

/// What people and programs ask, submitted jobs, and what outlives a head.
impl Core {
    /// The answer to a [`ClusterQuery`](oxiray_wire::message::ClusterQuery).
    pub fn report(&self, request: u64, store: &StoreFigures, resident_bytes: u64) -> ClusterReport {
        let report = self.head().map(|head| head.report(request, store, resident_bytes));
        report.unwrap_or_default()
    }

    /// Somebody asks for a list or a summary.
    pub fn state_query(&mut self, asker: Key, asked: StateQuery) {
        self.at_head(|head| head.state_query(asker, asked));
    }

    /// A visitor asks what changed in the lists.
    pub fn state_follow(&mut self, from: Key, asked: StateFollow) {
        self.at_head(|head| head.state_follow(from, asked));
    }

    /// A visitor asks what happened.
    pub fn chronicle_follow(&mut self, from: Key, asked: ChronicleFollow) {
        self.at_head(|head| head.chronicle_follow(from, asked));
    }

    /// Somebody asks for metrics.
    pub fn metrics_query(&mut self, asker: Key, asked: &MetricsQuery) {
        self.at_head(|head| head.metrics_query(asker, asked));
    }

    /// The objects that are known, each with its owner, its holders, its size and where it is. `stored` tells an object's
    /// bytes in the store and where they lie.
    pub fn holdings(
        &self,
        asked: &HoldingsQuery,
        stored: impl Fn(ObjectId) -> Option<(u64, &'static str)>,
    ) -> Holdings {
        self.head().map(|head| head.holdings(asked, stored)).unwrap_or_default()
    }

    /// Somebody submits, stops, or asks for jobs. What one printed is the shell's to read.
    pub fn submission_asked(&mut self, from: Key, asked: &SubmissionAsked, now_ms: u64) {
        self.at_head(|head| head.submission_asked(from, asked, now_ms));
    }

    /// The process that runs a job says something of it, or the shell of that process.
    pub fn submission_heard(&mut self, id: &str, word: Word, now_ms: u64) {
        self.at_head(|head| head.submission_heard(id, word, now_ms));
    }

    /// The job of that name.
    pub fn submission(&self, id: &str) -> Option<&Submission> {
        self.head()?.submission(id)
    }

    /// Goes on with what a head has written down, and writes down what changes from here on. To be called once, before
    /// anything else. Members that there were are waited for so long. Returns what there is, in words.
    ///
    /// # Errors
    /// Where it cannot be read; the core is of no use then.
    pub fn restore(&mut self, rows: &Rows, patience: Duration) -> Result<Vec<String>, NotRestored> {
        match &mut self.role {
            Role::Head(head) => head.restore(rows, patience),
            Role::Member(_) => Ok(Vec::new()),
        }
    }

    /// Whether something is being written.
    pub fn is_writing(&self) -> bool {
        self.head().is_some_and(HeadCore::is_writing)
    }

    /// How much waits until something is written.
    pub fn held_back(&self) -> usize {
        self.head().map_or(0, HeadCore::held_back)
    }

    /// What was to be written ([`Effect::Write`]) is safe.
    pub fn written(&mut self) {
        self.at_head(HeadCore::written);
    }

    /// It is not, for this reason: what was asked for in it is taken back and refused, and all that was asked for since,
    /// which may build on it. What merely happened is written with the next batch.
    pub fn not_written(&mut self, fault: &str) {
        self.at_head(|head| head.not_written(fault));
    }
}

/// For tests and simulations.
impl Core {
    /// Draws the identifiers of processes from a seed from here on, so that a run can be replayed.
    pub fn seed(&mut self, seed: u64) {
        match &mut self.role {
            Role::Head(head) => head.seed(seed),
            Role::Member(node) => node.seed(seed),
        }
    }

    /// Compares every table with the others; slow.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn audit(&self) {
        match &self.role {
            Role::Head(head) => head.audit(),
            Role::Member(node) => node.audit(),
        }
    }

    /// What is left that somebody must still let go of: nothing, once every client is gone and every device is back.
    pub fn leftovers(&self) -> Vec<(&'static str, usize)> {
        let left = match &self.role {
            Role::Head(head) => head.leftovers(),
            Role::Member(node) => node.leftovers(),
        };
        left.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// What is granted of each resource of this machine.
    pub fn granted(&self) -> BTreeMap<ResourceName, Quantity> {
        self.node().granted()
    }
}

/// What tests look into.
#[cfg(test)]
impl Core {
    pub(crate) fn as_head(&self) -> &HeadCore {
        self.head().expect("it is a head")
    }

    pub(crate) fn as_head_mut(&mut self) -> &mut HeadCore {
        match &mut self.role {
            Role::Head(head) => head,
            Role::Member(_) => panic!("it is no head"),
        }
    }

    pub(crate) fn node_mut(&mut self) -> &mut NodeCore {
        match &mut self.role {
            Role::Head(head) => head.own_mut(),
            Role::Member(node) => node,
        }
    }
}
