//! Which replicas may go (GROWTH-3).

use std::cmp::Reverse;

use super::{GroupSituation, Planning, Removal, Replica, ReplicaState};

impl Planning<'_> {
    pub(super) fn removals(&self) -> Vec<Removal> {
        let mut removals = Vec::new();
        for (index, of) in self.situation.groups.iter().enumerate() {
            removals.extend(self.idle_of(of, self.launched[index].replicas));
        }
        let known =
            |replica: &&(usize, &Replica)| self.situation.groups.iter().any(|of| of.group.name == replica.1.group);
        let replicas = self.situation.replicas.iter().enumerate();
        let (_, orphans): (Vec<_>, Vec<_>) = replicas.partition(|replica| known(&replica));
        let staying = orphans.into_iter().filter(|(_, replica)| replica.state != ReplicaState::Leaving);
        removals.extend(staying.map(|(_, replica)| Removal {
            replica: replica.name.clone(),
            group: replica.group.clone(),
            why: "its group is no more".to_owned(),
            is_in_use: replica.state == ReplicaState::InUse,
        }));
        removals
    }

    fn idle_of(&self, of: &GroupSituation, launched: u32) -> Vec<Removal> {
        let group = &of.group;
        let replicas = self.situation.replicas.iter().enumerate();
        let staying: Vec<(usize, &Replica)> = replicas
            .filter(|(_, replica)| replica.group == group.name && replica.state != ReplicaState::Leaving)
            .collect();
        let count = staying.len() as u32 + launched;
        let is_free = |index: usize| !self.totals.is_used(index) && !self.free.is_used(index);
        let mut idle: Vec<(u64, &Replica)> = staying
            .iter()
            .filter_map(|(index, replica)| match replica.state {
                ReplicaState::Idle(idle_ms) if is_free(*index) => Some((idle_ms, *replica)),
                _ => None,
            })
            .collect();
        idle.sort_by_key(|(idle_ms, _)| Reverse(*idle_ms));
        let surplus = count.saturating_sub(group.max) as usize;
        let spare = count.saturating_sub(group.min) as usize;
        let is_due = |position: usize, idle_ms: u64| position < surplus || idle_ms >= group.idle_timeout_ms;
        let due = idle.into_iter().enumerate().filter(|(position, (idle_ms, _))| is_due(*position, *idle_ms));
        let removed = due.take(spare).map(|(position, (idle_ms, replica))| Removal {
            replica: replica.name.clone(),
            group: group.name.clone(),
            why: if position < surplus {
                format!("there are {count} replicas, and the most is {}", group.max)
            } else {
                format!("idle for {} s", idle_ms / 1000)
            },
            is_in_use: false,
        });
        removed.collect()
    }
}
