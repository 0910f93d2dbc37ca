//! The end of a task: its results are there, or the reason why there are none.

use crate::core::calls::{Target, Task};
use crate::core::client::Client;
use crate::core::client::regaining::Yielded;
use crate::core::io::Io;
use crate::core::objects::failed;
use crate::core::task_log::Lost;
use oxiray_ids::{TaskId, WorkerId};
use oxiray_wire::message::{Content, Failure, FailureCode, Reply, Value};

impl<I: Io> Client<I> {
    /// A call came back: results are there, or it is to be run again.
    pub(crate) fn finish(&mut self, id: TaskId, mut reply: Box<Reply>, worker: WorkerId) {
        self.hold_kept(&reply.kept, &worker);
        self.share_error(id, &mut reply);
        self.confirm_reply(id, &reply, &worker);
        if reply.retry && self.try_again(id, None) {
            return self.give_back_brought(id, &reply);
        }
        if self.goes_on_yielding(id, &reply) {
            return;
        }
        if let Some(task) = self.take_plain(id, &reply) {
            for (value, index) in reply.results.into_iter().zip(1..) {
                self.notice_unseen(id.object(index), &value);
                self.resolve(id.object(index), value, 0, 1);
            }
            return self.let_go_of(task);
        }
        let (promised, is_stream, is_repeated) = self
            .calls
            .tasks
            .get(&id)
            .map_or((0, true, false), |task| (task.work.results, task.work.stream.is_some(), task.attempt > 0));
        let (mut items, mut yielded) = (0, None);
        if is_stream {
            items = self.items_of(id);
            yielded = Some(Yielded { items: reply.items, error: crate::core::client::regaining::error_of(&reply) });
            self.share_interrupt(id, &mut reply);
            self.stream_replied(id, &mut reply);
        }
        for index in reply.results.len() as u32..promised {
            let text = format!("result {} did not come with the others: the worker is of another build", index + 1);
            let failure = FailureCode::System.because(text);
            self.resolve(id.object(index + 1), failed(failure), 0, 0);
        }
        let mut stored = 0;
        for (index, value) in reply.results.into_iter().enumerate() {
            let object = id.object(index as u32 + 1);
            let is_stored = matches!(value.content, Some(Content::Stored(_)));
            self.notice_unseen(object, &value);
            self.resolve(object, value, u32::from(is_stored), 1);
            stored += u32::from(is_stored && self.objects.take_task_spec_on(object));
        }
        stored += self.take_item_task_specs_on(id, items);
        if stored > 0 || self.lineage.knows(id) {
            self.keep_task_spec(id, stored, items);
        }
        self.drop_task(id);
        if let Some(yielded) = yielded {
            self.make_missing_items(id, items, &yielded, is_repeated);
        }
    }

    /// What all results are came once.
    fn share_error(&mut self, id: TaskId, reply: &mut Reply) {
        let Some(task) = self.calls.tasks.get(&id).filter(|_| reply.results.is_empty()) else { return };
        if let Some(value) = reply.raised.take_if(|_| task.work.stream.is_none()) {
            reply.results = vec![value; task.work.results as usize];
        }
    }

    /// What ended a stream that was cancelled while it ran is its last item, and what waits for its end hears it too.
    fn share_interrupt(&self, id: TaskId, reply: &mut Reply) {
        let is_cancelled = self.calls.tasks.get(&id).is_some_and(|task| task.cancelled);
        if let Some(value) = reply.raised.as_ref().filter(|_| is_cancelled) {
            reply.results = vec![value.clone(); reply.results.len()];
        }
    }

    /// Takes out a task that ended as most do, with a small value for each result and nothing that could be needed again.
    fn take_plain(&mut self, id: TaskId, reply: &Reply) -> Option<Task> {
        let is_stored = |value: &Value| matches!(value.content, Some(Content::Stored(_)));
        if self.lineage.knows(id) || reply.results.iter().any(is_stored) {
            return None;
        }
        let is_plain =
            |task: &mut Task| task.work.stream.is_none() && task.work.results as usize == reply.results.len();
        self.calls.tasks.remove_if(id, is_plain)
    }

    /// The task ends with this failure as the value of each result.
    pub(crate) fn fail_task(&mut self, id: TaskId, failure: &Failure) {
        self.finish_with(id, &failed(failure.clone()));
    }

    /// The same of a task that its worker had.
    pub(crate) fn fail_task_of(&mut self, worker: Option<WorkerId>, id: TaskId, failure: &Failure) {
        self.finish_of(worker, id, &failed(failure.clone()));
    }

    pub(crate) fn finish_with(&mut self, id: TaskId, value: &Value) {
        self.finish_of(None, id, value);
    }

    /// An attempt of the task was lost with its worker, and another follows.
    pub(crate) fn note_lost_attempt(&mut self, worker: Option<WorkerId>, id: TaskId, failure: &Failure) {
        let Some(task) = self.calls.tasks.get(&id) else { return };
        let value = failed(failure.clone());
        let lost = Lost { attempt: task.attempt - 1, value: &value, needs: self.leases.needs_of(task), worker };
        self.signals.timer_moved |= self.log.failed(id, task, lost, self.now);
    }

    fn finish_of(&mut self, worker: Option<WorkerId>, id: TaskId, value: &Value) {
        let items = self.items_of(id);
        self.stream_failed(id, value);
        let results = self.calls.tasks.get(&id).map_or(0, |task| {
            let lost = Lost { attempt: task.attempt, value, needs: self.leases.needs_of(task), worker };
            self.signals.timer_moved |= self.log.failed(id, task, lost, self.now);
            task.work.results
        });
        for index in 1..=results {
            self.notice_unseen(id.object(index), value);
            self.resolve(id.object(index), value.clone(), 0, 0);
        }
        self.fail_missing_items(id, items, value);
        self.keep_task_spec(id, 0, 0);
        self.drop_task(id);
    }

    /// SUBMIT-2: the task is over; its arguments are no longer used by it.
    fn drop_task(&mut self, id: TaskId) {
        if let Some(task) = self.calls.tasks.remove(&id) {
            self.let_go_of(task);
        }
    }

    /// The task is out of the table, and what it used is let go of.
    fn let_go_of(&mut self, task: Task) {
        match task.target {
            Target::Class(queue) => self.leases.release_class(queue),
            Target::Actor(actor) if task.sent > 0 => self.actors.call_ended(actor),
            Target::Actor(_) => {}
        }
        let arguments = task.work.arguments;
        for object in arguments.contained.into_iter().chain(arguments.references.into_iter().map(|(_, id)| id)) {
            self.release(object);
        }
    }
}
