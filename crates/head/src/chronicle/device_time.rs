//! For how long devices are granted, how long it takes until they are free again, and how often they are taken out of service: sums
//! over what the chronicle was told, for boards.
//!
//! - TIME-1: no sum falls. A grant counts from when the head was told of it until it was told that the device is free, by its
//!   share of the device.
//! - TIME-2: the grants that stand in the chronicle are timed, at most [`GRANTS_MAX`] at once, and no others: each of these ends
//!   there. At most [`SERIES_MAX`] sums are kept; what has none of its own is added to the one without a job.

use oxiray_ids::{JobId, NodeId};
use oxiray_resources::Quantity;
use oxiray_wire::state::{ChronicleEntry, ChronicleEvent, ServiceCause};
use std::collections::BTreeMap;

/// How many grants are timed.
const GRANTS_MAX: usize = 100_000;
/// How many sums there are of seconds, and for how many resources it is counted how long returns took.
const SERIES_MAX: usize = 5_000;
/// What stands for the resources that have no sums of their own.
const OTHER_RESOURCES: &str = "other";
/// In these seconds, or fewer, devices were free again.
pub(crate) const RETURN_STEPS_S: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// A grant of a part of a device: its node, the resource, the device's number, and the grant's.
type Granted = (NodeId, String, u32, u64);
/// A resource, and the job whose grants were of it.
type ResourceOfJob = (String, Option<JobId>);

/// A grant that is timed.
#[derive(Debug)]
struct Timed {
    share: u64,
    job: Option<JobId>,
    /// Up to when it is part of the sums.
    until_ms: u64,
    /// Since when its device is to be free.
    returning_ms: Option<u64>,
}

/// How long returns took.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Returns {
    /// How many took no longer than each of [`RETURN_STEPS_S`] and longer than the one before; at last, how many took longer than all.
    pub(crate) counts: [u64; RETURN_STEPS_S.len() + 1],
    pub(crate) seconds: f64,
}

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct DeviceTime {
    grants: BTreeMap<Granted, Timed>,
    /// Milliseconds, each counted by the share in units of a resource.
    granted: BTreeMap<ResourceOfJob, u128>,
    returns: BTreeMap<String, Returns>,
    out_of_service: BTreeMap<ServiceCause, u64>,
}

impl DeviceTime {
    /// Something happened, at that time.
    pub(super) fn hear(&mut self, at_ms: u64, entry: &ChronicleEntry) {
        let (Some(node), Some(part)) = (entry.node, entry.device.as_ref().filter(|part| part.grant > 0)) else {
            return;
        };
        let granted = (node, part.resource.clone(), part.slot, part.grant);
        match entry.event {
            ChronicleEvent::DeviceGranted => self.granted(granted, at_ms, part.share, entry.job),
            ChronicleEvent::DeviceReturning => {
                self.count(&granted, at_ms);
                if let Some(timed) = self.grants.get_mut(&granted) {
                    timed.returning_ms.get_or_insert(at_ms);
                }
            }
            ChronicleEvent::DeviceFree => {
                self.count(&granted, at_ms);
                if let Some(timed) = self.grants.remove(&granted) {
                    // Which was free again before its node told that it is to be: at once, as far as anybody was told.
                    let since_ms = timed.returning_ms.unwrap_or(at_ms);
                    self.returned(granted.1, at_ms.saturating_sub(since_ms));
                }
            }
            _ => {}
        }
    }

    fn granted(&mut self, granted: Granted, at_ms: u64, share: u64, job: Option<JobId>) {
        self.count(&granted, at_ms);
        if let Some(timed) = self.grants.get_mut(&granted) {
            (timed.share, timed.job, timed.returning_ms) = (share, job, None);
        } else if self.grants.len() < GRANTS_MAX {
            self.grants.insert(granted, Timed { share, job, until_ms: at_ms, returning_ms: None });
        }
    }

