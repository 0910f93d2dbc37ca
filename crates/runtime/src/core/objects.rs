//! The objects this process knows: its own, and those whose references reached it.
//!
//! - OBJECTS-1: an object stays as long as anything here refers to it: a reference of the user's, an
//!   argument of a call under way, a value that contains it. Its number of such uses never wraps.
//! - OBJECTS-2: a value, once there, never changes, unless its stored bytes are lost or the user frees them.
//! - OBJECTS-3: every hold that the daemon counts for this process is given back exactly once, when the
//!   object is forgotten here.
//! - OBJECTS-4: an object that was promised to others stays until its value was published.

use crate::core::table::Table;
use bytes::Bytes;
use oxiray_ids::{ObjectId, TaskId, WorkerId};
use oxiray_wire::message::{Content, Failure, Reference, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// What is to be told to others after a change; the caller sends it.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Tasks that waited for an object that is now there.
    pub(crate) resolved: Vec<(TaskId, ObjectId)>,
    /// Objects promised to the daemon whose value is now there.
    pub(crate) publish: Vec<ObjectId>,
    /// Objects that someone in this process asked to be told about.
    pub(crate) announce: Vec<ObjectId>,
    /// Holds to give back to the daemon.
    pub(crate) unhold: Vec<ObjectId>,
    /// Stored results of this process's tasks that nobody refers to any more: their task specifications lose a user.
    /// With whether others were promised the object.
    pub(crate) forgotten: Vec<(ObjectId, bool)>,
    /// Errors of this process's tasks that were forgotten without anybody having looked.
    pub(crate) unseen: Vec<Value>,
    /// Objects that nobody here refers to any more, of which someone in this process asked to be told so.
    pub(crate) ended: Vec<ObjectId>,
}

impl Effects {
    pub(crate) fn is_empty(&self) -> bool {
        self.resolved.is_empty()
            && self.publish.is_empty()
            && self.announce.is_empty()
            && self.unhold.is_empty()
            && self.forgotten.is_empty()
            && self.unseen.is_empty()
            && self.ended.is_empty()
    }
}

/// What this process keeps on a device for an object.
#[derive(Debug)]
pub(crate) struct OnDevice {
    /// The device, as the program names it.
    pub(crate) device: String,
    /// Bytes.
    pub(crate) size: u64,
}

#[derive(Debug)]
struct Object {
    owner: WorkerId,
    value: Option<Value>,
    /// The value, if there is none here, comes from the daemon: others own the object, or this process had
    /// given up its own part in it before a reference came back.
    elsewhere: bool,
    uses: u32,
    /// How many holds the daemon counts for this process on this object.
    holds: u32,
    promised: bool,
    subscribed: bool,
    announced: bool,
    /// Counted as a user of its task's task specification.
    has_task_spec: bool,
    /// Somebody looked at the value, or will elsewhere.
    looked_at: bool,
    /// How often its value was lost.
    losses: u32,
    /// Its stored bytes were asked for, or written here.
    is_fetched: bool,
    dependents: Vec<TaskId>,
}

impl Object {
    fn is_unseen_error(&self) -> bool {
        !self.elsewhere && !self.looked_at && !self.promised && self.value.as_ref().is_some_and(is_error)
    }

    fn is_owed(&self) -> bool {
        self.promised && self.value.is_none()
    }
}

pub(crate) fn inner_ids(value: &Value) -> Vec<ObjectId> {
    value.contained.iter().map(|inner| inner.object).collect()
}

/// All objects known here.
#[derive(Debug)]
pub(crate) struct Objects {
    me: WorkerId,
    known: Table<ObjectId, Object>,
    values_came: u64,
    errors_came: u64,
    sites: sites::Sites,
    /// Values that were published and that nobody here refers to any more, until nobody anywhere does.
    kept: FxHashMap<ObjectId, Value>,
    /// Whether such values are kept, for a head that comes after this one.
    keeps: bool,
    /// Objects whose end someone in this process asked to be told of.
    watched: FxHashSet<ObjectId>,
    /// What this process keeps on devices for stored objects of its own, until nobody anywhere refers to them any more.
    on_devices: FxHashMap<ObjectId, OnDevice>,
    /// What is to be told after what is told now: chains of tasks may be longer than a stack is deep.
    to_apply: VecDeque<Effects>,
    is_applying: bool,
}

