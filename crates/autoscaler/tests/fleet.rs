//! Replicas from the request for them until they are gone, with a provider and a head that do what a test says.

use oxiray_autoscaler::{Act, Failed, Fleet, INSTANCE_LABEL, Instance, InstanceState, Limits, RoundView};
use oxiray_wire::message::PlacementStrategy;
use oxiray_wire::state::{BundleRecord, GroupEntry, GrowthView, MachineRecord, StandingRecord, WaitingRecord};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn amounts(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
}

fn group(name: &str, priority: i32, hosts: u32) -> GroupEntry {
    GroupEntry {
        name: name.to_owned(),
        min: 0,
        max: 3,
        hosts,
        resources: amounts(&[("GPU", 1.0)]),
        first_host: BTreeMap::new(),
        labels: BTreeMap::new(),
        priority,
        idle_timeout_s: 60.0,
    }
}

fn counted(state: &str, count: u32) -> BTreeMap<String, u32> {
    BTreeMap::from([(state.to_owned(), count)])
}

struct World {
    now: Duration,
    fleet: Fleet,
    groups: Vec<GroupEntry>,
    instances: Vec<Instance>,
    failed: Vec<Failed>,
    told: GrowthView,
}

impl World {
    fn new(groups: Vec<GroupEntry>) -> Self {
        let fleet = Fleet::new(Limits::default(), "r");
        Self { now: SECOND, fleet, groups, instances: Vec::new(), failed: Vec::new(), told: GrowthView::default() }
    }

    fn waiting(mut self, count: u32) -> Self {
        self.wait_for(count);
        self
    }

    fn wait_for(&mut self, count: u32) {
        let resources = amounts(&[("GPU", 1.0)]);
        let none = Vec::new();
        let waiting = WaitingRecord {
            who: "task `f`".into(),
            count,
            resources,
            labels: none,
            is_bound: false,
            strategy: None,
            bundles: Vec::new(),
            domain: None,
        };
        self.told.waiting = if count > 0 { vec![waiting] } else { Vec::new() };
    }

    fn round(&mut self) -> Vec<Act> {
        let failed = std::mem::take(&mut self.failed);
        let seen = RoundView { groups: &self.groups, instances: &self.instances, failed: &failed, told: &self.told };
        self.fleet.round(self.now, &seen).expect("a plan")
    }

    fn after(&mut self, time: Duration) -> Vec<Act> {
        self.now += time;
        self.round()
    }

    fn list(&mut self, replica: &str, group: &str, hosts: u32, request: Option<&str>) {
        for host in 0..hosts {
            self.instances.push(Instance {
                id: format!("{replica}-{host}"),
                group: group.to_owned(),
                replica: replica.to_owned(),
                host,
                request: request.map(str::to_owned),
                state: InstanceState::Running,
                detail: String::new(),
            });
        }
    }

    fn join(&mut self, instance: &str) {
        self.told.machines.push(MachineRecord {
            node_id: instance.to_owned(),
            labels: BTreeMap::from([(INSTANCE_LABEL.to_owned(), instance.to_owned())]),
            resources: amounts(&[("GPU", 1.0)]),
            ..MachineRecord::default()
        });
    }

    fn machine(&mut self, node: &str) -> &mut MachineRecord {
        self.told.machines.iter_mut().find(|machine| machine.node_id == node).expect("it joined")
    }

    fn gone(&mut self, node: &str) {
        self.told.machines.retain(|machine| machine.node_id != node);
    }

    /// A group of `hosts` with one replica that is idle.
    fn with_one(hosts: u32) -> Self {
        let mut world = Self::new(vec![group("g", 0, hosts)]);
        world.list("g-1", "g", hosts, None);
        (0..hosts).for_each(|host| world.join(&format!("g-1-{host}")));
        world.round();
        world
    }
}

fn launch(group: &str, replicas: u32, request: &str) -> Act {
    Act::Launch { group: group.to_owned(), replicas, request: request.to_owned() }
}

fn drain(node: &str) -> Act {
    Act::Drain { node: node.to_owned(), only_if_idle: true, why: "idle for 60 s".to_owned() }
}

