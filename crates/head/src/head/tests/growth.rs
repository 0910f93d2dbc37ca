//! What the head tells an autoscaler, and who waits for it.

use super::groups::{group as bundles, group_id};
use super::members::Pair;
use super::world::amount;
use super::{CPU, World, request};
use crate::demands::Need;
use oxiray_ids::NodeId;
use oxiray_machine::Key;
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_scheduler::{Bundle, Group, GroupStrategy, Selector};
use oxiray_wire::Message;
use oxiray_wire::message::{
    DrainAsked, GroupCreate, GrowthGroup, GrowthState, KeyValueAction, KeyValueRequest, LabelCondition, LabelOperator,
    LeaseReturn, PlacementStrategy, StateFilter, StateQuery,
};
use oxiray_wire::state::{AutoscalerState, GroupStatus, GrowthView, StandingRecord, WaitingRecord};
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The autoscaler's stream.
const AUTOSCALER: Key = 1 << 42;
const WAIT: Duration = Duration::from_secs(30);

fn group(cpus: u64) -> GrowthGroup {
    GrowthGroup { name: "g".into(), max: 5, totals: vec![amount("CPU", cpus * 10_000)], ..GrowthGroup::default() }
}

fn attach(world: &mut World, state: &GrowthState) {
    world.core.growth_state(AUTOSCALER, state);
    world.settle();
}

/// What the autoscaler was told, the last time last.
fn told(world: &World) -> Vec<GrowthView> {
    let told = world.sent.iter().filter_map(|(to, message)| match message {
        Message::GrowthReport(told) if *to == AUTOSCALER => told.view.clone(),
        _ => None,
    });
    told.collect()
}

fn head(cpus: u32) -> World {
    let mut world = World::new(cpus, 0);
    world.core.node_mut().plan_mut().rules.node = WAIT;
    world
}

#[test]
fn the_autoscaler_is_told_what_waits_by_kind_and_when_that_changes() {
    let mut world = head(1);
    attach(&mut world, &GrowthState { groups: vec![group(4)], ..GrowthState::default() });
    assert_eq!(told(&world).len(), 1, "how things are");
    let driver = world.driver();
    for number in 1..=4 {
        world.say(driver, request(number, &[CPU]));
    }
    world.pass(Duration::from_millis(30));
    let last = told(&world).pop().expect("it is told");
    assert_eq!(last.waiting[0].count, 3, "one runs: {last:?}");
    assert_eq!(last.waiting[0].resources.get("CPU"), Some(&1.0));
    assert!(last.machines[0].in_use);
    let count = told(&world).len();
    world.pass(Duration::from_secs(60));
    assert_eq!(told(&world).len(), count, "nothing changed, GROW-2");
}

#[test]
fn what_a_group_could_serve_waits_as_long_as_there_is_an_autoscaler() {
    let mut world = head(1);
    attach(&mut world, &GrowthState { groups: vec![group(4)], ..GrowthState::default() });
    let driver = world.driver();
    world.say(driver, request(1, &[("CPU", 40_000)]));
    world.pass(WAIT * 100);
    assert_eq!(world.refusals(driver), [] as [u64; 0], "GROW-1");
    world.core.visitor_left(AUTOSCALER);
    world.settle();
    world.pass(WAIT / 2);
    assert_eq!(world.refusals(driver), [] as [u64; 0], "another may come");
    world.pass(WAIT);
    assert_eq!(world.refusals(driver), [1], "GROW-1");
}

#[test]
fn how_far_a_group_is_with_its_machines_is_known() {
    let mut world = head(1);
    let status = GroupStatus {
        name: "g".to_owned(),
        counts: BTreeMap::from([("queued (Resources)".to_owned(), 2)]),
        set_aside: Some("no capacity".to_owned()),
        ..GroupStatus::default()
    };
    let state = AutoscalerState { groups: vec![status], ..AutoscalerState::default() };
    attach(&mut world, &GrowthState { groups: vec![group(4)], state: Some(state), ..GrowthState::default() });
    let how_far = |name| world.core.as_head().growth.how_far(name);
    assert_eq!(how_far("g"), " (2 queued (Resources), set aside: no capacity)");
    assert_eq!(how_far("h"), "");
}

#[test]
fn what_no_group_could_serve_is_refused_with_its_reason() {
    let mut world = head(1);
    attach(&mut world, &GrowthState { groups: vec![group(4)], ..GrowthState::default() });
    let driver = world.driver();
    world.say(driver, request(1, &[("CPU", 80_000)]));
    world.pass(WAIT + Duration::from_secs(1));
    let why = world.refusal(driver, 1);
    assert!(why.contains("group `g` has 4 CPU, and 8 is asked for"), "{why}");
}

