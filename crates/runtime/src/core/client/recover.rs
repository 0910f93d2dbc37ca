//! Lost values are made again: by their owner, whoever misses them.
//!
//! A reader whose stored value is lost reports it. Where the value is its own, the task specification of its task is followed, and
//! so are those of the arguments that are gone by now; otherwise the daemon asks the owner. Whoever waits for the
//! object waits on, and is told the new value as it would have been told the first, or the reason why there is none.

use crate::core::calls::Target;
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use crate::core::lineage::{Reason, TaskSpec};
use crate::core::objects::{Effects, failed, is_error};
use crate::core::signals::ClientEvent;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::message::{Content, FailureCode, Free, Publish, Recover, Reference, Value};
use std::sync::Arc;

impl<I: Io> Client<I> {
    /// A reader here found the stored bytes of an object lost, when it had lost its value `seen` times.
    pub fn report_lost(&mut self, id: ObjectId, seen: u32) {
        let mut effects = Effects::default();
        let own = self.objects.is_own(id);
        let lost = self.objects.lose(id, seen, &mut effects);
        if !own || (lost && self.objects.is_promised(id)) {
            let reference = self.objects.reference(id);
            self.io.send_now(DAEMON, &Recover { reference: Some(reference) });
        }
        self.apply(effects);
        if own && lost {
            self.make_again(id);
        }
    }

    /// The daemon asks for a value of this process that was lost.
    pub(crate) fn lost_elsewhere(&mut self, id: ObjectId) {
        if self.daemon.lost.is_some() {
            return;
        }
        self.objects.keep_no_longer(id);
        // Nobody here may refer to it any more; whoever does elsewhere used its task specification, and the expected object does now.
        let revived = !self.objects.is_own(id) && self.lineage.leave_elsewhere(id);
        if revived {
            self.objects.expect(id);
            self.objects.take_task_spec_on(id);
        } else if !self.objects.is_own(id) {
            let reason = if id.index() >= ObjectId::FIRST_PUT { Reason::Put } else { Reason::NotFound };
            let value = Some(unreconstructable(id, reason));
            return self.io.send_now(DAEMON, &Publish { object: id, value });
        }
        let mut effects = Effects::default();
        let lost = self.objects.lose(id, self.objects.losses(id), &mut effects);
        self.apply(effects);
        self.promise(&[id]);
        if lost || revived {
            self.make_again(id);
        } else if self.objects.is_ready(id) {
            // It became an error or a small value meanwhile.
            self.publish_again(id);
        }
        if revived {
            self.release(id);
        }
    }

    /// Somebody waits for an object of this process that the daemon was not told of when it asked.
    pub(crate) fn wanted_elsewhere(&mut self, id: ObjectId) {
        if self.objects.is_own(id) {
            return self.promise(&[id]);
        }
        if let Some(value) = self.objects.kept(id).cloned() {
            return self.io.send_now(DAEMON, &Publish { object: id, value: Some(value) });
        }
        if self.daemon.lost.is_none() && !self.lineage.is_elsewhere(id) {
            // Where it was published meanwhile, the daemon does not listen to this.
            let reason = if id.index() >= ObjectId::FIRST_PUT { Reason::Put } else { Reason::NotFound };
            let value = Some(unreconstructable(id, reason));
            self.io.send_now(DAEMON, &Publish { object: id, value });
        }
    }

    fn publish_again(&mut self, id: ObjectId) {
        let Some(value) = self.objects.value(id).cloned() else { return };
        self.io.send_now(DAEMON, &Publish { object: id, value: Some(value) });
    }

    /// Follows the task specification of an expected object, and those of its arguments that are gone; what cannot be made becomes
    /// an error that says why.
    pub(crate) fn make_again(&mut self, id: ObjectId) {
        let mut missing = vec![id];
        while let Some(id) = missing.pop() {
            let task = id.task();
            if self.objects.is_ready(id) {
                continue;
            }
            if self.calls.tasks.contains_key(&task) {
                self.yield_again(id);
                continue;
            }
            match self.task_spec_of(id) {
                Ok(task_spec) => self.follow(task, task_spec, &mut missing),
                Err(reason) => self.resolve(id, unreconstructable(id, reason), 0, 0),
            }
        }
    }

    fn task_spec_of(&mut self, id: ObjectId) -> Result<TaskSpec, Reason> {
        if !self.lineage.is_enabled() {
            return Err(Reason::Disabled);
        }
        if id.index() >= ObjectId::FIRST_PUT {
            return Err(Reason::Put);
        }
        if !self.lineage.knows(id.task()) {
            // Of what may not be run again no task specification was kept.
            return Err(Reason::RetriesDisabled);
        }
        self.lineage.follow(id.task())
    }

    fn follow(&mut self, task: TaskId, task_spec: TaskSpec, missing: &mut Vec<ObjectId>) {
        let arguments = &task_spec.work.arguments;
        let gone: Vec<ObjectId> = arguments
            .references
            .iter()
            .map(|(_, id)| *id)
            .chain(arguments.contained.iter().copied())
            .filter(|id| !self.objects.contains(*id))
            .collect();
        let mut expected = Vec::with_capacity(gone.len());
        for id in gone {
            if self.objects.contains(id) {
                continue;
            }
            self.objects.expect(id);
            expected.push(id);
            if !self.is_made_here(id) {
                self.resolve(id, unreconstructable(id, Reason::Borrowed), 0, 0);
            }
        }
        missing.extend(&expected);
        let target = match task_spec.class {
            Some(class) => Target::Class(self.leases.class(class).0),
            None => Target::Actor(task.actor()),
        };
        self.begin(task, target, task_spec.work, task_spec.attempt);
        if let Target::Class(queue) = target {
            self.leases.release_class(queue);
        }
        for id in expected {
            self.release(id);
        }
    }

