//! What there is of a job besides what listings say of it, until nothing of it is left.

use super::Jobs;
use crate::demands::Need;
use crate::submissions::Submissions;
use oxiray_ids::{JobId, WorkerId};
use oxiray_machine::Key;
use oxiray_wire::message::Driver;
use std::collections::{BTreeMap, HashSet};

/// Of how many demands it is remembered that a driver was told; with one more, all are forgotten.
const NOTICED_MAX: usize = 1000;

/// What a job leaves to its workers.
#[derive(Debug)]
pub(crate) struct JobDetail {
    pub(crate) driver: Key,
    pub(crate) driver_id: WorkerId,
    pub(crate) told: Driver,
    pub(crate) said_goodbye: bool,
    pub(crate) is_over: bool,
    /// The demands of which its driver was told that they wait.
    noticed: HashSet<Need>,
}

impl JobDetail {
    /// That of a job whose driver describes itself so.
    pub(crate) fn new(driver: Key, driver_id: WorkerId, told: Driver) -> Self {
        Self { driver, driver_id, told, said_goodbye: false, is_over: false, noticed: HashSet::new() }
    }

    /// Whether the driver is there, and is told of the demand for the first time.
    pub(crate) fn is_news(&mut self, need: &Need) -> bool {
        if self.is_over || self.noticed.contains(need) {
            return false;
        }
        if self.noticed.len() >= NOTICED_MAX {
            self.noticed.clear();
        }
        self.noticed.insert(need.clone())
    }
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct JobTable {
    pub(crate) known: Jobs,
    /// What there is besides of those that are not over.
    pub(crate) details: BTreeMap<JobId, JobDetail>,
    pub(crate) submitted: Submissions,
}

impl JobTable {
    /// Whether nothing new may begin for a job: its driver said goodbye, or is gone.
    pub(crate) fn is_ending(&self, job: JobId) -> bool {
        self.details.get(&job).is_none_or(|detail| detail.said_goodbye || detail.is_over)
    }

    /// The driver of a job, where it is there.
    pub(crate) fn driver_of(&self, job: JobId) -> Option<Key> {
        self.details.get(&job).filter(|detail| !detail.is_over).map(|detail| detail.driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_resources::{Demand, Quantity, ResourceName};
    use oxiray_scheduler::ResourceRequest;

    #[test]
    fn a_demand_is_news_once_also_where_as_many_are_remembered_as_can_be() {
        let need = |units: u64| {
            let demand = Demand::new([(ResourceName::CPU, Quantity::from_units(units))]).expect("a demand");
            Need::ResourceRequest(ResourceRequest::from(demand))
        };
        let mut detail = JobDetail::new(1, WorkerId::new([1; 28]), Driver::default());
        let all = 1..=NOTICED_MAX as u64;
        assert!(all.clone().all(|units| detail.is_news(&need(units))));
        assert!(!all.clone().any(|units| detail.is_news(&need(units))), "each of them is remembered");
        assert!(detail.is_news(&need(NOTICED_MAX as u64 + 1)));
        detail.is_over = true;
        assert!(!detail.is_news(&need(5_000)));
    }
}
