//! References to objects as rows with Ray's column names: one for each object and process that refers to it.

use super::census::stage_name;
use super::door::cut;
use super::{HeadCore, Key};
use oxiray_ids::ObjectId;
use oxiray_wire::message::{ObjectLog, ObjectRecord, ObjectUse};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// What stands for the place of a reference where places are not recorded.
pub(crate) const NOT_RECORDED: &str = "disabled";
/// What stands for it where they are, and this one was not.
const UNKNOWN_SITE: &str = "-";

/// What one process told of its objects.
#[derive(Debug)]
pub(super) struct ObjectsTold {
    by: Key,
    log: ObjectLog,
}

impl HeadCore {
    /// A process tells to which objects it refers.
    pub(super) fn object_log(&mut self, from: Key, mut log: ObjectLog) {
        for record in &mut log.records {
            record.site = cut(std::mem::take(&mut record.site));
        }
        let number = log.number;
        self.hear_census(number, from, |heard| heard.objects.push(ObjectsTold { by: from, log }));
    }

    /// The rows of what processes told. A reference that came from elsewhere has the place of its owner's.
    pub(super) fn object_rows(&self, told: &[ObjectsTold]) -> Vec<Json> {
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
        for ObjectsTold { by, log } in told {
            let of_process = self.process_columns(*by);
            for record in &log.records {
                let unknown = if log.records_sites { UNKNOWN_SITE } else { NOT_RECORDED };
                let site = sites.get(&record.object).copied().unwrap_or(unknown);
                let size = record.size.or_else(|| sizes.get(&record.object).copied());
                rows.push(object_row(record, size, site, &of_process));
            }
        }
        rows.sort_by_key(|row| row["object_id"].to_string());
        rows
    }

    fn process_columns(&self, key: Key) -> Json {
        let ip = self.ip_of(key);
        let worker = self.workers.by_key.get(&key);
        let driver = self.jobs.details.values().find(|detail| detail.driver == key).map(|detail| detail.told.pid);
        json!({
            "type": if worker.is_some() { "WORKER" } else { "DRIVER" },
            "pid": worker.and_then(|worker| worker.pid).or(driver).unwrap_or(0), "ip": ip,
        })
    }
}

fn object_row(record: &ObjectRecord, size: Option<u64>, site: &str, process: &Json) -> Json {
    json!({
        "object_id": record.object.hex(),
        "object_size": size.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX)),
        "task_status": stage_name(record.stage), "attempt_number": u64::from(record.attempt) + 1,
        "reference_type": use_name(record.used), "call_site": site,
        "type": process["type"], "pid": process["pid"], "ip": process["ip"],
    })
}

fn use_name(used: ObjectUse) -> &'static str {
    match used {
        ObjectUse::Unknown => "UNKNOWN_STATUS",
        ObjectUse::Actor => "ACTOR_HANDLE",
        ObjectUse::Mapped => "PINNED_IN_MEMORY",
        ObjectUse::Argument => "USED_BY_PENDING_TASK",
        ObjectUse::Referred => "LOCAL_REFERENCE",
        ObjectUse::Contained => "CAPTURED_IN_OBJECT",
    }
}