#[test]
fn a_new_group_is_seen_by_those_who_wait() {
    let mut world = head(1);
    attach(&mut world, &GrowthState { groups: vec![group(2)], ..GrowthState::default() });
    let driver = world.driver();
    world.say(driver, request(1, &[("CPU", 40_000)]));
    attach(&mut world, &GrowthState { groups: vec![group(4)], ..GrowthState::default() });
    world.pass(WAIT * 2);
    assert_eq!(world.refusals(driver), [] as [u64; 0]);
    attach(&mut world, &GrowthState { groups: vec![group(2)], ..GrowthState::default() });
    world.pass(WAIT * 2);
    assert_eq!(world.refusals(driver), [1], "the group is gone");
}

#[test]
fn what_no_group_could_bring_is_known_for_a_group_of_bundles() {
    let mut world = head(1);
    attach(&mut world, &GrowthState { groups: vec![group(4)], ..GrowthState::default() });
    let bundles = |cpus: &[u32]| {
        let demand = |cpus: &u32| Demand::new([(ResourceName::CPU, Quantity::whole(*cpus))]).expect("a demand");
        let bundles = cpus.iter().map(|cpus| Bundle { demand: demand(cpus), selector: Selector::default() });
        Need::Group(Arc::new(Group {
            strategy: GroupStrategy::Pack,
            bundles: bundles.collect(),
            preferred: None,
            domain: None,
        }))
    };
    let never_brought = |world: &World, need| {
        let head = world.core.as_head();
        head.growth.never_brought(&head.members.all_views(), &need)
    };
    assert_eq!(never_brought(&world, bundles(&[4, 1, 4])), "", "each could come");
    let why = never_brought(&world, bundles(&[1, 8]));
    assert!(why.contains("group `g` has 4 CPU, and 8 is asked for"), "{why}");
    world.core.visitor_left(AUTOSCALER);
    assert_eq!(never_brought(&world, bundles(&[8])), "", "nobody brings machines");
}

#[test]
fn a_group_that_the_autoscaler_brings_machines_for_is_no_news() {
    let mut world = head(1);
    attach(&mut world, &GrowthState { groups: vec![group(4)], ..GrowthState::default() });
    let driver = world.driver();
    world.say(driver, bundles(1, &[&[("CPU", 40_000)], &[("CPU", 20_000)]]));
    assert_eq!(world.notices(driver), [] as [String; 0]);
    world.say(driver, bundles(2, &[&[("CPU", 80_000)]]));
    let told = world.notices(driver).pop().expect("its driver is told");
    assert!(told.contains("can never be placed") && told.contains("group `g` has 4 CPU, and 8 is asked for"), "{told}");
}

fn gpus() -> BTreeMap<String, f64> {
    BTreeMap::from([("GPU".to_owned(), 1.0)])
}

fn put(key: String, value: &GrowthView) -> KeyValueRequest {
    KeyValueRequest {
        request: 1,
        action: KeyValueAction::Put,
        namespace: "autoscaler".into(),
        key: key.into(),
        value: value.encode_to_vec().into(),
        widely: true,
    }
}

#[test]
fn optional_demand_of_a_job_is_published_until_the_job_ends() {
    let mut world = World::keeping(1, 0, oxiray_journal::Rows::new());
    attach(&mut world, &GrowthState::default());
    let (driver, other) = (world.driver(), world.driver());
    let waiting = |world: &World| told(world).pop().expect("it is told").waiting;
    let workers = WaitingRecord { who: "workers".into(), resources: gpus(), count: 6, ..WaitingRecord::default() };
    let optional = GrowthView { waiting: vec![workers], ..GrowthView::default() };
    for of in [driver, other] {
        let key = format!("optional/{}/run", world.core.as_head().clients.by_key[&of].job.hex());
        world.say(of, put(key, &optional));
    }
    world.pass(Duration::from_millis(30));
    assert_eq!(waiting(&world).iter().map(|waiting| waiting.count).collect::<Vec<_>>(), [6, 6]);
    world.core.driver_left(driver);
    world.settle();
    world.pass(Duration::from_millis(30));
    assert_eq!(waiting(&world).len(), 1, "GROW-4");
    world.core.as_head_mut().goodbye(other, oxiray_wire::message::Goodbye::default());
    world.settle();
    world.pass(Duration::from_millis(30));
    assert_eq!(waiting(&world), [], "GROW-4");
    let rows = world.rows.clone();
    let mut next = World::keeping(1, 0, rows);
    next.pass(Duration::from_secs(60));
    attach(&mut next, &GrowthState::default());
    assert_eq!(waiting(&next), [], "nor does the next head know of it");
}

#[test]
fn the_standing_request_is_told_and_outlives_the_head() {
    let mut world = World::keeping(1, 0, oxiray_journal::Rows::new());
    let driver = world.driver();
    let bundle = |amount| StandingRecord {
        resources: BTreeMap::from([("GPU".to_owned(), amount)]),
        count: 2,
        labels: Vec::new(),
    };
    let standing = vec![bundle(1.0), bundle(f64::NAN)];
    world.say(driver, put("standing".into(), &GrowthView { standing, ..GrowthView::default() }));
    let mut next = World::keeping(1, 0, world.rows.clone());
    next.pass(Duration::from_secs(60));
    attach(&mut next, &GrowthState::default());
    assert_eq!(told(&next).pop().expect("it is told").standing, [bundle(1.0)], "what is no amount is passed over");
}