impl Objects {
    pub(crate) fn new(me: WorkerId, keeps: bool) -> Self {
        let (known, kept) = (Table::default(), FxHashMap::default());
        let sites = sites::Sites::default();
        let to_apply = VecDeque::new();
        let (watched, on_devices) = (FxHashSet::default(), FxHashMap::default());
        let (values_came, errors_came, is_applying) = (0, 0, false);
        Self { me, known, values_came, errors_came, sites, kept, keeps, watched, on_devices, to_apply, is_applying }
    }

    /// What is to be told now; nothing where something is being told, after which this is.
    pub(crate) fn begin_applying(&mut self, effects: Effects) -> Option<Effects> {
        if std::mem::replace(&mut self.is_applying, true) {
            self.to_apply.push_back(effects);
            return None;
        }
        Some(effects)
    }

    /// What is to be told next.
    pub(crate) fn next_to_apply(&mut self) -> Option<Effects> {
        let next = self.to_apply.pop_front();
        self.is_applying = next.is_some();
        next
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    fn insert(&mut self, id: ObjectId, owner: WorkerId, value: Option<Value>) -> &mut Object {
        self.known.get_or_insert_with(id, || Object {
            owner,
            elsewhere: true,
            value,
            uses: 0,
            holds: 0,
            promised: false,
            subscribed: false,
            announced: false,
            has_task_spec: false,
            looked_at: false,
            losses: 0,
            is_fetched: false,
            dependents: Vec::new(),
        })
    }

    /// An object of this process whose value is still to come, with one use.
    pub(crate) fn expect(&mut self, id: ObjectId) {
        let me = self.me;
        let object = self.insert(id, me, None);
        object.elsewhere = false;
        object.uses += 1;
    }

    /// An object of this process with its value, with one use; `holds` as for a stored one.
    pub(crate) fn put(&mut self, id: ObjectId, value: Value, holds: u32) {
        self.use_all(&value.contained, 0);
        let me = self.me;
        let object = self.insert(id, me, Some(value));
        object.elsewhere = false;
        object.uses += 1;
        object.holds += holds;
        object.is_fetched = true;
    }

    /// A reference that arrived from elsewhere, with one more use.
    pub(crate) fn borrow(&mut self, id: ObjectId, owner: WorkerId) {
        self.insert(id, owner, None).uses += 1;
    }

    /// One more use of an object that is known.
    pub(crate) fn retain(&mut self, id: ObjectId) {
        if let Some(object) = self.known.get_mut(&id) {
            object.uses = object.uses.checked_add(1).expect("OBJECTS-1: uses never wrap");
        }
    }

    /// One use less; at the last, the object is forgotten.
    pub(crate) fn release(&mut self, id: ObjectId, effects: &mut Effects) {
        let mut ending = self.give_up(id, 1, effects);
        while let Some(id) = ending.pop() {
            ending.extend(self.give_up(id, 1, effects));
        }
    }

    /// Counts so many uses less, and forgets an object that is not used any more, unless its value is still owed to others
    /// (OBJECTS-4). Returns what it contained.
    fn give_up(&mut self, id: ObjectId, uses: u32, effects: &mut Effects) -> Vec<ObjectId> {
        let found = self.known.remove_if(id, |object| {
            object.uses = object.uses.checked_sub(uses).expect("OBJECTS-1: uses never wrap");
            object.uses == 0 && !object.is_owed()
        });
        let Some(object) = found else { return Vec::new() };
        self.sites.forget(id);
        if !self.watched.is_empty() && self.watched.remove(&id) {
            effects.ended.push(id);
        }
        // Of one that never left this process the daemon says nothing. One that came back to it is others' too.
        if !object.promised && !object.elsewhere && self.leave_device(id) {
            effects.ended.push(id);
        }
        effects.unhold.extend((0..object.holds).map(|_| id));
        if object.has_task_spec {
            effects.forgotten.push((id, object.promised));
        }
        if object.is_unseen_error() {
            effects.unseen.extend(object.value.clone());
        }
        let Some(value) = object.value else { return Vec::new() };
        let inner = inner_ids(&value);
        if self.keeps && object.promised {
            self.kept.insert(id, value);
        }
        inner
    }

    /// A promised object was published: what was kept only for that is forgotten.
    pub(crate) fn published(&mut self, id: ObjectId, effects: &mut Effects) {
        for inner in self.give_up(id, 0, effects) {
            self.release(inner, effects);
        }
    }

    /// The value of an object arrived, with `holds` that the daemon counts for this process on the object
    /// and `inner_holds` on each that it contains. Values nobody uses any more only give holds back.
    pub(crate) fn resolve(&mut self, id: ObjectId, value: Value, holds: u32, inner_holds: u32, effects: &mut Effects) {
        self.use_all(&value.contained, inner_holds);
        let contained = inner_ids(&value);
        match self.known.get_mut(&id) {
            Some(object) if object.value.is_none() => {
                self.values_came += 1;
                self.errors_came += u64::from(is_error(&value));
                object.value = Some(value);
                object.holds += holds;
                effects.resolved.extend(std::mem::take(&mut object.dependents).into_iter().map(|task| (task, id)));
                if object.promised {
                    effects.publish.push(id);
                }
                if object.announced {
                    effects.announce.push(id);
                }
            }
            Some(_) | None => {
                effects.unhold.extend((0..holds).map(|_| id));
                for inner in contained {
                    self.release(inner, effects);
                }
            }
        }
    }

    fn use_all(&mut self, contained: &[Reference], holds: u32) {
        for reference in contained {
            let object = self.insert(reference.object, reference.owner.unwrap_or_default(), None);
            object.uses += 1;
            object.holds += holds;
        }
    }

    /// The daemon is about to count one more hold of this process on each of `ids` still used here:
    /// those are returned.
    pub(crate) fn keep(&mut self, ids: &[ObjectId]) -> Vec<ObjectId> {
        let mut kept = Vec::new();
        for id in ids {
            if let Some(object) = self.known.get_mut(id) {
                object.holds += 1;
                kept.push(*id);
            }
        }
        kept
    }

    /// The value, where it is there.
    pub(crate) fn value(&self, id: ObjectId) -> Option<&Value> {
        self.known.get(&id)?.value.as_ref()
    }

    /// The value, where it is there; the user looks at it.
    pub(crate) fn look_at(&mut self, id: ObjectId) -> Option<&Value> {
        let object = self.known.get_mut(&id)?;
        object.looked_at = true;
        object.value.as_ref()
    }

    /// Whether the object has stored bytes that nobody here has asked for; from here on somebody has.
    pub(crate) fn take_fetch(&mut self, id: ObjectId) -> bool {
        let is_stored = |value: &Value| matches!(value.content, Some(Content::Stored(_)));
        self.known
            .get_mut(&id)
            .filter(|object| object.value.as_ref().is_some_and(is_stored))
            .is_some_and(|object| !std::mem::replace(&mut object.is_fetched, true))
    }

    /// Whether nobody but the one who asks uses the object, here or elsewhere.
    pub(crate) fn is_last_use(&self, id: ObjectId) -> bool {
        self.known.get(&id).is_none_or(|object| object.uses <= 1 && !object.promised)
    }

    /// Whether the object is known here at all.
    pub(crate) fn contains(&self, id: ObjectId) -> bool {
        self.known.contains_key(&id)
    }

    /// How many values have come so far: as long as this stays, nothing that had none has one.
    pub(crate) fn values_came(&self) -> u64 {
        self.values_came
    }

    /// How many values became errors so far: as long as this stays, nothing has failed that had not.
    pub(crate) fn errors_came(&self) -> u64 {
        self.errors_came
    }

    /// Whether its value is there.
    pub(crate) fn is_ready(&self, id: ObjectId) -> bool {
        self.known.get(&id).is_some_and(|object| object.value.is_some())
    }

    /// `task` waits for the object; `false` where its value is there already.
    pub(crate) fn depend(&mut self, id: ObjectId, task: TaskId) -> bool {
        match self.known.get_mut(&id) {
            Some(object) if object.value.is_none() => {
                object.dependents.push(task);
                true
            }
            _ => false,
        }
    }

    /// Asks for [`Effects::announce`] when the value is there; `false` where it is already.
    pub(crate) fn announce(&mut self, id: ObjectId) -> bool {
        match self.known.get_mut(&id) {
            Some(object) if object.value.is_none() => {
                object.announced = true;
                object.looked_at = true;
                true
            }
            _ => false,
        }
    }

    /// Asks for [`Effects::ended`] when nothing here refers to the object any more; `false` where this process does not own it.
    pub(crate) fn watch(&mut self, id: ObjectId) -> bool {
        let is_own = self.is_own(id);
        if is_own {
            self.watched.insert(id);
        }
        is_own
    }

    /// Keeps something on a device until nobody anywhere refers to a stored object any more, which is told; `false` where this
    /// process does not own that.
    pub(crate) fn keep_on_device(&mut self, id: ObjectId, what: OnDevice) -> bool {
        let is_own = self.is_own(id);
        if is_own {
            self.on_devices.insert(id, what);
        }
        is_own
    }

    /// What is kept on devices, by the objects that it is kept for.
    pub(crate) fn on_devices(&self) -> impl Iterator<Item = (ObjectId, &OnDevice)> {
        self.on_devices.iter().map(|(id, what)| (*id, what))
    }

    /// Nobody anywhere refers to the object any more; whether something was kept on a device for it.
    pub(crate) fn leave_device(&mut self, id: ObjectId) -> bool {
        !self.on_devices.is_empty() && self.on_devices.remove(&id).is_some()
    }

    /// The process that owns the object.
    pub(crate) fn owner(&self, id: ObjectId) -> WorkerId {
        self.known.get(&id).map_or(self.me, |object| object.owner)
    }

    /// The object as it travels.
    pub(crate) fn reference(&self, id: ObjectId) -> Reference {
        let owner = self.owner(id);
        Reference { object: id, owner: Some(owner).filter(|owner| !owner.is_nil()) }
    }

    /// References to these leave the process: which of them the daemon has to be told of, and which of
    /// those have their value already.
    pub(crate) fn promise(&mut self, ids: &[ObjectId]) -> (Vec<ObjectId>, Vec<ObjectId>) {
        let mut promised = Vec::new();
        let mut ready = Vec::new();
        for id in ids {
            let Some(object) = self.known.get_mut(id) else { continue };
            if object.elsewhere || object.promised {
                continue;
            }
            object.promised = true;
            object.holds += 1;
            promised.push(*id);
            if object.value.is_some() {
                ready.push(*id);
            }
        }
        (promised, ready)
    }

    /// The object's value is wanted: whether the daemon has to be asked for it, now and only once.
    pub(crate) fn want(&mut self, id: ObjectId) -> Option<Reference> {
        let object = self.known.get_mut(&id)?;
        if !object.elsewhere || object.value.is_some() || object.subscribed {
            return None;
        }
        object.subscribed = true;
        Some(self.reference(id))
    }

    /// Every object still without a value fails: nobody is left to make it.
    pub(crate) fn fail_all(&mut self, failure: &Failure, effects: &mut Effects) {
        let waiting: Vec<ObjectId> =
            self.known.iter().filter(|(_, object)| object.value.is_none()).map(|(id, _)| *id).collect();
        for id in waiting {
            self.resolve(id, failed(failure.clone()), 0, 0, effects);
        }
    }
}

/// The value of an object that could not be made.
pub(crate) fn failed(failure: Failure) -> Value {
    Value { content: Some(Content::Failed(failure)), contained: Vec::new() }
}

/// Whether the value is an error.
pub(crate) fn is_error(value: &Value) -> bool {
    matches!(value.content, Some(Content::Raised(_) | Content::Failed(_)))
}

pub(crate) fn copy(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

mod loss;
mod retold;
mod sites;

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, Unique};

