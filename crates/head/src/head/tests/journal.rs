//! What is on the disk when a head answers, and what another head makes of it.

use super::*;
use crate::actors::ActorState;
use crate::jobs::ENDED_JOBS_KEPT;
use crate::placement_groups::GroupPhase;
use oxiray_ids::{JobId, PlacementGroupId};
use oxiray_journal::Rows;
use oxiray_wire::message::{
    ActorFailed, Driver, Goodbye, GroupAnswer, GroupBundle, GroupCreate, KeyValueAction, KeyValueAnswer,
    KeyValueRequest, PlacementStrategy, StateQuery,
};
use oxiray_wire::state::StateKind;
use proptest::prelude::*;

fn put(request: u64, key: &str, value: &str) -> KeyValueRequest {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    KeyValueRequest { request, action: KeyValueAction::Put, key, value, widely: true, ..KeyValueRequest::default() }
}

fn get(request: u64, key: &str) -> KeyValueRequest {
    KeyValueRequest { request, action: KeyValueAction::Get, key: key.to_owned().into(), ..KeyValueRequest::default() }
}

fn delete(request: u64, key: &str) -> KeyValueRequest {
    KeyValueRequest {
        request,
        action: KeyValueAction::Delete,
        key: key.to_owned().into(),
        ..KeyValueRequest::default()
    }
}

fn kept(world: &World, client: Key, asked: u64) -> KeyValueAnswer {
    let answers = world.sent.iter().filter_map(|(to, message)| match message {
        Message::KeyValueAnswer(answer) if *to == client && answer.request == asked => Some(answer.clone()),
        _ => None,
    });
    *answers.last().expect("it was answered")
}

fn group(number: u8, bundles: &[u64]) -> GroupCreate {
    let bundle = |cpus: &u64| GroupBundle { demand: vec![world::amount("CPU", *cpus)], ..GroupBundle::default() };
    GroupCreate {
        request: 70 + u64::from(number),
        group: PlacementGroupId::new([number; 18]),
        strategy: PlacementStrategy::Pack,
        bundles: bundles.iter().map(bundle).collect(),
        detached: true,
        name: format!("group {number}"),
        ..GroupCreate::default()
    }
}

fn group_answers(world: &World, client: Key) -> Vec<GroupAnswer> {
    let answers = world.sent.iter().filter_map(|(to, message)| match message {
        Message::GroupAnswer(answer) if *to == client => Some(answer.clone()),
        _ => None,
    });
    answers.collect()
}

fn named(number: u8, max_restarts: i32) -> ActorCreate {
    ActorCreate {
        name: format!("actor {number}"),
        namespace: "space".into(),
        detached: true,
        max_restarts,
        ..actor(number, &[CPU], &[CPU])
    }
}

fn lookup(world: &mut World, client: Key, request: u64, number: u8) -> Option<Failure> {
    let name = format!("actor {number}");
    world.say(client, ActorLookup { request, name, namespace: "space".into() });
    world.answer(client, request).failure
}

const FULL: &str = "the head's journal /session/journal cannot be written: No space left on device (os error 28)";

#[test]
fn the_next_head_has_what_the_last_one_kept() {
    let mut world = World::keeping(1, 0, Rows::new());
    let driver = world.driver();
    world.say(driver, put(1, "a", "one"));
    world.say(driver, put(2, "b", "two"));
    world.say(driver, delete(3, "a"));
    let mut next = World::keeping(1, 0, world.rows.clone());
    let other = next.driver();
    next.say(other, get(1, "a"));
    next.say(other, get(2, "b"));
    assert_eq!((kept(&next, other, 1).count, kept(&next, other, 2).value), (0, "two".into()));
    assert_ne!(
        next.core.as_head().clients.by_key[&other].job,
        world.core.as_head().clients.by_key[&driver].job,
        "numbers of jobs are not used again"
    );
}

