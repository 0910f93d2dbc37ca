//! Which objects the daemon knows, for people: the detail behind `memory_summary`.

use super::HeadCore;
use oxiray_ids::{NodeId, ObjectId, WorkerId};
use oxiray_wire::message::{Holdings, HoldingsQuery};
use oxiray_wire::state::{Holding, ObjectHolder, ObjectProcess, ProcessRole};

/// Objects told of at most; the rest is only counted.
const OBJECTS_LIMIT: usize = 10_000;
/// Where an object is for which there is room, lent ahead to who may write it: there is none to tell of.
pub const LENT: &str = "lent ahead";

impl HeadCore {
    /// The objects that are asked for, each with its owner, its holders, its size and where it is. `stored` tells an
    /// object's bytes in the store and where they lie.
    pub(crate) fn holdings(
        &self,
        asked: &HoldingsQuery,
        stored: impl Fn(ObjectId) -> Option<(u64, &'static str)>,
    ) -> Holdings {
        let mut told = Holdings { request: asked.request, ..Holdings::default() };
        for (object, owner, holders, containers) in self.objects.known.holdings(&asked.objects) {
            let (size, place) = stored(object).unzip();
            if place == Some(LENT) {
                continue;
            }
            if told.objects.len() >= OBJECTS_LIMIT {
                told.left_out += 1;
                continue;
            }
            let holder = |(holder, count): (WorkerId, i64)| ObjectHolder {
                process: Some(self.object_process(holder)),
                count: u64::try_from(count).unwrap_or(0),
            };
            told.objects.push(Holding {
                object,
                owner: owner.map(|owner| self.object_process(owner)),
                holders: holders.into_iter().map(holder).collect(),
                containers: containers as u64,
                size,
                place: place.map(str::to_owned),
                nodes: self.nodes_with(object, size.is_some()),
                was_spilled: self.objects.known.was_spilled(object),
            });
        }
        told
    }

    /// The nodes whose stores have an object; the head's own store says so itself.
    fn nodes_with(&self, object: ObjectId, is_here: bool) -> Vec<NodeId> {
        let here = is_here.then(|| self.own.plan().node);
        let elsewhere = self.objects.locations.of(object).filter_map(|member| self.members.node_of_member(member));
        here.into_iter().chain(elsewhere).collect()
    }

    fn object_process(&self, id: WorkerId) -> ObjectProcess {
        let key = self.clients.keys.get(&id);
        let worker = key.and_then(|key| self.workers.by_key.get(key));
        let role = match (key, worker) {
            (None, _) => ProcessRole::Gone,
            (Some(_), Some(_)) => ProcessRole::Worker,
            (Some(_), None) => ProcessRole::Driver,
        };
        ObjectProcess {
            id,
            role,
            pid: worker.and_then(|worker| worker.pid),
            label: worker.map(|worker| worker.label.clone()),
        }
    }
}
