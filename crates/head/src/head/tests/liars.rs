//! Peers that were let in and say what no honest peer says: they are ended, and nobody else is (DOOR-1).

use super::members::Pair;
use super::{CPU, World, actor, request};
use oxiray_ids::{WorkerId, WorkerNumber};
use oxiray_machine::NAME_BYTES_MAX;
use oxiray_wire::Message;
use oxiray_wire::message::{
    ActorLookup, EndedCalls, GroupBundle, GroupCreate, LeaseReturn, NodeJoin, NodeReport, PlaceRefused, Placed,
    PlacementStrategy, ProxiedClientJoined, StateFilter, StateQuery, TaskLog, TaskRecord, WorkerDied, WorkerForked,
    WorkerGone,
};
use oxiray_wire::state::StateKind;
use prost::Message as _;

fn reasons(world: &World) -> Vec<&str> {
    world.expelled.iter().map(|(_, why)| why.as_str()).collect()
}

#[test]
fn two_requests_of_one_number_end_who_made_them_and_nobody_else() {
    let mut world = World::new(1, 0);
    let (liar, other) = (world.driver(), world.driver());
    world.say(other, request(1, &[CPU]));
    for _ in 0..2 {
        world.say(liar, request(7, &[CPU]));
    }
    assert_eq!(world.expelled[0].0, liar);
    assert!(reasons(&world)[0].contains("number 7"), "{:?}", reasons(&world));
    // The liar goes, a CPU is free, and who asks for it has it.
    world.core.driver_left(liar);
    let (lease, _) = world.granted(other, 1);
    world.say(other, LeaseReturn { lease, retiring: false });
    world.say(other, request(2, &[CPU]));
    world.granted(other, 2);
    world.core.audit();
}

/// A member with a worker of number 1 or so that is in use, and a proxied client of number 500.
fn pair() -> (Pair, WorkerNumber) {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    let (_, worker) = pair.head.granted(driver, 1);
    let number = pair.head.core.route(worker).expect("it is on the member").1;
    pair.said(ProxiedClientJoined { proxied_client: WorkerNumber(500), driver: None, returning: None });
    assert!(pair.head.expelled.is_empty());
    (pair, number)
}

impl Pair {
    fn said(&mut self, report: impl Into<NodeReport>) {
        self.head.core.member_said(self.stream, report.into());
        self.head.settle();
    }
}

#[test]
fn a_member_that_lies_about_its_processes_is_ended() {
    let lies: [fn(WorkerNumber, &[u8; 28]) -> NodeReport; 8] = [
        |_, _| WorkerForked { worker: WorkerNumber(500), pid: 1 }.into(),
        |_, _| WorkerDied { worker: WorkerNumber(500), ..WorkerDied::default() }.into(),
        |_, _| WorkerGone { worker: WorkerNumber(500), ..WorkerGone::default() }.into(),
        |_, _| ProxiedClientJoined { proxied_client: WorkerNumber(500), driver: None, returning: None }.into(),
        |number, _| ProxiedClientJoined { proxied_client: number, driver: None, returning: None }.into(),
        |number, id| Placed { order: 1, worker: number, id: WorkerId::new(*id), pid: 1, ..Placed::default() }.into(),
        |_, id| {
            Placed { order: 2, worker: WorkerNumber(501), id: WorkerId::new(*id), pid: 1, ..Placed::default() }.into()
        },
        |_, id| {
            Placed { order: 2, worker: WorkerNumber(500), id: WorkerId::new(*id), pid: 1, ..Placed::default() }.into()
        },
    ];
    for lie in lies {
        let (mut pair, number) = pair();
        let id = pair.member.core.named_in_logs(number.0).expect("it is there").0;
        let id = *id.as_bytes();
        pair.said(lie(number, &id));
        assert_eq!(pair.head.expelled.len(), 1, "{:?}", lie(number, &id));
        assert_eq!(pair.head.expelled[0].0, pair.stream);
        pair.head.core.member_gone(pair.stream);
        pair.head.settle();
        pair.head.core.audit();
    }
    // What an honest member may say late names nobody any more.
    let (mut pair, _) = pair();
    pair.said(WorkerGone { worker: WorkerNumber(501), ..WorkerGone::default() });
    pair.said(PlaceRefused { order: 77, ..PlaceRefused::default() });
    assert!(pair.head.expelled.is_empty());
}

#[test]
fn a_node_joins_once_and_as_nobody_else() {
    let (mut pair, _) = pair();
    let other = pair.head.core.new_key();
    let told = pair.member.core.node().described(0, String::new());
    pair.said(told.clone());
    assert!(reasons(&pair.head)[0].contains("second time"));
    let own = NodeJoin { node: pair.head.core.own_node(), ..told.clone() };
    for lie in [told, own] {
        pair.head.core.member_said(other, lie.into());
        pair.head.settle();
    }
    assert!(reasons(&pair.head)[1..].iter().all(|why| why.contains("joined as node")), "{:?}", reasons(&pair.head));
    assert_eq!(pair.head.expelled.len(), 3);
}

#[test]
fn names_that_are_too_long_are_refused_and_descriptions_cut() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    let limit = NAME_BYTES_MAX.to_string();
    world.say(driver, oxiray_wire::message::ActorCreate { name: long.clone(), ..actor(1, &[CPU], &[]) });
    assert!(world.answer(driver, 1).failure.is_some_and(|failure| failure.text.contains(&limit)));
    world.say(driver, ActorLookup { request: 2, name: long.clone(), namespace: String::new() });
    assert!(world.answer(driver, 2).failure.is_some_and(|failure| failure.text.contains(&limit)));
    let filter = StateFilter { key: long.clone(), ..StateFilter::default() };
    world.say(
        driver,
        StateQuery { request: 3, kind: StateKind::Actors, filters: vec![filter], ..StateQuery::default() },
    );
    let bundles = vec![GroupBundle { demand: vec![super::amount("CPU", 10_000)], conditions: Vec::new() }];
    let group = oxiray_ids::PlacementGroupId::new([4; 18]);
    let strategy = PlacementStrategy::Pack;
    world.say(
        driver,
        GroupCreate { request: 4, group, name: long.clone(), strategy, bundles, ..GroupCreate::default() },
    );
    let refused = world.sent.iter().filter(|(_, message)| match message {
        Message::StateReport(said) => said.failure.as_ref().is_some_and(|failure| failure.text.contains(&limit)),
        Message::GroupAnswer(said) => said.failure.as_ref().is_some_and(|failure| failure.text.contains(&limit)),
        _ => false,
    });
    assert_eq!(refused.count(), 2);
    // Of a million control characters each would be six in the answer.
    let name = "\u{1}".repeat(1 << 20);
    world.say(
        driver,
        TaskLog {
            number: 0,
            environment: "\u{1}".repeat(1 << 20),
            records: vec![TaskRecord { task: oxiray_ids::TaskId::new([1; 24]), name, ..TaskRecord::default() }],
            ended: vec![EndedCalls { name: "\u{1}".repeat(1 << 20), count: u64::MAX, ..EndedCalls::default() }; 3],
            runs_retry: true,
        },
    );
    world.say(driver, TaskLog::default());
    world.say(driver, StateQuery { request: 5, kind: StateKind::Tasks, limit: 10, ..StateQuery::default() });
    world.pass(std::time::Duration::from_secs(6));
    let Some((_, Message::StateReport(told))) = world.sent.last() else { panic!("{:?}", world.sent.last()) };
    assert!(told.failure.is_none() && told.total == 1 && told.encoded_len() < 20_000);
}