#[test]
fn what_cannot_be_written_is_refused_and_taken_back_and_works_when_it_can() {
    let mut world = World::keeping(1, 0, Rows::new());
    let driver = world.driver();
    world.say(driver, put(1, "a", "one"));
    let before = world.rows.clone();
    world.disk_fault = Some(FULL.to_owned());
    world.core.client_said(driver, put(2, "a", "two").into());
    world.core.client_said(driver, put(3, "a", "three").into());
    world.core.client_said(driver, delete(4, "a").into());
    world.settle();
    for request in 2..=4 {
        let failure = kept(&world, driver, request).failure.expect("it was refused");
        assert!(failure.text.contains("/session/journal") && failure.text.contains("No space"), "{failure:?}");
    }
    world.say(driver, get(5, "a"));
    assert_eq!(kept(&world, driver, 5).value, "one");
    world.say(driver, named(1, 0));
    let failure = world.answer(driver, 1).failure.expect("it was refused");
    assert_eq!(failure.text, FULL);
    assert!(world.deaths(driver, 1)[0].contains("it was never made"), "whoever calls it hears why");
    world.say(driver, group(1, &[10_000]));
    assert_eq!(
        group_answers(&world, driver).last().and_then(|answer| answer.failure.clone()).map(|it| it.text),
        Some(FULL.into())
    );
    // One that would have room at once, and one that would wait for it.
    for (number, bundles) in [(2, &[10_000][..]), (3, &[10_000, 10_000])] {
        let asked = GroupCreate { tells_when_created: true, ..group(number, bundles) };
        world.say(driver, asked.clone());
        let answers: Vec<GroupAnswer> =
            group_answers(&world, driver).into_iter().filter(|answer| answer.request == asked.request).collect();
        assert!(
            matches!(&answers[..], [GroupAnswer { failure: Some(why), .. }] if why.text.contains(FULL)),
            "{answers:?}"
        );
    }
    let refused = world.core.new_key();
    world.core.driver_joined(refused, Driver { interpreter: "python".into(), ..Driver::default() });
    world.settle();
    let heard: Vec<&Message> = world.sent.iter().filter(|(to, _)| *to == refused).map(|(_, said)| said).collect();
    assert!(matches!(&heard[..], [Message::Refused(said)] if said.text == FULL), "{heard:?}");
    assert!(world.is_closed(refused));
    assert_eq!(world.rows, before);

    world.disk_fault = None;
    for worker in world.ending() {
        world.bury(worker, "killed by signal 9 (SIGKILL)");
    }
    world.say(driver, put(6, "a", "four"));
    assert_eq!(kept(&world, driver, 6).failure, None);
    world.say(driver, named(2, 0));
    assert!(world.placed(driver, 2).is_some());
    assert!(lookup(&mut world, driver, 40, 1).is_some() && lookup(&mut world, driver, 41, 2).is_none());
    assert_eq!(
        World::keeping(1, 0, world.rows.clone()).core.as_head().durable.kept.get(&("".into(), "a".into())),
        Some(&"four".into())
    );
}

fn is_answered(world: &World, client: Key, asked: u64) -> bool {
    world.to(client).any(|message| matches!(message, Message::KeyValueAnswer(answer) if answer.request == asked))
}

#[test]
fn whoever_looks_up_an_actor_that_is_taken_back_hears_that_there_is_none() {
    let mut world = World::keeping(1, 0, Rows::new());
    let (maker, other) = (world.driver(), world.driver());
    world.disk_fault = Some(FULL.to_owned());
    world.core.client_said(maker, named(1, 0).into());
    let asked = ActorLookup { request: 9, name: "actor 1".into(), namespace: "space".into() };
    world.core.client_said(other, asked.into());
    world.settle();
    for (client, request) in [(maker, 1), (other, 9)] {
        let told = world.answer(client, request);
        assert_eq!((told.actor, told.failure.map(|failure| failure.text)), (None, Some(FULL.to_owned())));
    }
}