fn is_terminated(acts: &[Act], replica: &str) -> bool {
    acts.iter().any(|act| matches!(act, Act::Terminate { replicas, .. } if replicas == &[replica.to_owned()]))
}

#[test]
fn what_waits_is_asked_for_once_and_counted_on_until_it_is_there() {
    let mut world = World::new(vec![group("g", 0, 1)]).waiting(2);
    assert_eq!(world.round(), [launch("g", 2, "r-1")]);
    assert_eq!(world.after(SECOND), [], "it is on its way");
    world.list("g-1", "g", 1, Some("r-1"));
    world.list("g-2", "g", 1, None);
    assert_eq!(world.after(SECOND), [], "they are listed");
    world.join("g-1-0");
    world.join("g-2-0");
    assert_eq!(world.after(SECOND), [], "what waits fits there");
    assert_eq!(world.fleet.counts("g"), counted("joined", 2));
}

#[test]
fn a_request_without_an_answer_is_made_again_under_its_name_and_then_the_next_group_is_tried() {
    let mut world = World::new(vec![group("spot", 9, 1), group("sure", 0, 1)]).waiting(1);
    let limit = Limits::default().answer;
    assert_eq!(world.round(), [launch("spot", 1, "r-1")]);
    assert_eq!(world.after(limit), [launch("spot", 1, "r-1")], "LIFE-2");
    assert_eq!(world.after(limit), [launch("spot", 1, "r-1")], "LIFE-2");
    let acts = world.after(limit);
    assert!(matches!(&acts[..], [Act::Launch { group, replicas: 1, .. }] if group == "sure"), "FLEET-3: {acts:?}");
    // Both come at last: none is lost, and none is asked for anew.
    world.list("spot-1", "spot", 1, Some("r-1"));
    world.list("sure-1", "sure", 1, None);
    assert_eq!(world.after(SECOND), []);
    assert_eq!(world.fleet.counts("spot"), counted("launched", 1));
}

#[test]
fn a_late_answer_never_makes_more_than_the_maximum() {
    let mut world = World::new(vec![group("g", 0, 1)]).waiting(3);
    let limit = Limits::default().answer;
    let mut asked: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..100 {
        for act in world.after(limit) {
            let Act::Launch { replicas, request, .. } = act else { panic!("{act:?}") };
            asked.insert(request, replicas);
        }
    }
    assert_eq!(asked.values().sum::<u32>(), 3, "FLEET-1: {asked:?}");
}

#[test]
fn a_group_that_fails_is_set_aside_longer_each_time_and_then_tried_again() {
    let mut world = World::new(vec![group("g", 0, 1)]).waiting(1);
    let mut begun: Vec<Duration> = Vec::new();
    for _ in 0..2000 {
        if let [Act::Launch { request, .. }] = &world.after(SECOND)[..] {
            begun.push(world.now);
            let (group, request, text) = ("g".to_owned(), request.clone(), "no quota".to_owned());
            world.failed.push(Failed::Launch { group, request, replicas: 1, text });
        }
    }
    let waits: Vec<u64> = begun.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_secs()).collect();
    assert!(waits.is_sorted() && waits.first() < waits.last(), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 302), "{waits:?}");
}

#[test]
fn what_is_idle_for_long_enough_is_emptied_then_taken_away() {
    let mut world = World::with_one(1);
    assert_eq!(world.after(SECOND * 59), []);
    assert_eq!(world.after(SECOND), [drain("g-1-0")]);
    world.machine("g-1-0").is_leaving = true;
    assert_eq!(world.after(SECOND), [], "LIFE-1: the head is to say that it is empty");
    world.gone("g-1-0");
    assert!(is_terminated(&world.after(SECOND), "g-1"));
    world.instances.clear();
    assert_eq!(world.after(SECOND), []);
    assert_eq!(world.fleet.counts("g"), BTreeMap::new());
}

