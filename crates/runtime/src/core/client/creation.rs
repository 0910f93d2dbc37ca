//! Actors being made: the daemon hears of each at once, and of its constructor's arguments when they are there.

use crate::core::actors::Creation;
use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use crate::core::work::Arguments;
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, TaskId};
use oxiray_wire::message::ActorCreate;

impl<I: Io> Client<I> {
    /// Takes an actor on. It has one handle, for the caller.
    pub fn begin_actor(&mut self, mut create: ActorCreate, arguments: Arguments) -> ActorId {
        let actor = ActorId::generate(self.identity.job, &mut self.calls.unique);
        create.actor = actor;
        create.owner = self.identity.worker;
        create.arguments = arguments.payload.clone();
        create.contained = arguments.contained.iter().map(|id| self.objects.reference(*id)).collect();
        let kept: Vec<ObjectId> =
            arguments.contained.iter().copied().chain(arguments.references.iter().map(|(_, id)| *id)).collect();
        for id in &kept {
            self.objects.retain(*id);
        }
        self.promise(&arguments.contained);
        self.actors.made(actor, kept, !create.detached);
        self.add_handle(actor, true);
        // The daemon counts the creator as the first to hold the anchor.
        self.objects.keep(&[actor.anchor()]);
        let wait = self.new_task(actor);
        let mut waiting_for = 0;
        for (_, id) in &arguments.references {
            if self.objects.depend(*id, wait) {
                waiting_for += 1;
                self.want(*id);
            }
        }
        let creation = Creation { actor, create, arguments, waiting_for };
        if waiting_for == 0 {
            self.create(creation);
        } else {
            let mut announced = creation.create.clone();
            announced.unfinished = true;
            (announced.class, announced.arguments) = (Bytes::new(), Bytes::new());
            announced.contained.clear();
            self.make(actor, announced);
            self.actors.creations.insert(wait, creation);
        }
        actor
    }

    pub(crate) fn constructor_argument_ready(&mut self, wait: TaskId) {
        let Some(creation) = self.actors.creations.get_mut(&wait) else { return };
        creation.waiting_for -= 1;
        if creation.waiting_for == 0
            && let Some(mut creation) = self.actors.creations.remove(&wait)
        {
            creation.create.finishes = true;
            self.create(creation);
        }
    }

    fn create(&mut self, creation: Creation) {
        let Creation { actor, mut create, arguments, .. } = creation;
        let (references, to_promise) = self.travelling(&arguments.references);
        create.references = references;
        create.contained.extend(to_promise.iter().map(|id| self.objects.reference(*id)));
        self.promise(&to_promise);
        self.make(actor, create);
    }

    fn make(&mut self, actor: ActorId, create: ActorCreate) {
        self.io.send_now(DAEMON, &create);
        if self.is_resumable() {
            self.actors.note_creation(actor, create);
        }
    }

    /// The arguments of an actor that is dead are awaited no longer.
    pub(crate) fn forget_creation(&mut self, actor: ActorId) {
        self.actors.creations.retain(|_, creation| creation.actor != actor);
    }
}
