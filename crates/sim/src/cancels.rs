//! Calls that their callers want no more: before they begin, while they run, and just as they end.

use crate::process::Life;
use crate::stream::{Descriptor, Packet};
use crate::world::{ProcessIndex, World};

impl World {
    /// A process cancels one of its tasks, wherever that is.
    pub(crate) fn cancel_some_task(&mut self, process: ProcessIndex) {
        let force = self.chance.odds(300);
        let client = self.client(process);
        let waiting: Vec<usize> =
            (0..client.classes.len()).filter(|class| !client.classes[*class].pending.is_empty()).collect();
        let running = client.leases.iter().filter(|(_, lease)| lease.under_way.is_some()).map(|(number, _)| *number);
        let running: Vec<u64> = running.collect();
        if let Some(class) = self.chance.pick(&waiting).filter(|_| running.is_empty() || self.chance.odds(500)) {
            let count = self.client(process).classes[class].pending.len() as u64;
            let index = self.chance.between(0, count - 1) as usize;
            if let Some(task) = self.client(process).classes[class].pending.remove(index) {
                self.task_ended(process, task);
                self.cancel_what_is_too_much(process, class);
            }
            return;
        }
        let Some(number) = self.chance.pick(&running) else { return };
        let Some(lease) = self.client(process).leases.get_mut(&number) else { return };
        let (Some((call, task)), link) = (lease.under_way.as_mut(), lease.link) else { return };
        // It is not run again, whatever becomes of its worker.
        task.retries = 0;
        let packet = Packet::Cancel { number: *call, force };
        self.send(link, packet);
    }

    /// A worker is told that a caller wants a call no more: only it knows what runs.
    pub(crate) fn told_to_cancel(&mut self, process: ProcessIndex, caller: Descriptor, number: u64, force: bool) {
        let found = &mut self.processes[process];
        if let Some(position) = found.calls.iter().position(|(from, call)| *from == caller && call.number == number) {
            found.calls.remove(position);
            return self.send(caller, Packet::Reply(number));
        }
        let is_its = |run: &&crate::process::Run| run.caller == caller && run.call.number == number;
        let Some(run) = found.run.as_ref().filter(is_its).map(|run| (run.number, run.awaited)) else { return };
        if force {
            return self.dies(process);
        }
        let (run, awaited) = run;
        if awaited > 0 && self.processes[process].life == Life::Running {
            // It is interrupted in its wait.
            self.say(process, oxiray_wire::message::Unblocked {});
        }
        self.finished(process, run);
    }
}
