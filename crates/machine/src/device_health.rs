//! Which devices are ill, why nobody is given them, and how they come back.
//!
//! - HEALTH-1: an error that an application caused never takes a device out of service.
//! - HEALTH-2: a device that was taken out for its hardware comes back when its driver needs nothing any more and it has
//!   passed the check, or by hand.
//! - HEALTH-3: what was drained by hand comes back by hand alone.
//! - HEALTH-4: a device that somebody has is not checked: the check would be in the way.
//! - HEALTH-5: a device of which nothing is said is not called healthy.
//! - HEALTH-7: a device that is suspected for what failed on it is given to nobody before it has passed the check, and goes on
//!   where none can be made. Where nobody tells of its health, it is never suspected.
//! - HEALTH-6: over a restart of the daemon it is remembered what a driver does not say again, and no longer than until the
//!   machine is restarted; what a person drained, over that as well.

use crate::device_checks::DeviceSlot;
use crate::device_links::{DeviceLinks, LinksChange};
use oxiray_families::{DeviceFault, DriverWord, Health, Recovery, Slowdown, XidClass};
use oxiray_wire::state::{HealthState, ServiceCause};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The errors of one device that are remembered.
const ERRORS_MAX: usize = 8;
/// How long before the end of a process an error may have been its cause.
const ERROR_COUNTS: Duration = Duration::from_secs(10);
/// Until a device is checked again that did not pass.
const CHECKED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How long it is said that a device is slowed down after it was so the last time.
const SLOWED_FOR: Duration = Duration::from_secs(60);
/// How long the head's word stands that a device is kept in service.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// An error that a driver reported of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceErrorSeen {
    /// The device.
    pub device: DeviceSlot,
    /// What it is.
    pub fault: DeviceFault,
    /// What it says of the device.
    pub class: XidClass,
}

/// What the check of a device came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It computes and remembers.
    Passed,
    /// It does not, and how.
    Failed(String),
    /// Nothing was found out, and why: there is no library by which a device is reached, say.
    NotMade(String),
}

/// Why a device is ill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Its driver reported an error of its hardware.
    Error,
    /// Its driver needs something before it can be relied on.
    Driver,
    /// A person drained it.
    Hand,
    /// A person wants it back, or checked.
    Returning,
    /// What ran on it failed, and succeeded elsewhere.
    Suspicion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The cause is not gone, or somebody has the device.
    NotDue,
    UnderWay,
    Failed(Instant),
}

#[derive(Debug)]
struct Illness {
    cause: Cause,
    reason: String,
    /// Whether it may come back when it has passed the check that is under way.
    is_over: bool,
    check: Check,
}

/// What is to be done about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody is given it, for this reason; where it is out of service already, for this one from now on.
    Out(DeviceSlot, String),
    /// It is given to people again.
    Back(DeviceSlot),
    /// It is to be checked.
    Check(DeviceSlot),
    /// Those who have it are told.
    Tell(DeviceSlot, String),
    /// Those who have it are ended, for this reason.
    EndHolders(DeviceSlot, String),
    /// Whether it may be granted along with others has changed.
    Links(DeviceSlot, LinksChange),
}

/// What is remembered of a device over a restart of the daemon (HEALTH-6).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthRecord {
    /// What the device is counted as.
    pub resource: String,
    /// What names it whatever its number: its vendor's unique id, where it has one.
    pub name: String,
    /// Why nobody is given it; nothing where it is in service.
    pub reason: Option<String>,
    /// Whether a person drained it.
    pub is_by_hand: bool,
    /// How many errors that could not be corrected a person has seen, and put it back.
    pub borne: u64,
}

/// A process, the one that started it, and so on.
pub(crate) type Lineage = Vec<u32>;

/// An error that is remembered.
#[derive(Debug)]
struct Remembered {
    at: Instant,
    seen: DeviceErrorSeen,
    /// Who used the device through an MPS server when it happened.
    clients: Vec<Lineage>,
}

/// An error that was reported while a call ran: the last of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) seen: DeviceErrorSeen,
    /// How long ago it was.
    pub(crate) before: Duration,
    /// How many of its kind there were.
    pub(crate) times: usize,
    /// How many others used the device through the MPS server through which the process did, where one of them may have caused it.
    pub(crate) others: usize,
}

/// The health of a machine's devices.
#[derive(Debug, Default)]
pub(crate) struct DeviceHealth {
    ill: BTreeMap<DeviceSlot, Illness>,
    errors: BTreeMap<DeviceSlot, VecDeque<Remembered>>,
    /// What drivers said last.
    said: BTreeMap<DeviceSlot, Health>,
    /// Until when it is said of devices that their hardware slows them down, and why.
    slowed: BTreeMap<DeviceSlot, (Instant, Slowdown)>,
    /// Who uses each through an MPS server.
    clients: BTreeMap<DeviceSlot, Vec<Lineage>>,
    /// Those that the head keeps in service: until when, and what is said of it.
    kept: BTreeMap<DeviceSlot, (Instant, String)>,
    /// Those of whose health somebody tells.
    told: BTreeSet<DeviceSlot>,
    /// The errors that could not be corrected of those that a person put back in spite of them.
    borne: BTreeMap<DeviceSlot, u64>,
    /// The same, as they were last counted.
    uncorrected: BTreeMap<DeviceSlot, u64>,
    pub(crate) links: DeviceLinks,
    /// What is said of those on which something failed of late.
    remarks: BTreeMap<DeviceSlot, String>,
}