#[test]
fn a_machine_that_is_taken_away_gets_no_work_when_it_joins() {
    let mut pair = Pair::apart(0, 1);
    pair.member.core.node_mut().plan_mut().labels.insert("oxiray.io/instance".into(), "g-1".into());
    attach(&mut pair.head, &GrowthState { leaving: vec!["g-1".into()], ..GrowthState::default() });
    pair.join();
    assert!(pair.head.core.is_dismissed(pair.stream), "GROW-3");
}

#[test]
fn a_worker_that_waits_for_the_next_task_keeps_no_machine() {
    let mut pair = Pair::new(0, 1);
    attach(&mut pair.head, &GrowthState { groups: vec![group(1)], ..GrowthState::default() });
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    pair.head.pass(Duration::from_secs(1));
    let in_use = |pair: &Pair| told(&pair.head).pop().expect("it is told").machines[1].in_use;
    assert!(in_use(&pair));
    let only_if_idle = DrainAsked {
        request: 1,
        node: pair.member.core.node().plan().node.hex(),
        only_if_idle: true,
        ..DrainAsked::default()
    };
    pair.head.core.drain_asked(AUTOSCALER, &only_if_idle);
    pair.head.settle();
    assert!(!pair.head.core.is_dismissed(pair.stream), "it works");
    let (lease, _) = pair.head.granted(driver, 1);
    pair.head.say(driver, LeaseReturn { lease, retiring: false });
    pair.exchange();
    pair.head.pass(Duration::from_secs(1));
    assert!(!in_use(&pair));
    pair.head.core.drain_asked(AUTOSCALER, &only_if_idle);
    pair.head.settle();
    pair.exchange();
    pair.bury();
    pair.exchange();
    pair.head.pass(Duration::from_secs(1));
    assert!(pair.head.core.is_dismissed(pair.stream), "nothing is left there");
}

#[test]
fn a_group_within_one_domain_is_told_of_with_it_and_why_nothing_is_brought_is_explained() {
    let mut world = head(1);
    attach(&mut world, &GrowthState { groups: vec![group(4)], ..GrowthState::default() });
    let driver = world.driver();
    world.say(driver, GroupCreate { domain: "rack".into(), ..bundles(1, &[&[("CPU", 40_000)], &[("CPU", 40_000)]]) });
    world.pass(Duration::from_millis(30));
    let waiting = told(&world).pop().expect("it is told").waiting;
    assert_eq!(waiting[0].domain.as_deref(), Some("rack"));
    let why = "`g` has brought machines without the label `rack`";
    let unmet = vec![format!("1 x {} PACK of 2 bundles: {why}", waiting[0].who)];
    let asked = StateQuery {
        filters: vec![StateFilter { value: group_id(1).hex(), ..StateFilter::default() }],
        ..StateQuery::default()
    };
    let reason = |world: &World| world.core.as_head().explanation(&asked, &[]).expect("it is known").reason;
    assert!(!reason(&world).contains("autoscaler"), "{}", reason(&world));
    let state = AutoscalerState { unmet, ..AutoscalerState::default() };
    attach(&mut world, &GrowthState { groups: vec![group(4)], state: Some(state), ..GrowthState::default() });
    let said = format!(". The autoscaler brings no machines for it: {why}");
    assert!(reason(&world).ends_with(&said), "{}", reason(&world));
}

#[test]
fn bundles_whose_machine_died_wait_for_the_domain_of_the_others() {
    let mut head = World::labelled(1, ("rack", "a"));
    let mut member = World::member(1, NodeId::new([7; 28]));
    member.core.node_mut().plan_mut().labels.insert("rack".into(), "a".into());
    let stream = head.core.new_key();
    let mut pair = Pair { head, member, stream };
    pair.join();
    attach(&mut pair.head, &GrowthState { groups: vec![group(4)], ..GrowthState::default() });
    let driver = pair.head.driver();
    let (strategy, domain) = (PlacementStrategy::StrictSpread, "rack".to_owned());
    pair.head.say(driver, GroupCreate { strategy, domain, ..bundles(1, &[&[CPU], &[CPU]]) });
    pair.exchange();
    pair.head.core.member_gone(stream);
    pair.head.settle();
    pair.head.pass(Duration::from_millis(30));
    let waiting = told(&pair.head).pop().expect("it is told").waiting;
    let within = LabelCondition { key: "rack".into(), operator: LabelOperator::In, values: vec!["a".into()] };
    assert_eq!(waiting[0].bundles.iter().map(|bundle| &bundle.labels[..]).collect::<Vec<_>>(), [[within]]);
}
