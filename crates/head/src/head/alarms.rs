//! What is due at a certain time.

use super::{HeadCore, Key};
use oxiray_ids::ActorId;
use oxiray_machine::environments;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    Reclaim,
    Notice,
    NoNodeCame,
    Census(u64),
    Overdue(Key),
    Undying(Key),
    Environment(environments::Alarm),
    Restart(ActorId),
    Unmade(ActorId),
    Reconnect(Key, Key),
    Silent(Key),
    Drain(Key),
    Resumption,
    Prefetches(u64),
    Growth,
    Changes,
    Recall,
}

impl HeadCore {
    pub(super) fn alarm_at(&mut self, at: Instant, alarm: Alarm) {
        self.clock.alarms.insert((at, alarm));
    }

    pub(super) fn run_alarms(&mut self) {
        while let Some((at, alarm)) = self.clock.alarms.first().copied()
            && at <= self.clock.now
        {
            self.clock.alarms.pop_first();
            match alarm {
                Alarm::Reclaim => self.reclaim_again(),
                Alarm::Notice => self.notice(),
                Alarm::NoNodeCame => self.look_at_shortages(),
                Alarm::Census(number) => self.close_census(number, true),
                Alarm::Overdue(worker) => self.is_overdue(worker),
                Alarm::Undying(worker) => self.worker_does_not_die(worker),
                Alarm::Environment(alarm) => self.environment_alarm(alarm),
                Alarm::Restart(actor) => self.restart(actor),
                Alarm::Unmade(actor) => self.never_made(actor),
                Alarm::Silent(member) => self.end_silent_member(member),
                Alarm::Prefetches(ticket) => self.travelled(ticket),
                Alarm::Drain(member) => self.drain_on(member),
                Alarm::Growth => self.growth_alarm(),
                Alarm::Changes => self.changes_alarm(),
                Alarm::Recall => self.recall_leases(),
                Alarm::Resumption => self.give_up_missing(),
                Alarm::Reconnect(client, worker) => self.reconnect(client, worker),
            }
        }
    }
}