#[test]
fn an_alarm_that_passes_between_a_look_and_the_wait_for_it_still_rings() {
    let mut world = World::with_one(1);
    let due = world.now + SECOND * 60;
    assert_eq!(world.after(Duration::from_millis(59_999)), []);
    // However late it is by now: nobody has looked since.
    assert_eq!(world.fleet.next_alarm(&world.groups), Some(due));
    assert_eq!(world.after(Duration::from_millis(1)), [drain("g-1-0")]);
    world.told.machines[0].uses += 1;
    world.fleet.drain_refused(world.now, "g-1-0", "it is not idle");
    assert_eq!(world.after(Duration::ZERO), []);
    assert_eq!(world.fleet.next_alarm(&world.groups), Some(world.now + SECOND * 60), "what was handled rings no more");
}

#[test]
fn use_between_two_looks_begins_the_idle_time_anew() {
    let mut world = World::with_one(1);
    world.after(SECOND * 59);
    world.machine("g-1-0").uses = 7;
    assert_eq!(world.after(SECOND), []);
    assert_eq!(world.after(SECOND * 59), []);
    assert_eq!(world.after(SECOND), [drain("g-1-0")]);
}

#[test]
fn a_refused_drain_keeps_the_whole_replica() {
    let mut world = World::with_one(2);
    assert_eq!(world.after(SECOND * 60), [drain("g-1-0"), drain("g-1-1")]);
    let acts = world.fleet.drain_refused(world.now, "g-1-1", "1 actors");
    assert_eq!(acts, [Act::Keep { node: "g-1-0".into() }]);
    world.machine("g-1-1").in_use = true;
    assert_eq!(world.after(SECOND * 100), [], "one of its hosts works");
    assert_eq!(world.fleet.counts("g"), counted("joined", 1));
}

#[test]
fn a_slice_that_lost_a_host_ends_its_work_before_it_goes() {
    let mut world = World::with_one(2);
    world.machine("g-1-1").in_use = true;
    world.gone("g-1-0");
    let acts = world.after(SECOND);
    assert!(
        matches!(&acts[..], [Act::Drain { node, only_if_idle: false, .. }] if node == "g-1-1"),
        "nothing is killed there: {acts:?}"
    );
    assert_eq!(world.after(SECOND * 1000), [], "LIFE-1");
    world.gone("g-1-1");
    assert!(is_terminated(&world.after(SECOND), "g-1"));
}

#[test]
fn a_standing_request_keeps_what_it_needs_and_lets_it_go() {
    let mut world = World::with_one(1);
    let bundle = StandingRecord { resources: amounts(&[("GPU", 1.0)]), count: 2, labels: Vec::new() };
    world.told.standing = vec![bundle];
    assert_eq!(world.after(SECOND), [launch("g", 1, "r-2")]);
    world.list("g-2", "g", 1, None);
    world.join("g-2-0");
    assert_eq!(world.after(SECOND * 1000), []);
    assert_eq!(world.fleet.next_alarm(&world.groups), Some(world.now + SECOND * 60), "of the new one");
    world.told.standing.clear();
    assert_eq!(world.after(SECOND * 60).len(), 2, "both are emptied");
}

#[test]
fn what_never_joins_is_taken_away_and_its_group_set_aside() {
    let mut world = World::new(vec![group("g", 0, 1)]).waiting(1);
    world.round();
    world.list("g-1", "g", 1, Some("r-1"));
    world.round();
    assert!(is_terminated(&world.after(Limits::default().join), "g-1"));
    assert!(world.fleet.set_aside_now(world.now).contains_key("g"));
    assert_eq!(world.fleet.leaving().into_iter().collect::<Vec<_>>(), ["g-1-0"], "should it join now");
}

#[test]
fn what_is_to_go_and_stays_is_asked_for_again() {
    let mut world = World::with_one(1);
    world.after(SECOND * 60);
    world.gone("g-1-0");
    assert!(is_terminated(&world.after(SECOND), "g-1"));
    assert_eq!(world.after(SECOND), []);
    assert!(is_terminated(&world.after(Limits::default().terminate), "g-1"));
}

#[test]
fn machines_of_an_earlier_autoscaler_are_taken_on() {
    let mut world = World::with_one(1);
    assert_eq!(world.fleet.counts("g"), counted("joined", 1));
    world.wait_for(1);
    assert_eq!(world.after(SECOND), [], "it has room");
}

