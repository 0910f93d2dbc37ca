//! What changed in the lists since a revision, for visitors that follow them.
//!
//! ```text
//! revision   1   2   3   4   5   6   7   8      each change of a row has the next one
//! row        a   b   c   a   d   b'  a   e      of each row only the last counts; b' says that b is gone
//! kept               c       d   b'  a   e
//! ```
//!
//! - CHANGES-1: who applies the answers to its questions, one after the other, has the lists as they are once an answer says
//!   that there is no more.
//! - CHANGES-2: of rows that are gone the last [`GONE_MAX`] are known. Who may have a row of which that is forgotten begins
//!   anew.
//! - CHANGES-3: an answer has at most as many rows as were allowed, whoever asks and however late.

use bytes::Bytes;
use oxiray_state::FOLLOWED;
use oxiray_wire::message::{StateChanges, StateCursor};
use oxiray_wire::state::{
    ActorRow, EnvironmentRow, GoneRow, GroupRow, JobRow, NodeRow, STATE_VERSION, StateKind, Tables, WorkerRow,
};
use prost::Message as _;
use std::collections::BTreeMap;

/// How many rows that are gone are known.
const GONE_MAX: usize = 10_000;

type Name = (StateKind, Bytes);

/// A row as it is, or that it is gone.
#[derive(Debug)]
struct Known {
    revision: u64,
    body: Option<Bytes>,
}

/// The rows that there are, each with the revision of its last change.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Tells these revisions from those of another head.
    origin: u64,
    last: u64,
    /// The last revision of a row that is gone and forgotten.
    forgotten: u64,
    known: BTreeMap<Name, Known>,
    by_revision: BTreeMap<u64, Name>,
    /// The revisions of rows that are gone.
    gone: std::collections::BTreeSet<u64>,
}

impl Changes {
    /// Nothing is known yet; `origin` is drawn at random.
    pub(crate) fn new(origin: u64) -> Self {
        Self {
            origin,
            last: 0,
            forgotten: 0,
            known: BTreeMap::new(),
            by_revision: BTreeMap::new(),
            gone: std::collections::BTreeSet::new(),
        }
    }

    /// These are all rows of a kind now, each by what names it and as it is encoded.
    pub(crate) fn set(&mut self, kind: StateKind, rows: impl IntoIterator<Item = (Bytes, Vec<u8>)>) {
        let now: BTreeMap<Bytes, Vec<u8>> = rows.into_iter().collect();
        let first = (kind, Bytes::new());
        let of_kind = self.known.range(first..).take_while(|((of, _), _)| *of == kind);
        let missing = of_kind.filter(|((_, key), known)| known.body.is_some() && !now.contains_key(key));
        let missing: Vec<Name> = missing.map(|(name, _)| name.clone()).collect();
        for name in missing {
            self.change(name, None);
        }
        for (key, body) in now {
            let name = (kind, key);
            let is_same = self.known.get(&name).is_some_and(|known| known.body.as_deref() == Some(&body));
            if !is_same {
                self.change(name, Some(body.into()));
            }
        }
        while self.gone.len() > GONE_MAX
            && let Some(oldest) = self.gone.pop_first()
        {
            self.forgotten = oldest;
            if let Some(name) = self.by_revision.remove(&oldest) {
                self.known.remove(&name);
            }
        }
    }

    fn change(&mut self, name: Name, body: Option<Bytes>) {
        self.last += 1;
        if body.is_none() {
            self.gone.insert(self.last);
        }
        self.by_revision.insert(self.last, name.clone());
        if let Some(before) = self.known.insert(name, Known { revision: self.last, body }) {
            self.by_revision.remove(&before.revision);
            self.gone.remove(&before.revision);
        }
    }