#[test]
fn nobody_is_told_before_the_disk_is_done_and_what_comes_meanwhile_is_written_together() {
    let mut world = World::keeping(2, 0, Rows::new());
    let (one, other) = (world.driver(), world.driver());
    world.disk_is_slow = true;
    world.say(one, put(1, "a", "one"));
    world.say(other, get(2, "a"));
    world.say(one, put(3, "b", "two"));
    world.say(one, put(4, "c", "three"));
    world.say(other, get(5, "c"));
    let first = world.writing.as_ref().map(Vec::len);
    assert_eq!(first, Some(1), "what came later is not in it");
    assert!((1..=5).all(|asked| !is_answered(&world, one, asked) && !is_answered(&world, other, asked)), "CORE-6");
    world.end_writing();
    world.settle();
    assert!(is_answered(&world, one, 1) && is_answered(&world, other, 2), "their row is safe");
    assert!(!is_answered(&world, one, 3) && !is_answered(&world, other, 5), "CORE-6");
    assert_eq!(world.writing.as_ref().map(Vec::len), Some(2), "all that came meanwhile is one batch");
    world.end_writing();
    world.settle();
    assert!([3, 4].iter().all(|asked| is_answered(&world, one, *asked)) && is_answered(&world, other, 5));
    assert!(world.writing.is_none());
    world.say(other, get(6, "c"));
    assert!(is_answered(&world, other, 6), "nothing is written, and nothing waits");
}

#[test]
fn what_builds_on_what_could_not_be_written_is_taken_back_with_it() {
    let mut world = World::keeping(2, 0, Rows::new());
    let driver = world.driver();
    world.say(driver, put(1, "a", "one"));
    let before = world.rows.clone();
    world.disk_is_slow = true;
    world.say(driver, put(2, "a", "two"));
    world.say(driver, put(3, "a", "three"));
    world.say(driver, named(1, 0));
    // Its answer has not left the core when the disk refuses.
    world.core.client_said(driver, put(4, "a", "four").into());
    world.disk_fault = Some(FULL.to_owned());
    world.end_writing();
    (world.disk_is_slow, world.disk_fault) = (false, Some(FULL.to_owned()));
    world.settle();
    for request in 2..=4 {
        assert_eq!(kept(&world, driver, request).failure.expect("it was refused").text, FULL, "{request}");
    }
    assert_eq!(world.answer(driver, 1).failure.expect("it was refused").text, FULL);
    assert_eq!(world.rows, before);
    world.disk_fault = None;
    world.say(driver, get(5, "a"));
    assert_eq!(kept(&world, driver, 5).value, "one");
}

#[test]
fn a_known_groups_identifier_is_refused_to_others_and_their_full_disk_takes_no_group_away() {
    let mut world = World::keeping(2, 0, Rows::new());
    let (maker, other) = (world.driver(), world.driver());
    let first = group(1, &[10_000]);
    world.say(maker, first.clone());
    let before = world.rows.clone();
    world.disk_fault = Some(FULL.to_owned());
    for tells_when_created in [false, true] {
        // Its maker says it again, as it does to the next head; then it says something else, and somebody else says it.
        world.say(maker, GroupCreate { request: 80, tells_when_created, ..first.clone() });
        world.say(maker, GroupCreate { request: 81, tells_when_created, name: "more".into(), ..first.clone() });
        let bundles = group(1, &[10_000, 10_000]).bundles;
        world.say(maker, GroupCreate { request: 82, tells_when_created, bundles, ..first.clone() });
        world.say(other, GroupCreate { request: 83, tells_when_created, ..first.clone() });
        let said = group_answers(&world, maker);
        let [.., again, renamed, resized] = &said[..] else { panic!("three answers: {said:?}") };
        assert_eq!((again.request, &again.failure), (80, &None));
        for refused in [renamed, resized, group_answers(&world, other).last().expect("it was answered")] {
            let failure = refused.failure.as_ref().expect("it was refused");
            assert!(failure.text.contains("is that of another placement group"), "{failure:?}");
        }
        let found = world.core.as_head().groups.known.get(PlacementGroupId::new([1; 18])).expect("it is there");
        assert_eq!(found.phase, GroupPhase::Created);
    }
    assert_eq!((&world.rows, world.free("CPU")), (&before, 10_000));
    world.disk_fault = None;
    world.say(other, put(90, "a", "one"));
    assert_eq!((world.rows.len(), world.free("CPU")), (before.len() + 1, 10_000), "nothing of it was written");
}

