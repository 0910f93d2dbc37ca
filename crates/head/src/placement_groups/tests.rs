use super::*;
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_scheduler::{Bundle, GroupStrategy, Selector};
use proptest::prelude::*;

fn id(number: u8) -> PlacementGroupId {
    PlacementGroupId::new([number; 18])
}

fn node(number: u8) -> NodeId {
    NodeId::new([number; 28])
}

fn client(number: u8) -> WorkerId {
    WorkerId::new([number; 28])
}

const JOB: JobId = JobId::from_number(1);

fn described(number: u8, bundles: usize, name: &str, owner: GroupOwner) -> GroupDescription {
    let demand = Demand::new([(ResourceName::CPU, Quantity::ONE)]).expect("a demand");
    let bundle = Bundle { demand, selector: Selector::default() };
    let group = Group { strategy: GroupStrategy::Pack, bundles: vec![bundle; bundles], preferred: None, domain: None };
    GroupDescription {
        id: id(number),
        job: JOB,
        owner,
        name: name.into(),
        namespace: "ns".into(),
        group: Arc::new(group),
    }
}

fn make(groups: &mut PlacementGroups, number: u8, bundles: usize) {
    let made = groups.create(described(number, bundles, "", GroupOwner::Job(JOB)));
    assert_eq!(made, GroupCreated::New);
}

#[test]
fn a_group_is_created_when_the_last_machine_is_prepared() {
    let mut groups = PlacementGroups::default();
    make(&mut groups, 1, 3);
    assert_eq!(groups.await_created(id(1), client(1), 7), Awaited::Later);
    assert_eq!(groups.placed(id(1), &[node(1), node(2), node(1)]), [node(1), node(2)].into());
    assert_eq!(groups.prepared(id(1), node(1)), None);
    assert_eq!(groups.prepared(id(1), node(1)), None, "a second word changes nothing");
    assert_eq!(groups.prepared(id(1), node(2)), Some(vec![(client(1), 7)]));
    assert_eq!(groups.await_created(id(1), client(1), 8), Awaited::Now);
}

#[test]
fn where_one_machine_refuses_the_others_give_back() {
    let mut groups = PlacementGroups::default();
    make(&mut groups, 1, 3);
    groups.placed(id(1), &[node(1), node(2), node(3)]);
    groups.prepared(id(1), node(1));
    assert_eq!(groups.refused(id(1), node(2)), [node(1), node(3)].into(), "GROUPS-1");
    assert_eq!(
        groups.get(id(1)).map(|group| (&group.phase, group.missing())),
        Some((&GroupPhase::Pending, vec![0, 1, 2]))
    );
    assert_eq!(groups.prepared(id(1), node(3)), None, "too late");
    assert!(groups.refused(id(1), node(3)).is_empty());
    groups.placed(id(1), &[node(3), node(3), node(3)]);
    assert_eq!(groups.prepared(id(1), node(3)), Some(Vec::new()));
}

#[test]
fn bundles_of_a_dead_machine_are_placed_again_and_the_others_stay() {
    let mut groups = PlacementGroups::default();
    make(&mut groups, 1, 2);
    groups.placed(id(1), &[node(1), node(2)]);
    groups.prepared(id(1), node(1));
    groups.prepared(id(1), node(2));
    assert_eq!(groups.machine_died(node(2)), [(id(1), BTreeSet::new())]);
    let group = groups.get(id(1)).expect("it is there").clone();
    assert_eq!((group.phase.clone(), group.missing()), (GroupPhase::Rescheduling, vec![1]));
    assert_eq!(groups.placed(id(1), &[node(3)]), [node(3)].into());
    assert_eq!(groups.machine_died(node(1)), [(id(1), [node(3)].into())], "what it set aside is given back");
    assert_eq!(groups.get(id(1)).expect("it is there").missing(), [0, 1]);
    groups.placed(id(1), &[node(3), node(3)]);
    assert!(groups.prepared(id(1), node(3)).is_some());
}

#[test]
fn names_live_as_long_as_their_group() {
    let mut groups = PlacementGroups::default();
    assert_eq!(groups.create(described(1, 1, "a", GroupOwner::Nobody)), GroupCreated::New);
    assert_eq!(groups.create(described(2, 1, "a", GroupOwner::Nobody)), GroupCreated::NameTaken(id(1)));
    assert_eq!(groups.create(described(1, 1, "b", GroupOwner::Nobody)), GroupCreated::Duplicate);
    assert_eq!(groups.lookup("ns", "a").map(|group| group.description.id), Some(id(1)));
    groups.await_created(id(1), client(1), 1);
    assert_eq!(groups.remove(id(1), "gone"), Some(vec![(client(1), 1)]));
    assert_eq!(groups.remove(id(1), "again"), None, "GROUPS-3");
    assert_eq!((groups.lookup("ns", "a"), groups.lookup("other", "a")), (None, None));
    assert_eq!(groups.await_created(id(1), client(1), 2), Awaited::Removed("gone".into()));
    assert_eq!(groups.await_created(id(9), client(1), 2), Awaited::Unknown);
    assert_eq!(groups.create(described(3, 1, "a", GroupOwner::Nobody)), GroupCreated::New);
}