    /// What changed since the cursor in lists of these kinds, `most` rows of it; nothing where nothing did.
    pub(crate) fn since(&self, cursor: StateCursor, kinds: &[StateKind], most: usize) -> Option<StateChanges> {
        let is_fresh = cursor.origin != self.origin || cursor.revision.max(cursor.begun) < self.forgotten;
        let from = if is_fresh { StateCursor { origin: self.origin, begun: self.last, revision: 0 } } else { cursor };
        let mut changes = StateChanges { version: STATE_VERSION, is_fresh, ..StateChanges::default() };
        let (mut tables, mut count, mut revision) = (Tables::default(), 0, self.last);
        for (at, name) in self.by_revision.range(from.revision.saturating_add(1)..) {
            if !kinds.contains(&name.0) {
                continue;
            }
            if count == most {
                changes.has_more = true;
                break;
            }
            (count, revision) = (count + 1, *at);
            match self.known.get(name).and_then(|known| known.body.clone()) {
                Some(body) => push(&mut tables, name.0, body),
                None if is_fresh => {}
                None => changes.gone.push(GoneRow { kind: name.0, key: name.1.clone() }),
            }
        }
        if !is_fresh && count == 0 {
            return None;
        }
        let revision = if changes.has_more { revision } else { self.last };
        changes.cursor = Some(StateCursor { revision, ..from });
        changes.tables = Some(tables);
        Some(changes)
    }
}

