//! Whether devices have forgotten the dead, which is asked about and not waited for. No I/O and no clock.
//!
//! - CHECK-1: what a dead worker held is kept until each of its devices has forgotten it, or the time for that is over.
//! - CHECK-2: what is still in doubt by then is said to be so until an answer says otherwise, and is asked about again and
//!   again.
//! - CHECK-3: a device has forgotten the worker when it lists no dead process at all, for what the worker started is dead too.
//! - CHECK-4: of a device that a worker had whole, no more may be in use by nobody that is listed than before anybody here had
//!   it, but for a little. What somebody else has by the list is never held against it. Where processes cannot be told apart,
//!   somebody unseen may have the rest, and it is only waited for a while.

use crate::baselines::Baselines;
use crate::memory::shown;
use oxiray_resources::{Grant, Quantity};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a device may take to forget the dead, and its driver to answer.
const FORGETTING_LIMIT: Duration = Duration::from_secs(10);
/// How long it is waited for memory that somebody unseen may have (CHECK-4).
const UNSEEN_LIMIT: Duration = Duration::from_secs(2);
/// How often it is asked meanwhile.
const FORGETTING_PERIOD: Duration = Duration::from_millis(50);
/// How often it is asked once it is out of service.
const REMEMBERING_PERIOD: Duration = Duration::from_secs(10);

/// Stands for whichever processes are dead.
pub const ANY_OF_THE_DEAD: u32 = 0;

/// A resource and a slot.
pub type DeviceSlot = (String, u32);

/// What the vendor's library says of a device after a grant's processes are dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residue {
    /// Nothing of them is left.
    Gone,
    /// The device still lists the process that was asked about.
    Held,
    /// The device still lists this other process, which is dead as well: one that a worker started, most likely.
    HeldByOther(u32),
    /// Nothing of them is listed, and so many bytes are in use that nobody has who is listed.
    Unlisted(u64),
    /// The same where processes have other numbers than here, so that somebody unseen may have them.
    Unseen(u64),
    /// This process lives and has the device open, which one process at a time can use.
    OpenIn(u32),
    /// Its driver is still making it ready for the next process.
    Busy,
    /// Nobody can tell: the library does not answer such questions, or the device exists in name only.
    Unknown,
}

/// Whether a device still holds memory of a dead process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceQuestion {
    /// The key of the worker whose end it is about, which names the check.
    pub worker: u64,
    /// Which device.
    pub device: DeviceSlot,
    /// The dead process; 0 stands for whichever are dead.
    pub pid: u32,
    /// Whether the worker had all of the device, so that it is to be told how much is in use by nobody that is listed.
    pub is_whole: bool,
}

/// Why a device is not known to have forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// Its driver has not said anything yet.
    Unanswered,
    /// It still holds memory.
    Held,
    /// It still holds memory of another process that is dead.
    HeldByOther(u32),
    /// So many bytes are in use by nobody that is listed.
    Unlisted(u64),
    /// So many are that somebody unseen may have.
    Unseen(u64),
    /// A process that lives has it open.
    OpenIn(u32),
    /// Its driver is not done with it.
    Busy,
}

impl Doubt {
    /// What is doubtful of a device of which that was answered; `is_beyond` says whether so many bytes are too many to be in
    /// use by nobody that is listed.
    fn of(residue: Residue, mut is_beyond: impl FnMut(u64) -> bool) -> Option<Self> {
        match residue {
            Residue::Held => Some(Self::Held),
            Residue::HeldByOther(pid) => Some(Self::HeldByOther(pid)),
            Residue::OpenIn(pid) => Some(Self::OpenIn(pid)),
            Residue::Busy => Some(Self::Busy),
            Residue::Unlisted(bytes) => is_beyond(bytes).then_some(Self::Unlisted(bytes)),
            Residue::Unseen(bytes) => is_beyond(bytes).then_some(Self::Unseen(bytes)),
            Residue::Gone | Residue::Unknown => None,
        }
    }
}

/// What one worker held, and what is asked about it.
#[derive(Debug)]
struct Check {
    pid: u32,
    grants: Vec<Grant>,
    /// The devices of which it had all.
    whole: BTreeSet<DeviceSlot>,
    doubtful: BTreeMap<DeviceSlot, Doubt>,
    /// Those of them whose answers are awaited.
    asked: BTreeSet<DeviceSlot>,
    /// When they are asked about again, where no answer is awaited.
    asks_at: Option<Instant>,
    until: Instant,
    /// When it is waited no longer for what somebody unseen may have.
    bears_unseen_at: Instant,
}