impl DeviceHealth {
    /// A driver reported an error.
    pub(crate) fn error(&mut self, seen: DeviceErrorSeen, now: Instant) -> Vec<Verdict> {
        let DeviceErrorSeen { device, fault: error, class } = seen.clone();
        let (resource, slot) = &device;
        // Its driver is asked what that is.
        if error == DeviceFault::OtherRecovery {
            return Vec::new();
        }
        self.remember(seen, now);
        match class {
            XidClass::Note => Vec::new(),
            XidClass::Application => {
                vec![Verdict::Tell(
                    device.clone(),
                    format!("{resource} {slot} reported {error}: what runs on it caused that, and the device goes on"),
                )]
            }
            XidClass::Contained => {
                let what = if error == DeviceFault::DoubleBit {
                    "its hardware failed"
                } else {
                    "its hardware failed and contained that"
                };
                vec![Verdict::Tell(
                    device.clone(),
                    format!(
                        "{resource} {slot} reported {error}: {what}; what runs on it may be hurt, and the device goes on"
                    ),
                )]
            }
            XidClass::Link => {
                if let DeviceFault::Xid(xid) = error {
                    self.links.error(&device, xid);
                }
                let may_be = "what uses its links to other devices may be hurt";
                vec![Verdict::Tell(device.clone(), format!("{resource} {slot} reported {error}: {may_be}"))]
            }
            XidClass::Reset => {
                let reason = format!("{error}: it is to be reset");
                self.falls_ill(&device, Cause::Error, reason, now)
            }
            XidClass::Gone => {
                // The head's word does not help: nobody can use it.
                self.kept.remove(&device);
                let reason = format!("{error}: it does not answer any more");
                let mut verdicts = self.falls_ill(&device, Cause::Error, reason, now);
                verdicts.push(Verdict::EndHolders(device, error.to_string()));
                verdicts
            }
        }
    }

    fn remember(&mut self, seen: DeviceErrorSeen, now: Instant) {
        let clients = self.clients.get(&seen.device).cloned().unwrap_or_default();
        let errors = self.errors.entry(seen.device.clone()).or_default();
        errors.push_back(Remembered { at: now, seen, clients });
        if errors.len() > ERRORS_MAX {
            errors.pop_front();
        }
    }

    /// Who uses a device through an MPS server now.
    pub(crate) fn shared_by(&mut self, device: &DeviceSlot, clients: Vec<Lineage>) {
        if clients.is_empty() {
            self.clients.remove(device);
        } else {
            self.clients.insert(device.clone(), clients);
        }
    }

    /// What its driver says of a device now; `is_held` where somebody has it.
    pub(crate) fn seen(&mut self, device: &DeviceSlot, health: &Health, is_held: bool, now: Instant) -> Vec<Verdict> {
        // Only its driver's word ends that: a question that failed does not.
        let was = self.said.get(device).and_then(|said| said.recovery).filter(|was| *was == Recovery::Reboot);
        let health = &Health { recovery: health.recovery.or(was), ..health.clone() };
        let changed = self.links.seen(device, health.recovery).map(|change| Verdict::Links(device.clone(), change));
        changed.into_iter().chain(self.judged(device, health, is_held, now)).collect()
    }

    fn judged(&mut self, device: &DeviceSlot, health: &Health, is_held: bool, now: Instant) -> Vec<Verdict> {
        if let Some(slowed) = health.slowed {
            self.slowed.insert(device.clone(), (now + SLOWED_FOR, slowed));
        }
        self.slowed.retain(|_, (until, _)| *until > now);
        self.said.insert(device.clone(), health.clone());
        if health.is_told() {
            self.told.insert(device.clone());
        }
        self.kept.retain(|_, (until, _)| *until > now);
        let uncorrected = self.unborne(device, health);
        if let Some(reason) = Self::driver_needs(health).or(uncorrected) {
            let is_known = self.ill.get(device).is_some_and(|ill| ill.reason == reason || ill.cause == Cause::Hand);
            return if is_known { Vec::new() } else { self.falls_ill(device, Cause::Driver, reason, now) };
        }
        let Some(ill) = self.ill.get_mut(device) else { return Vec::new() };
        let is_over = match ill.cause {
            // An old driver does not tell whether it is over.
            Cause::Error => health.recovery == Some(Recovery::Nothing),
            Cause::Driver | Cause::Returning | Cause::Suspicion => true,
            Cause::Hand => false,
        };
        let is_due = match ill.check {
            Check::NotDue => true,
            Check::UnderWay => false,
            Check::Failed(again) => again <= now,
        };
        if !is_over || !is_due || is_held {
            return Vec::new();
        }
        (ill.is_over, ill.check) = (true, Check::UnderWay);
        vec![Verdict::Check(device.clone())]
    }

    /// The errors that could not be corrected, in words, where there are more than a person has seen and borne. A driver that
    /// counts fewer than before was loaded anew.
    fn unborne(&mut self, device: &DeviceSlot, health: &Health) -> Option<String> {
        let total = health.uncorrected_total();
        if health.uncorrected.is_some() {
            self.uncorrected.insert(device.clone(), total);
        }
        let borne = self.borne.entry(device.clone()).or_default();
        if health.uncorrected.is_some() {
            *borne = total.min(*borne);
        }
        if total <= *borne {
            return None;
        }
        let parts = health.uncorrected.iter().flatten().filter(|(_, count)| **count > 0);
        let parts: Vec<String> = parts.map(|(part, count)| format!("{part} {count}")).collect();
        Some(format!(
            "its driver counts errors of its hardware that could not be corrected ({}): reset it",
            parts.join(", ")
        ))
    }

    /// What keeps the driver's device from being relied on.
    fn driver_needs(health: &Health) -> Option<String> {
        if let Some(recovery) = health.recovery.filter(|recovery| recovery.keeps_out_of_service()) {
            return Some(format!("its driver needs {recovery}"));
        }
        if health.has_remap_failed {
            return Some("a row of its memory could not be replaced by a spare one: replace the device".to_owned());
        }
        match &health.condition {
            Some(DriverWord::Fails(words)) => Some(words.clone()),
            Some(DriverWord::Works) | None => None,
        }
    }

