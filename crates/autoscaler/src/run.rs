//! The autoscaler at work: one thread that waits for the head, its provider and its clock.

use crate::fleet::{Act, Fleet, Limits, RoundView};
use crate::groups::{GroupError, entry_of, group_of};
use crate::provider::Provider;
use crate::status::{self, instances_by_replica};
use oxiray_threads::Waker;
use oxiray_visitor::{VisitError, Visitor, json};
use oxiray_wire::Message;
use oxiray_wire::connection::ConnectionError;
use oxiray_wire::message::{DaemonToVisitor, DrainAsked};
use oxiray_wire::state::{GroupEntry, GrowthView};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often the provider is asked while something is under way and it has not called: some have no way to. The head is never
/// asked, since it tells what changed.
const MOVING_PERIOD: Duration = Duration::from_secs(1);
/// How often a head that is away is looked for.
const AWAY_PERIOD: Duration = Duration::from_millis(250);

/// Where the head is.
pub trait Head {
    /// A stream to it, and the token that lets in.
    fn connect(&mut self) -> Contact;
}

/// What came of a look for the head.
#[derive(Debug)]
pub enum Contact {
    /// It is there.
    There(OwnedFd, String),
    /// It may come back.
    Away,
    /// The cluster has ended.
    Over,
}

/// Why the autoscaler ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// The operating system refused.
    #[error("the autoscaler cannot wait for events: {0}")]
    System(#[from] io::Error),
    /// The head does not let it in.
    #[error("the head does not let the autoscaler in: {0}")]
    Refused(String),
}

/// What the autoscaler works with.
#[derive(Debug)]
pub struct Options<'run> {
    /// How long things may take.
    pub limits: Limits,
    /// What makes the names of its requests differ from those of other autoscalers of the same provider.
    pub salt: String,
    /// Has it look again.
    pub wake: Waker,
    /// Readable when it is to end.
    pub stop: BorrowedFd<'run>,
}

/// Works until it is told to end, or the cluster has ended. Lines for its log go to `log`.
pub fn run(
    options: &Options<'_>,
    head: &mut dyn Head,
    provider: &mut dyn Provider,
    log: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    let mut work = Work {
        fleet: Fleet::new(options.limits, &options.salt),
        provider,
        log,
        begun: Instant::now(),
        visitor: None,
        told: None,
        asked: BTreeMap::new(),
        said: None,
        groups: Vec::new(),
        trouble: String::new(),
    };
    loop {
        if work.visitor.is_none() {
            match head.connect() {
                Contact::There(stream, token) => work.greet(stream, token),
                Contact::Away => {}
                Contact::Over => return Ok(()),
            }
        }
        let timeout = work.timeout();
        let timeout =
            timeout.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut watched =
            vec![PollFd::from_borrowed_fd(options.stop, PollFlags::IN), PollFd::new(&options.wake, PollFlags::IN)];
        if let Some(visitor) = &work.visitor {
            watched.push(PollFd::new(visitor, PollFlags::IN));
        }
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(RunError::System(error.into())),
        }
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
        options.wake.silence();
        work.hear()?;
        work.round();
    }
}

struct Work<'run> {
    fleet: Fleet,
    provider: &'run mut dyn Provider,
    log: &'run mut dyn FnMut(&str),
    begun: Instant,
    visitor: Option<Visitor>,
    /// Nothing is known while the head is away.
    told: Option<GrowthView>,
    /// The nodes that the head was asked to empty, by the number of the question.
    asked: BTreeMap<u64, String>,
    /// What the head was told last.
    said: Option<Message>,
    groups: Vec<GroupEntry>,
    /// What the log says of the provider already.
    trouble: String,
}