    /// Whether an object is of a task or a `put` of this process, as far as that can be known once it is forgotten.
    fn is_made_here(&self, id: ObjectId) -> bool {
        self.lineage.knows(id.task()) || id.index() >= ObjectId::FIRST_PUT
    }

    /// A task ended, with so many stored results and items that are new users of its task specification; it yielded `items`.
    pub(crate) fn keep_task_spec(&mut self, id: TaskId, users: u32, items: u32) {
        let Some(task) = self.calls.tasks.get(&id) else { return };
        if self.lineage.knows(id) {
            self.lineage.followed(id, task.work.retries, task.attempt);
            for _ in 0..users {
                self.lineage.retain(id);
            }
            return;
        }
        if users == 0 {
            return;
        }
        if !self.lineage.is_enabled() || (task.work.retries == 0 && task.attempt == 0) {
            return self.keep_no_task_spec(id, items);
        }
        if task.cancelled {
            return self.lineage.keep_reason(id, users, Reason::Cancelled);
        }
        let (work, attempt) = (task.work.clone(), task.attempt);
        let class = match task.target {
            Target::Class(queue) => Some(Arc::clone(&self.leases.queues[queue].class)),
            Target::Actor(_) => None,
        };
        let (held, sources) = (Vec::new(), Vec::new());
        let mut task_spec = TaskSpec { work, class, attempt, held, sources, held_bytes: 0, items };
        let references = task_spec.work.arguments.references.iter().map(|(_, id)| *id);
        let given: Vec<ObjectId> = references.chain(task_spec.work.arguments.contained.iter().copied()).collect();
        for object in given {
            if !self.objects.is_own(object) {
                continue;
            }
            match self.objects.value(object).and_then(|value| value.content.as_ref()) {
                Some(Content::Stored(_)) if self.lineage.retain(object.task()) => task_spec.sources.push(object.task()),
                content => {
                    if let Some(Content::Inline(bytes)) = content {
                        task_spec.held_bytes += bytes.len();
                    }
                    self.objects.retain(object);
                    task_spec.held.push(object);
                }
            }
        }
        for object in self.lineage.keep(id, users, task_spec) {
            self.release(object);
        }
    }

    fn keep_no_task_spec(&mut self, id: TaskId, items: u32) {
        let results = self.calls.tasks.get(&id).map_or(0, |task| task.work.results);
        for index in 1..=results + items {
            self.objects.without_task_spec(id.object(index));
        }
    }

    /// Nobody here refers to a stored result any more; of one that was promised, others may.
    pub(crate) fn forgotten_here(&mut self, id: ObjectId, was_promised: bool) {
        if was_promised {
            self.lineage.enter_elsewhere(id);
        } else {
            self.drop_task_spec_user(id);
        }
    }

    fn drop_task_spec_user(&mut self, id: ObjectId) {
        for object in self.lineage.release(id.task()) {
            self.release(object);
        }
    }

    /// Nobody anywhere refers to a stored object any more that was this process's own.
    pub(crate) fn forgotten_elsewhere(&mut self, id: ObjectId) {
        self.objects.keep_no_longer(id);
        if self.objects.leave_device(id) {
            self.signals.news.push_back(ClientEvent::Ended(id));
            self.signals.changed = true;
        }
        if self.lineage.leave_elsewhere(id) {
            self.drop_task_spec_user(id);
        }
    }

    // --- freeing ---

    /// The user gives objects up, whoever still refers to them.
    pub fn free(&mut self, ids: &[ObjectId]) {
        let references: Vec<Reference> = ids.iter().map(|id| self.objects.reference(*id)).collect();
        self.demand(Free { references }.into());
        for id in ids {
            self.freed(*id);
        }
    }

    pub(crate) fn freed_elsewhere(&mut self, id: ObjectId) {
        self.freed(id);
    }

    fn freed(&mut self, id: ObjectId) {
        let text = "free() was called on it: free only what is not needed again".to_owned();
        let failure = FailureCode::ObjectFreed.because(text);
        let mut effects = Effects::default();
        self.objects.free_kept(id, failure.clone());
        self.objects.free(id, failure, &mut effects);
        self.apply(effects);
    }

    // --- errors that nobody looked at ---

    /// The result of a task is an error, and nobody refers to it.
    pub(crate) fn notice_unseen(&mut self, id: ObjectId, value: &Value) {
        if is_error(value) && !self.objects.contains(id) {
            self.tell_unseen(value.clone());
        }
    }

    pub(crate) fn tell_unseen(&mut self, value: Value) {
        let was_wanted = matches!(
            &value.content,
            Some(Content::Failed(failure)) if matches!(failure.code, FailureCode::Cancelled | FailureCode::ActorLeft)
        );
        if self.daemon.lost.is_none() && !self.calls.leaving && !was_wanted {
            self.signals.tell(ClientEvent::Unseen(value));
        }
    }
}

pub(crate) fn unreconstructable(id: ObjectId, reason: Reason) -> Value {
    let (code, why) = reason.told();
    let text = format!("object {id} was lost and cannot be made again: {why}");
    failed(code.because(text))
}