    fn falls_ill(&mut self, device: &DeviceSlot, cause: Cause, reason: String, now: Instant) -> Vec<Verdict> {
        if self.kept.get(device).is_some_and(|(until, _)| *until > now) {
            return Vec::new();
        }
        self.kept.remove(device);
        if self.ill.get(device).is_some_and(|ill| ill.cause == Cause::Hand) {
            return Vec::new();
        }
        self.ill
            .insert(device.clone(), Illness { cause, reason: reason.clone(), is_over: false, check: Check::NotDue });
        vec![Verdict::Out(device.clone(), reason)]
    }

    /// What the check of a device came to.
    pub(crate) fn checked(&mut self, device: &DeviceSlot, outcome: CheckOutcome, now: Instant) -> Vec<Verdict> {
        let Some(ill) = self.ill.get_mut(device).filter(|ill| ill.check == Check::UnderWay) else { return Vec::new() };
        match outcome {
            CheckOutcome::Passed | CheckOutcome::NotMade(_) if !ill.is_over => {
                ill.check = Check::NotDue;
                Vec::new()
            }
            // Where no check can be made, the driver's word has to do, or that of a person.
            CheckOutcome::Passed | CheckOutcome::NotMade(_) => {
                let found =
                    if outcome == CheckOutcome::Passed { "it passed a check" } else { "it could not be checked" };
                let suspected = self.ill.remove(device).filter(|ill| ill.cause == Cause::Suspicion);
                if let Some(ill) = suspected {
                    self.remarks.insert(device.clone(), format!("{found} after {}", ill.reason));
                }
                vec![Verdict::Back(device.clone())]
            }
            CheckOutcome::Failed(how) => {
                ill.check = Check::Failed(now + CHECKED_AGAIN_AFTER);
                let why = if ill.cause == Cause::Suspicion { format!(", after {}", ill.reason) } else { String::new() };
                // The next time it is known why it was checked.
                ill.cause = if ill.cause == Cause::Suspicion { Cause::Driver } else { ill.cause };
                ill.reason = format!("it did not pass the check: {how}{why}");
                vec![Verdict::Out(device.clone(), ill.reason.clone())]
            }
        }
    }

    /// What ran on it failed, and succeeded elsewhere (HEALTH-7).
    pub(crate) fn suspect(&mut self, device: &DeviceSlot, reason: &str) -> Vec<Verdict> {
        if self.ill.contains_key(device) || !self.told.contains(device) {
            return self.remark(device, reason);
        }
        let (cause, check, is_over) = (Cause::Suspicion, Check::NotDue, false);
        self.ill.insert(device.clone(), Illness { cause, reason: reason.to_owned(), is_over, check });
        let reason = format!("{reason}. It is checked when nobody has it");
        vec![Verdict::Out(device.clone(), reason)]
    }

    /// Something is to be known of it.
    pub(crate) fn remark(&mut self, device: &DeviceSlot, text: &str) -> Vec<Verdict> {
        self.remarks.insert(device.clone(), text.to_owned());
        Vec::new()
    }

    /// A person does not want it given to anybody.
    pub(crate) fn drain(&mut self, device: &DeviceSlot, reason: &str) -> Vec<Verdict> {
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let reason = format!("it was drained by hand{why}");
        self.ill.insert(
            device.clone(),
            Illness { cause: Cause::Hand, reason: reason.clone(), is_over: false, check: Check::NotDue },
        );
        vec![Verdict::Out(device.clone(), reason)]
    }

    /// A person wants it back: at once where it is forced, or somebody has it, and else when it has passed the check.
    pub(crate) fn undrain(
        &mut self,
        device: &DeviceSlot,
        is_forced: bool,
        is_held: bool,
        now: Instant,
    ) -> Vec<Verdict> {
        let Some(ill) = self.ill.get(device) else { return Vec::new() };
        if let Some(counted) = self.uncorrected.get(device).filter(|_| ill.cause != Cause::Hand) {
            // They are why it was out, as far as they are known.
            self.borne.insert(device.clone(), *counted);
        }
        if !is_forced && !is_held {
            if ill.check != Check::UnderWay {
                return self.check_with(device, Cause::Returning, "it is being checked");
            }
            // One check at a time: that one decides.
            let ill = self.ill.get_mut(device).expect("it was just found");
            (ill.cause, ill.is_over) = (Cause::Returning, true);
            return Vec::new();
        }
        let was_found_ill = self.ill.remove(device).is_some_and(|ill| ill.cause != Cause::Hand);
        if was_found_ill {
            // Else what was found would take it out again at once.
            self.kept.insert(device.clone(), (now + KEPT_FOR, "put back into service by hand".to_owned()));
        }
        vec![Verdict::Back(device.clone())]
    }

    /// A person wants it checked, and nobody has it. One that is out of service stays so, whatever the outcome.
    pub(crate) fn check(&mut self, device: &DeviceSlot) -> Vec<Verdict> {
        match self.ill.get(device).map(|ill| (ill.cause, ill.reason.clone())) {
            Some((Cause::Returning, _)) => Vec::new(),
            Some((cause, reason)) => self.check_with(device, cause, &reason),
            None => self.check_with(device, Cause::Returning, "it is being checked"),
        }
    }

    fn check_with(&mut self, device: &DeviceSlot, cause: Cause, reason: &str) -> Vec<Verdict> {
        let reason = reason.to_owned();
        self.ill.insert(
            device.clone(),
            Illness { cause, reason: reason.clone(), is_over: cause == Cause::Returning, check: Check::UnderWay },
        );
        vec![Verdict::Out(device.clone(), reason), Verdict::Check(device.clone())]
    }

