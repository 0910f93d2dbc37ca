//! Which objects this process refers to, and why: told to the daemon when it asks.
//!
//! Nothing is kept for it but where references were made, and that only where the program asked for it; what keeps an
//! object is found out by looking at everything there is.

use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use oxiray_ids::{ObjectId, TaskId, WorkerId};
use oxiray_wire::message::{Content, ObjectLog, ObjectRecord, ObjectUse, TaskStage, Value};
use rustc_hash::FxHashMap;

/// How many objects a process tells of.
const RECORDS_MAX: usize = 10_000;

/// Uses of an object that are not references of the program's.
#[derive(Debug, Default, Clone, Copy)]
struct Uses {
    arguments: u32,
    contained: u32,
    task_specs: u32,
}

impl<I: Io> Client<I> {
    /// Tells the daemon of the objects that this process refers to.
    pub(crate) fn tell_of_objects(&mut self, number: u64) {
        let (uses, sent) = (self.uses_of_objects(), self.sent());
        let mut records = Vec::new();
        for (id, held) in self.objects.on_devices().take(RECORDS_MAX) {
            let (size, device) = (Some(held.size), held.device.clone());
            records.push(ObjectRecord { object: id, size, device, used: ObjectUse::Device, ..ObjectRecord::default() });
        }
        for (id, owned, value, count) in self.objects.all().take(RECORDS_MAX - records.len()) {
            let (stage, attempt) = self.stage_of(id, owned, value, &sent);
            let used = self.what_keeps(id, count, uses.get(&id).copied().unwrap_or_default());
            records.push(ObjectRecord {
                object: id,
                size: value.and_then(size_of),
                stage,
                attempt,
                used,
                site: self.objects.site(id).unwrap_or_default().to_owned(),
                device: String::new(),
            });
        }
        let records_sites = self.objects.records_sites();
        self.io.send_now(DAEMON, &ObjectLog { number, records, records_sites });
    }

    fn uses_of_objects(&self) -> FxHashMap<ObjectId, Uses> {
        let mut uses: FxHashMap<ObjectId, Uses> = FxHashMap::default();
        for task in self.calls.tasks.values() {
            let arguments = &task.work.arguments;
            for id in arguments.contained.iter().chain(arguments.references.iter().map(|(_, id)| id)) {
                uses.entry(*id).or_default().arguments += 1;
            }
        }
        for (_, _, value, _) in self.objects.all() {
            for id in value.map(crate::core::objects::inner_ids).unwrap_or_default() {
                uses.entry(id).or_default().contained += 1;
            }
        }
        for id in self.lineage.held() {
            uses.entry(id).or_default().task_specs += 1;
        }
        uses
    }

    fn what_keeps(&self, id: ObjectId, count: u32, uses: Uses) -> ObjectUse {
        let others = uses.arguments + uses.contained + uses.task_specs;
        if id.anchored_actor().is_some() {
            ObjectUse::Actor
        } else if self.io.is_mapped(id) {
            ObjectUse::Mapped
        } else if uses.arguments > 0 {
            ObjectUse::Argument
        } else if count > others {
            ObjectUse::Referred
        } else if uses.contained > 0 {
            ObjectUse::Contained
        } else {
            ObjectUse::Unknown
        }
    }

    fn stage_of(
        &self,
        id: ObjectId,
        owned: bool,
        value: Option<&Value>,
        sent: &FxHashMap<TaskId, WorkerId>,
    ) -> (TaskStage, u32) {
        if !owned {
            return (TaskStage::Unknown, 0);
        }
        let found = self.calls.tasks.get(&id.task());
        let attempt = found.map_or(0, |task| task.attempt);
        let stage = match (value, found) {
            (Some(value), _) if crate::core::objects::is_error(value) => TaskStage::Failed,
            (Some(_), _) => TaskStage::Finished,
            (None, Some(task)) => Self::stage(&id.task(), task, sent),
            (None, None) => TaskStage::Unknown,
        };
        (stage, attempt)
    }
}

pub(crate) fn size_of(value: &Value) -> Option<u64> {
    match value.content.as_ref()? {
        Content::Inline(bytes) | Content::Raised(bytes) => Some(bytes.len() as u64),
        Content::Stored(size) => Some(*size),
        Content::Failed(failure) => Some(failure.text.len() as u64),
    }
}
