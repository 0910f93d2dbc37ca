//! Which objects the daemon knows, for people: the detail behind `memory_summary`.

use super::HeadCore;
use oxiray_ids::{ObjectId, WorkerId};
use serde_json::json;

/// Objects told of at most; the rest is only counted.
const OBJECTS_LIMIT: usize = 10_000;
/// Where an object is for which there is room, lent ahead to who may write it: there is none to tell of.
pub const LENT: &str = "lent ahead";

impl HeadCore {
    /// One JSON object: `objects`, each with its owner, its holders, its size and where it is, and `left_out`, how many
    /// more there are. `stored` tells an object's bytes in the store and where they lie.
    pub(crate) fn holdings(&self, stored: impl Fn(ObjectId) -> Option<(u64, &'static str)>) -> String {
        let process = |id: WorkerId| {
            let key = self.clients.keys.get(&id);
            let worker = key.and_then(|key| self.workers.by_key.get(key));
            let role = if worker.is_some() { "worker" } else { "driver" };
            json!({
                "id": id.hex(),
                "role": if key.is_some() { role } else { "gone" },
                "pid": worker.and_then(|worker| worker.pid),
                "label": worker.map(|worker| worker.label.clone()),
            })
        };
        let mut objects = Vec::new();
        let mut left_out = 0;
        for (object, owner, holders, containers) in self.objects.known.holdings() {
            let (size, place) = stored(object).unzip();
            if place == Some(LENT) {
                continue;
            }
            if objects.len() >= OBJECTS_LIMIT {
                left_out += 1;
                continue;
            }
            let holders: Vec<_> = holders
                .into_iter()
                .map(|(holder, count)| json!({ "process": process(holder), "count": count }))
                .collect();
            objects.push(json!({
                "object": object.hex(),
                "owner": owner.map(process),
                "holders": holders,
                "containers": containers,
                "size": size,
                "place": place,
            }));
        }
        json!({ "objects": objects, "left_out": left_out }).to_string()
    }
}