    /// The head keeps it in service, since too many would be missing.
    pub(crate) fn keep(&mut self, device: &DeviceSlot, why: &str, now: Instant) -> Vec<Verdict> {
        let is_automatic = self.is_automatic(device);
        let Some(ill) = self.ill.get(device).filter(|_| is_automatic) else { return Vec::new() };
        self.kept.insert(device.clone(), (now + KEPT_FOR, format!("kept in service although {}: {why}", ill.reason)));
        self.ill.remove(device);
        vec![Verdict::Back(device.clone())]
    }

    /// Whether a device is ill, and no person said so.
    pub(crate) fn is_automatic(&self, device: &DeviceSlot) -> bool {
        let is_gone = |error: &Remembered| error.seen.class == XidClass::Gone;
        let is_gone = self.errors.get(device).is_some_and(|errors| errors.iter().any(is_gone));
        self.ill.get(device).is_some_and(|ill| matches!(ill.cause, Cause::Error | Cause::Driver | Cause::Suspicion))
            && !is_gone
    }

    /// Whether a device is out of service until its machine is started again, as its driver says.
    pub(crate) fn needs_restart(&self, device: &DeviceSlot) -> bool {
        let needs = self.said.get(device).and_then(|health| health.recovery);
        let is_found_ill = self.ill.get(device).is_some_and(|ill| matches!(ill.cause, Cause::Error | Cause::Driver));
        needs == Some(Recovery::Reboot) && is_found_ill
    }

    /// Why an ill device is so, in a word.
    pub(crate) fn service_cause(&self, device: &DeviceSlot) -> ServiceCause {
        match self.ill.get(device) {
            None => ServiceCause::Unknown,
            Some(Illness { check: Check::Failed(_), .. }) => ServiceCause::Error,
            Some(ill) => match ill.cause {
                Cause::Error => ServiceCause::Error,
                Cause::Driver => ServiceCause::Driver,
                Cause::Hand => ServiceCause::Drained,
                Cause::Returning => ServiceCause::Check,
                Cause::Suspicion => ServiceCause::Suspicion,
            },
        }
    }

    /// What is known of whether a device is well (HEALTH-5).
    pub(crate) fn state(&self, device: &DeviceSlot) -> HealthState {
        if self.ill.contains_key(device) || self.links.noted().any(|noted| noted == device) {
            return HealthState::Ill;
        }
        if self.told.contains(device) { HealthState::Healthy } else { HealthState::Unknown }
    }

    /// What is to be remembered of devices; their names are for whoever knows them. What a driver needs, it says again.
    pub(crate) fn records(&self) -> Vec<(DeviceSlot, HealthRecord)> {
        let borne = self.borne.iter().filter(|(_, count)| **count > 0).map(|(device, _)| device);
        let known: BTreeSet<&DeviceSlot> = self.ill.keys().chain(borne).collect();
        let record = |device: &DeviceSlot| {
            let is_kept = |ill: &&Illness| {
                matches!(ill.cause, Cause::Error | Cause::Hand) || matches!(ill.check, Check::Failed(_))
            };
            let ill = self.ill.get(device).filter(is_kept);
            let borne = self.borne.get(device).copied().unwrap_or(0);
            let record = HealthRecord {
                resource: device.0.clone(),
                name: String::new(),
                reason: ill.map(|ill| ill.reason.clone()),
                is_by_hand: ill.is_some_and(|ill| ill.cause == Cause::Hand),
                borne,
            };
            (ill.is_some() || borne > 0).then(|| (device.clone(), record))
        };
        known.into_iter().filter_map(record).collect()
    }

    /// What was remembered of a device: it is as it was before the daemon was started again.
    pub(crate) fn recall(&mut self, device: &DeviceSlot, record: &HealthRecord) -> Vec<Verdict> {
        self.borne.insert(device.clone(), record.borne);
        let Some(reason) = &record.reason else { return Vec::new() };
        let cause = if record.is_by_hand { Cause::Hand } else { Cause::Error };
        let ill = Illness { cause, reason: reason.clone(), is_over: false, check: Check::NotDue };
        self.ill.insert(device.clone(), ill);
        vec![Verdict::Out(device.clone(), reason.clone())]
    }

    /// How many are ill.
    pub(crate) fn len(&self) -> usize {
        self.ill.len()
    }

    /// What is to be known of a device that is in service.
    pub(crate) fn notes(&self, device: &DeviceSlot) -> Vec<String> {
        let said = self.said.get(device).map(Health::notes).unwrap_or_default();
        let slowed = self.slowed.get(device).map(|(_, why)| format!("slowed down by its hardware: {why}"));
        let kept = self.kept.get(device).map(|(_, why)| why.clone());
        let last = self.errors.get(device).and_then(VecDeque::back);
        let last = last.map(|error| format!("last error: {}", error.seen.fault));
        let remark = self.remarks.get(device).cloned();
        said.into_iter().chain(slowed).chain(kept).chain(self.links.notes(device)).chain(remark).chain(last).collect()
    }

    /// The devices of which there is something to be known.
    pub(crate) fn noted(&self) -> impl Iterator<Item = &DeviceSlot> {
        self.errors
            .keys()
            .chain(self.said.iter().filter(|(_, health)| health.has_notes()).map(|(device, _)| device))
            .chain(self.slowed.keys())
            .chain(self.kept.keys())
            .chain(self.links.noted())
            .chain(self.remarks.keys())
    }

    /// The error of one of these devices, which a process had, that may have ended it just now, and whether something else than
    /// what ran there is to blame: the hardware, or maybe another client of the MPS server that it used the device through. Who had
    /// one device uses no links.
    pub(crate) fn blame(&self, devices: &BTreeSet<DeviceSlot>, pid: u32, now: Instant) -> Option<(String, bool)> {
        // The gravest says most.
        let error = self.harmful(devices, ERROR_COUNTS, now).max_by_key(|error| (error.seen.class, error.at))?;
        let (resource, slot) = &error.seen.device;
        let before = now.saturating_duration_since(error.at).as_secs_f64();
        let is_hardware = error.seen.class > XidClass::Application;
        let others = error.others_beside(pid);
        let told = format!("{resource} {slot} reported {} {before:.1} s before", error.seen.fault);
        let shared = format!(
            ". It was used through an MPS server, which a fault of one client ends for all of them: another one ({others} there) \
             may have caused that"
        );
        Some(if others == 0 { (told, is_hardware) } else { (told + &shared, true) })
    }