/// What is to be done for a check.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) questions: Vec<DeviceQuestion>,
    /// When [`DeviceChecks::due`] is to be called.
    pub(crate) alarms: Vec<Instant>,
    /// What is borne, for the log.
    pub(crate) notes: Vec<String>,
    pub(crate) verdict: Option<Verdict>,
}

/// What is known of a worker's devices.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// The devices that are to be out of service because of that worker, each with the reason; no others are.
    pub(crate) doubtful: BTreeMap<DeviceSlot, String>,
    /// What is given back now.
    pub(crate) grants: Vec<Grant>,
}

/// All checks that are not settled, by worker.
#[derive(Debug)]
pub(crate) struct DeviceChecks {
    /// The resources whose devices somebody can be asked about.
    monitored: BTreeSet<&'static str>,
    open: BTreeMap<u64, Check>,
    /// CHECK-4.
    pub(crate) baselines: Baselines,
}

impl DeviceChecks {
    pub(crate) fn new(monitored: BTreeSet<&'static str>) -> Self {
        Self { monitored, open: BTreeMap::new(), baselines: Baselines::default() }
    }

    /// Whether anybody can be asked about any device.
    pub(crate) fn is_anything_monitored(&self) -> bool {
        !self.monitored.is_empty()
    }

    /// How many are not settled.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a device may be out of service because of that worker.
    pub(crate) fn is_remembered(&self, worker: u64) -> bool {
        self.open.get(&worker).is_some_and(|check| check.grants.is_empty() && !check.doubtful.is_empty())
    }

    /// The worker is gone, and so is everything that it started.
    pub(crate) fn begin(&mut self, worker: u64, pid: u32, grants: Vec<Grant>, now: Instant) -> Step {
        let devices = devices_of(&grants).into_iter().filter(|(resource, _)| self.monitored.contains(&resource[..]));
        let doubtful: BTreeMap<DeviceSlot, Doubt> = devices.map(|device| (device, Doubt::Unanswered)).collect();
        let whole = whole_of(&grants);
        self.baselines.touched(&whole);
        let until = now + FORGETTING_LIMIT;
        let bears_unseen_at = now + UNSEEN_LIMIT;
        let (asked, asks_at) = (BTreeSet::new(), None);
        self.open.insert(worker, Check { pid, grants, whole, doubtful, asked, asks_at, until, bears_unseen_at });
        let questions = self.ask(worker);
        let alarms = if questions.is_empty() { Vec::new() } else { vec![until] };
        self.judge(worker, now, Step { questions, alarms, ..Step::default() })
    }

    /// What was said of devices at the start, where anything was said in time; `worker` stands for whoever held them before.
    pub(crate) fn doubt(&mut self, worker: u64, found: Vec<(DeviceSlot, Option<Residue>)>, now: Instant) -> Step {
        // What is in use before anybody here has it is where it begins.
        let doubt =
            |residue: Option<Residue>| residue.map_or(Some(Doubt::Unanswered), |residue| Doubt::of(residue, |_| false));
        for (device, residue) in &found {
            if let Some(Residue::Unlisted(bytes) | Residue::Unseen(bytes)) = residue {
                self.baselines.begins(device, *bytes);
            }
        }
        let doubtful = found.into_iter().filter_map(|(device, residue)| Some((device, doubt(residue)?)));
        let doubtful: BTreeMap<DeviceSlot, Doubt> = doubtful.collect();
        if doubtful.is_empty() {
            return Step::default();
        }
        let is_unanswered = doubtful.values().any(|doubt| *doubt == Doubt::Unanswered);
        let (grants, whole, asked, asks_at) = (Vec::new(), BTreeSet::new(), BTreeSet::new(), None);
        let (pid, until, bears_unseen_at) = (ANY_OF_THE_DEAD, now, now);
        self.open.insert(worker, Check { pid, grants, whole, doubtful, asked, asks_at, until, bears_unseen_at });
        let questions = if is_unanswered { self.ask(worker) } else { Vec::new() };
        self.judge(worker, now, Step { questions, ..Step::default() })
    }

    /// An answer, which may come late, or never.
    pub(crate) fn answered(&mut self, question: &DeviceQuestion, residue: Residue, now: Instant) -> Step {
        let DeviceQuestion { worker, device, .. } = question;
        let Some(check) = self.open.get_mut(worker) else { return Step::default() };
        if !check.asked.remove(device) {
            return Step::default();
        }
        let is_whole = check.whole.contains(device);
        match Doubt::of(residue, |bytes| is_whole && self.baselines.is_beyond(device, bytes)) {
            Some(doubt) => drop(check.doubtful.insert(device.clone(), doubt)),
            None => drop(check.doubtful.remove(device)),
        }
        self.judge(*worker, now, Step::default())
    }