    /// The grant is part of the sums up to that time (TIME-1: a clock that is set back takes nothing away).
    fn count(&mut self, granted: &Granted, at_ms: u64) {
        let Some(timed) = self.grants.get_mut(granted) else { return };
        let passed = u128::from(at_ms.saturating_sub(timed.until_ms)) * u128::from(timed.share);
        timed.until_ms = timed.until_ms.max(at_ms);
        let of_job = (granted.1.clone(), timed.job);
        add(&mut self.granted, of_job, passed);
    }

    fn returned(&mut self, resource: String, took_ms: u64) {
        let is_known = self.returns.len() < SERIES_MAX || self.returns.contains_key(&resource);
        let returns = self.returns.entry(if is_known { resource } else { OTHER_RESOURCES.to_owned() }).or_default();
        let seconds = took_ms as f64 / 1e3;
        let step = RETURN_STEPS_S.iter().position(|most| seconds <= *most).unwrap_or(RETURN_STEPS_S.len());
        returns.counts[step] += 1;
        returns.seconds += seconds;
    }

    /// What was held is over, and whether the device is free nobody says: its node is gone, or was away.
    pub(super) fn is_not_returned(&mut self, at_ms: u64, entry: &ChronicleEntry) {
        let (Some(node), Some(part)) = (entry.node, &entry.device) else { return };
        let granted = (node, part.resource.clone(), part.slot, part.grant);
        self.count(&granted, at_ms);
        self.grants.remove(&granted);
    }

    /// A device that was in service is not.
    pub(super) fn taken_out_of_service(&mut self, cause: ServiceCause) {
        *self.out_of_service.entry(cause).or_default() += 1;
    }

    /// Nobody asks for this job any more: its seconds are added to those without a job.
    pub(crate) fn forget(&mut self, job: JobId) {
        let of_job: Vec<ResourceOfJob> = self.granted.keys().filter(|(_, of)| *of == Some(job)).cloned().collect();
        for (resource, of) in of_job {
            let passed = self.granted.remove(&(resource.clone(), of)).unwrap_or(0);
            add(&mut self.granted, (resource, None), passed);
        }
    }

    /// For how many seconds devices of each resource were granted to each job, up to that time.
    pub(crate) fn granted_seconds(&mut self, now_ms: u64) -> impl Iterator<Item = (&str, Option<JobId>, f64)> {
        let timed: Vec<Granted> = self.grants.keys().cloned().collect();
        for granted in timed {
            self.count(&granted, now_ms);
        }
        let units = Quantity::UNITS_PER_WHOLE as f64 * 1e3;
        self.granted.iter().map(move |((resource, job), passed)| (resource.as_str(), *job, *passed as f64 / units))
    }

    /// How long returns of each resource's devices took.
    pub(crate) fn returns(&self) -> impl Iterator<Item = (&str, &Returns)> {
        self.returns.iter().map(|(resource, returns)| (resource.as_str(), returns))
    }

    /// How often a device was taken out of service, by why.
    pub(crate) fn quarantined(&self) -> impl Iterator<Item = (ServiceCause, u64)> {
        self.out_of_service.iter().map(|(cause, count)| (*cause, *count))
    }
}

#[cfg(test)]
impl DeviceTime {
    /// How many grants are timed.
    pub(super) fn timed(&self) -> usize {
        self.grants.len()
    }
}