/// When each job ended, as it is listed.
fn end_times(world: &mut World, asker: Key) -> Vec<Option<u64>> {
    let (request, kind) = (200, StateKind::Jobs);
    world.say(asker, StateQuery { request, kind, limit: 10, detail: true, ..StateQuery::default() });
    let rows = world.sent.iter().rev().find_map(|(to, message)| match message {
        Message::StateReport(said) if *to == asker && said.request == request => said.tables.clone(),
        _ => None,
    });
    let jobs = rows.expect("it was answered").jobs;
    jobs.iter().map(|job| Some(job.ended_ms).filter(|at| *at > 0)).collect()
}

#[test]
fn a_driver_that_left_has_the_time_at_which_the_head_saw_it_and_with_the_next_head_too() {
    let mut world = World::keeping(1, 0, Rows::new());
    let (polite, killed, stays) = (world.driver(), world.driver(), world.driver());
    world.core.set_wall_clock(1_000);
    world.say(polite, Goodbye::default());
    world.core.set_wall_clock(2_000);
    world.core.driver_left(polite);
    world.core.driver_left(killed);
    world.settle();
    assert_eq!(end_times(&mut world, stays), [Some(1_000), Some(2_000), None]);
    let mut next = World::keeping(1, 0, world.rows.clone());
    next.core.set_wall_clock(9_000);
    let asker = next.driver();
    assert_eq!(end_times(&mut next, asker)[..2], [Some(1_000), Some(2_000)]);
}

#[test]
fn an_actors_death_tells_what_is_known_of_it_and_the_next_head_knows_it_too() {
    let mut world = World::keeping(1, 0, Rows::new());
    let driver = world.driver();
    world.say(driver, named(1, 0));
    world.say(driver, named(2, 0));
    let worker = world.placed(driver, 1).expect("placed");
    let pid = world.core.as_head().workers.by_key[&worker].pid.expect("it was forked");
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    let death =
        |world: &World, number: u8| match &world.core.as_head().actors.known.get(id_of(number)).expect("known").state {
            ActorState::Dead(failure) => failure.actor_death().expect("it says what is known"),
            other => panic!("it is dead: {other:?}"),
        };
    let ran = death(&world, 1);
    assert_eq!((&*ran.class_name, &*ran.name, &*ran.namespace), ("Counter", "actor 1", "space"));
    assert_eq!((ran.pid, ran.never_ran, ran.node.is_none(), ran.ip.is_empty()), (pid, false, false, false));
    assert_eq!((ran.actor, ran.raised.is_empty()), (id(1), true));
    assert_eq!(death(&World::keeping(1, 0, world.rows.clone()), 1), ran);
}

#[test]
fn an_actor_that_dies_before_it_was_placed_never_ran() {
    let mut world = World::keeping(1, 0, Rows::new());
    let driver = world.driver();
    world.say(driver, named(1, 0));
    world.say(driver, named(2, 0));
    world.core.as_head_mut().end_actor(id_of(2), "it was killed.");
    world.settle();
    let Some(ActorState::Dead(failure)) = world.core.as_head().actors.known.get(id_of(2)).map(|actor| &actor.state)
    else {
        panic!("it is dead")
    };
    let death = failure.actor_death().expect("it says what is known");
    assert_eq!((death.never_ran, death.pid, &*death.name, death.node.is_none()), (true, 0, "actor 2", true));
}

fn id_of(number: u8) -> ActorId {
    ActorId::new([number; 16])
}

#[test]
fn what_happened_while_nothing_could_be_written_is_written_when_something_can() {
    let mut world = World::keeping(1, 0, Rows::new());
    let driver = world.driver();
    world.say(driver, named(1, 0));
    let worker = world.placed(driver, 1).expect("placed");
    world.disk_fault = Some(FULL.to_owned());
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.disk_fault = None;
    world.say(driver, put(1, "a", "one"));
    let next = World::keeping(1, 0, world.rows.clone());
    let found = next.core.as_head().actors.known.get(ActorId::new([1; 16])).expect("it is remembered");
    assert!(
        matches!(&found.state, ActorState::Dead(failure) if failure.text.contains("killed by signal 9")),
        "{found:?}"
    );
}