#[test]
fn groups_end_with_their_owner_and_are_forgotten_in_time() {
    let actor = ActorId::new([1; 16]);
    let mut groups = PlacementGroups::default();
    make(&mut groups, 1, 1);
    groups.create(described(2, 1, "", GroupOwner::Actor(actor)));
    groups.create(described(3, 1, "", GroupOwner::Nobody));
    assert_eq!((groups.of_job(JOB), groups.of_actor(actor)), (vec![id(1)], vec![id(2)]));
    groups.await_created(id(1), client(1), 1);
    groups.client_died(client(1));
    assert_eq!(groups.waiting(), 0);
    groups.remove(id(1), "its job ended");
    assert!(groups.of_job(JOB).is_empty());
    for number in 0..=REMOVED_GROUPS_KEPT {
        let mut one = described(0, 1, "", GroupOwner::Job(JOB));
        one.id = PlacementGroupId::generate(JOB, &mut oxiray_ids::Unique::new());
        let id = one.id;
        assert_eq!(groups.create(one), GroupCreated::New, "{number}");
        groups.remove(id, "gone");
    }
    assert_eq!(groups.iter().count(), REMOVED_GROUPS_KEPT + 2);
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Make(u8, usize),
    Placed(u8, u8),
    Prepared(u8, u8),
    Refused(u8, u8),
    MachineDied(u8),
    Remove(u8),
    Await(u8, u8),
    ClientDied(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let (group, node, client) = (0..4_u8, 0..3_u8, 0..3_u8);
    prop_oneof![
        1 => (group.clone(), 1..4_usize).prop_map(|(group, bundles)| Event::Make(group, bundles)),
        3 => (group.clone(), node.clone()).prop_map(|(group, first)| Event::Placed(group, first)),
        5 => (group.clone(), node.clone()).prop_map(|(group, node)| Event::Prepared(group, node)),
        1 => (group.clone(), node.clone()).prop_map(|(group, node)| Event::Refused(group, node)),
        1 => node.prop_map(Event::MachineDied),
        1 => group.clone().prop_map(Event::Remove),
        3 => (group, client.clone()).prop_map(|(group, client)| Event::Await(group, client)),
        1 => client.prop_map(Event::ClientDied),
    ]
}

proptest! {
    /// A group that is created has a machine for every bundle, and everyone who waits is answered once.
    #[test]
    fn nobody_waits_for_what_is_decided(events in prop::collection::vec(event(), 0..80)) {
        let mut groups = PlacementGroups::default();
        let mut open: BTreeSet<(WorkerId, u64)> = BTreeSet::new();
        for (question, event) in (0..).zip(events) {
            let mut told = Vec::new();
            match event {
                Event::Make(group, bundles) => {
                    groups.create(described(group, bundles, "", GroupOwner::Job(JOB)));
                }
                Event::Placed(group, first) => {
                    let missing = groups.get(id(group)).map_or(0, |group| group.missing().len());
                    let chosen: Vec<NodeId> = (0..missing as u8).map(|bundle| node((first + bundle) % 3)).collect();
                    groups.placed(id(group), &chosen);
                }
                Event::Prepared(group, on) => told = groups.prepared(id(group), node(on)).unwrap_or_default(),
                Event::Refused(group, on) => drop(groups.refused(id(group), node(on))),
                Event::MachineDied(on) => drop(groups.machine_died(node(on))),
                Event::Remove(group) => told = groups.remove(id(group), "gone").unwrap_or_default(),
                Event::Await(group, who) => {
                    if groups.await_created(id(group), client(who), question) == Awaited::Later {
                        open.insert((client(who), question));
                    }
                }
                Event::ClientDied(who) => {
                    groups.client_died(client(who));
                    open.retain(|(waiting, _)| *waiting != client(who));
                }
            }
            for waiter in told {
                prop_assert!(open.remove(&waiter), "told once");
            }
            prop_assert_eq!(groups.waiting(), open.len());
            for group in groups.iter() {
                let is_whole = group.missing().is_empty();
                match &group.phase {
                    GroupPhase::Created => prop_assert!(is_whole, "GROUPS-1"),
                    GroupPhase::Prepared { awaited, .. } => prop_assert!(is_whole && !awaited.is_empty()),
                    GroupPhase::Pending | GroupPhase::Rescheduling => prop_assert!(!is_whole),
                    GroupPhase::Removed(_) => {}
                }
            }
        }
    }
}