/// TIME-2.
fn add(sums: &mut BTreeMap<ResourceOfJob, u128>, mut of: ResourceOfJob, passed: u128) {
    if sums.len() >= SERIES_MAX && !sums.contains_key(&of) {
        of.1 = None;
        if !sums.contains_key(&of) {
            OTHER_RESOURCES.clone_into(&mut of.0);
        }
    }
    *sums.entry(of).or_default() += passed;
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::state::DevicePart;

    fn entry(event: ChronicleEvent, grant: u64, share: u64, job: u8) -> ChronicleEntry {
        let device = Some(DevicePart { resource: "GPU".into(), grant, share, ..DevicePart::default() });
        let job = JobId::from_slice(&[job; 4]);
        ChronicleEntry { event, node: Some(NodeId::default()), device, job, ..ChronicleEntry::default() }
    }

    fn seconds(time: &mut DeviceTime, now_ms: u64) -> Vec<f64> {
        time.granted_seconds(now_ms).map(|(.., seconds)| seconds).collect()
    }

    #[test]
    fn grants_count_by_their_shares_until_their_devices_are_free() {
        let mut time = DeviceTime::default();
        time.hear(1_000, &entry(ChronicleEvent::DeviceGranted, 1, 5_000, 1));
        time.hear(1_000, &entry(ChronicleEvent::DeviceGranted, 2, 10_000, 2));
        assert_eq!(seconds(&mut time, 3_000), [1.0, 2.0]);
        assert_eq!(seconds(&mut time, 2_000), [1.0, 2.0], "TIME-1: the clock was set back");
        time.hear(5_000, &entry(ChronicleEvent::DeviceReturning, 1, 5_000, 1));
        time.hear(5_200, &entry(ChronicleEvent::DeviceReturning, 1, 5_000, 1));
        time.hear(7_000, &entry(ChronicleEvent::DeviceFree, 1, 5_000, 1));
        time.hear(7_000, &entry(ChronicleEvent::DeviceFree, 2, 10_000, 2));
        assert_eq!(seconds(&mut time, 9_000), [3.0, 6.0]);
        let returns: Vec<&Returns> = time.returns().map(|(_, returns)| returns).collect();
        let mut counts = [0; RETURN_STEPS_S.len() + 1];
        (counts[0], counts[6]) = (1, 1);
        assert_eq!(
            returns,
            [&Returns { counts, seconds: 2.0 }],
            "what was free before it was said to return counts, too"
        );
        time.forget(JobId::from_slice(&[1; 4]).expect("as long as an identifier is"));
        assert_eq!(seconds(&mut time, 9_000), [3.0, 6.0], "a job that is forgotten had its devices all the same");
        assert!(time.granted_seconds(0).any(|(_, job, _)| job.is_none()));
        assert!(time.grants.is_empty());
    }

    #[test]
    fn of_a_node_that_is_gone_the_time_counts_and_no_return() {
        let mut time = DeviceTime::default();
        for (grant, event) in [(1, ChronicleEvent::DeviceGranted), (2, ChronicleEvent::DeviceReturning)] {
            time.hear(1_000, &entry(ChronicleEvent::DeviceGranted, grant, 10_000, 1));
            time.hear(1_000, &entry(event, grant, 10_000, 1));
            time.is_not_returned(3_000, &entry(event, grant, 10_000, 1));
            time.hear(3_000, &entry(ChronicleEvent::DeviceFree, grant, 10_000, 1));
        }
        assert_eq!(seconds(&mut time, 9_000), [4.0]);
        assert_eq!(time.returns().count(), 0);
    }

    #[test]
    fn another_holder_of_a_grant_pays_from_then_on() {
        let mut time = DeviceTime::default();
        time.hear(0, &entry(ChronicleEvent::DeviceGranted, 1, 10_000, 1));
        time.hear(4_000, &entry(ChronicleEvent::DeviceGranted, 1, 2_500, 2));
        assert_eq!(seconds(&mut time, 8_000), [4.0, 1.0]);
    }

    #[test]
    fn of_jobs_without_number_the_rest_are_counted_together() {
        let mut time = DeviceTime::default();
        let granted = |job: usize| {
            let job = JobId::from_slice(&u32::try_from(job).expect("few").to_le_bytes());
            ChronicleEntry { job, ..entry(ChronicleEvent::DeviceGranted, 1, 10_000, 0) }
        };
        for job in 0..SERIES_MAX + 7 {
            time.hear(1_000 * job as u64, &granted(job));
        }
        let all = seconds(&mut time, 1_000 * (SERIES_MAX as u64 + 7));
        assert!(all.len() <= SERIES_MAX + 2, "TIME-2: {}", all.len());
        let sum: f64 = all.iter().sum();
        assert!((sum - (SERIES_MAX + 7) as f64).abs() < 1e-6, "nothing is lost: {sum}");
    }
}