    /// The errors that these devices reported while a call ran in a process, and lasted so long: it may have raised for them.
    pub(crate) fn reported(
        &self,
        devices: &BTreeSet<DeviceSlot>,
        pid: u32,
        lasted: Duration,
        now: Instant,
    ) -> Vec<Reported> {
        let mut kinds: BTreeMap<(&DeviceSlot, DeviceFault), Reported> = BTreeMap::new();
        for error in self.harmful(devices, lasted, now) {
            let seen = &error.seen;
            let before = now.saturating_duration_since(error.at);
            let times = kinds.get(&(&seen.device, seen.fault)).map_or(1, |kind| kind.times + 1);
            let last = Reported { seen: seen.clone(), before, times, others: error.others_beside(pid) };
            kinds.insert((&seen.device, seen.fault), last);
        }
        kinds.into_values().collect()
    }

    /// The errors of the last while, earliest of a device first, by which what a process runs on all of these devices may be
    /// hurt.
    fn harmful<'health>(
        &'health self,
        devices: &'health BTreeSet<DeviceSlot>,
        lasted: Duration,
        now: Instant,
    ) -> impl Iterator<Item = &'health Remembered> {
        let may_harm = |class: XidClass| match class {
            XidClass::Note => false,
            XidClass::Link => devices.len() > 1,
            XidClass::Application | XidClass::Contained | XidClass::Reset | XidClass::Gone => true,
        };
        let errors = devices.iter().flat_map(|device| self.errors.get(device).into_iter().flatten());
        errors.filter(move |error| may_harm(error.seen.class) && now.saturating_duration_since(error.at) <= lasted)
    }
}

impl Remembered {
    /// How many others used the device through the MPS server through which a process used it, or what it had started; 0 where
    /// it did not, and of an error that none of them causes.
    fn others_beside(&self, pid: u32) -> usize {
        if self.seen.class > XidClass::Application {
            return 0;
        }
        // One whose number is not known yet is nobody's.
        let is_own = |client: &&Lineage| pid > 0 && client.contains(&pid);
        let own = self.clients.iter().filter(is_own).count();
        if own == 0 { 0 } else { self.clients.len() - own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(slot: u32) -> DeviceSlot {
        ("GPU".to_owned(), slot)
    }

    fn error(slot: u32, xid: u32, class: XidClass) -> DeviceErrorSeen {
        DeviceErrorSeen { device: gpu(slot), fault: DeviceFault::Xid(xid), class }
    }

    fn told(recovery: Recovery) -> Health {
        Health { recovery: Some(recovery), ..Health::default() }
    }

    fn is_out(verdicts: &[Verdict], part: &str) -> bool {
        matches!(verdicts, [Verdict::Out(_, reason), ..] if reason.contains(part))
    }

    #[test]
    fn an_applications_error_is_told_and_the_device_goes_on() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        for class in [XidClass::Application, XidClass::Contained] {
            assert!(matches!(&health.error(error(0, 31, class), now)[..], [Verdict::Tell(..)]), "HEALTH-1");
        }
        assert_eq!(health.error(error(0, 63, XidClass::Note), now), []);
        assert_eq!(health.len(), 0);
        let (words, is_hardware) =
            health.blame(&BTreeSet::from([gpu(0)]), 7, now + Duration::from_millis(400)).expect("there is one");
        assert!(words.contains("Xid 31") && words.contains("0.4 s before") && is_hardware, "{words}");
        assert_eq!(health.blame(&BTreeSet::from([gpu(1)]), 7, now), None);
        assert_eq!(health.blame(&BTreeSet::from([gpu(0)]), 7, now + Duration::from_secs(11)), None);
    }

    #[test]
    fn what_was_reported_while_a_call_ran_is_told_once_for_each_kind() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        health.error(error(0, 45, XidClass::Application), now);
        let began = now + Duration::from_secs(20);
        for after in [1, 2, 3] {
            health.error(error(0, 13, XidClass::Application), began + Duration::from_millis(after));
        }
        health.error(error(0, 63, XidClass::Note), began);
        health.error(error(0, 74, XidClass::Link), began);
        health.error(error(1, 31, XidClass::Application), began);
        let (lasted, raised) = (Duration::from_millis(404), began + Duration::from_millis(403));
        let told = health.reported(&BTreeSet::from([gpu(0)]), 7, lasted, raised);
        let (seen, before) = (error(0, 13, XidClass::Application), Duration::from_millis(400));
        assert_eq!(told, [Reported { seen, before, times: 3, others: 0 }]);
        let of_both = health.reported(&BTreeSet::from([gpu(0), gpu(1)]), 7, lasted, raised);
        let of_both: Vec<DeviceFault> = of_both.iter().map(|told| told.seen.fault).collect();
        assert_eq!(of_both, [13, 74, 31].map(DeviceFault::Xid));
        assert_eq!(health.reported(&BTreeSet::new(), 7, lasted, raised), []);
    }

