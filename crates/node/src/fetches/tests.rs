use super::*;
use proptest::prelude::*;

fn object(number: u8) -> ObjectId {
    ObjectId::new([number; 28])
}

fn node(number: usize) -> NodeId {
    NodeId::new([number as u8 + 1; 28])
}

/// What an object's bytes are, by the stamp of their writing and by place.
fn bytes_of(stamp: u64, offset: u64, count: u64) -> Bytes {
    let (mut bytes, end) = (Vec::new(), offset + count);
    while offset + (bytes.len() as u64) < end {
        let piece = (offset + bytes.len() as u64) / PIECE_BYTES;
        let until = end.min((piece + 1) * PIECE_BYTES);
        bytes.resize((until - offset) as usize, piece as u8 ^ stamp as u8);
    }
    bytes.into()
}

#[derive(Debug, Default)]
struct Stored {
    bytes: Vec<u8>,
    stamp: u64,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    number: u64,
    object: ObjectId,
    offset: u64,
    length: u64,
}

/// A node that reads, others that have copies, and a directory that knows which; streams break.
#[derive(Debug, Default)]
struct World {
    fetches: Fetches,
    /// What is written: how much of which stamp.
    rooms: BTreeMap<ObjectId, Vec<u8>>,
    store: BTreeMap<ObjectId, Stored>,
    /// Per node and object, stamp and size.
    copies: BTreeMap<(usize, ObjectId), (u64, u64)>,
    dead: BTreeSet<usize>,
    links: BTreeMap<Key, usize>,
    last_key: Key,
    /// Answers on their way: of the directory, of each stream, of the store.
    located: VecDeque<(ObjectId, Option<NodeId>)>,
    connecting: VecDeque<NodeId>,
    asked: BTreeMap<Key, VecDeque<Asked>>,
    rooms_asked: VecDeque<(u64, ObjectId, u64)>,
    /// Of each question, how it was answered.
    answers: BTreeMap<u64, bool>,
    last_question: u64,
}

impl World {
    fn want(&mut self, object: ObjectId) {
        self.last_question += 1;
        self.fetches.want(object, 7, self.last_question);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for step in self.fetches.steps() {
            match step {
                Step::Locate { object, without } => {
                    if let Some(lost) = without.and_then(Self::number_of) {
                        self.copies.remove(&(lost, object));
                    }
                    let found = self.copies.keys().find(|(at, of)| *of == object && !self.dead.contains(at));
                    self.located.push_back((object, found.map(|(at, _)| node(*at))));
                }
                Step::Connect { node } => self.connecting.push_back(node),
                Step::Ask { link, number, object, offset, length } => {
                    let under_way = self.asked.entry(link).or_default();
                    under_way.push_back(Asked { number, object, offset, length });
                    let of_it = under_way.iter().filter(|asked| asked.number == number).count();
                    assert!(of_it as u64 <= PIECES_AHEAD, "FETCH-2");
                }
                Step::Done { .. } => {}
                Step::Allocate { request, object, size } => {
                    assert!(!self.rooms.contains_key(&object), "room is asked for once");
                    self.rooms_asked.push_back((request, object, size));
                }
                Step::Write { object, offset, bytes } => {
                    let room = self.rooms.get_mut(&object).expect("there is room");
                    assert_eq!(room.len() as u64, offset);
                    room.extend_from_slice(&bytes);
                }
                Step::Seal { object, stamp } => {
                    let bytes = self.rooms.remove(&object).expect("there was room");
                    self.store.insert(object, Stored { bytes, stamp: stamp.0 });
                }
                Step::GiveUp { object } => {
                    self.rooms.remove(&object);
                    self.rooms_asked.retain(|(_, of, _)| *of != object);
                }
                Step::Read { request, object, .. } => {
                    let stored = &self.store[&object];
                    let size = stored.bytes.len() as u64;
                    assert_eq!(stored.bytes, bytes_of(stored.stamp, 0, size), "FETCH-4");
                    assert!(self.answers.insert(request, true).is_none(), "FETCH-1");
                }
                Step::Refuse { request, .. } => {
                    assert!(self.answers.insert(request, false).is_none(), "FETCH-1");
                }
            }
        }
        assert!(self.fetches.active <= FETCHES_MAX, "FETCH-2");
    }

