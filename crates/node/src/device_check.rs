//! What a vendor's library says of devices later: whether one has forgotten the processes that held it, and how much it
//! is used.

use oxiray_accelerators::{DeviceProcesses, DeviceUse, Host, Offer};
use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::thread;
use std::time::Duration;

/// How long one question may hold up the daemon. NVML answers within a few milliseconds once it is open; opening it, or a
/// driver in trouble, takes longer.
const PATIENCE: Duration = Duration::from_millis(20);

/// How long a node's start waits for the library to open.
const OPENING_LIMIT: Duration = Duration::from_secs(2);

/// What the vendor's library says of a device after a grant's processes are dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residue {
    /// Nothing of them is left.
    Gone,
    /// The device still lists one of them.
    Held,
    /// The library has not answered yet: ask again.
    Pending,
    /// Nobody can tell: the family has no monitor, or the device exists in name only.
    Unknown,
}

/// Asks the vendor's library. Called once or more after the end of every grant that had devices.
pub trait DeviceCheck: fmt::Debug {
    /// Whether `resource`'s device in `slot` still holds memory for the dead process `pid`, or for any dead process where
    /// that is [`ANY_OF_THE_DEAD`].
    fn residue(&mut self, resource: &str, slot: u32, pid: u32) -> Residue;

    /// Waits until the library is open and can answer, for a bounded time. Only while nobody is served.
    fn open(&mut self) {}

    /// Whether anybody can tell how much devices are used.
    fn measures(&self) -> bool {
        false
    }

    /// Has the devices measured; what the last measuring found. Never waits.
    fn measure(&mut self) -> Vec<DeviceUse> {
        Vec::new()
    }
}

/// Stands for whichever processes are dead.
pub const ANY_OF_THE_DEAD: u32 = 0;

/// The machine's own namespace of processes, whose number the kernel fixes. In any other, libraries may name processes
/// that cannot be seen and live all the same.
const OWN_NAMESPACE: &str = "pid:[4026531836]";

/// Whether a process is surely dead.
fn is_dead(pid: u32) -> bool {
    let is_own = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == OWN_NAMESPACE);
    is_own && matches!(std::fs::exists(format!("/proc/{pid}")), Ok(false))
}

/// The check for the devices that a machine offers.
pub fn of(host: &Host, offer: &Offer) -> Box<dyn DeviceCheck> {
    let askers = DeviceProcesses::of(host, offer).into_iter().map(|processes| {
        let own = processes.clone();
        let gauge = Some(Gauge::new(Box::new(move || own.uses())));
        Asker::new(processes.resource(), is_dead, Box::new(move |slot| processes.in_slot(slot)), gauge)
    });
    Box::new(Askers(askers.collect()))
}

/// One for each resource that has a monitor: a driver in trouble holds up no answer about another's devices.
#[derive(Debug)]
struct Askers(Vec<Asker>);

impl DeviceCheck for Askers {
    fn residue(&mut self, resource: &str, slot: u32, pid: u32) -> Residue {
        let asker = self.0.iter_mut().find(|asker| asker.resource == resource);
        asker.map_or(Residue::Unknown, |asker| asker.residue(resource, slot, pid))
    }

    fn open(&mut self) {
        self.0.iter_mut().for_each(DeviceCheck::open);
    }

    fn measures(&self) -> bool {
        self.0.iter().any(DeviceCheck::measures)
    }

    fn measure(&mut self) -> Vec<DeviceUse> {
        self.0.iter_mut().flat_map(DeviceCheck::measure).collect()
    }
}

/// Answers which processes hold memory of the device in a slot; may take long.
type Library = Box<dyn FnMut(u32) -> Option<Vec<u32>> + Send>;

/// A slot, and the dead process that is looked for.
type Question = (u32, u32);

/// Asks a library on a thread of its own, for a driver in trouble answers late or never, and the daemon serves others.
/// The thread starts with the first question, and is asked one at a time.
struct Asker {
    resource: &'static str,
    is_dead: fn(u32) -> bool,
    library: Option<Library>,
    line: Option<(SyncSender<Question>, Receiver<Residue>)>,
    /// Asked, and not answered. Its answer counts for nothing else: what was seen before a death says nothing after it.
    open: Option<Question>,
    gauge: Option<Gauge>,
}