    /// It is time to ask again, or to wait no longer.
    pub(crate) fn due(&mut self, worker: u64, now: Instant) -> Step {
        let asks_at = self.open.get(&worker).and_then(|check| check.asks_at);
        let questions = if asks_at.is_some_and(|at| at <= now) { self.ask(worker) } else { Vec::new() };
        self.judge(worker, now, Step { questions, ..Step::default() })
    }

    fn ask(&mut self, worker: u64) -> Vec<DeviceQuestion> {
        let Some(check) = self.open.get_mut(&worker) else { return Vec::new() };
        check.asks_at = None;
        check.asked = check.doubtful.keys().cloned().collect();
        let question = |device: &DeviceSlot| DeviceQuestion {
            worker,
            device: device.clone(),
            pid: check.pid,
            is_whole: check.whole.contains(device),
        };
        check.asked.iter().map(question).collect()
    }

    fn judge(&mut self, worker: u64, now: Instant, mut step: Step) -> Step {
        let Some(check) = self.open.get_mut(&worker) else { return step };
        if now >= check.bears_unseen_at {
            step.notes.extend(check.doubtful.iter().filter_map(|(device, doubt)| borne(device, *doubt)));
            check.doubtful.retain(|_, doubt| !matches!(doubt, Doubt::Unseen(_)));
        }
        let is_settled = check.doubtful.is_empty();
        if is_settled || now >= check.until {
            let reasons = check.doubtful.iter();
            let reasons = reasons.map(|(device, doubt)| (device.clone(), reason_of(device, *doubt, check.pid)));
            let doubtful = reasons.collect();
            step.verdict = Some(Verdict { doubtful, grants: std::mem::take(&mut check.grants) });
        }
        if is_settled {
            self.open.remove(&worker);
        } else if check.asked.is_empty() && check.asks_at.is_none() {
            let at = now + if check.grants.is_empty() { REMEMBERING_PERIOD } else { FORGETTING_PERIOD };
            check.asks_at = Some(at);
            step.alarms.push(at);
        }
        step
    }
}

/// What is said of a device whose memory somebody unseen may have.
fn borne((resource, slot): &DeviceSlot, doubt: Doubt) -> Option<String> {
    let Doubt::Unseen(bytes) = doubt else { return None };
    Some(format!(
        "{resource} {slot} still has {} in use by nobody that is listed; who has them may not be seen from here, so that the \
         device is handed on",
        shown(bytes)
    ))
}

fn reason_of((resource, slot): &DeviceSlot, doubt: Doubt, pid: u32) -> String {
    let doubt = match doubt {
        Doubt::Held => "the device",
        Doubt::HeldByOther(other) => {
            return format!(
                "process {other} is dead, and the device still holds memory of it (process {pid} had the device)"
            );
        }
        Doubt::Unlisted(bytes) | Doubt::Unseen(bytes) => {
            let bytes = shown(bytes);
            return format!(
                "{resource} {slot} still has {bytes} in use by nobody that is listed (process {pid} had the device)"
            );
        }
        Doubt::OpenIn(living) => {
            return format!("process {living} has the device open, which one process at a time can use");
        }
        Doubt::Busy => return "its driver has not made it ready again since it was used last".to_owned(),
        Doubt::Unanswered => "its driver does not say whether it",
    };
    match pid {
        ANY_OF_THE_DEAD => format!("{doubt} still holds memory of a process that died before this node began"),
        pid => format!("process {pid} is dead, and {doubt} still holds memory of it"),
    }
}

/// The devices of which grants have all.
fn whole_of(grants: &[Grant]) -> BTreeSet<DeviceSlot> {
    let of = grants.iter().flat_map(Grant::devices);
    let whole = of.flat_map(|of| {
        let shares = of.shares.iter().filter(|share| share.share == Quantity::ONE);
        shares.map(|share| (of.resource.to_string(), share.device))
    });
    whole.collect()
}

/// The devices that grants name.
pub(crate) fn devices_of<'grants>(grants: impl IntoIterator<Item = &'grants Grant>) -> BTreeSet<DeviceSlot> {
    let of = grants.into_iter().flat_map(Grant::devices);
    of.flat_map(|of| of.shares.iter().map(|share| (of.resource.to_string(), share.device))).collect()
}