/// Puts a row among those of its kind.
fn push(tables: &mut Tables, kind: StateKind, body: Bytes) {
    const OURS: &str = "it was encoded here";
    match kind {
        StateKind::Actors => tables.actors.push(ActorRow::decode(body).expect(OURS)),
        StateKind::Jobs => tables.jobs.push(JobRow::decode(body).expect(OURS)),
        StateKind::Nodes => tables.nodes.push(NodeRow::decode(body).expect(OURS)),
        StateKind::PlacementGroups => tables.placement_groups.push(GroupRow::decode(body).expect(OURS)),
        StateKind::RuntimeEnvs => tables.runtime_envs.push(EnvironmentRow::decode(body).expect(OURS)),
        StateKind::Workers => tables.workers.push(WorkerRow::decode(body).expect(OURS)),
        StateKind::Tasks | StateKind::Timeline | StateKind::Objects | StateKind::Explain | StateKind::Stacks => {
            unreachable!("only rows of {FOLLOWED:?} are set")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, NodeId};
    use oxiray_state::{Row, StateCopy};
    use proptest::prelude::*;

    /// Rows of two lists, by number: an actor's restarts, and a node's name.
    #[derive(Debug, Clone, Default)]
    struct World {
        actors: BTreeMap<u8, u64>,
        nodes: BTreeMap<u8, String>,
    }

    impl World {
        fn actors(&self) -> Vec<ActorRow> {
            let row = |(number, restarts): (&u8, &u64)| ActorRow {
                actor_id: ActorId::new([*number; 16]),
                restarts: *restarts,
                ..ActorRow::default()
            };
            self.actors.iter().map(row).collect()
        }

        fn nodes(&self) -> Vec<NodeRow> {
            let row = |(number, name): (&u8, &String)| NodeRow {
                node_id: NodeId::new([*number; 28]),
                name: name.clone(),
                ..NodeRow::default()
            };
            self.nodes.iter().map(row).collect()
        }

        fn tell(&self, changes: &mut Changes) {
            changes.set(StateKind::Actors, self.actors().iter().map(|row| (row.key(), row.encode_to_vec())));
            changes.set(StateKind::Nodes, self.nodes().iter().map(|row| (row.key(), row.encode_to_vec())));
        }
    }

    const KINDS: [StateKind; 2] = [StateKind::Actors, StateKind::Nodes];

    /// Asks until there is no more.
    fn catch_up(copy: &mut StateCopy, changes: &Changes, most: usize) {
        while let Some(told) = changes.since(copy.cursor(), &KINDS, most) {
            let rows = told.tables.as_ref().map_or(0, |tables| tables.actors.len() + tables.nodes.len());
            assert!(rows + told.gone.len() <= most, "CHANGES-3");
            copy.apply(told);
        }
    }

    fn assert_same(copy: &StateCopy, world: &World) {
        assert!(copy.actors.values().eq(&world.actors()), "CHANGES-1: {copy:?} {world:?}");
        assert!(copy.nodes.values().eq(&world.nodes()), "CHANGES-1: {copy:?} {world:?}");
    }

    #[test]
    fn only_what_changed_is_told_and_nothing_where_nothing_did() {
        let mut changes = Changes::new(7);
        let mut world = World::default();
        world.actors.extend([(1, 0), (2, 0)]);
        world.tell(&mut changes);
        let mut copy = StateCopy::default();
        catch_up(&mut copy, &changes, 10);
        world.actors.insert(1, 5);
        world.actors.remove(&2);
        world.tell(&mut changes);
        let told = changes.since(copy.cursor(), &KINDS, 10).expect("changes");
        assert_eq!((told.tables.as_ref().map(|tables| tables.actors.len()), told.gone.len()), (Some(1), 1));
        assert!(copy.apply(told) && changes.since(copy.cursor(), &KINDS, 10).is_none());
        assert_same(&copy, &world);
        world.tell(&mut changes);
        assert!(changes.since(copy.cursor(), &KINDS, 10).is_none(), "the same rows are no change");
        assert!(changes.since(copy.cursor(), &[StateKind::Jobs], 10).is_none());
    }

    #[test]
    fn a_follower_of_another_head_or_one_that_was_away_too_long_begins_anew() {
        let mut changes = Changes::new(7);
        let mut world = World::default();
        world.actors.insert(1, 0);
        world.tell(&mut changes);
        let mut copy = StateCopy::default();
        catch_up(&mut copy, &changes, 10);
        let other = Changes::new(8);
        let told = other.since(copy.cursor(), &KINDS, 10).expect("an answer");
        assert!(told.is_fresh && !told.has_more);
        for round in 0..=GONE_MAX {
            changes.set(
                StateKind::Nodes,
                [(Bytes::from(round.to_le_bytes().to_vec()), NodeRow::default().encode_to_vec())],
            );
        }
        assert!(!changes.since(copy.cursor(), &KINDS, 10).expect("changes").is_fresh, "all who are gone are known");
        changes.set(StateKind::Nodes, []);
        world.nodes.clear();
        assert!(changes.since(copy.cursor(), &KINDS, 10).expect("changes").is_fresh, "CHANGES-2");
        catch_up(&mut copy, &changes, 3);
        assert_same(&copy, &world);
    }

    #[test]
    fn a_new_follower_comes_to_an_end_where_much_was_forgotten_before() {
        let mut changes = Changes::new(7);
        let mut world = World::default();
        world.actors.extend((0..20).map(|number| (number, 0)));
        world.tell(&mut changes);
        for round in 0..GONE_MAX + 100 {
            changes.set(
                StateKind::Nodes,
                [(Bytes::from(round.to_le_bytes().to_vec()), NodeRow::default().encode_to_vec())],
            );
        }
        world.tell(&mut changes);
        let mut copy = StateCopy::default();
        catch_up(&mut copy, &changes, 3);
        assert_same(&copy, &world);
    }

    proptest! {
        #[test]
        fn who_follows_has_what_there_is(
            steps in proptest::collection::vec((0_u8..6, 0_u8..12, 0_u64..3, 1_usize..5), 1..200),
        ) {
            let mut changes = Changes::new(1);
            let mut world = World::default();
            let (mut copy, mut slow) = (StateCopy::default(), StateCopy::default());
            for (what, number, value, most) in steps {
                match what {
                    0 | 1 => drop(world.actors.insert(number, value)),
                    2 => drop(world.actors.remove(&number)),
                    3 => drop(world.nodes.insert(number, value.to_string())),
                    4 => drop(world.nodes.remove(&number)),
                    _ => {
                        if let Some(told) = changes.since(slow.cursor(), &KINDS, most) {
                            slow.apply(told);
                        }
                    }
                }
                world.tell(&mut changes);
                catch_up(&mut copy, &changes, most);
                assert_same(&copy, &world);
            }
            catch_up(&mut slow, &changes, 2);
            assert_same(&slow, &world);
        }
    }
}
