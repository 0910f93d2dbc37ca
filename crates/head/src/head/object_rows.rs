//! References to objects as rows: one for each object and process that refers to it.

use super::HeadCore;
use crate::census::ObjectReport;
use oxiray_ids::ObjectId;
use oxiray_machine::{Key, cut};
use oxiray_state::NOT_RECORDED;
use oxiray_wire::message::ObjectLog;
use oxiray_wire::state::ObjectRow;
use std::collections::BTreeMap;

/// What stands for the place of a reference where places are recorded, and this one was not.
const UNKNOWN_SITE: &str = "-";

impl HeadCore {
    /// A process tells to which objects it refers.
    pub(super) fn object_log(&mut self, from: Key, mut log: ObjectLog) {
        for record in &mut log.records {
            record.site = cut(std::mem::take(&mut record.site));
            record.device = cut(std::mem::take(&mut record.device));
        }
        let number = log.number;
        self.figures.census.hear(number, from, |_, heard| heard.objects.push(ObjectReport { by: from, log }));
    }

    /// The rows of what processes told. A reference that came from elsewhere has the place of its owner's.
    pub(super) fn object_rows(&self, told: &[ObjectReport]) -> Vec<ObjectRow> {
        let mut sites: BTreeMap<ObjectId, &str> = BTreeMap::new();
        let mut sizes: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for record in told.iter().flat_map(|told| &told.log.records) {
            if !record.site.is_empty() {
                sites.insert(record.object, &record.site);
            }
            if let Some(size) = record.size {
                sizes.insert(record.object, size);
            }
        }
        let mut rows = Vec::new();
        for ObjectReport { by, log } in told {
            let (is_worker, pid) = self.referrer(*by);
            for record in &log.records {
                let unknown = if log.records_sites { UNKNOWN_SITE } else { NOT_RECORDED };
                let site = sites.get(&record.object).copied().unwrap_or(unknown);
                let size = record.size.or_else(|| sizes.get(&record.object).copied());
                rows.push(ObjectRow {
                    object: record.object,
                    size,
                    stage: record.stage,
                    attempt: record.attempt,
                    used: record.used,
                    site: site.to_owned(),
                    is_worker,
                    pid,
                    ip: self.members.ip_of(*by).to_owned(),
                    device: record.device.clone(),
                });
            }
        }
        rows.sort_by_key(|row| row.object);
        rows
    }

    /// Whether it is a worker, and its number on its machine.
    fn referrer(&self, key: Key) -> (bool, u32) {
        let worker = self.workers.by_key.get(&key);
        let driver = self.jobs.details.values().find(|detail| detail.driver == key).map(|detail| detail.told.pid);
        (worker.is_some(), worker.and_then(|worker| worker.pid).or(driver).unwrap_or(0))
    }
}
