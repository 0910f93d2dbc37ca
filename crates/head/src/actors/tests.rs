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
        max_restarts: 0,
        preemptible: false,
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

fn restartable(number: u8, max_restarts: i32) -> Description {
    Description { max_restarts, ..describe(number, 9, "r", false) }
}

#[test]
fn an_actor_is_made_anew_as_often_as_it_may_be() {
    let mut actors = Actors::<&str>::default();
    actors.create(restartable(1, 2), false);
    assert_eq!(actors.lost(id(1), true), None, "there was no process to lose");
    for restarts in 1..=2 {
        let (connected, later) = (actors.placed(id(1), client(50 + restarts as u8)), actors.ready(id(1)));
        let is_first = restarts == 1;
        assert_eq!((connected.len(), later.len()), (usize::from(is_first), usize::from(!is_first)), "ACTOR-5");
        assert_eq!(actors.lost(id(1), true), Some(Lost { began_nothing: false, clients: vec![client(9)] }));
        assert_eq!(actors.get(id(1)).map(|actor| (actor.restarts, actor.worker())), Some((restarts, None)));
        assert_eq!(actors.lost(id(1), true), None, "a process is lost once");
        assert_eq!(actors.connect(client(8), id(1)), Connect::Later);
        actors.connect(client(8), id(1));
        actors.client_died(client(8));
    }
    actors.placed(id(1), client(60));
    assert_eq!(actors.lost(id(1), true), None, "no restarts are left");
    assert_eq!(actors.lookup("here", "r"), Some(id(1)), "it is for others to say that it is dead");
}

#[test]
fn starts_that_failed_are_counted_until_one_succeeds() {
    let mut actors = Actors::<&str>::default();
    actors.create(restartable(1, -1), false);
    for failed in 1..=3 {
        actors.placed(id(1), client(5));
        assert!(actors.lost(id(1), true).expect("there is no limit").began_nothing);
        assert_eq!(actors.get(id(1)).expect("known").failed_starts, failed);
    }
    actors.placed(id(1), client(5));
    actors.ready(id(1));
    assert!(!actors.lost(id(1), true).expect("there is no limit").began_nothing);
    assert_eq!(actors.get(id(1)).expect("known").failed_starts, 0);
}

#[test]
fn nothing_brings_back_what_nobody_can_reach() {
    let mut actors = Actors::<&str>::default();
    actors.create(restartable(1, -1), false);
    actors.placed(id(1), client(5));
    assert!(actors.unreferenced(id(1)) && !actors.unreferenced(id(1)));
    assert_eq!(actors.lookup("here", "r"), None, "its name is free before it is dead");
    actors.create(restartable(2, 0), false);
    assert_eq!(actors.lost(id(1), true), None);
    actors.died(id(1), "done");
    assert_eq!(actors.lookup("here", "r"), Some(id(2)), "the name's new actor keeps it");
    actors.create(describe(3, 9, "stays", true), false);
    assert!(!actors.unreferenced(id(3)), "a detached actor needs no handles");
}

proptest! {
    #[test]
    fn names_and_indexes_agree_with_the_living(steps in prop::collection::vec((0u8..8, 0u8..12, 0u8..4, 0u8..3), 0..200)) {
        let mut actors = Actors::default();
        let mut unreferenced = BTreeSet::new();
        for (step, actor, other, name) in steps {
            match step {
                0 => {
                    let name = ["", "a", "b"][name as usize];
                    let max_restarts = i32::from(actor % 4) - 1;
                    actors.create(Description { max_restarts, ..describe(actor, other, name, actor % 2 == 0) }, false);
                }
                1 => drop(actors.connect(client(other), id(actor))),
                2 if actors.get(id(actor)).is_some_and(|found| found.worker().is_none() && !found.is_dead()) => {
                    actors.placed(id(actor), client(100));
                }
                5 => {
                    actors.ready(id(actor));
                }
                6 => {
                    let before = actors.get(id(actor)).cloned();
                    let lost = actors.lost(id(actor), true);
                    let after = actors.get(id(actor));
                    match (lost, before, after) {
                        (Some(lost), Some(before), Some(after)) => {
                            prop_assert!(before.may_restart() && before.worker().is_some(), "ACTOR-3, ACTOR-4");
                            prop_assert_eq!(lost.began_nothing, matches!(before.state, ActorState::Starting(_)));
                            prop_assert_eq!((after.restarts, &after.state), (before.restarts + 1, &ActorState::Restarting));
                        }
                        (None, before, after) => prop_assert_eq!(before.as_ref(), after),
                        _ => prop_assert!(false, "an actor neither comes nor goes when its process is lost"),
                    }
                }
                7 if actors.unreferenced(id(actor)) => drop(unreferenced.insert(id(actor))),
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
                .filter(|actor| !actor.is_dead() && !actor.is_unreferenced && !actor.description.name.is_empty())
                .map(|actor| (("here".to_owned(), actor.description.name.clone()), actor.description.id))
                .collect();
            prop_assert_eq!(&named, &actors.names);
            for actor in actors.iter() {
                let most = actor.description.max_restarts;
                prop_assert!(most < 0 || actor.restarts <= most as u32, "ACTOR-3");
                prop_assert!(!actor.is_unreferenced || unreferenced.contains(&actor.description.id));
                prop_assert!(!(actor.is_unreferenced || actor.is_dead()) || !actor.may_restart(), "ACTOR-4");
            }
            let interested: usize = actors.iter().map(|actor| actor.interested.len()).sum();
            prop_assert_eq!(interested, actors.asked_by.values().map(BTreeSet::len).sum::<usize>());
        }
    }
}

#[test]
fn a_restart_that_is_not_counted_leaves_the_others_and_needs_none_left() {
    for (max_restarts, moves, counted) in [(1, 3, 1), (0, 0, 0), (-1, 2, 5)] {
        let mut actors = Actors::<u8>::default();
        actors.create(restartable(1, max_restarts), false);
        let mut lose = |is_counted| {
            actors.placed(id(1), client(7));
            actors.ready(id(1));
            actors.lost(id(1), is_counted).is_some()
        };
        for _ in 0..moves {
            assert!(lose(false));
        }
        for _ in 0..counted {
            assert!(lose(true), "{max_restarts} restarts, after {moves} moves");
        }
        assert_eq!(lose(false), max_restarts != 0, "one that is spent moves all the same");
    }
}
