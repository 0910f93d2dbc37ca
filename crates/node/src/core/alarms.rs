//! What is due at a certain time.

use super::{Core, Key};
use oxiray_ids::ActorId;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    Reclaim,
    Notice,
    Recheck,
    NoNodeCame,
    Census(u64),
    Overdue(Key),
    Verdict(Key),
    Undying(Key),
    Templates,
    Adjust,
    Preparing(u64),
    Unprepared(u64),
    Restart(ActorId),
    Unmade(ActorId),
    Reconnect(Key, Key),
    Silent(Key),
    Drain(Key),
    Resumption,
    Ahead(u64),
    Measure,
    Growth,
}

impl Core {
    pub(crate) fn alarm_at(&mut self, at: Instant, alarm: Alarm) {
        self.alarms.insert((at, alarm));
    }

    pub(crate) fn run_alarms(&mut self) {
        while let Some((at, alarm)) = self.alarms.first().copied()
            && at <= self.now
        {
            self.alarms.pop_first();
            match alarm {
                Alarm::Reclaim => self.reclaim_again(),
                Alarm::Notice => self.notice(),
                Alarm::Recheck => self.recheck(),
                Alarm::Measure => self.measure_devices(),
                Alarm::NoNodeCame => self.look_at_shortages(),
                Alarm::Census(number) => self.close_census(number, true),
                Alarm::Overdue(worker) => self.kill_worker(worker),
                Alarm::Undying(worker) => self.does_not_die(worker),
                Alarm::Templates => self.end_idle_templates(),
                Alarm::Adjust => self.adjust(),
                Alarm::Preparing(number) => self.say_it_prepares(number),
                Alarm::Unprepared(number) => self.preparation_overdue(number),
                Alarm::Restart(actor) => self.restart(actor),
                Alarm::Unmade(actor) => self.never_made(actor),
                Alarm::Silent(member) => self.end_silent_member(member),
                Alarm::Ahead(ticket) => self.travelled(ticket),
                Alarm::Drain(member) => self.drain_on(member),
                Alarm::Growth => self.growth_alarm(),
                Alarm::Resumption => self.give_up_missing(),
                Alarm::Reconnect(client, worker) => self.reconnect(client, worker),
                Alarm::Verdict(worker) => self.verdict(worker, "died, and left processes that have not ended yet"),
            }
        }
    }
}
