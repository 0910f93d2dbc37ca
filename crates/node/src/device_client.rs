//! Asks vendors' libraries about devices: whether one has forgotten the processes that held it, and how much it is used.
//!
//! - DESK-1: a library that answers late or never keeps nobody waiting but who asks the same library the same. It is asked on
//!   threads of its own, one question after the other, and what it says is left in a mailbox.
//! - DESK-2: each question is answered once at most, and by what was seen after it was asked.

use crate::device_test::DeviceTest;
use crate::device_watch::DeviceWatch;
use crate::statistics::StatisticsClient;
use oxiray_accelerators::{DeviceProcesses, DeviceUse, Host, Offer};
use oxiray_families::{Belongs, Holders, XidRules};
use oxiray_machine::{ANY_OF_THE_DEAD, CheckOutcome, DeviceErrorSeen, DeviceQuestion, DeviceSlot, OpenNodes, Residue};
use oxiray_processes::{ancestors_of, name_of};
use oxiray_threads::{DEVICE_CHECK, DEVICE_ERRORS, DEVICE_USE, Mailbox, Post, mailbox, spawn};
use oxiray_wire::state::NodeStatistics;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a node's start waits for the libraries, which have to be opened first.
const OPENING_LIMIT: Duration = Duration::from_secs(2);

/// The machine's own namespace of processes, whose number the kernel fixes. In any other, libraries may name processes
/// that cannot be seen and live all the same.
const OWN_NAMESPACE: &str = "pid:[4026531836]";

/// What the kernel calls daemons.
const DAEMON: &str = "oxiray";

/// Whether processes are called here what libraries call them.
pub(crate) fn sees_all() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == OWN_NAMESPACE)
}

/// What was measured, with what the processes are called and whose descendants they are; without the dead, and without any
/// where they are called otherwise here.
fn looked_up(mut found: DeviceUse) -> DeviceUse {
    let processes = &mut found.usage.processes;
    if !processes.is_empty() && !sees_all() {
        processes.clear();
    }
    processes.retain(|process| !is_dead(process.pid));
    for process in processes {
        process.ancestors = ancestors_of(process.pid);
        process.name = name_of(process.pid).unwrap_or_default();
        process.belongs = belonging(process.pid, &process.ancestors);
    }
    found
}

/// Whose a process is, by those that it descends from.
fn belonging(pid: u32, ancestors: &[u32]) -> Belongs {
    let own = std::process::id();
    if pid == own || ancestors.contains(&own) {
        return Belongs::ToThisNode;
    }
    let is_daemon = |pid: &u32| name_of(*pid).is_some_and(|name| name == DAEMON);
    if ancestors.iter().any(is_daemon) { Belongs::ToAnotherNode } else { Belongs::Elsewhere }
}

/// Whether a process is surely dead.
fn is_dead(pid: u32) -> bool {
    let is_own = sees_all();
    // `/proc` may hide the processes of others; who may not be signalled lives.
    let asked = i32::try_from(pid).ok().and_then(Pid::from_raw);
    is_own && asked.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Answers about the device in a slot; may take long.
type OfSlot<T> = Box<dyn FnMut(u32) -> Option<T> + Send>;

/// What is asked before a device is handed on.
struct Library {
    /// Who holds a device.
    holders: OfSlot<Holders>,
    /// How many bytes are in use of it that none of them has.
    unlisted_bytes: OfSlot<u64>,
}

/// Measures all devices; may take long.
type Measure = Box<dyn FnMut() -> Vec<DeviceUse> + Send>;

/// What a library says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Residue(DeviceQuestion, Residue),
    /// Of the devices of a resource.
    Uses(&'static str, Vec<DeviceUse>),
    Opened(OpenNodes),
    Failed(DeviceErrorSeen),
    Tested(DeviceSlot, CheckOutcome),
    Measured(Box<NodeStatistics>),
}

/// What a desk has found out.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceAnswer {
    /// The answer to a question.
    Residue(DeviceQuestion, Residue),
    /// How much all devices are used of which anybody says something.
    Uses(Vec<DeviceUse>),
    /// The devices' own nodes that workers have open.
    Opened(OpenNodes),
    /// An error that a driver reported.
    Failed(DeviceErrorSeen),
    /// What the check of a device came to.
    Tested(DeviceSlot, CheckOutcome),
    /// How the machine is.
    Measured(Box<NodeStatistics>),
}