#[test]
fn an_actor_that_ended_with_its_head_is_made_anew_where_it_may_be_and_is_dead_with_the_reason_otherwise() {
    let mut world = World::keeping(3, 0, Rows::new());
    let driver = world.driver();
    for (number, max_restarts) in [(1, 1), (2, 0), (3, 1)] {
        world.say(driver, named(number, max_restarts));
        let worker = world.placed(driver, number).expect("placed");
        world.say(worker, ActorReady::default());
    }
    let failed = world.placed(driver, 3).expect("placed");
    let raised = Value { content: Some(Content::Raised("boom".into())), contained: vec![] };
    world.say(failed, ActorFailed { error: Some(raised) });
    let mut next = World::keeping(3, 0, world.rows.clone());
    let other = next.driver();
    assert_eq!(lookup(&mut next, other, 41, 1), None);
    assert!(lookup(&mut next, other, 42, 2).is_some());
    for number in 1..=3 {
        next.say(other, ActorConnect { actor: id(number), lost: None });
    }
    let worker = next.process_of(1).expect("it is made anew");
    let spec = next.assignment(worker).actor.clone().expect("it is an actor's");
    assert_eq!((spec.restarts, spec.class_name.as_str()), (1, "Counter"));
    assert!(next.deaths(other, 2)[0].contains("its process ended with the daemon of the head's machine"));
    assert!(next.deaths(other, 3)[0].contains("its constructor raised"));
    assert_eq!(next.free("CPU"), 20_000);

    let mut third = World::keeping(3, 0, next.rows.clone());
    let other = third.driver();
    third.say(other, ActorConnect { actor: id(1), lost: None });
    assert!(third.deaths(other, 1)[0].contains("It was restarted 1 times before"), "{:?}", third.deaths(other, 1));
}

/// A head on whose cluster a detached actor lives whose job is over, more jobs ended after it than are remembered.
fn after_many_jobs() -> World {
    let mut world = World::keeping(3, 0, Rows::new());
    let first = world.driver();
    world.say(first, named(1, -1));
    let worker = world.placed(first, 1).expect("placed");
    world.say(worker, ActorReady::default());
    world.core.driver_left(first);
    for _ in 0..ENDED_JOBS_KEPT + 2 {
        let later = world.driver();
        world.core.driver_left(later);
    }
    world.settle();
    world
}

#[test]
fn a_detached_actor_is_made_anew_by_the_next_head_however_many_jobs_ended_meanwhile() {
    let world = after_many_jobs();
    let is_known = |number: u32| world.core.as_head().jobs.known.get(JobId::from_number(number)).is_some();
    assert_eq!((is_known(1), is_known(2)), (true, false), "of the first job an actor lives");
    let mut next = World::keeping(3, 0, world.rows.clone());
    next.settle();
    assert!(next.process_of(1).is_some(), "it is made anew");
}

#[test]
fn an_actor_whose_job_no_row_tells_of_is_dead_with_the_reason_and_does_not_wait() {
    let mut rows = after_many_jobs().rows;
    rows.retain(|(table, _), _| *table != super::super::records::table::JOB);
    let mut next = World::keeping(3, 0, rows);
    next.settle();
    let other = next.driver();
    next.say(other, ActorConnect { actor: id(1), lost: None });
    assert!(next.deaths(other, 1)[0].contains("its job is over and forgotten"), "{:?}", next.deaths(other, 1));
}

