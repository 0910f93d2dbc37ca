//! Carrying out what the core decided, and handing it what clients say.

use super::Daemon;
use crate::children::packages::Wanted;
use crate::device_record;
use crate::device_test::DeviceTest;
use crate::machine;
use crate::objects::Answer;
use crate::poller::Token;
use oxiray_families::DeviceCheck;
use oxiray_head::StoreFigures;
use oxiray_ids::{ObjectId, WorkerNumber};
use oxiray_machine::{DeviceSlot, Effect, HealthRecord, Key};
use oxiray_wire::Message;
use oxiray_wire::message::{
    ClientToDaemon, ClientToHead, ClientToStore, HoldingsQuery, Peer, Recover, ReportQuery, Spilled, StoreRefused,
    Stored,
};
use std::time::Instant;

impl Daemon {
    /// Lets the core settle and carries out what comes of it, until nothing more does; then sends.
    pub(super) fn carry_out(&mut self) {
        self.settle();
        self.answer_askers();
        self.flush_all();
    }

    pub(super) fn settle(&mut self) {
        loop {
            self.answer_from_store();
            self.core.store_holds(self.objects.store.used_bytes());
            let effects = self.core.settle();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.carry_out_one(effect);
            }
        }
    }

    fn carry_out_one(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, message: Message::Assign(assign) } => {
                let fence = assign.fence.clone();
                self.assign(to, &Message::Assign(assign), fence.as_ref());
            }
            Effect::Send { to, message } => self.queue(to, &message, Vec::new()),
            Effect::Join { client, placed, worker, peer } => self.join(client, &placed, worker, peer),
            Effect::StartTemplate { template, origin } => self.start_template(template, &origin),
            Effect::EndTemplate { template } => self.children.templates.end(template),
            Effect::Prepare { number, interpreter, specification, cached } => {
                self.start_preparation(number, Wanted { interpreter, specification, cached });
            }
            Effect::EndPreparation { number } => self.end_preparation(number),
            Effect::Fork { worker, template, is_fenced, even_with_devices } => {
                self.fork_worker(worker, (template, even_with_devices), is_fenced);
            }
            Effect::Kill { worker } => self.kill_worker(worker),
            Effect::KillMember { member } => self.kill_member(member),
            Effect::Confine(told) => self.confine(told),
            Effect::LimitDeviceMemory(told) => self.limit_device_memory(&told),
            Effect::Fence(told) => self.fence(&told),
            Effect::Submission(order) => self.order_submission(order),
            Effect::Expel { peer, why } => self.expel(peer, &why),
            Effect::Close { client } => self.close_when_sent(client),
            Effect::Located(found) => self.tell_whereabouts(found),
            Effect::Copy { object } => self.copy_here(object),
            Effect::Delete { object } => self.objects.delete(object),
            Effect::LeaveStore { client } => self.objects.client_gone(client),
            Effect::Write(changes) => self.write_rows(changes),
            Effect::AskDevice(question) => self.devices.ask(question),
            Effect::LookAtGroup { worker } => {
                self.look_at_group(worker);
            }
            Effect::MeasureDevices => self.devices.measure(),
            Effect::LookAtOpenNodes { workers } => self.devices.look_at_open_nodes(workers),
            Effect::CheckDevice { device } => self.check_device(device),
            Effect::RememberHealth(records) => self.remember_health(&records),
            Effect::Log(line) => self.log.line(&line),
        }
    }

    fn remember_health(&mut self, records: &[HealthRecord]) {
        if let Err(error) = device_record::write(self.session.directory(), records) {
            self.log.line(&format!("which devices are ill will not be known after a restart of this daemon: {error}"));
        }
    }

    /// Starts the process that checks a device; what becomes of it is among the answers of the devices' desk.
    fn check_device(&mut self, device: DeviceSlot) {
        let offer = &self.core.plan().offer;
        let offered = offer.of(&device.0);
        let check = offered.and_then(|offered| Some((offered, offered.family.monitor.as_ref()?.check?)));
        let Some((offered, DeviceCheck::Cuda { variable })) = check else {
            return self.devices.not_tested(device, "there is no check for devices of this family".to_owned());
        };
        let id = offered.name(device.1);
        let started =
            std::env::current_exe().and_then(|program| DeviceTest::start(&program, (variable.as_ref(), id.as_ref())));
        match started {
            Ok((test, pid)) => {
                self.children.reaper.register(pid);
                self.devices.await_test(device, test);
            }
            Err(error) => {
                self.devices.not_tested(device, format!("the process of the check cannot be started: {error}"));
            }
        }
    }

    fn join(&mut self, client: Key, placed: &Message, worker: Key, peer: Peer) {
        if let Err(error) = self.introduce_clients((client, placed), (worker, &peer.into())) {
            self.log.line(&format!("client {client} and worker {worker} cannot be connected: {error}"));
            self.core.kill_worker(worker);
        }
    }

    /// Passes on what the store has said, and fetches on, until neither has anything.
    pub(super) fn answer_from_store(&mut self) {
        loop {
            for Answer { to, message, descriptor, stored } in self.objects.store.answers() {
                if self.objects.store.is_itself(to) {
                    self.store_said(to, message);
                    continue;
                }
                if let Some(object) = stored
                    && !self.stored(to, object)
                {
                    self.objects.store.client_gone(to);
                    self.objects.store.delete(object);
                    continue;
                }
                self.queue(to, &message.into(), descriptor.into_iter().collect());
            }
            for object in self.objects.store.take_spilled() {
                match self.core.head_key() {
                    Some(head) => self.queue(head, &Spilled { object }.into(), Vec::new()),
                    None => self.core.spilled(object),
                }
            }
            if !self.go_on_fetching() {
                return;
            }
        }
    }

    /// Who holds which objects, and where they lie.
    pub(super) fn tell_holdings(&mut self, asker: Key, asked: &HoldingsQuery) {
        let told = self.core.holdings(asked, |object| self.objects.store.describe(object));
        self.queue(asker, &told.into(), Vec::new());
    }

    /// A message from a driver or a worker.
    pub(super) fn dispatch(&mut self, from: Key, message: ClientToDaemon) {
        match message {
            ClientToDaemon::Store(message) => self.store_asked(from, &message),
            ClientToDaemon::Worker(message) => self.core.worker_said(from, &message),
            ClientToDaemon::Machine(asked) => self.core.worker_asked(from, &asked),
            ClientToDaemon::Report(asked) => self.report_asked(from, &asked),
            ClientToDaemon::Head(message) => self.client_said(from, message),
        }
    }

    /// What a client says to the head that this daemon is.
    pub(super) fn client_said(&mut self, from: Key, message: ClientToHead) {
        // What can be read, or was made again meanwhile, is not lost.
        if let ClientToHead::Recover(Recover { reference: Some(lost) }) = &message
            && self.can_be_read(lost.object)
        {
            return;
        }
        self.core.client_said(from, message);
    }

    /// What is asked about the cluster by somebody who may ask.
    pub(super) fn report_asked(&mut self, asker: Key, asked: &ReportQuery) {
        match asked {
            ReportQuery::ClusterQuery(asked) => self.turn.ask(asker, asked.request),
            ReportQuery::HoldingsQuery(asked) => self.tell_holdings(asker, asked),
        }
    }

    /// What a client asks of this machine's store.
    pub(super) fn store_asked(&mut self, from: Key, message: &ClientToStore) {
        let result = match message {
            ClientToStore::Allocate(asked) => {
                // What the client let go of a moment ago is the best place: it has that mapped.
                self.settle();
                self.know_job(from);
                let (request, object, size) = (asked.request, asked.object, asked.size);
                self.allow_object(from, size);
                if asked.ahead {
                    self.objects.store.lend(from, request, object, size, self.turn.now);
                } else {
                    self.objects.store.allocate(from, request, object, size, self.turn.now);
                }
                Ok(())
            }
            ClientToStore::Pin(asked) => {
                self.know_job(from);
                self.pin(from, asked.request, asked.object);
                Ok(())
            }
            ClientToStore::SegmentsUnmapped(said) => {
                self.objects.store.unmapped(from, &said.files);
                Ok(())
            }
            ClientToStore::Seal(said) => self.objects.store.seal(from, said.object),
            ClientToStore::Abort(said) => {
                let result = self.objects.store.abort(from, said.object);
                self.core.unstored_here(from, said.object);
                result
            }
            ClientToStore::Unpin(said) => self.objects.store.unpin(from, said.object),
        };
        if let Err(error) = result {
            self.log.line(&format!("client {from}: {error}"));
        }
        // The store may have told the sender that it writes an object that others are about to ask for.
        self.answer_from_store();
    }

    /// The store is to know whose files the client may be given: a process of no job is given none of any.
    fn know_job(&mut self, client: Key) {
        let job = self.core.job_of_process(client).or_else(|| self.membership.job_of_proxied_client(client));
        self.objects.store.client_of(client, job.unwrap_or_default());
    }

    fn can_be_read(&self, object: ObjectId) -> bool {
        self.objects.store.has(object) || self.core.holder_of(object).is_some()
    }

    /// A client writes an object: the directory learns of its first holder; `false` where the client is gone.
    fn stored(&mut self, client: Key, object: ObjectId) -> bool {
        let Some(head) = self.core.head_key() else { return self.core.stored_here(client, object) };
        let said = Message::from(Stored { object });
        self.queue(head, &said.relayed(WorkerNumber(client)).into(), Vec::new());
        true
    }

    fn pin(&mut self, from: Key, request: u64, object: ObjectId) {
        match self.core.freed(object) {
            Some(failure) => {
                let refused = StoreRefused { request, failure: Some(failure) };
                self.queue(from, &refused.into(), Vec::new());
            }
            None => self.read(from, request, object),
        }
    }

    /// Whoever asked in this turn is told how things are at its end. Many may ask much, and a report is made once.
    fn answer_askers(&mut self) {
        let askers = self.turn.take_askers();
        let Ok(count) = u32::try_from(askers.len()) else { return };
        if count == 0 {
            return;
        }
        let began = Instant::now();
        let memory = self.workers.memory.nearest().cloned();
        let (limits, turns) = (self.workers.control_groups.described(), self.turn.figures());
        let figures = StoreFigures { pid: std::process::id(), memory, limits, turns, ..self.objects.store.figures() };
        let mut report = Message::from(self.core.report(0, &figures, machine::resident_bytes()));
        for (asker, request) in &askers {
            if let Message::ClusterReport(report) = &mut report {
                report.request = *request;
            }
            self.queue(*asker, &report, Vec::new());
        }
        let took = began.elapsed() / count;
        for (asker, _) in askers {
            let way = self.way_to(asker);
            if self.streams.get(way).is_some() {
                self.streams.turns.charge(Token::Stream(way), took);
            }
        }
    }
}