/// Where the libraries of a machine's devices are asked. Their threads start with the first question, and end with it.
#[derive(Debug)]
pub struct DeviceClient {
    libraries: BTreeMap<&'static str, Questions>,
    gauges: BTreeMap<&'static str, Gauge>,
    watch: Option<DeviceWatch>,
    /// Those that have not begun to hear of errors.
    listeners: Vec<Listener>,
    /// Gone with the desk, which its listeners see.
    alive: Arc<()>,
    /// What each resource's measuring found last.
    uses: BTreeMap<&'static str, Vec<DeviceUse>>,
    statistics: StatisticsClient,
    post: Post<Said>,
    mailbox: Mailbox<Said>,
}

impl DeviceClient {
    /// The desk for the devices that a machine offers.
    ///
    /// # Errors
    /// Where there are no descriptors left.
    pub fn of(host: &Host, offer: &Offer, rules: &XidRules) -> io::Result<Self> {
        let mut desk = Self::new()?;
        for processes in DeviceProcesses::of(host, offer) {
            let (resource, own, others) = (processes.resource(), processes.clone(), processes.clone());
            let rest = processes.rest();
            let uses = move || own.uses().into_iter().map(looked_up).collect();
            desk.listeners.push(Listener { devices: processes.clone(), rules: rules.clone() });
            let library = Library {
                holders: Box::new(move |slot| processes.in_slot(slot)),
                unlisted_bytes: Box::new(move |slot| others.unlisted_bytes(slot)),
            };
            desk.add(resource, is_dead, library, Gauge::Unasked { measure: Box::new(uses), rest });
        }
        let post = desk.post.clone();
        desk.watch = DeviceWatch::of(offer, Arc::new(move |found| post.post(Said::Opened(found))));
        Ok(desk)
    }

    fn new() -> io::Result<Self> {
        let (post, mailbox) = mailbox()?;
        let (libraries, gauges, uses) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (listeners, alive) = (Vec::new(), Arc::new(()));
        let told = post.clone();
        let statistics = StatisticsClient::new(Arc::new(move |found| told.post(Said::Measured(Box::new(found)))));
        Ok(Self { libraries, gauges, watch: None, listeners, alive, uses, statistics, post, mailbox })
    }

    fn add(&mut self, resource: &'static str, is_dead: fn(u32) -> bool, library: Library, gauge: Gauge) {
        self.libraries.insert(resource, Questions::Unasked { library, is_dead });
        self.gauges.insert(resource, gauge);
    }