#[test]
fn a_group_is_granted_whole_by_the_next_head_too_and_one_that_was_removed_is_not() {
    let mut world = World::keeping(3, 0, Rows::new());
    let driver = world.driver();
    world.say(driver, group(1, &[10_000, 10_000]));
    world.say(driver, group(2, &[10_000]));
    world.say(driver, group(3, &[10_000, 20_000]));
    assert_eq!(world.free("CPU"), 0);
    world.core.as_head_mut().group_remove(group(2, &[]).group, "enough");
    world.settle();
    let next = World::keeping(3, 0, world.rows.clone());
    let phases: Vec<(u64, bool)> = next
        .core
        .as_head()
        .groups
        .known
        .iter()
        .map(|found| (found.description.group.bundles.len() as u64, found.phase == GroupPhase::Created))
        .collect();
    assert_eq!(phases, [(2, true), (2, false)], "whole or not at all, and no more than there is");
    assert_eq!(next.free("CPU"), 10_000);
    assert_eq!(World::keeping(4, 0, world.rows).free("CPU"), 20_000);
}

#[test]
fn a_value_outlives_its_owner_and_its_head() {
    let mut world = World::keeping(1, 0, Rows::new());
    let (owner, holder) = (world.driver(), world.driver());
    let object = ObjectId::new([9; 28]);
    world.say(owner, Promise { objects: vec![object] });
    let value = Value { content: Some(Content::Inline("seven".into())), contained: vec![] };
    world.say(owner, Publish { object, value: Some(value) });
    let holder_id = world.core.as_head().clients.by_key[&holder].id;
    let hold = Hold { objects: vec![object], holder: holder_id, until_confirmed: false };
    world.core.as_head_mut().hold(holder, &hold);
    world.settle();
    let orphans = |rows: &Rows| rows.keys().filter(|(table, _)| *table == records::table::ORPHAN).count();
    assert_eq!(orphans(&world.rows), 0, "its owner tells it again");
    world.core.driver_left(owner);
    world.settle();
    assert_eq!(orphans(&world.rows), 1);
    let next = World::keeping(1, 0, world.rows.clone());
    let known = object;
    assert_eq!(
        next.core.as_head().objects.known.orphan(known).and_then(|value| value.content.clone()),
        Some(Content::Inline("seven".into()))
    );
    world.say(holder, Unhold { objects: vec![object] });
    assert_eq!(orphans(&world.rows), 0);
}

/// The order to kill it goes out only behind the rows of its batch, and the head may end with the worker.
#[test]
fn what_a_worker_published_is_safe_before_it_is_killed() {
    let mut world = World::keeping(1, 0, Rows::new());
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU], &[CPU]));
    let worker = world.placed(driver, 1).expect("placed");
    let object = ObjectId::new([9; 28]);
    world.say(worker, Promise { objects: vec![object] });
    let value = Value { content: Some(Content::Inline("seven".into())), contained: vec![] };
    world.say(worker, Publish { object, value: Some(value) });
    let driver_id = world.core.as_head().clients.by_key[&driver].id;
    let hold = Hold { objects: vec![object], holder: driver_id, until_confirmed: false };
    world.core.as_head_mut().hold(driver, &hold);
    world.say(driver, ActorKill { actor: id(1), restart: false });
    assert!(world.is_killed(worker));
    let known = object;
    let next = World::keeping(1, 0, world.rows.clone());
    assert!(next.core.as_head().objects.known.orphan(known).is_some());
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.say(driver, Unhold { objects: vec![object] });
    assert!(world.rows.keys().all(|(table, _)| *table != records::table::ORPHAN), "nobody refers to it any more");
}