impl Work<'_> {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn greet(&mut self, stream: OwnedFd, token: String) {
        match Visitor::greet(stream, token) {
            Ok(visitor) => self.visitor = Some(visitor),
            // The head is gone again, and is looked for like one that was not there.
            Err(error) => return (self.log)(&format!("the head cannot be greeted: {error}")),
        }
        self.said = None;
        self.look_at_groups();
        self.tell_state();
    }

    /// How long to wait where nothing happens.
    fn timeout(&self) -> Option<Duration> {
        if self.visitor.is_none() {
            return Some(AWAY_PERIOD);
        }
        if !self.trouble.is_empty() {
            return Some(MOVING_PERIOD);
        }
        let alarm = self.told.as_ref().and_then(|_| self.fleet.next_alarm(&self.groups));
        let left = alarm.map(|due| due.saturating_sub(self.now()));
        left.into_iter().chain(self.fleet.is_moving().then_some(MOVING_PERIOD)).min()
    }

    fn hear(&mut self) -> Result<(), RunError> {
        let Some(visitor) = &mut self.visitor else { return Ok(()) };
        let (messages, result) = visitor.hear();
        for message in messages {
            match message {
                DaemonToVisitor::GrowthReport(told) => match json::check(told.version) {
                    Ok(()) => self.told = told.view,
                    Err(error) => (self.log)(&format!("what the head says cannot be read: {error}")),
                },
                DaemonToVisitor::StateReport(report) => {
                    let node = self.asked.remove(&report.request);
                    if let (Some(node), Some(failure)) = (node, report.failure) {
                        let acts = self.fleet.drain_refused(self.now(), &node, &failure.text);
                        self.carry_out(acts);
                    }
                }
                DaemonToVisitor::Refused(said) => return Err(RunError::Refused(said.text)),
                // The head lets it in, from another machine; the rest answers what is asked elsewhere.
                DaemonToVisitor::NodeAdmitted(_)
                | DaemonToVisitor::ClusterReport(_)
                | DaemonToVisitor::Holdings(_)
                | DaemonToVisitor::LogAnswer(_)
                | DaemonToVisitor::MetricsReport(_)
                | DaemonToVisitor::StateChanges(_)
                | DaemonToVisitor::ChronicleBatch(_)
                | DaemonToVisitor::SubmissionAnswer(_)
                | DaemonToVisitor::TokenAnswer(_)
                | DaemonToVisitor::StoreRefused(_) => {}
            }
        }
        if let Err(error) = result {
            if !matches!(error, VisitError::Ended(ConnectionError::Closed)) {
                (self.log)(&format!("the connection to the head ends: {error}"));
            }
            (self.visitor, self.told) = (None, None);
            self.asked.clear();
        }
        Ok(())
    }

    /// FLEET-4: only where all is known.
    fn round(&mut self) {
        let Some(told) = self.told.clone() else { return };
        if !self.look_at_groups() {
            return;
        }
        let instances = match self.provider.instances() {
            Ok(instances) => instances,
            Err(error) => return self.note_trouble(&error.to_string()),
        };
        self.note_trouble("");
        let failed = self.provider.errors();
        let now = self.now();
        let seen = RoundView { groups: &self.groups, instances: &instances, failed: &failed, told: &told };
        match self.fleet.round(now, &seen) {
            Ok(acts) => self.carry_out(acts),
            Err(error) => (self.log)(&format!("no plan can be made: {error}")),
        }
        for event in self.fleet.take_events() {
            (self.log)(&event);
        }
        self.tell_state();
    }

    fn look_at_groups(&mut self) -> bool {
        match self.provider.groups() {
            Ok(groups) => self.groups = groups.iter().map(entry_of).collect(),
            Err(error) => {
                self.note_trouble(&error.to_string());
                return false;
            }
        }
        true
    }

    fn note_trouble(&mut self, text: &str) {
        if self.trouble != text {
            if !text.is_empty() {
                (self.log)(&format!("the provider cannot be asked: {text}"));
            }
            text.clone_into(&mut self.trouble);
        }
    }

    fn carry_out(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Launch { group, replicas, request } => self.launch(&group, replicas, &request),
                Act::Terminate { replicas, request } => {
                    if let Err(error) = self.provider.terminate(&replicas, &request) {
                        (self.log)(&format!("{} are not taken away yet: {error}", replicas.join(", ")));
                    }
                }
                Act::Drain { node, only_if_idle, why } => {
                    let request = self.new_request();
                    self.asked.insert(request, node.clone());
                    let reason = format!("the autoscaler takes it away: {why}");
                    self.send(DrainAsked { request, node, only_if_idle, reason, ..DrainAsked::default() });
                }
                Act::Keep { node } => {
                    let request = self.new_request();
                    self.send(DrainAsked { request, node, undo: true, ..DrainAsked::default() });
                }
            }
        }
    }

    fn launch(&mut self, group: &str, replicas: u32, request: &str) {
        let found = self.groups.iter().find(|entry| entry.name == group).map(group_of);
        let result: Result<(), GroupError> = match found {
            Some(Ok(described)) => match self.provider.launch(&described, replicas, request) {
                Ok(()) => Ok(()),
                // It is asked again when no answer came.
                Err(error) if error.is_passing => {
                    (self.log)(&format!("{request} is not answered: {error}"));
                    Ok(())
                }
                Err(error) => {
                    let now = self.now();
                    self.fleet.launch_refused(now, group, request, &error.text);
                    Ok(())
                }
            },
            Some(Err(error)) => Err(error),
            None => Ok(()),
        };
        if let Err(error) = result {
            (self.log)(&format!("{request} is not launched: {error}"));
        }
    }

    fn send(&mut self, message: impl Into<Message>) {
        let Some(visitor) = &mut self.visitor else { return };
        // Where it fails the stream has ended, which is heard when it is read.
        let _ = visitor.send(message);
    }

    /// A number for a question; what is asked while the head is away is never sent, nor answered.
    fn new_request(&mut self) -> u64 {
        self.visitor.as_mut().map_or(0, Visitor::new_number)
    }

    /// Tells the head how things are, where that has changed.
    fn tell_state(&mut self) {
        let now = self.now();
        let instances = instances_by_replica(&self.fleet);
        let state: Message = status::state(&self.fleet, now, &self.groups, instances, &self.trouble).into();
        if self.said.as_ref() != Some(&state) {
            self.said = Some(state.clone());
            self.send(state);
        }
    }
}