    /// The resources whose devices it can ask about.
    pub fn monitored(&self) -> BTreeSet<&'static str> {
        self.libraries.keys().copied().collect()
    }

    /// Asks; the answer is among [`DeviceClient::answers`] when there is one.
    pub fn ask(&mut self, question: DeviceQuestion) {
        let asked = match self.libraries.get_mut(&question.device.0[..]) {
            Some(library) => library.ask(question, &self.post),
            None => Err(question),
        };
        if let Err(question) = asked {
            self.post.post(Said::Residue(question, Residue::Unknown));
        }
    }

    /// Has all devices measured, those left out whose last measuring is still under way. From the first time on, errors
    /// that drivers report are heard of.
    pub fn measure(&mut self) {
        for listener in std::mem::take(&mut self.listeners) {
            listener.begin(&self.post, Arc::downgrade(&self.alive));
        }
        for (resource, gauge) in &mut self.gauges {
            gauge.measure(resource, &self.post);
        }
    }

    /// Has the process trees of workers looked at; what they have open is among [`DeviceClient::answers`].
    pub fn look_at_open_nodes(&mut self, workers: Vec<u32>) {
        if let Some(watch) = &mut self.watch {
            watch.look(workers);
        }
    }

    /// When the machine is to be measured.
    pub(crate) fn statistics_deadline(&mut self, now: Instant) -> Instant {
        self.statistics.deadline(now)
    }

    /// Has the machine measured, with these processes of workers; what is found is among [`DeviceClient::answers`].
    pub(crate) fn measure_machine(&mut self, workers: Vec<u32>, now: Instant) {
        self.statistics.measure(workers, now);
    }

    /// Has somebody read what a check prints; the outcome is among [`DeviceClient::answers`].
    pub(crate) fn await_test(&mut self, device: DeviceSlot, test: DeviceTest) {
        let (post, of) = (self.post.clone(), device.clone());
        let read = move || post.post(Said::Tested(of, test.outcome()));
        if spawn(DEVICE_CHECK, read).is_err() {
            self.not_tested(device, "no thread can be started that waits for the check".to_owned());
        }
    }

    /// There is no check of a device.
    pub(crate) fn not_tested(&mut self, device: DeviceSlot, why: String) {
        self.post.post(Said::Tested(device, CheckOutcome::NotMade(why)));
    }

    /// What was found out since the last call.
    pub fn answers(&mut self) -> Vec<DeviceAnswer> {
        let said = self.mailbox.take().unwrap_or_default();
        said.into_iter().map(|said| self.noted(said)).collect()
    }

    fn noted(&mut self, said: Said) -> DeviceAnswer {
        match said {
            Said::Residue(question, residue) => DeviceAnswer::Residue(question, residue),
            Said::Opened(found) => DeviceAnswer::Opened(found),
            Said::Failed(seen) => DeviceAnswer::Failed(seen),
            Said::Tested(device, outcome) => DeviceAnswer::Tested(device, outcome),
            Said::Measured(measured) => DeviceAnswer::Measured(measured),
            Said::Uses(resource, uses) => {
                self.uses.insert(resource, uses);
                DeviceAnswer::Uses(self.uses.values().flatten().cloned().collect())
            }
        }
    }

    /// Which of the devices still hold memory of processes that are dead; nothing for those of which nothing is said within
    /// two seconds. Only while nobody is served.
    pub fn look(&mut self, devices: &[(&'static str, u32)]) -> Vec<(DeviceSlot, Option<Residue>)> {
        let mut found: BTreeMap<DeviceSlot, Option<Residue>> = BTreeMap::new();
        let monitored = self.monitored();
        for (resource, slot) in devices.iter().filter(|(resource, _)| monitored.contains(resource)) {
            let device = ((*resource).to_owned(), *slot);
            self.ask(DeviceQuestion { worker: 0, device: device.clone(), pid: ANY_OF_THE_DEAD, is_whole: true });
            found.insert(device, None);
        }
        let until = Instant::now() + OPENING_LIMIT;
        while found.values().any(Option::is_none)
            && let Ok(said) = self.mailbox.wait(until.saturating_duration_since(Instant::now()))
        {
            if let Said::Residue(question, residue) = said {
                found.insert(question.device, Some(residue));
            }
        }
        found.into_iter().collect()
    }
}

impl AsFd for DeviceClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.as_fd()
    }
}

/// The questions to one library. The core asks about a device and a dead process once at a time, which bounds them.
enum Questions {
    Unasked {
        library: Library,
        is_dead: fn(u32) -> bool,
    },
    Asked(Sender<DeviceQuestion>),
    /// There was no thread to be had.
    Nobody,
}

impl Questions {
    /// Gives the question back where nobody can answer it.
    fn ask(&mut self, question: DeviceQuestion, post: &Post<Said>) -> Result<(), DeviceQuestion> {
        if let Self::Unasked { .. } = self
            && let Self::Unasked { library, is_dead } = std::mem::replace(self, Self::Nobody)
        {
            let (sender, questions) = channel();
            let post = post.clone();
            if spawn(DEVICE_CHECK, move || answer(library, is_dead, &questions, &post)).is_ok() {
                *self = Self::Asked(sender);
            }
        }
        match self {
            Self::Asked(sender) => sender.send(question).map_err(|unasked| unasked.0),
            Self::Unasked { .. } | Self::Nobody => Err(question),
        }
    }
}