    fn number_of(wanted: NodeId) -> Option<usize> {
        (0..3).find(|number| node(*number) == wanted)
    }

    /// One thing that is under way arrives; `false` where there is none of that kind.
    fn arrive(&mut self, kind: usize) -> bool {
        match kind {
            0 => {
                let Some((object, node)) = self.located.pop_front() else { return false };
                self.fetches.located(object, node, None);
            }
            1 => {
                let Some(to) = self.connecting.pop_front() else { return false };
                let number = Self::number_of(to).expect("a node");
                self.last_key += 1;
                let link = self.last_key;
                let is_dead = self.dead.contains(&number);
                if !is_dead {
                    self.links.insert(link, number);
                    if number > 0 {
                        self.fetches.has_direct_transfer(link);
                    }
                }
                self.fetches.linked(to, (!is_dead).then_some(link));
            }
            2 => {
                let Some((request, object, _)) = self.rooms_asked.pop_front() else { return false };
                self.rooms.insert(object, Vec::new());
                assert_eq!(self.fetches.room(request), Some(object));
            }
            _ => {
                let Some((link, piece)) =
                    self.asked.iter_mut().find_map(|(link, asked)| Some((*link, asked.pop_front()?)))
                else {
                    return false;
                };
                self.give(link, piece);
            }
        }
        self.carry_out();
        true
    }

    fn give(&mut self, link: Key, asked: Asked) {
        let Asked { number, object, offset, length } = asked;
        let Some(at) = self.links.get(&link) else { return };
        match self.copies.get(&(*at, object)) {
            Some((stamp, size)) => {
                let bytes = bytes_of(*stamp, offset, length.min(size - offset.min(*size)));
                let is_held = self.fetches.incoming.get(&object).is_some_and(|incoming| incoming.number == number);
                let room = self.rooms.get_mut(&object).filter(|room| is_held && room.len() as u64 == offset);
                let content = match room.filter(|_| *at > 0) {
                    Some(room) => {
                        room.extend_from_slice(&bytes);
                        Content::Written(bytes.len() as u64)
                    }
                    None => Content::Bytes(bytes),
                };
                self.fetches.piece(link, Piece { object, number, offset, size: *size, stamp: Stamp(*stamp), content });
            }
            None => self.fetches.missing(link, object, number, None),
        }
    }

    fn break_link(&mut self, which: usize) {
        if let Some(link) = self.links.keys().nth(which).copied() {
            self.links.remove(&link);
            self.asked.remove(&link);
            self.fetches.link_over(link);
            self.carry_out();
        }
    }

    fn die(&mut self, number: usize) {
        self.dead.insert(number);
        let links: Vec<usize> =
            self.links.values().enumerate().filter(|(_, at)| **at == number).map(|(place, _)| place).collect();
        for place in links.into_iter().rev() {
            self.break_link(place);
        }
    }

    fn arrive_all(&mut self) {
        while (0..4).any(|kind| self.arrive(kind)) {}
    }
}

#[derive(Debug, Clone)]
enum Event {
    Write(usize, u8, u64, u64),
    Lose(usize, u8),
    Want(u8),
    Arrive(usize),
    Break(usize),
    Delete(u8),
    Die(usize),
    Here(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => (0..3_usize, 0..12_u8, 1..3_u64, 0..7_u64)
            .prop_map(|(at, object, stamp, pieces)| Event::Write(at, object, stamp, pieces)),
        3 => (0..3_usize, 0..12_u8).prop_map(|(at, object)| Event::Lose(at, object)),
        20 => (0..12_u8).prop_map(Event::Want),
        90 => (0..4_usize).prop_map(Event::Arrive),
        6 => (0..3_usize).prop_map(Event::Break),
        3 => (0..12_u8).prop_map(Event::Delete),
        1 => (0..3_usize).prop_map(Event::Die),
        2 => (0..12_u8).prop_map(Event::Here),
    ]
}