    #[test]
    fn whoever_is_put_back_while_it_is_checked_is_not_checked_twice() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        assert!(is_out(&health.error(error(0, 95, XidClass::Reset), now), "Xid 95"));
        let checks = |verdicts: &[Verdict]| verdicts.iter().filter(|one| matches!(one, Verdict::Check(_))).count();
        assert_eq!(checks(&health.undrain(&gpu(0), false, false, now)), 1);
        assert_eq!(health.undrain(&gpu(0), false, false, now), []);
        assert_eq!(health.checked(&gpu(0), CheckOutcome::Passed, now), [Verdict::Back(gpu(0))]);
    }

    #[test]
    fn the_blame_is_the_hardwares_only_where_the_hardware_failed() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        health.error(error(0, 13, XidClass::Application), now);
        assert!(!health.blame(&BTreeSet::from([gpu(0)]), 7, now).expect("there is one").1);
        health.error(error(0, 48, XidClass::Reset), now);
        health.error(error(0, 45, XidClass::Application), now);
        let (words, is_hardware) = health.blame(&BTreeSet::from([gpu(0)]), 7, now).expect("there is one");
        assert!(is_hardware && words.contains("Xid 48"), "{words}");
    }

    #[test]
    fn an_error_of_a_link_is_blamed_for_the_end_of_who_had_several_devices() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        assert!(matches!(&health.error(error(0, 74, XidClass::Link), now)[..], [Verdict::Tell(..)]), "LINKS-1");
        assert_eq!(health.len(), 0);
        assert_eq!(health.blame(&BTreeSet::from([gpu(0)]), 7, now), None, "who had one uses no links");
        let (words, is_hardware) = health.blame(&BTreeSet::from([gpu(0), gpu(1)]), 7, now).expect("there is one");
        assert!(is_hardware && words.contains("Xid 74"), "{words}");
        let drained = health.seen(&gpu(0), &told(Recovery::DrainLinks), true, now);
        assert_eq!(drained, [Verdict::Links(gpu(0), LinksChange::Drained)]);
        assert_eq!((health.state(&gpu(0)), health.len()), (HealthState::Ill, 0), "it is in service");
        assert!(health.notes(&gpu(0))[0].starts_with("granted only by itself"), "{:?}", health.notes(&gpu(0)));
        let restored = health.seen(&gpu(0), &told(Recovery::Nothing), true, now);
        assert_eq!(restored, [Verdict::Links(gpu(0), LinksChange::Restored)]);
        assert_eq!(health.state(&gpu(0)), HealthState::Healthy);
    }

    #[test]
    fn a_device_with_a_hardware_error_comes_back_after_the_drivers_word_and_the_check() {
        let (mut health, mut now) = (DeviceHealth::default(), Instant::now());
        assert!(is_out(&health.error(error(0, 95, XidClass::Reset), now), "Xid 95"));
        assert!(is_out(&health.seen(&gpu(0), &told(Recovery::Reset), true, now), "needs a reset"));
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Reset), true, now), [], "said once");
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Nothing), true, now), [], "HEALTH-4");
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Nothing), false, now), [Verdict::Check(gpu(0))]);
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Nothing), false, now), [], "one at a time");
        let failed = health.checked(&gpu(0), CheckOutcome::Failed("3 words differ".into()), now);
        assert!(is_out(&failed, "3 words differ"), "{failed:?}");
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Nothing), false, now), [], "not at once");
        now += CHECKED_AGAIN_AFTER;
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Nothing), false, now), [Verdict::Check(gpu(0))]);
        assert_eq!(health.checked(&gpu(0), CheckOutcome::Passed, now), [Verdict::Back(gpu(0))], "HEALTH-2");
        assert_eq!(health.checked(&gpu(0), CheckOutcome::Passed, now), []);
        assert_eq!(health.len(), 0);
    }

    #[test]
    fn what_its_driver_reported_and_does_not_take_back_stays_until_a_person_says_so() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        health.error(error(0, 48, XidClass::Reset), now);
        assert_eq!(health.seen(&gpu(0), &Health::default(), false, now), [], "an old driver does not tell");
        let verdicts = health.undrain(&gpu(0), false, false, now);
        assert!(matches!(&verdicts[..], [Verdict::Out(..), Verdict::Check(_)]), "{verdicts:?}");
        assert_eq!(health.checked(&gpu(0), CheckOutcome::NotMade("no library".into()), now), [Verdict::Back(gpu(0))]);
    }

    #[test]
    fn what_was_drained_by_hand_comes_back_by_hand() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        assert!(is_out(&health.drain(&gpu(1), "fan"), "by hand: fan"));
        assert_eq!(health.seen(&gpu(1), &told(Recovery::Nothing), false, now), [], "HEALTH-3");
        assert_eq!(health.error(error(1, 95, XidClass::Reset), now), [], "it is out already");
        assert_eq!(health.undrain(&gpu(1), false, true, now), [Verdict::Back(gpu(1))], "somebody has it (HEALTH-4)");
        assert_eq!(health.undrain(&gpu(1), true, false, now), [], "it is back");
        health.drain(&gpu(1), "");
        assert!(matches!(&health.check(&gpu(1))[..], [Verdict::Out(..), Verdict::Check(_)]));
        assert_eq!(health.checked(&gpu(1), CheckOutcome::Passed, now), [], "HEALTH-3");
        assert_eq!(health.undrain(&gpu(1), true, false, now), [Verdict::Back(gpu(1))]);
    }

    #[test]
    fn one_that_is_gone_ends_its_holders_and_is_not_kept() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        health.error(error(0, 95, XidClass::Reset), now);
        assert_eq!(health.keep(&gpu(0), "too many are out", now), [Verdict::Back(gpu(0))]);
        assert_eq!(health.error(error(0, 95, XidClass::Reset), now), [], "it is kept");
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Reset), false, now), []);
        assert!(health.notes(&gpu(0))[0].contains("kept in service although Xid 95"), "{:?}", health.notes(&gpu(0)));
        let verdicts = health.error(error(0, 79, XidClass::Gone), now);
        assert!(is_out(&verdicts, "Xid 79") && matches!(verdicts[1], Verdict::EndHolders(..)), "{verdicts:?}");
        assert_eq!(health.keep(&gpu(0), "too many are out", now), [], "nobody can use it");
        health.error(error(1, 95, XidClass::Reset), now);
        health.keep(&gpu(1), "too many are out", now);
        assert!(is_out(&health.seen(&gpu(1), &told(Recovery::Reset), false, now + KEPT_FOR), "needs a reset"));
    }

    #[test]
    fn a_device_that_is_suspected_goes_on_when_it_has_passed_the_check() {
        let (mut health, mut now) = (DeviceHealth::default(), Instant::now());
        assert_eq!(
            health.suspect(&gpu(0), "`a`, `b` and `c` failed on it"),
            [],
            "HEALTH-7: nobody tells of its health"
        );
        assert_eq!((health.len(), health.notes(&gpu(0))), (0, vec!["`a`, `b` and `c` failed on it".to_owned()]));
        health.seen(&gpu(0), &told(Recovery::Nothing), true, now);
        assert!(is_out(&health.suspect(&gpu(0), "`a`, `b` and `c` failed on it"), "checked when nobody has it"));
        assert_eq!(health.suspect(&gpu(0), "`d` failed"), [], "it is being checked already");
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Nothing), true, now), [], "HEALTH-4");
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Nothing), false, now), [Verdict::Check(gpu(0))]);
        assert_eq!(health.checked(&gpu(0), CheckOutcome::Passed, now), [Verdict::Back(gpu(0))]);
        assert_eq!(health.notes(&gpu(0)), ["it passed a check after `a`, `b` and `c` failed on it"]);
        health.suspect(&gpu(0), "`e` failed on it");
        assert!(health.is_automatic(&gpu(0)), "the head may keep it");
        health.seen(&gpu(0), &told(Recovery::Nothing), false, now);
        let failed = health.checked(&gpu(0), CheckOutcome::Failed("3 words differ".into()), now);
        assert!(is_out(&failed, "it did not pass the check: 3 words differ, after `e` failed on it"), "{failed:?}");
        now += CHECKED_AGAIN_AFTER;
        assert_eq!(health.seen(&gpu(0), &told(Recovery::Nothing), false, now), [Verdict::Check(gpu(0))]);
        assert_eq!(health.checked(&gpu(0), CheckOutcome::Passed, now), [Verdict::Back(gpu(0))]);
    }

    fn counted(total: u64) -> Health {
        Health { uncorrected: Some(BTreeMap::from([("umc".to_owned(), total)])), ..Health::default() }
    }

    #[test]
    fn errors_that_could_not_be_corrected_are_borne_by_a_person_alone() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        assert_eq!(health.state(&gpu(0)), HealthState::Unknown, "HEALTH-5");
        assert_eq!(health.seen(&gpu(0), &counted(0), true, now), []);
        assert_eq!(health.state(&gpu(0)), HealthState::Healthy);
        assert!(is_out(&health.seen(&gpu(0), &counted(2), true, now), "could not be corrected (umc 2)"));
        assert_eq!(health.state(&gpu(0)), HealthState::Ill);
        assert_eq!(health.seen(&gpu(0), &counted(2), false, now), [], "they are not taken back");
        assert_eq!(health.undrain(&gpu(0), true, false, now), [Verdict::Back(gpu(0))]);
        let later = now + 2 * KEPT_FOR;
        assert_eq!(health.seen(&gpu(0), &counted(2), false, later), [], "a person has seen these two");
        assert!(is_out(&health.seen(&gpu(0), &counted(3), false, later), "(umc 3)"));
        assert_eq!(health.seen(&gpu(0), &counted(0), false, later), [Verdict::Check(gpu(0))], "it was reset");
        assert_eq!(
            health.checked(&gpu(0), CheckOutcome::NotMade("no check".into()), later),
            [Verdict::Back(gpu(0))],
            "the driver's word has to do"
        );
        assert!(is_out(&health.seen(&gpu(0), &counted(1), false, later), "(umc 1)"), "counted anew");
    }

    #[test]
    fn a_restart_remembers_what_a_driver_does_not_say_again() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        health.error(error(0, 95, XidClass::Reset), now);
        health.drain(&gpu(1), "fan");
        health.seen(&gpu(2), &told(Recovery::Reset), false, now);
        health.seen(&gpu(3), &counted(2), false, now);
        health.undrain(&gpu(3), true, false, now);
        health.check(&gpu(4));
        health.checked(&gpu(4), CheckOutcome::Failed("3 words differ".into()), now);
        health.check(&gpu(5));
        let records = health.records();
        let of: Vec<_> = records.iter().map(|((_, slot), record)| (*slot, record.is_by_hand, record.borne)).collect();
        assert_eq!(of, [(0, false, 0), (1, true, 0), (3, false, 2), (4, false, 0)], "HEALTH-6");
        let mut next = DeviceHealth::default();
        let verdicts: Vec<_> = records.iter().map(|(device, record)| next.recall(device, record)).collect();
        assert!(
            is_out(&verdicts[0], "Xid 95") && is_out(&verdicts[1], "fan") && is_out(&verdicts[3], "3 words differ")
        );
        assert_eq!(verdicts[2], []);
        assert_eq!(next.records(), records, "it can be started again and again");
        assert_eq!(next.seen(&gpu(1), &told(Recovery::Nothing), false, now), [], "HEALTH-3");
        assert_eq!(next.seen(&gpu(0), &Health::default(), false, now), [], "its driver does not tell");
        assert_eq!(
            next.seen(&gpu(0), &told(Recovery::Nothing), false, now),
            [Verdict::Check(gpu(0))],
            "its word decides"
        );
        assert_eq!(next.seen(&gpu(3), &Health::default(), false, now), [], "it does not count now");
        assert_eq!(next.seen(&gpu(3), &counted(2), false, now), [], "a person has seen these two");
    }

    #[test]
    fn what_a_driver_calls_failed_is_out_until_it_calls_it_otherwise() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        let called = |condition| Health { condition: Some(condition), ..Health::default() };
        let fails = called(DriverWord::Fails("its driver calls it `disabled`".to_owned()));
        assert!(is_out(&health.seen(&gpu(0), &fails, false, now), "`disabled`"));
        assert_eq!(health.seen(&gpu(0), &fails, false, now), [], "said once");
        assert_eq!(health.seen(&gpu(0), &called(DriverWord::Works), false, now), [Verdict::Check(gpu(0))]);
    }

    #[test]
    fn what_a_driver_tells_besides_xids_is_noted_and_the_device_goes_on() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        let fault = |fault, class| DeviceErrorSeen { device: gpu(0), fault, class };
        assert_eq!(health.error(fault(DeviceFault::OtherRecovery, XidClass::Note), now), []);
        assert_eq!(health.noted().count(), 0);
        health.seen(&gpu(0), &Health { single_bit_errors: Some(25), ..Health::default() }, false, now);
        assert_eq!(health.noted().collect::<Vec<_>>(), [&gpu(0)]);
        let told = health.error(fault(DeviceFault::DoubleBit, XidClass::Contained), now);
        assert!(matches!(&told[..], [Verdict::Tell(_, text)] if text.contains("its hardware failed; ")), "{told:?}");
        assert!(health.blame(&BTreeSet::from([gpu(0)]), 7, now).expect("the hardware").1);
        assert!(is_out(&health.error(fault(DeviceFault::Poison, XidClass::Reset), now), "it is to be reset"));
        let old = Health {
            is_retirement_pending: true,
            double_bit_errors: Some(2),
            slowed: Some(Slowdown::Heat),
            ..Health::default()
        };
        assert_eq!(health.seen(&gpu(1), &old, false, now), []);
        let notes = health.notes(&gpu(1)).join("; ");
        for part in
            ["pages of its memory are to be taken out of use", "2 double-bit errors", "slowed down by its hardware"]
        {
            assert!(notes.contains(part), "{notes}");
        }
        assert_eq!(health.state(&gpu(1)), HealthState::Healthy, "it may be used");
        let cool = Health { double_bit_errors: Some(0), ..Health::default() };
        health.seen(&gpu(1), &cool, false, now + SLOWED_FOR / 2);
        assert_eq!(
            health.notes(&gpu(1)),
            ["slowed down by its hardware: it is too warm"],
            "said once, and for a while"
        );
        health.seen(&gpu(1), &cool, false, now + SLOWED_FOR);
        assert_eq!(health.notes(&gpu(1)), [""; 0]);
    }

    #[test]
    fn a_machine_is_to_be_started_again_where_a_driver_says_so_and_nobody_keeps_the_device() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        health.seen(&gpu(0), &told(Recovery::Reset), false, now);
        assert!(!health.needs_restart(&gpu(0)));
        health.seen(&gpu(0), &told(Recovery::Reboot), false, now);
        assert!(health.needs_restart(&gpu(0)));
        assert_eq!(health.seen(&gpu(0), &Health::default(), false, now), [], "a question that failed answers nothing");
        assert!(health.needs_restart(&gpu(0)));
        health.keep(&gpu(0), "too many are out", now);
        assert!(!health.needs_restart(&gpu(0)), "it is in service");
        health.seen(&gpu(1), &told(Recovery::Reboot), false, now);
        assert_eq!(health.seen(&gpu(1), &told(Recovery::Nothing), false, now), [Verdict::Check(gpu(1))]);
        assert!(!health.needs_restart(&gpu(1)));
    }

    #[test]
    fn the_fault_of_another_client_of_an_mps_server_is_not_the_own() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        let of_gpu = BTreeSet::from([gpu(0)]);
        health.shared_by(&gpu(0), vec![vec![71, 70], vec![80]]);
        health.error(error(0, 31, XidClass::Application), now);
        // The server is gone, and who used it.
        health.shared_by(&gpu(0), Vec::new());
        let (words, is_others) = health.blame(&of_gpu, 70, now).expect("there is one");
        assert!(is_others && words.contains("another one (1 there) may have caused that"), "{words}");
        assert!(!health.blame(&of_gpu, 90, now).expect("there is one").1, "it used the GPU by itself");
        let others = |health: &DeviceHealth, pid, now| {
            health.reported(&of_gpu, pid, ERROR_COUNTS, now).last().map(|told| told.others)
        };
        assert_eq!((others(&health, 70, now), others(&health, 90, now)), (Some(1), Some(0)), "a call that raised");
        health.shared_by(&gpu(0), vec![vec![71, 70]]);
        health.error(error(0, 13, XidClass::Application), now + Duration::from_secs(1));
        assert!(!health.blame(&of_gpu, 70, now + Duration::from_secs(1)).expect("there is one").1, "it was alone");
        health.shared_by(&gpu(0), vec![vec![70], vec![80]]);
        health.error(error(0, 94, XidClass::Contained), now + Duration::from_secs(2));
        let last = health.reported(&of_gpu, 70, ERROR_COUNTS, now + Duration::from_secs(2));
        let of_hardware = last.iter().find(|told| told.seen.class == XidClass::Contained).map(|told| told.others);
        assert_eq!(of_hardware, Some(0), "hardware is nobody's fault");
    }

    #[test]
    fn rows_that_wait_for_a_reset_are_noted_and_rows_that_cannot_be_replaced_are_not_borne() {
        let (mut health, now) = (DeviceHealth::default(), Instant::now());
        let pending = Health { is_remap_pending: true, ..Health::default() };
        assert_eq!(health.seen(&gpu(0), &pending, false, now), []);
        assert!(health.notes(&gpu(0))[0].contains("when it suits"));
        assert!(is_out(&health.seen(&gpu(0), &Health { has_remap_failed: true, ..pending }, false, now), "replace"));
    }
}
