//! How processes ended, for those who ask for what only they had.
//!
//! - ENDS-1: of the last [`REMEMBERED_MAX`] processes it is known; of earlier ones only that they are gone.
//! - ENDS-2: the first word on an end counts.

use super::{HeadCore, Key};
use crate::Metrics;
use oxiray_ids::{NodeId, ObjectId, WorkerId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Processes whose ends are remembered.
const REMEMBERED_MAX: usize = 4096;

#[derive(Debug)]
struct End {
    at: Instant,
    text: String,
}

#[derive(Debug, Default)]
pub(super) struct Ends {
    known: BTreeMap<WorkerId, End>,
    order: VecDeque<WorkerId>,
}

/// What is remembered for people and programs that ask.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) metrics: Metrics,
    pub(super) ends: Ends,
    pub(super) census: super::census::Census,
    pub(super) following: super::follow::Following,
}

impl HeadCore {
    /// A process is about to be forgotten; `text` is how it ended.
    pub(super) fn remember_end(&mut self, key: Key, text: &str) {
        let ip = self.ip_of(key).to_owned();
        self.remember_end_on(self.node_of(key), &ip, key, text);
    }

    /// A process of this node is about to be forgotten.
    pub(super) fn remember_end_on(&mut self, node: NodeId, ip: &str, key: Key, text: &str) {
        let Some(who) = self.clients.by_key.get(&key).map(|client| client.id) else { return };
        if self.figures.ends.known.contains_key(&who) {
            return;
        }
        let worker = self.workers.by_key.get(&key);
        let role = if worker.is_some() { "worker" } else { "driver" };
        let pid = worker.and_then(|worker| worker.pid).map_or(String::new(), |pid| format!(", pid {pid}"));
        let text = format!("the {role} {who}{pid}, on node {node} ({ip}): {text}");
        if self.figures.ends.order.len() >= REMEMBERED_MAX
            && let Some(first) = self.figures.ends.order.pop_front()
        {
            self.figures.ends.known.remove(&first);
        }
        self.figures.ends.order.push_back(who);
        self.figures.ends.known.insert(who, End { at: self.clock.now, text });
    }

    /// Why nobody can make an object that was this process's.
    pub(super) fn owner_died(&self, object: ObjectId, owner: WorkerId) -> String {
        let what = match self.figures.ends.known.get(&owner) {
            Some(end) => {
                let ago = self.clock.now.saturating_duration_since(end.at).as_secs_f64();
                format!("its owner died {ago:.1} s ago, {}", end.text)
            }
            None => "the process that was to make it, or to make it again, is gone".to_owned(),
        };
        format!(
            "object {object} cannot be had: {what}. Nobody else can make it: let a process own it that lives as long as it \
             is needed, such as the driver or an actor"
        )
    }
}
