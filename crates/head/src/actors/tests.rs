use super::*;
use proptest::prelude::*;

fn client(number: u8) -> WorkerId {
    WorkerId::new([number; 28])
}

fn id(number: u8) -> ActorId {
    ActorId::new([number; 16])
}

fn describe(number: u8, creator: u8, name: &str, detached: bool) -> Description {
    Description {
        id: id(number),
        job: JobId::from_number(1),
        creator: client(creator),
        name: name.into(),
        namespace: "here".into(),
        class_name: "Counter".into(),
        detached,
    }
}

#[test]
fn a_name_is_taken_until_its_actor_dies() {
    let mut actors = Actors::<&str>::default();
    assert_eq!(actors.create(describe(1, 9, "a", false), false), Created::New);
    assert_eq!(actors.create(describe(2, 9, "a", false), false), Created::NameTaken(id(1)));
    assert_eq!(actors.create(describe(2, 9, "a", false), true), Created::Exists(id(1)));
    assert_eq!((actors.lookup("here", "a"), actors.lookup("there", "a")), (Some(id(1)), None));
    actors.died(id(1), "killed");
    assert_eq!(actors.lookup("here", "a"), None);
    assert_eq!(actors.create(describe(2, 9, "a", false), false), Created::New);
    assert_eq!(actors.create(describe(1, 9, "b", false), false), Created::Duplicate);
}

#[test]
fn whoever_asked_is_connected_and_told_of_the_death_once() {
    let mut actors = Actors::default();
    actors.create(describe(1, 9, "", false), false);
    assert_eq!(actors.connect(client(8), id(1)), Connect::Later);
    assert_eq!(actors.placed(id(1), client(5)), [client(8), client(9)]);
    assert_eq!(actors.connect(client(7), id(1)), Connect::Now(client(5)));
    actors.ready(id(1));
    assert_eq!(actors.get(id(1)).expect("known").state, ActorState::Alive(client(5)));
    assert_eq!(actors.died(id(1), "crash"), [client(7), client(8), client(9)]);
    assert!(actors.died(id(1), "again").is_empty());
    assert_eq!(actors.connect(client(6), id(1)), Connect::Dead("crash"));
    assert_eq!(actors.connect(client(6), id(2)), Connect::Unknown);
}

#[test]
fn actors_go_with_their_creator_unless_detached() {
    let mut actors = Actors::<&str>::default();
    actors.create(describe(1, 9, "", false), false);
    actors.create(describe(2, 9, "stays", true), false);
    actors.create(describe(3, 8, "", false), false);
    assert_eq!(actors.client_died(client(9)), [id(1)]);
    assert!(actors.died(id(1), "creator").is_empty(), "the creator is not told any more");
}

#[test]
fn only_so_many_dead_are_remembered() {
    let mut actors = Actors::default();
    for number in 0..=DEAD_ACTORS_KEPT as u32 {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        actors.create(Description { id: ActorId::new(bytes), ..describe(0, 9, "", false) }, false);
        actors.died(ActorId::new(bytes), "done");
    }
    assert_eq!(actors.connect(client(1), id(0)), Connect::Unknown);
    assert_eq!(actors.iter().count(), DEAD_ACTORS_KEPT);
    assert!(actors.asked_by.is_empty() && actors.living_of.is_empty(), "nothing else is kept of the dead");
}

proptest! {
    #[test]
    fn names_and_indexes_agree_with_the_living(steps in prop::collection::vec((0u8..5, 0u8..12, 0u8..4, 0u8..3), 0..200)) {
        let mut actors = Actors::default();
        for (step, actor, other, name) in steps {
            match step {
                0 => {
                    let name = ["", "a", "b"][name as usize];
                    actors.create(describe(actor, other, name, actor % 2 == 0), false);
                }
                1 => drop(actors.connect(client(other), id(actor))),
                2 if actors.get(id(actor)).is_some_and(|found| found.state == ActorState::Waiting) => {
                    actors.placed(id(actor), client(100));
                }
                3 => drop(actors.died(id(actor), "cause")),
                4 => {
                    for gone in actors.client_died(client(other)) {
                        actors.died(gone, "creator");
                    }
                }
                _ => {}
            }
            let named: BTreeMap<_, _> = actors
                .iter()
                .filter(|actor| !matches!(actor.state, ActorState::Dead(_)) && !actor.description.name.is_empty())
                .map(|actor| (("here".to_owned(), actor.description.name.clone()), actor.description.id))
                .collect();
            prop_assert_eq!(&named, &actors.names);
            let interested: usize = actors.iter().map(|actor| actor.interested.len()).sum();
            prop_assert_eq!(interested, actors.asked_by.values().map(BTreeSet::len).sum::<usize>());
        }
    }
}