    fn ids() -> (WorkerId, WorkerId, Vec<ObjectId>) {
        let task = TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut Unique::new());
        (WorkerId::generate(), WorkerId::generate(), (1..4).map(|index| task.object(index)).collect())
    }

    fn inline(contained: &[(ObjectId, WorkerId)]) -> Value {
        let contained = contained.iter().map(|(id, owner)| Reference { object: *id, owner: Some(*owner) }).collect();
        Value { content: Some(Content::Inline(Bytes::from_static(b"v"))), contained }
    }

    #[test]
    fn a_container_keeps_what_it_contains() {
        let (me, other, ids) = ids();
        let mut objects = Objects::new(me, false);
        let mut effects = Effects::default();
        objects.expect(ids[0]);
        objects.resolve(ids[0], inline(&[(ids[1], other)]), 0, 1, &mut effects);
        assert!(objects.contains(ids[1]), "the container's arrival made the inner object known");
        objects.release(ids[0], &mut effects);
        assert_eq!((objects.len(), effects.unhold), (0, vec![ids[1]]));
    }

    #[test]
    fn the_end_of_a_watched_object_is_told_once_and_only_of_own_ones() {
        let (me, other, ids) = ids();
        let mut objects = Objects::new(me, false);
        let mut effects = Effects::default();
        objects.expect(ids[0]);
        objects.retain(ids[0]);
        objects.borrow(ids[1], other);
        assert_eq!((objects.watch(ids[0]), objects.watch(ids[1]), objects.watch(ids[2])), (true, false, false));
        objects.release(ids[0], &mut effects);
        assert!(effects.is_empty(), "one reference is left");
        objects.release(ids[0], &mut effects);
        objects.release(ids[1], &mut effects);
        assert_eq!(effects.ended, vec![ids[0]]);
        objects.expect(ids[0]);
        objects.release(ids[0], &mut effects);
        assert_eq!(effects.ended, vec![ids[0]], "it was told already");
    }

    #[test]
    fn what_is_kept_on_a_device_is_left_here_only_where_its_object_never_left() {
        let (me, other, ids) = ids();
        let mut objects = Objects::new(me, false);
        let mut effects = Effects::default();
        for id in &ids[..2] {
            objects.put(*id, inline(&[]), 1);
        }
        objects.borrow(ids[2], other);
        let mut keep = |id: &ObjectId| objects.keep_on_device(*id, OnDevice { device: "cuda:0".into(), size: 8 });
        assert_eq!([keep(&ids[0]), keep(&ids[1]), keep(&ids[2])], [true, true, false]);
        assert_eq!(objects.on_devices().count(), 2);
        objects.promise(&ids[1..2]);
        objects.release(ids[0], &mut effects);
        objects.release(ids[1], &mut effects);
        objects.published(ids[1], &mut effects);
        objects.borrow(ids[1], me);
        objects.release(ids[1], &mut effects);
        assert_eq!(
            effects.ended,
            vec![ids[0]],
            "others may refer to what was promised, though it came back and went again"
        );
        assert!(objects.leave_device(ids[1]) && !objects.leave_device(ids[1]));
    }

    #[test]
    fn a_value_nobody_waits_for_gives_its_holds_back() {
        let (me, other, ids) = ids();
        let mut objects = Objects::new(me, false);
        let mut effects = Effects::default();
        objects.resolve(ids[0], inline(&[(ids[1], other)]), 1, 1, &mut effects);
        assert_eq!((objects.len(), effects.unhold), (0, vec![ids[0], ids[1]]));
    }

    #[test]
    fn a_promise_is_made_once_and_published_when_ready() {
        let (me, other, ids) = ids();
        let mut objects = Objects::new(me, false);
        let mut effects = Effects::default();
        objects.expect(ids[0]);
        objects.put(ids[1], inline(&[]), 0);
        objects.borrow(ids[2], other);
        assert_eq!(objects.promise(&ids), (vec![ids[0], ids[1]], vec![ids[1]]));
        assert_eq!(objects.promise(&ids), (vec![], vec![]));
        objects.resolve(ids[0], inline(&[]), 0, 0, &mut effects);
        assert_eq!(effects.publish, [ids[0]]);
    }

    #[test]
    fn a_promise_is_kept_though_nobody_here_uses_the_object_any_more() {
        let (me, _, ids) = ids();
        let mut objects = Objects::new(me, false);
        let mut effects = Effects::default();
        objects.expect(ids[0]);
        objects.promise(&ids[..1]);
        objects.release(ids[0], &mut effects);
        objects.resolve(ids[0], inline(&[]), 0, 0, &mut effects);
        assert_eq!((effects.publish.as_slice(), effects.unhold.as_slice()), (&ids[..1], &[][..]));
        objects.published(ids[0], &mut effects);
        assert_eq!((objects.len(), effects.unhold), (0, vec![ids[0]]));
    }

    #[test]
    fn a_reference_that_comes_back_after_its_owner_dropped_it_is_asked_for() {
        let (me, _, ids) = ids();
        let mut objects = Objects::new(me, false);
        objects.put(ids[0], inline(&[]), 0);
        objects.promise(&ids[..1]);
        objects.release(ids[0], &mut Effects::default());
        objects.borrow(ids[0], me);
        assert!(objects.want(ids[0]).is_some());
        assert_eq!(objects.promise(&ids[..1]), (vec![], vec![]), "the daemon knows it");
    }

    #[test]
    fn a_borrowed_value_is_asked_for_once() {
        let (me, other, ids) = ids();
        let mut objects = Objects::new(me, false);
        objects.borrow(ids[0], other);
        assert!(objects.want(ids[0]).is_some_and(|reference| reference.owner == Some(other)));
        assert_eq!(objects.want(ids[0]), None);
    }
}