#[test]
fn a_replica_whose_nodes_died_is_taken_away_and_another_asked_for() {
    let mut world = World::with_one(1);
    world.wait_for(1);
    world.gone("g-1-0");
    let acts = world.after(SECOND);
    assert!(is_terminated(&acts, "g-1"));
    assert!(acts.iter().any(|act| matches!(act, Act::Launch { replicas: 1, .. })), "{acts:?}");
}

#[test]
fn what_its_provider_takes_back_is_replaced() {
    let mut world = World::with_one(1);
    world.wait_for(1);
    world.instances.clear();
    world.told.machines.clear();
    assert!(matches!(&world.after(SECOND)[..], [Act::Launch { replicas: 1, .. }]));
}

#[test]
fn a_replica_that_is_stuck_goes_alone_and_the_next_group_is_tried() {
    let mut world = World::new(vec![group("spot", 9, 1), group("sure", 0, 1)]).waiting(2);
    world.round();
    world.list("spot-1", "spot", 1, Some("r-1"));
    world.list("spot-2", "spot", 1, Some("r-1"));
    world.round();
    let (group, replica, text) = ("spot".to_owned(), "spot-2".to_owned(), "no capacity".to_owned());
    world.failed.push(Failed::Stuck { group, replica, text });
    let acts = world.after(SECOND);
    assert!(is_terminated(&acts, "spot-2") && !is_terminated(&acts, "spot-1"), "{acts:?}");
    assert!(
        acts.iter().any(|act| matches!(act, Act::Launch { group, replicas: 1, .. } if group == "sure")),
        "{acts:?}"
    );
}

#[test]
fn a_replica_that_joined_and_went_by_itself_is_no_failure_of_its_group() {
    let mut world = World::with_one(1);
    world.wait_for(1);
    let (group, replica, text) = ("g".to_owned(), "g-1".to_owned(), "cancelled".to_owned());
    world.failed.push(Failed::Stuck { group, replica, text });
    world.gone("g-1-0");
    let acts = world.after(SECOND);
    assert!(acts.iter().any(|act| matches!(act, Act::Launch { replicas: 1, .. })), "{acts:?}");
    assert_eq!(world.fleet.set_aside_now(world.now), BTreeMap::new());
    assert!(world.fleet.take_events().iter().any(|event| event == "g-1 goes: cancelled"));
}

/// One replica that its provider has queued.
fn queued() -> World {
    let mut world = World::new(vec![group("g", 0, 1)]).waiting(1);
    world.round();
    world.list("g-1", "g", 1, Some("r-1"));
    (world.instances[0].state, world.instances[0].detail) = (InstanceState::Queued, "Resources".to_owned());
    world.round();
    world
}

#[test]
fn what_is_queued_waits_for_its_turn_and_then_has_its_time_to_join() {
    let mut world = queued();
    assert_eq!(world.after(Limits::default().join * 10), [], "FLEET-5");
    assert_eq!(world.fleet.counts("g"), counted("queued (Resources)", 1));
    world.instances[0].state = InstanceState::Running;
    assert_eq!(world.after(SECOND), []);
    assert_eq!(world.fleet.counts("g"), counted("launched", 1));
    assert_eq!(world.fleet.next_alarm(&world.groups), Some(world.now + Limits::default().join));
    assert!(is_terminated(&world.after(Limits::default().join), "g-1"));
}

#[test]
fn what_is_queued_goes_when_nobody_has_waited_for_it_for_long() {
    let mut world = queued();
    world.wait_for(0);
    world.after(SECOND);
    assert_eq!(world.fleet.next_alarm(&world.groups), Some(world.now + SECOND * 60));
    world.after(SECOND * 59);
    world.wait_for(1);
    assert_eq!(world.after(SECOND), [], "it is wanted again, FLEET-5");
    world.wait_for(0);
    world.after(SECOND);
    world.after(SECOND * 60);
    assert!(is_terminated(&world.after(SECOND), "g-1"), "FLEET-5");
}