/// A library that breaks is not asked again.
fn answer(mut library: Library, is_dead: fn(u32) -> bool, questions: &Receiver<DeviceQuestion>, post: &Post<Said>) {
    let mut is_broken = false;
    for question in questions {
        let (slot, pid) = (question.device.1, question.pid);
        let asked = || {
            let holders = if is_broken { None } else { (library.holders)(slot) };
            let residue = holders.map_or(Residue::Unknown, |holders| residue_of(&holders, pid, is_dead));
            let is_asked = residue == Residue::Gone && question.is_whole;
            let bytes = is_asked.then(|| (library.unlisted_bytes)(slot)).flatten();
            let seen = if sees_all() { Residue::Unlisted } else { Residue::Unseen };
            bytes.map_or(residue, seen)
        };
        let residue = catch_unwind(AssertUnwindSafe(asked));
        is_broken |= residue.is_err();
        let residue = residue.unwrap_or(Residue::Unknown);
        post.post(Said::Residue(question, residue));
    }
}

/// What keeps a device from the next that is to have it.
fn residue_of(holders: &Holders, pid: u32, is_dead: fn(u32) -> bool) -> Residue {
    let Holders { processes, is_exclusive, is_busy } = holders;
    if processes.contains(&pid) {
        return Residue::Held;
    }
    let dead = processes.iter().find(|listed| is_dead(**listed));
    match (dead, processes.first()) {
        (Some(_), _) if pid == ANY_OF_THE_DEAD => Residue::Held,
        (Some(other), _) => Residue::HeldByOther(*other),
        (None, Some(living)) if *is_exclusive => Residue::OpenIn(*living),
        (None, _) if *is_busy => Residue::Busy,
        (None, _) => Residue::Gone,
    }
}

/// Hears of the errors of one resource's devices.
struct Listener {
    devices: DeviceProcesses,
    rules: XidRules,
}

impl Listener {
    /// Hears on a thread of its own, until the desk is gone or nothing can be heard any more. A library that breaks off is
    /// asked again, for it does so when one device of several is lost.
    fn begin(self, post: &Post<Said>, desk: Weak<()>) {
        let post = post.clone();
        let hear = move || {
            loop {
                let (mut has_heard, mut is_over) = (false, false);
                self.devices.hear_errors(&mut |error| {
                    has_heard = true;
                    is_over = desk.strong_count() == 0;
                    if let Some(error) = error
                        && let Some(class) = self.rules.class_of_fault(error.fault)
                        && !(error.is_elsewhere && class.is_of_one_instance())
                    {
                        let device = (self.devices.resource().to_owned(), error.place as u32);
                        post.post(Said::Failed(DeviceErrorSeen { device, fault: error.fault, class }));
                    }
                    !is_over
                });
                if is_over || !has_heard {
                    return;
                }
            }
        };
        // Without a thread, devices are measured all the same.
        let _ = spawn(DEVICE_ERRORS, hear);
    }
}

/// Measures devices on a thread of its own, apart from the questions on which devices' return depends.
enum Gauge {
    Unasked {
        measure: Measure,
        /// For how many times as long as a measuring took those that are asked for are left out.
        rest: u32,
    },
    Asked(SyncSender<()>),
    Nobody,
}

impl Gauge {
    /// Asks for a measuring, unless one is under way.
    fn measure(&mut self, resource: &'static str, post: &Post<Said>) {
        if let Self::Unasked { .. } = self
            && let Self::Unasked { mut measure, rest } = std::mem::replace(self, Self::Nobody)
        {
            let (sender, questions) = sync_channel(1);
            let post = post.clone();
            let serve = move || {
                let mut due = Instant::now();
                while questions.recv().is_ok() {
                    let begun = Instant::now();
                    if begun < due {
                        continue;
                    }
                    post.post(Said::Uses(resource, measure()));
                    due = Instant::now() + begun.elapsed() * rest;
                }
            };
            if spawn(DEVICE_USE, serve).is_ok() {
                *self = Self::Asked(sender);
            }
        }
        if let Self::Asked(sender) = self {
            // A full line is a measuring under way, a broken one a thread that has ended: the last answer stands.
            let _ = sender.try_send(());
        }
    }
}

