use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

type Directory = Objects<&'static str>;

fn client(number: u8) -> WorkerId {
    WorkerId::new([number; 28])
}

fn object(number: u8) -> ObjectId {
    ObjectId::new([number; 28])
}

fn run(step: impl FnOnce(&mut Vec<Outcome<&'static str>>)) -> Vec<Outcome<&'static str>> {
    let mut out = Vec::new();
    step(&mut out);
    out
}

fn answer(to: u8, of: u8, value: &'static str) -> Outcome<&'static str> {
    Outcome::Answer { client: client(to), object: object(of), value }
}

#[test]
fn a_subscription_is_answered_when_the_value_comes_and_later_ones_at_once() {
    let mut objects = Directory::default();
    let wanted = Outcome::ValueWanted { owner: client(1), object: object(1) };
    assert_eq!(run(|out| objects.subscribe(client(2), object(1), client(1), true, out)), [wanted], "OBJECT-5");
    assert!(run(|out| objects.promise(client(1), &[object(1)], out)).is_empty());
    objects.hold(client(2), &[object(1)], &mut Vec::new());
    let out = run(|out| objects.publish(client(1), object(1), "v", &[], out));
    assert_eq!(out, [answer(2, 1, "v")]);
    assert_eq!(run(|out| objects.subscribe(client(3), object(1), client(1), false, out)), [answer(3, 1, "v")]);
}

#[test]
fn an_owner_is_asked_once_for_what_it_has_not_promised() {
    let mut objects = Directory::default();
    run(|out| objects.stored(client(1), object(1), out));
    run(|out| objects.hold(client(1), &[object(1)], out));
    let wanted = Outcome::ValueWanted { owner: client(1), object: object(1) };
    assert_eq!(run(|out| objects.subscribe(client(2), object(1), client(1), true, out)), [wanted], "OBJECT-5");
    assert!(run(|out| objects.subscribe(client(3), object(1), client(1), true, out)).is_empty());
    run(|out| objects.promise(client(1), &[object(1)], out));
    let out = run(|out| objects.publish(client(1), object(1), "v", &[], out));
    assert_eq!(out, [answer(2, 1, "v"), answer(3, 1, "v")]);
    let lost = Outcome::Lost { owner: client(1), object: object(2) };
    assert_eq!(run(|out| objects.lost(client(2), object(2), client(1), true, out)), [lost]);
    assert!(run(|out| objects.subscribe(client(2), object(2), client(1), true, out)).is_empty(), "it was told");
}

#[test]
fn an_owner_that_dies_first_is_the_answer() {
    let mut objects = Directory::default();
    objects.promise(client(1), &[object(1)], &mut Vec::new());
    objects.hold(client(2), &[object(1)], &mut Vec::new());
    objects.subscribe(client(2), object(1), client(1), true, &mut Vec::new());
    let died = Outcome::OwnerDied { client: client(2), object: object(1), owner: client(1) };
    assert_eq!(run(|out| objects.client_died(client(1), out)), std::slice::from_ref(&died));
    assert_eq!(run(|out| objects.subscribe(client(2), object(1), client(1), false, out)), [died]);
    objects.unhold(client(2), &[object(1)], &mut Vec::new());
    assert!(objects.is_empty() && objects.of_client.is_empty());
}

#[test]
fn of_a_loss_the_owner_is_told_once_and_its_next_value_is_for_all_who_wait() {
    let mut objects = Directory::default();
    run(|out| objects.stored(client(1), object(1), out));
    run(|out| objects.promise(client(1), &[object(1)], out));
    run(|out| objects.publish(client(1), object(1), "first", &[object(2)], out));
    run(|out| objects.hold(client(2), &[object(1)], out));
    run(|out| objects.hold(client(3), &[object(1)], out));
    let lost = Outcome::Lost { owner: client(1), object: object(1) };
    assert_eq!(run(|out| objects.lost(client(2), object(1), client(1), true, out)), [lost]);
    assert!(run(|out| objects.lost(client(3), object(1), client(1), true, out)).is_empty(), "OBJECT-4");
    assert!(!objects.entries.contains_key(&object(2)), "what the lost value contained is let go of");
    assert!(run(|out| objects.subscribe(client(2), object(1), client(1), true, out)).is_empty());
    assert!(run(|out| objects.subscribe(client(3), object(1), client(1), true, out)).is_empty());
    let out = run(|out| objects.publish(client(1), object(1), "second", &[], out));
    assert_eq!(out, [answer(2, 1, "second"), answer(3, 1, "second")]);
    assert!(run(|out| objects.lost(client(1), object(1), client(1), true, out)).is_empty(), "its owner knows");
    for number in 1..=3 {
        objects.unhold(client(number), &[object(1)], &mut Vec::new());
    }
    let out = run(|out| objects.unhold(client(1), &[object(1)], out));
    let forgotten = Outcome::Forgotten { owner: client(1), object: object(1) };
    assert_eq!(out, [Outcome::Delete(object(1)), forgotten]);
    assert!(objects.is_empty() && objects.of_client.is_empty());
}

#[test]
fn a_loss_that_its_owner_does_not_live_to_mend_ends_with_it() {
    let mut objects = Directory::default();
    run(|out| objects.stored(client(1), object(1), out));
    run(|out| objects.promise(client(1), &[object(1)], out));
    run(|out| objects.publish(client(1), object(1), "v", &[], out));
    run(|out| objects.hold(client(2), &[object(1)], out));
    run(|out| objects.client_died(client(1), out));
    assert!(run(|out| objects.lost(client(2), object(1), client(1), false, out)).is_empty());
    let died = Outcome::OwnerDied { client: client(2), object: object(1), owner: client(1) };
    assert_eq!(run(|out| objects.subscribe(client(2), object(1), client(1), false, out)), [died]);
}

#[test]
fn a_freed_object_says_so_to_everybody_and_ends_with_its_holders() {
    let mut objects = Directory::default();
    run(|out| objects.promise(client(1), &[object(1), object(3)], out));
    run(|out| objects.stored(client(1), object(1), out));
    run(|out| objects.publish(client(1), object(1), "v", &[object(2)], out));
    run(|out| objects.hold(client(2), &[object(1)], out));
    assert!(run(|out| objects.free(client(2), object(3), client(1), "freed", out)).is_empty(), "it has no value yet");
    let freed = Outcome::Freed { owner: client(1), object: object(1) };
    let out = run(|out| objects.free(client(2), object(1), client(1), "freed", out));
    assert_eq!(out, [Outcome::Delete(object(1)), freed]);
    assert!(objects.is_freed(object(1)) && !objects.entries.contains_key(&object(2)));
    assert_eq!(run(|out| objects.subscribe(client(3), object(1), client(1), true, out)), [answer(3, 1, "freed")]);
    assert!(run(|out| objects.lost(client(2), object(1), client(1), true, out)).is_empty(), "it is not made again");
    objects.unhold(client(1), &[object(1), object(1), object(3)], &mut Vec::new());
    objects.unhold(client(2), &[object(1)], &mut Vec::new());
    assert!(objects.is_empty() && objects.of_client.is_empty());
}

#[test]
fn a_value_outlives_its_owner_while_it_is_held() {
    let mut objects = Directory::default();
    run(|out| objects.stored(client(1), object(1), out));
    run(|out| objects.promise(client(1), &[object(1)], out));
    run(|out| objects.publish(client(1), object(1), "v", &[], out));
    run(|out| objects.hold(client(2), &[object(1)], out));
    assert!(run(|out| objects.client_died(client(1), out)).is_empty());
    assert_eq!(run(|out| objects.subscribe(client(2), object(1), client(1), false, out)), [answer(2, 1, "v")]);
    assert_eq!(run(|out| objects.unhold(client(2), &[object(1)], out)), [Outcome::Delete(object(1))]);
    assert!(objects.is_empty() && objects.of_client.is_empty());
}

#[test]
fn what_a_value_contains_lives_as_long_as_the_value() {
    let mut objects = Directory::default();
    run(|out| objects.stored(client(1), object(2), out));
    run(|out| objects.promise(client(1), &[object(1)], out));
    run(|out| objects.publish(client(1), object(1), "outer", &[object(2)], out));
    assert!(run(|out| objects.unhold(client(1), &[object(2)], out)).is_empty());
    assert_eq!(run(|out| objects.unhold(client(1), &[object(1)], out)), [Outcome::Delete(object(2))]);
    assert!(objects.is_empty() && objects.of_client.is_empty());
}

#[test]
fn a_value_that_nobody_waits_for_is_let_go_at_once() {
    let mut objects = Directory::default();
    run(|out| objects.promise(client(1), &[object(1)], out));
    run(|out| objects.unhold(client(1), &[object(1)], out));
    run(|out| objects.publish(client(1), object(1), "late", &[], out));
    assert!(objects.is_empty());
}

#[test]
fn the_store_is_asked_once_and_an_aborted_object_never_was() {
    let mut objects = Directory::default();
    run(|out| objects.stored(client(1), object(1), out));
    assert!(run(|out| objects.unstored(client(1), object(1), out)).is_empty());
    assert!(run(|out| objects.unstored(client(1), object(1), out)).is_empty());
    assert!(objects.is_empty() && objects.of_client.is_empty());
}

#[test]
fn the_end_of_a_hold_may_be_read_before_its_beginning() {
    let mut objects = Directory::default();
    run(|out| objects.unhold(client(2), &[object(1)], out));
    run(|out| objects.promise(client(1), &[object(1)], out));
    run(|out| objects.hold(client(2), &[object(1)], out));
    assert_eq!(objects.len(), 1);
    run(|out| objects.unhold(client(1), &[object(1)], out));
    assert!(objects.is_empty() && objects.of_client.is_empty());
}

#[test]
fn a_hold_whose_reply_was_lost_with_its_giver_is_taken_back() {
    let mut objects = Directory::default();
    let (owner, first, second) = (client(1), client(2), client(3));
    // The first worker stores the result, has it held for its owner, and dies before its reply arrives.
    run(|out| objects.stored(first, object(1), out));
    run(|out| objects.give(first, owner, &[object(1), object(2)], out));
    run(|out| objects.unhold(first, &[object(1)], out));
    run(|out| objects.client_died(first, out));
    // The second one's reply arrives, and the owner's word of it is read before the giver's.
    objects.confirm(owner, second, &[object(1)]);
    run(|out| objects.stored(second, object(1), out));
    run(|out| objects.give(second, owner, &[object(1)], out));
    run(|out| objects.unhold(second, &[object(1)], out));
    assert!(run(|out| objects.giver_is_over(owner, first, out)).is_empty(), "OBJECT-7");
    assert!(!objects.entries.contains_key(&object(2)), "OBJECT-7");
    run(|out| objects.giver_is_over(owner, second, out));
    let forgotten = run(|out| objects.unhold(owner, &[object(1)], out));
    assert_eq!(forgotten, [Outcome::Delete(object(1))], "OBJECT-7: it is held once");
    assert!(objects.is_empty() && objects.of_client.is_empty() && objects.given.is_empty());
}

#[test]
fn what_was_given_to_the_dead_is_forgotten_with_them() {
    let mut objects = Directory::default();
    run(|out| objects.give(client(2), client(1), &[object(1), object(1)], out));
    objects.confirm(client(1), client(2), &[object(1)]);
    assert_eq!(objects.len(), 1);
    run(|out| objects.client_died(client(1), out));
    assert!(objects.is_empty() && objects.of_client.is_empty() && objects.given.is_empty());
}

#[test]
fn the_last_holder_of_an_anchor_leaves_its_actor_unreachable() {
    let mut objects = Directory::default();
    let actor = ActorId::new([7; 16]);
    let anchor = actor.anchor();
    run(|out| objects.hold(client(1), &[anchor], out));
    run(|out| objects.hold(client(2), &[anchor], out));
    run(|out| objects.promise(client(1), &[object(1)], out));
    run(|out| objects.publish(client(1), object(1), "a value with a handle", &[anchor], out));
    assert!(run(|out| objects.unhold(client(1), &[anchor], out)).is_empty());
    assert!(run(|out| objects.client_died(client(2), out)).is_empty(), "the value still has a handle");
    assert_eq!(run(|out| objects.client_died(client(1), out)), [Outcome::Unreachable(actor)]);
    assert!(objects.is_empty() && objects.of_client.is_empty());
}

#[derive(Debug, Clone)]
enum Say {
    Promise(ObjectId),
    Publish(ObjectId, Vec<ObjectId>),
    Hold(ObjectId, u8),
    Unhold(ObjectId),
}

/// Processes that pass references around by the rules, each with its own stream to the directory;
/// the streams are read in any order.
struct World {
    objects: Directory,
    streams: [VecDeque<Say>; 4],
    /// References that each process has.
    references: [BTreeMap<ObjectId, u32>; 4],
    unpublished: Vec<(u8, ObjectId)>,
    published: BTreeSet<ObjectId>,
    contained: BTreeMap<ObjectId, ObjectId>,
}

impl World {
    fn new() -> Self {
        Self {
            objects: Directory::default(),
            streams: Default::default(),
            references: Default::default(),
            unpublished: Vec::new(),
            published: BTreeSet::new(),
            contained: BTreeMap::new(),
        }
    }

    fn act(&mut self, (kind, who, other, pick): (u8, u8, u8, u8), serial: u8) {
        let mine = &mut self.references[who as usize];
        let chosen = mine.keys().nth(pick as usize % mine.len().max(1)).copied();
        match (kind, chosen) {
            (0, _) => {
                let made = object(serial);
                mine.insert(made, 1);
                self.unpublished.push((who, made));
                self.streams[who as usize].push_back(Say::Promise(made));
            }
            (1, _) if !self.unpublished.is_empty() => {
                let (owner, made) = self.unpublished.remove(pick as usize % self.unpublished.len());
                let inner = self.references[owner as usize].keys().next().copied().filter(|inner| *inner < made);
                self.published.insert(made);
                self.contained.extend(inner.map(|inner| (made, inner)));
                self.streams[owner as usize].push_back(Say::Publish(made, inner.into_iter().collect()));
            }
            (2, Some(passed)) => {
                self.streams[who as usize].push_back(Say::Hold(passed, other));
                *self.references[other as usize].entry(passed).or_insert(0) += 1;
            }
            (3, Some(dropped)) => self.drop_one(who, dropped),
            _ => self.deliver(other),
        }
    }

    fn drop_one(&mut self, who: u8, dropped: ObjectId) {
        let mine = &mut self.references[who as usize];
        let count = mine.get_mut(&dropped).expect("it has one");
        *count -= 1;
        if *count == 0 {
            mine.remove(&dropped);
        }
        self.streams[who as usize].push_back(Say::Unhold(dropped));
    }

    fn deliver(&mut self, who: u8) {
        let Some(said) = self.streams[who as usize].pop_front() else { return };
        let (objects, out) = (&mut self.objects, &mut Vec::new());
        match said {
            Say::Promise(object) => objects.promise(client(who), &[object], out),
            Say::Publish(object, contained) => objects.publish(client(who), object, "v", &contained, out),
            Say::Hold(object, holder) => objects.hold(client(holder), &[object], out),
            Say::Unhold(object) => objects.unhold(client(who), &[object], out),
        }
    }

    fn deliver_all(&mut self, first: u8) {
        while !self.streams.iter().all(VecDeque::is_empty) {
            for step in 0..4 {
                self.deliver((first + step) % 4);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_order_of_messages_loses_or_leaks(
        steps in prop::collection::vec((0u8..6, 0u8..4, 0u8..4, any::<u8>()), 0..200),
        first in 0u8..4,
    ) {
        let mut world = World::new();
        for (serial, step) in steps.into_iter().enumerate() {
            world.act(step, serial as u8);
        }
        world.deliver_all(first);
        let referenced: BTreeSet<ObjectId> = world.references.iter().flat_map(|mine| mine.keys().copied()).collect();
        for held in &referenced {
            prop_assert!(world.objects.entries.contains_key(held), "lost");
            prop_assert_eq!(world.objects.entries[held].value.is_some(), world.published.contains(held));
        }
        let mut alive = referenced.clone();
        for held in referenced {
            let mut next = Some(held);
            while let Some(outer) = next {
                alive.insert(outer);
                next = world.contained.get(&outer).copied();
            }
        }
        let known: BTreeSet<ObjectId> = world.objects.entries.keys().copied().collect();
        prop_assert_eq!(known, alive, "kept exactly what can be reached");
        for who in 0..4 {
            for (object, count) in world.references[who as usize].clone() {
                (0..count).for_each(|_| world.drop_one(who, object));
            }
        }
        world.deliver_all(first);
        prop_assert!(world.objects.is_empty() && world.objects.of_client.is_empty(), "leaked");
    }

    #[test]
    fn the_dead_leave_nothing(
        steps in prop::collection::vec((0u8..6, 0u8..4, 0u8..4, any::<u8>()), 0..200),
        order in Just([0u8, 1, 2, 3]).prop_shuffle(),
    ) {
        let mut world = World::new();
        for (serial, step) in steps.into_iter().enumerate() {
            world.act(step, serial as u8);
        }
        world.deliver_all(0);
        for who in order {
            world.objects.client_died(client(who), &mut Vec::new());
        }
        prop_assert!(world.objects.is_empty() && world.objects.of_client.is_empty());
    }
}