#[test]
fn rows_of_another_version_are_refused() {
    let refused = |rows: Rows| {
        World::new(1, 0).core.restore(&rows, Duration::from_secs(12)).expect_err("they cannot be read").to_string()
    };
    let later = refused(Rows::from([((77, Bytes::new()), Bytes::new())]));
    assert!(later.contains("of a kind (77)") && later.contains("--fresh"), "{later}");
    for table in 2..=9 {
        let wrong = refused(Rows::from([((table, Bytes::from_static(b"\xff")), Bytes::from_static(b"\xff\xff"))]));
        assert!(wrong.contains(&format!("of kind {table} ")), "{wrong}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Driver,
    Leave(u8),
    Actor(u8, i32),
    Ready(u8),
    Die(u8),
    Unhold(u8),
    Group(u8, u8),
    Remove(u8),
    Bury,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..4, 0_u8..4).prop_map(|(key, value)| Step::Put(key, value)),
        (0_u8..4).prop_map(Step::Delete),
        Just(Step::Driver),
        (0_u8..4).prop_map(Step::Leave),
        (1_u8..9, -1_i32..3).prop_map(|(number, restarts)| Step::Actor(number, restarts)),
        (1_u8..9).prop_map(Step::Ready),
        (1_u8..9).prop_map(Step::Die),
        (1_u8..9).prop_map(Step::Unhold),
        (1_u8..9, 1_u8..4).prop_map(|(number, bundles)| Step::Group(number, bundles)),
        (1_u8..9).prop_map(Step::Remove),
        Just(Step::Bury),
    ]
}

fn take(world: &mut World, drivers: &mut Vec<Key>, step: &Step) {
    let driver = drivers[0];
    match step {
        Step::Put(key, value) => world.say(driver, put(1, &key.to_string(), &value.to_string())),
        Step::Delete(key) => world.say(driver, delete(1, &key.to_string())),
        Step::Driver => drivers.push(world.driver()),
        Step::Leave(which) if drivers.len() > 1 => {
            let left = drivers.remove(1 + usize::from(*which) % (drivers.len() - 1));
            world.core.driver_left(left);
            world.settle();
        }
        Step::Leave(_) => {}
        Step::Actor(number, restarts) => {
            let from = drivers[usize::from(*number) % drivers.len()];
            let asked = if number % 2 == 0 {
                named(*number, *restarts)
            } else {
                ActorCreate { max_restarts: *restarts, ..actor(*number, &[CPU], &[]) }
            };
            world.say(from, asked);
        }
        Step::Ready(number) => {
            if let Some(worker) = process_of(world, *number) {
                world.say(worker, ActorReady::default());
            }
        }
        Step::Die(number) => {
            if let Some(worker) = process_of(world, *number) {
                world.bury(worker, "killed by signal 9 (SIGKILL)");
            }
        }
        Step::Unhold(number) => {
            world.say(drivers[usize::from(*number) % drivers.len()], Unhold { objects: vec![anchor(*number)] });
        }
        Step::Group(number, bundles) => world.say(driver, group(*number, &vec![10_000; usize::from(*bundles)])),
        Step::Remove(number) => {
            let id = group(*number, &[]).group;
            world.core.as_head_mut().group_remove(id, "enough");
            world.settle();
        }
        Step::Bury => {
            for worker in world.ending() {
                world.bury(worker, "killed by signal 9 (SIGKILL)");
            }
        }
    }
}

fn process_of(world: &World, number: u8) -> Option<Key> {
    let worker = world.core.as_head().actors.known.get(id(number))?.worker()?;
    world.core.as_head().clients.keys.get(&worker).copied()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows make a head that makes the same rows; and another that goes on with them takes no more than there is.
    #[test]
    fn what_is_restored_from_rows_makes_the_same_rows(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::keeping(4, 0, Rows::new());
        let mut drivers = vec![world.driver()];
        for step in &steps {
            take(&mut world, &mut drivers, step);
        }
        let mut again = World::new(4, 0);
        again.core.as_head_mut().read_rows(&world.rows).expect("they can be read");
        for row in again.core.as_head().all_rows() {
            let change = again.core.as_head().change_of(&row);
            prop_assert_eq!(world.rows.get(&(change.table, change.key)), change.value.as_ref(), "{:?}", row);
        }
        let counted = again.core.as_head().all_rows().into_iter().filter(|row| again.core.as_head().change_of(row).value.is_some()).count();
        prop_assert_eq!(counted, world.rows.len());

        // The ledger is audited each time that it settles.
        let next = World::keeping(4, 0, world.rows.clone());
        for (table, key) in world.rows.keys().filter(|(table, _)| *table != records::table::ORPHAN) {
            prop_assert!(next.rows.contains_key(&(*table, key.clone())) || *table == records::table::CONSTRUCTOR);
        }
    }
}