fn happen(world: &mut World, event: &Event) {
    match *event {
        Event::Write(at, of, stamp, pieces) => {
            let size = pieces * PIECE_BYTES + 3;
            world.copies.entry((at, object(of))).or_insert((stamp, size));
        }
        Event::Lose(at, of) => drop(world.copies.remove(&(at, object(of)))),
        Event::Want(of) if !world.store.contains_key(&object(of)) => world.want(object(of)),
        Event::Arrive(kind) => drop(world.arrive(kind)),
        Event::Break(which) => world.break_link(which),
        Event::Delete(of) => {
            world.store.remove(&object(of));
            world.fetches.deleted(object(of));
            world.carry_out();
        }
        Event::Die(number) => world.die(number),
        // One of this node's own workers wrote it meanwhile.
        Event::Here(of) => {
            let asked = world.rooms_asked.iter().position(|(_, asked, _)| *asked == object(of));
            if let Some((request, of, _)) = asked.and_then(|place| world.rooms_asked.remove(place)) {
                world.store.insert(of, Stored { bytes: bytes_of(9, 0, 5).to_vec(), stamp: 9 });
                world.fetches.is_here(request);
                world.carry_out();
            }
        }
        Event::Want(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_breaks_every_reader_is_answered_and_reads_one_writing(
        events in prop::collection::vec(event(), 1..150)
    ) {
        let mut world = World::default();
        for event in &events {
            happen(&mut world, event);
        }
        world.arrive_all();
        let unanswered = (1..=world.last_question).filter(|question| !world.answers.contains_key(question)).count();
        prop_assert_eq!(unanswered, 0, "FETCH-1: {:?}", world.fetches);
        prop_assert!(world.fetches.incoming.is_empty() && world.rooms.is_empty());
        prop_assert_eq!(world.fetches.active, 0);
    }
}

/// A world in which the first piece of an object of some pieces came.
fn begun(pieces: u64) -> World {
    let mut world = World::default();
    for at in 0..2 {
        world.copies.insert((at, object(1)), (5, pieces * PIECE_BYTES));
    }
    world.want(object(1));
    for kind in [0, 1, 3, 2, 3] {
        assert!(world.arrive(kind));
    }
    world
}

#[test]
fn what_came_is_kept_when_its_node_dies_and_the_rest_comes_from_another() {
    let mut world = begun(6);
    assert_eq!(world.fetches.incoming[&object(1)].arrived, 2 * PIECE_BYTES);
    world.die(0);
    world.copies.remove(&(0, object(1)));
    for kind in [0, 1] {
        assert!(world.arrive(kind));
    }
    let asked: Vec<u64> = world.asked.values().flatten().map(|asked| asked.offset / PIECE_BYTES).collect();
    assert_eq!(asked, [2], "the rest is one piece where it comes beside the messages");
    world.arrive_all();
    assert_eq!((world.answers[&1], world.store[&object(1)].bytes.len() as u64), (true, 6 * PIECE_BYTES));
}

#[test]
fn a_copy_of_another_writing_is_taken_whole() {
    let mut world = begun(6);
    world.copies.insert((1, object(1)), (6, 6 * PIECE_BYTES));
    world.die(0);
    world.copies.remove(&(0, object(1)));
    world.arrive_all();
    assert_eq!((world.answers[&1], world.store[&object(1)].stamp), (true, 6));
}

#[test]
fn a_node_whose_streams_all_break_is_given_up() {
    let mut world = World::default();
    world.copies.insert((0, object(1)), (5, PIECE_BYTES));
    world.want(object(1));
    for _ in 0..=BREAKS_MAX {
        assert!(world.arrive(0) && world.arrive(1), "it is located and there is a stream");
        world.break_link(0);
    }
    world.arrive_all();
    assert!(!world.answers[&1]);
}