#[test]
fn what_is_queued_for_the_minimum_stays() {
    let mut world = queued();
    world.wait_for(0);
    world.groups[0].min = 1;
    world.after(SECOND);
    assert_eq!(world.after(SECOND * 600), []);
    assert_eq!(world.fleet.counts("g"), counted("queued (Resources)", 1));
}

#[test]
fn what_its_provider_ends_soon_is_emptied_before_and_replaced() {
    let mut world = World::with_one(1);
    world.machine("g-1-0").in_use = true;
    (world.instances[0].state, world.instances[0].detail) = (InstanceState::Expiring, "60 s are left".to_owned());
    let acts = world.after(SECOND);
    let expected =
        Act::Drain { node: "g-1-0".to_owned(), only_if_idle: false, why: "its replica is given up".to_owned() };
    assert!(acts.contains(&expected), "{acts:?}");
    world.machine("g-1-0").is_leaving = true;
    world.wait_for(1);
    assert!(matches!(&world.after(SECOND)[..], [Act::Launch { replicas: 1, .. }]));
    world.gone("g-1-0");
    assert!(is_terminated(&world.after(SECOND), "g-1"));
}

const DOMAIN: &str = "ray.io/gpu-domain";

impl World {
    /// A placement group waits for machines of one domain.
    fn wait_for_domain(&mut self, bundles: usize) {
        let bundle = BundleRecord { resources: amounts(&[("GPU", 1.0)]), labels: Vec::new() };
        self.told.waiting = vec![WaitingRecord {
            who: "placement group `p`".into(),
            count: 1,
            strategy: Some(PlacementStrategy::Pack),
            bundles: vec![bundle; bundles],
            domain: Some(DOMAIN.to_owned()),
            ..WaitingRecord::default()
        }];
    }

    fn label(&mut self, node: &str, value: &str) {
        self.machine(node).labels.insert(DOMAIN.to_owned(), value.to_owned());
    }

    fn unmet(&self) -> String {
        self.fleet.plan().unmet.iter().map(|unmet| unmet.why.clone()).collect::<Vec<_>>().join("; ")
    }
}

#[test]
fn machines_of_different_domains_are_not_asked_for_again_while_somebody_waits_for_one() {
    let mut world = World::new(vec![group("g", 0, 1)]);
    world.wait_for_domain(2);
    assert_eq!(world.round(), [launch("g", 2, "r-1")]);
    world.list("g-1", "g", 1, Some("r-1"));
    world.list("g-2", "g", 1, None);
    world.join("g-1-0");
    world.label("g-1-0", "a");
    assert_eq!(world.after(SECOND), [], "the other is on its way, and may be in the same domain");
    world.join("g-2-0");
    world.label("g-2-0", "b");
    assert_eq!(world.after(SECOND), [], "there is room for a third, which may be anywhere");
    assert!(world.unmet().contains("has brought machines with different values"), "{}", world.unmet());
    // Nobody uses them, and they go.
    assert_eq!(world.after(61 * SECOND).len(), 2, "both are emptied");
    world.gone("g-1-0");
    world.gone("g-2-0");
    let acts = world.after(SECOND);
    assert!(acts.iter().all(|act| matches!(act, Act::Terminate { .. })) && !acts.is_empty(), "{acts:?}");
    world.instances.clear();
    assert_eq!(world.after(SECOND), [], "FLEET-6");
    assert!(world.unmet().contains("(`a`, `b`)"), "{}", world.unmet());
    world.told.waiting.clear();
    assert_eq!(world.after(SECOND), []);
    world.wait_for_domain(2);
    assert_eq!(world.after(SECOND), [launch("g", 2, "r-5")], "who comes later tries his luck");
}

#[test]
fn more_machines_come_where_all_so_far_are_in_one_domain() {
    let mut world = World::with_one(1);
    world.label("g-1-0", "a");
    world.wait_for_domain(2);
    assert_eq!(world.after(SECOND), [launch("g", 1, "r-2")]);
    world.wait_for_domain(4);
    assert_eq!(world.after(SECOND), [], "four are more than the group may have");
    assert!(world.unmet().contains("`g` may have 1 more, with the value `a`"), "{}", world.unmet());
}