impl fmt::Debug for Questions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Listener").finish_non_exhaustive()
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Gauge").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: u32) -> bool {
        false
    }

    fn desk(is_dead: fn(u32) -> bool, holders: OfSlot<Holders>) -> DeviceClient {
        desk_with(is_dead, Library { holders, unlisted_bytes: Box::new(|_| None) })
    }

    fn desk_with(is_dead: fn(u32) -> bool, library: Library) -> DeviceClient {
        let mut desk = DeviceClient::new().expect("a descriptor");
        desk.add("GPU", is_dead, library, gauge(Box::new(Vec::new), 0));
        desk
    }

    fn gauge(measure: Measure, rest: u32) -> Gauge {
        Gauge::Unasked { measure, rest }
    }

    fn listed(processes: &[u32]) -> Holders {
        Holders::together(processes.to_vec())
    }

    fn question(slot: u32, pid: u32) -> DeviceQuestion {
        DeviceQuestion { worker: 9, device: ("GPU".to_owned(), slot), pid, is_whole: false }
    }

    /// The next answer.
    fn next(desk: &mut DeviceClient) -> DeviceAnswer {
        let said = desk.mailbox.wait(Duration::from_secs(60)).expect("there is an answer");
        desk.noted(said)
    }

    fn answer(desk: &mut DeviceClient, slot: u32, pid: u32) -> Residue {
        desk.ask(question(slot, pid));
        let DeviceAnswer::Residue(of, residue) = next(desk) else { panic!("nothing was measured") };
        assert_eq!(of, question(slot, pid));
        residue
    }

    #[test]
    fn the_dead_of_before_are_told_from_others_that_live() {
        let mut desk = desk(|pid| pid == 13, Box::new(|slot| Some(listed(&[10 + slot]))));
        assert_eq!(answer(&mut desk, 2, ANY_OF_THE_DEAD), Residue::Gone, "somebody else uses it");
        assert_eq!(answer(&mut desk, 3, ANY_OF_THE_DEAD), Residue::Held);
        let found = [(("GPU".to_owned(), 2), Some(Residue::Gone)), (("GPU".to_owned(), 3), Some(Residue::Held))];
        assert_eq!(desk.look(&[("GPU", 2), ("GPU", 3), ("TPU", 3)]), found, "nobody knows of others");
        assert!(!is_dead(std::process::id()));
    }

    #[test]
    fn a_process_is_looked_for_among_those_of_its_device() {
        let mut desk = desk(nobody, Box::new(|slot| (slot < 2).then(|| Holders::together(vec![10 + slot, 20]))));
        assert_eq!(answer(&mut desk, 0, 10), Residue::Held);
        assert_eq!(answer(&mut desk, 1, 10), Residue::Gone);
        assert_eq!(answer(&mut desk, 1, 20), Residue::Held);
        assert_eq!(answer(&mut desk, 2, 20), Residue::Unknown, "no such device");
        let other = DeviceQuestion { device: ("TPU".to_owned(), 0), ..question(0, 10) };
        desk.ask(other.clone());
        assert_eq!(next(&mut desk), DeviceAnswer::Residue(other, Residue::Unknown), "another family's");
    }

    #[test]
    fn what_a_dead_worker_started_is_looked_for_as_well() {
        let mut desk = desk(|pid| pid == 21, Box::new(|slot| Some(listed(&[20 + slot]))));
        assert_eq!(answer(&mut desk, 1, 7), Residue::HeldByOther(21));
        assert_eq!(answer(&mut desk, 2, 7), Residue::Gone, "somebody who lives uses it");
    }

    #[test]
    fn what_nobody_has_that_is_listed_is_told_of_a_device_that_was_had_whole() {
        let unlisted_bytes: OfSlot<u64> = Box::new(|slot| (slot < 2).then_some(5 << 30));
        let mut desk =
            desk_with(nobody, Library { holders: Box::new(|slot| Some(listed(&[10 + slot]))), unlisted_bytes });
        let mut ask = |slot, pid, is_whole| {
            desk.ask(DeviceQuestion { is_whole, ..question(slot, pid) });
            let DeviceAnswer::Residue(_, residue) = next(&mut desk) else { panic!("nothing was measured") };
            residue
        };
        let told = if sees_all() { Residue::Unlisted(5 << 30) } else { Residue::Unseen(5 << 30) };
        assert_eq!([ask(0, 7, true), ask(0, 7, false), ask(0, 10, true)], [told, Residue::Gone, Residue::Held]);
        assert_eq!(ask(2, 7, true), Residue::Gone, "the library does not tell how much is in use");
    }

    #[test]
    fn one_that_lives_keeps_a_device_from_others_that_one_process_can_use() {
        let of = |processes: &[u32], is_busy| Holders { processes: processes.to_vec(), is_exclusive: true, is_busy };
        let is_dead = |pid| pid == 13;
        assert_eq!(residue_of(&of(&[5], true), 7, is_dead), Residue::OpenIn(5));
        assert_eq!(residue_of(&of(&[5, 13], false), 7, is_dead), Residue::HeldByOther(13), "who is dead says more");
        assert_eq!(residue_of(&of(&[], true), 7, is_dead), Residue::Busy);
        assert_eq!(residue_of(&of(&[], false), 7, is_dead), Residue::Gone);
    }

    #[test]
    fn a_measuring_that_costs_much_is_not_made_again_soon() {
        let (post, mailbox) = mailbox::<Said>().expect("a descriptor");
        let (sender, begun) = channel();
        let measure = move || {
            sender.send(()).expect("it is heard");
            Vec::new()
        };
        let mut gauge = gauge(Box::new(measure), u32::MAX);
        gauge.measure("GPU", &post);
        begun.recv().expect("it is measured");
        assert!(mailbox.wait(Duration::from_secs(60)).is_ok());
        gauge.measure("GPU", &post);
        drop((gauge, post));
        assert_eq!(begun.iter().count(), 0, "minutes have not gone by");
    }

    #[test]
    fn a_library_that_hangs_holds_nobody_up() {
        let (release, gate) = channel::<Vec<u32>>();
        let mut desk = desk(nobody, Box::new(move |_| gate.recv().ok().map(Holders::together)));
        desk.ask(question(0, 7));
        desk.ask(question(1, 8));
        assert_eq!(desk.answers(), [], "DESK-1");
        release.send(vec![7]).expect("it waits");
        assert_eq!(next(&mut desk), DeviceAnswer::Residue(question(0, 7), Residue::Held));
        assert_eq!(desk.answers(), [], "the first answer was about process 7 (DESK-2)");
        release.send(vec![8]).expect("it waits");
        assert_eq!(next(&mut desk), DeviceAnswer::Residue(question(1, 8), Residue::Held));
        drop(release);
        assert_eq!(answer(&mut desk, 0, 7), Residue::Unknown);
    }

    #[test]
    fn a_library_that_breaks_is_not_asked_again() {
        let mut desk = desk(nobody, Box::new(|slot| if slot == 0 { panic!("broken") } else { Some(listed(&[7])) }));
        assert_eq!(answer(&mut desk, 0, 7), Residue::Unknown);
        assert_eq!(answer(&mut desk, 1, 7), Residue::Unknown);
    }

    #[test]
    fn devices_are_measured_one_time_after_the_other() {
        let (release, gate) = channel::<u32>();
        let used = |percent| DeviceUse { slot: percent, ..DeviceUse::default() };
        let measure = Box::new(move || gate.recv().map(used).into_iter().collect());
        let mut desk = DeviceClient::new().expect("a descriptor");
        let library = || Library { holders: Box::new(|_| None), unlisted_bytes: Box::new(|_| None) };
        desk.add("GPU", nobody, library(), gauge(measure, 0));
        let other = || vec![DeviceUse { slot: 99, ..DeviceUse::default() }];
        desk.add("TPU", nobody, library(), gauge(Box::new(other), 0));
        desk.measure();
        assert_eq!(next(&mut desk), DeviceAnswer::Uses(vec![used(99)]), "one that hangs holds no other up (DESK-1)");
        release.send(7).expect("it waits");
        assert_eq!(next(&mut desk), DeviceAnswer::Uses(vec![used(7), used(99)]));
    }
}