impl Asker {
    fn new(resource: &'static str, is_dead: fn(u32) -> bool, library: Library, gauge: Option<Gauge>) -> Self {
        Self { resource, is_dead, library: Some(library), line: None, open: None, gauge }
    }

    fn start(&mut self) -> Option<()> {
        let mut library = self.library.take()?;
        let is_dead = self.is_dead;
        let (ask, questions) = mpsc::sync_channel::<Question>(1);
        let (answer, answers) = mpsc::sync_channel(1);
        let serve = move || {
            for (slot, pid) in questions {
                let residue = match library(slot) {
                    Some(pids) if pid == ANY_OF_THE_DEAD && pids.iter().any(|pid| is_dead(*pid)) => Residue::Held,
                    Some(pids) if pids.contains(&pid) => Residue::Held,
                    Some(_) => Residue::Gone,
                    None => Residue::Unknown,
                };
                if answer.send(residue).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("device check".into()).spawn(serve).ok()?;
        self.line = Some((ask, answers));
        Some(())
    }

    fn ask(&mut self, question: Question) -> Option<Residue> {
        if self.line.is_none() {
            self.start()?;
        }
        let (ask, answers) = self.line.as_ref()?;
        if let Some(open) = self.open {
            match answers.try_recv() {
                Ok(residue) if open == question => {
                    self.open = None;
                    return Some(residue);
                }
                Ok(_) => self.open = None,
                Err(TryRecvError::Empty) => return Some(Residue::Pending),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        ask.try_send(question).ok()?;
        match answers.recv_timeout(PATIENCE) {
            Ok(residue) => Some(residue),
            Err(RecvTimeoutError::Timeout) => {
                self.open = Some(question);
                Some(Residue::Pending)
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl DeviceCheck for Asker {
    fn open(&mut self) {
        let question = (0, ANY_OF_THE_DEAD);
        if self.ask(question) == Some(Residue::Pending)
            && let Some((_, answers)) = &self.line
            && answers.recv_timeout(OPENING_LIMIT).is_ok()
        {
            self.open = None;
        }
    }

    fn residue(&mut self, resource: &str, slot: u32, pid: u32) -> Residue {
        if resource != self.resource {
            return Residue::Unknown;
        }
        self.ask((slot, pid)).unwrap_or(Residue::Unknown)
    }

    fn measures(&self) -> bool {
        self.gauge.is_some()
    }

    fn measure(&mut self) -> Vec<DeviceUse> {
        self.gauge.as_mut().map_or_else(Vec::new, |gauge| gauge.measure().to_vec())
    }
}

/// Measures all devices; may take long.
type Measure = Box<dyn FnMut() -> Vec<DeviceUse> + Send>;

/// Measures devices on a thread of its own, apart from the questions on which devices' return depends. The thread starts
/// with the first measuring.
struct Gauge {
    measure: Option<Measure>,
    line: Option<(SyncSender<()>, Receiver<Vec<DeviceUse>>)>,
    last: Vec<DeviceUse>,
}

impl Gauge {
    fn new(measure: Measure) -> Self {
        Self { measure: Some(measure), line: None, last: Vec::new() }
    }

    /// Asks for a measuring, unless one is under way; what the last one found.
    fn measure(&mut self) -> &[DeviceUse] {
        if let Some(measure) = self.measure.take() {
            self.line = start(measure);
        }
        if let Some((ask, answers)) = &self.line {
            if let Some(newest) = answers.try_iter().last() {
                self.last = newest;
            }
            // A full line is a measuring under way, a broken one a thread that has ended: the last answer stands.
            let _ = ask.try_send(());
        }
        &self.last
    }
}

fn start(mut measure: Measure) -> Option<(SyncSender<()>, Receiver<Vec<DeviceUse>>)> {
    let (ask, questions) = mpsc::sync_channel(0);
    let (answer, answers) = mpsc::channel();
    let serve = move || while questions.recv().is_ok() && answer.send(measure()).is_ok() {};
    thread::Builder::new().name("device use".into()).spawn(serve).ok()?;
    Some((ask, answers))
}

impl fmt::Debug for Asker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Asker").field("open", &self.open).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: u32) -> bool {
        false
    }

    #[test]
    fn the_dead_of_before_are_told_from_others_that_live() {
        let mut asker = Asker::new("GPU", |pid| pid == 13, Box::new(|slot| Some(vec![10 + slot])), None);
        assert_eq!(answer(&mut asker, 2, ANY_OF_THE_DEAD), Residue::Gone, "somebody else uses it");
        assert_eq!(answer(&mut asker, 3, ANY_OF_THE_DEAD), Residue::Held);
        assert!(!is_dead(std::process::id()));
    }

    /// Asks until there is an answer.
    fn answer(asker: &mut Asker, slot: u32, pid: u32) -> Residue {
        loop {
            match asker.residue("GPU", slot, pid) {
                Residue::Pending => thread::yield_now(),
                residue => return residue,
            }
        }
    }

    #[test]
    fn a_process_is_looked_for_among_those_of_its_device() {
        let mut asker = Asker::new("GPU", nobody, Box::new(|slot| (slot < 2).then(|| vec![10 + slot, 20])), None);
        assert_eq!(answer(&mut asker, 0, 10), Residue::Held);
        assert_eq!(answer(&mut asker, 1, 10), Residue::Gone);
        assert_eq!(answer(&mut asker, 1, 20), Residue::Held);
        assert_eq!(answer(&mut asker, 2, 20), Residue::Unknown, "no such device");
        assert_eq!(asker.residue("TPU", 0, 10), Residue::Unknown, "another family's");
    }

    #[test]
    fn a_library_that_hangs_holds_nobody_up() {
        let (release, gate) = mpsc::channel::<Vec<u32>>();
        let mut asker = Asker::new("GPU", nobody, Box::new(move |_| gate.recv().ok()), None);
        for _ in 0..100 {
            assert_eq!(asker.residue("GPU", 0, 7), Residue::Pending);
            assert_eq!(asker.residue("GPU", 1, 8), Residue::Pending);
        }
        release.send(vec![7]).expect("it waits");
        assert_eq!(answer(&mut asker, 0, 7), Residue::Held);
        drop(release);
        assert_eq!(answer(&mut asker, 0, 7), Residue::Unknown);
    }

    #[test]
    fn a_late_answer_counts_for_its_own_question_alone() {
        let (release, gate) = mpsc::channel::<Vec<u32>>();
        let mut asker = Asker::new("GPU", nobody, Box::new(move |_| gate.recv().ok()), None);
        assert_eq!(asker.residue("GPU", 0, 7), Residue::Pending);
        release.send(vec![]).expect("it waits");
        release.send(vec![8]).expect("it waits");
        assert_eq!(answer(&mut asker, 0, 8), Residue::Held, "the first answer was about process 7");
    }

    #[test]
    fn a_library_that_breaks_is_not_asked_again() {
        let mut asker = Asker::new("GPU", nobody, Box::new(|_| panic!("broken")), None);
        assert_eq!(answer(&mut asker, 0, 7), Residue::Unknown);
        assert_eq!(asker.residue("GPU", 0, 7), Residue::Unknown);
    }

    #[test]
    fn devices_are_measured_one_time_after_the_other() {
        let (release, gate) = mpsc::channel::<u32>();
        let used = |percent| DeviceUse { slot: percent, ..DeviceUse::default() };
        let mut gauge = Gauge::new(Box::new(move || gate.recv().map(used).into_iter().collect()));
        assert_eq!(gauge.measure(), [], "nothing is known at first");
        release.send(7).expect("it waits");
        while gauge.measure().is_empty() {
            thread::yield_now();
        }
        for _ in 0..100 {
            assert_eq!(gauge.measure(), [used(7)], "a library that hangs holds nobody up");
        }
        release.send(8).expect("it waits");
        while gauge.measure() != [used(8)] {
            thread::yield_now();
        }
    }
}
