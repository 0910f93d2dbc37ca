//! Questions that every process is asked.

use super::*;
use oxiray_wire::message::{
    ActorMaker, Amount, CallOrigin, Profile, Stack, StackFrame, StackReport, StateFilter, StateQuery, StateReport,
    TaskLog, TaskRecord, TaskStage,
};
use oxiray_wire::state::{ProfileKind, StateKind, TaskRow};
use prost::Message as _;

fn reports(world: &World, asker: Key) -> Vec<&StateReport> {
    world
        .to(asker)
        .filter_map(|message| match message {
            Message::StateReport(report) => Some(&**report),
            _ => None,
        })
        .collect()
}

#[test]
fn an_answer_waits_for_everybody_and_says_who_is_missing() {
    let mut world = World::new(1, 0);
    let (asker, silent) = (world.driver(), world.driver());
    for request in 1..=2 {
        world
            .core
            .state_query(asker, StateQuery { request, kind: StateKind::Tasks, limit: 10, ..StateQuery::default() });
    }
    world.settle();
    let asked: Vec<u64> = world
        .to(silent)
        .filter_map(|message| match message {
            Message::TaskLogQuery(query) => Some(query.number),
            _ => None,
        })
        .collect();
    let everybody: Vec<Key> = world.core.as_head().clients.by_key.keys().copied().collect();
    for key in everybody {
        world.core.as_head_mut().task_log(key, TaskLog { number: asked[0], ..TaskLog::default() });
        if key != silent {
            world.core.as_head_mut().task_log(key, TaskLog { number: asked[1], ..TaskLog::default() });
        }
    }
    world.settle();
    assert_eq!(
        reports(&world, asker).iter().map(|report| (report.request, report.missing.is_empty())).collect::<Vec<_>>(),
        [(1, true)]
    );
    // A machine under load takes its time; for ever is too long.
    world.pass(Duration::from_secs(2));
    assert_eq!(reports(&world, asker).len(), 1);
    world.pass(Duration::from_secs(4));
    let told = reports(&world, asker);
    assert_eq!((told.len(), told[1].request), (2, 2));
    assert!(told[1].missing.starts_with("1 of the processes did not answer within 5 s"), "{}", told[1].missing);
}

#[test]
fn what_a_call_needs_is_shown_within_bounds() {
    let mut world = World::new(1, 0);
    let (asker, liar) = (world.driver(), world.driver());
    let long = Amount { resource: "r".repeat(1 << 20), units: u64::MAX };
    let short = |number: u64| Amount { resource: format!("r{number}"), units: 5_000 };
    let resources: Vec<Amount> = std::iter::once(long).chain((0..10_000).map(short)).collect();
    let record = TaskRecord { task: oxiray_ids::TaskId::new([7; 24]), resources, ..TaskRecord::default() };
    world.core.as_head_mut().task_log(liar, TaskLog { records: vec![record], ..TaskLog::default() });
    world.core.state_query(
        asker,
        StateQuery { request: 1, kind: StateKind::Tasks, limit: 10, detail: true, ..StateQuery::default() },
    );
    world.pass(Duration::from_secs(6));
    let told = reports(&world, asker)[0];
    let needs = &told.tables.as_ref().expect("rows").tasks[0].resources.as_ref().expect("amounts").by_name;
    assert!(needs.len() <= 32 && needs.get("r7") == Some(&0.5), "{} resources", needs.len());
    assert!(told.encoded_len() < 10_000, "{} bytes", told.encoded_len());
}

/// The tasks that the head lists, when everybody had time to tell.
fn listed_tasks(world: &mut World, asker: Key) -> Vec<TaskRow> {
    let request = reports(world, asker).len() as u64 + 1;
    let asked = StateQuery { request, kind: StateKind::Tasks, limit: 10, detail: true, ..StateQuery::default() };
    world.core.state_query(asker, asked);
    world.pass(Duration::from_secs(6));
    let told = *reports(world, asker).last().expect("an answer");
    told.tables.as_ref().expect("rows").tasks.clone()
}

#[test]
fn the_making_of_an_actor_is_what_the_head_knows_and_what_its_process_told() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.core.set_wall_clock(5);
    world.say(driver, actor(1, &[CPU], &[]));
    world.say(driver, actor(2, &[CPU], &[]));
    let task = oxiray_ids::TaskId::new([9; 24]);
    world.say(driver, ActorMaker { actor: oxiray_ids::ActorId::new([2; 16]), task });
    let stranger = world.driver();
    world.say(stranger, ActorMaker { actor: oxiray_ids::ActorId::new([1; 16]), task });
    let called = CallOrigin { called_us: 5_000, ready_after_us: Some(0), ..CallOrigin::default() };
    let worker = world.placed(driver, 1).expect("placed");
    let rows = listed_tasks(&mut world, driver);
    assert_eq!((rows[0].stage, rows[1].stage), (TaskStage::Runs, TaskStage::WaitsForWorker));
    assert_eq!((rows[1].origin, rows[1].worker_id), (Some(CallOrigin { parent: Some(task), ..called }), None));
    assert_eq!(rows[0].origin, Some(CallOrigin { sent_after_us: Some(0), ..called }));
    world.say(worker, ActorReady { repr_name: "n".repeat(1 << 20), environment: "e".repeat(1 << 20) });
    let task = rows[0].task_id;
    let record =
        TaskRecord { task, started_us: 7_000, ended_us: 8_000, stage: TaskStage::Finished, ..TaskRecord::default() };
    world.core.as_head_mut().task_log(worker, TaskLog { records: vec![record], ..TaskLog::default() });
    let made = listed_tasks(&mut world, driver).remove(0);
    assert_eq!((made.stage, made.started_us, made.ended_us), (TaskStage::Finished, 7_000, 8_000));
    assert_eq!(made.worker_id, world.core.as_head().clients.id_of(worker));
    let said = &world.core.as_head().actors.known.iter().next().expect("an actor").said;
    assert!(said.repr_name.len() < 10_000 && said.environment.is_empty(), "{} bytes", said.repr_name.len());
}

#[test]
fn an_actor_that_was_never_placed_was_not_made() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU], &[]));
    world.say(driver, actor(2, &[CPU], &[]));
    world.core.as_head_mut().end_actor(oxiray_ids::ActorId::new([2; 16]), "it was killed.");
    let rows = listed_tasks(&mut world, driver);
    let failed: Vec<_> = rows.iter().filter(|row| row.stage == TaskStage::Failed).collect();
    assert_eq!((rows.len(), failed.len()), (2, 1));
    assert_eq!((failed[0].error.as_deref(), failed[0].started_us), (Some("ACTOR_DIED"), 0));
}

#[test]
fn a_call_that_its_worker_tells_nothing_of_is_where_it_was_sent() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU], &[]));
    let worker = world.placed(driver, 1).expect("placed");
    let (id, pid) = {
        let worker = &world.core.as_head().workers.by_key[&worker];
        (worker.id, worker.pid)
    };
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    let task = oxiray_ids::TaskId::new([7; 24]);
    let record = TaskRecord { task, stage: TaskStage::Failed, sent_to: Some(id), ..TaskRecord::default() };
    world.core.as_head_mut().task_log(driver, TaskLog { records: vec![record], ..TaskLog::default() });
    let rows = listed_tasks(&mut world, driver);
    let row = rows.iter().find(|row| row.task_id == task).expect("a row");
    assert_eq!((row.worker_id, row.pid, row.node_id.is_some()), (Some(id), pid, true));
}

#[test]
fn only_those_that_are_asked_about_tell_where_their_threads_are() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU], &[]));
    world.say(driver, actor(2, &[CPU], &[]));
    let (first, second) = (world.placed(driver, 1).expect("placed"), world.placed(driver, 2).expect("placed"));
    let ask = |world: &mut World, request, key: &str, value: String| {
        let filters = vec![StateFilter { key: key.into(), differs: false, value }];
        let asked = StateQuery { request, kind: StateKind::Stacks, limit: 10, filters, ..StateQuery::default() };
        world.core.state_query(driver, asked);
        world.settle();
    };
    let asked_of = |world: &World, key: Key| -> Vec<u64> {
        let query = |message: &Message| match message {
            Message::StackQuery(query) => Some(query.number),
            _ => None,
        };
        world.to(key).filter_map(query).collect()
    };
    ask(&mut world, 1, "worker_type", "WORKER".into());
    let number = asked_of(&world, first)[0];
    assert_eq!((asked_of(&world, second), asked_of(&world, driver)), (vec![number], Vec::new()));
    let frame = StackFrame { function: "f".repeat(1_000), file: "g".into(), line: 7 };
    let stack = Stack { name: "MainThread".into(), frames: vec![frame; 150], ..Stack::default() };
    let told = StackReport { number, stacks: vec![stack; 250], note: String::new() };
    world.say(first, told);
    world.pass(Duration::from_secs(6));
    let report = reports(&world, driver)[0];
    assert!(report.encoded_len() < 200_000, "{} bytes", report.encoded_len());
    let rows = &report.tables.as_ref().expect("rows").stacks;
    let first_id = world.core.as_head().clients.id_of(first).expect("known");
    let (told, silent): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.worker_id == first_id);
    assert_eq!((told[0].stacks[0].frames[0].line, told[0].note.as_str()), (7, ""));
    assert!(silent[0].stacks.is_empty() && silent[0].note.starts_with("it did not answer"), "{silent:?}");
    // Nobody is like that: the answer comes at once, and is empty.
    ask(&mut world, 2, "pid", "1".into());
    assert_eq!(reports(&world, driver).last().map(|report| (report.request, report.total)), Some((2, 0)));
}

#[test]
fn a_profile_is_waited_for_as_long_as_it_takes_and_may_say_more_than_stacks() {
    let mut world = World::new(1, 2);
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU], &[]));
    let worker = world.placed(driver, 1).expect("placed");
    let profile = Profile { kind: ProfileKind::Cpu, duration_ms: 30_000, rate_hz: 100 };
    let ask = |world: &mut World, request, profile| {
        let filters = vec![StateFilter { key: "worker_type".into(), differs: false, value: "WORKER".into() }];
        let profile = Some(profile);
        let asked =
            StateQuery { request, kind: StateKind::Stacks, limit: 10, filters, profile, ..StateQuery::default() };
        world.core.state_query(driver, asked);
        world.settle();
    };
    ask(&mut world, 1, profile);
    let asked = world.to(worker).find_map(|message| match message {
        Message::StackQuery(query) => Some(query.clone()),
        _ => None,
    });
    let asked = asked.expect("the worker is asked");
    assert_eq!(asked.profile, Some(profile));
    world.pass(Duration::from_secs(31));
    assert!(reports(&world, driver).is_empty(), "it is still put together");
    let frame = StackFrame { function: "f".repeat(100), file: "g".into(), line: 7 };
    let stack = Stack { name: "MainThread".into(), frames: vec![frame; 2], weight: 5, ..Stack::default() };
    world.say(worker, StackReport { number: asked.number, stacks: vec![stack; 3_000], note: String::new() });
    let rows = &reports(&world, driver)[0].tables.as_ref().expect("rows").stacks;
    assert_eq!((rows[0].stacks.len(), rows[0].stacks[0].weight), (Profile::STACKS_MAX, 5));
    // What cannot be is refused before anybody is asked.
    ask(&mut world, 2, Profile { duration_ms: Profile::DURATION_MAX_MS + 1, ..profile });
    let refused = reports(&world, driver)[1].failure.as_ref().expect("refused");
    assert!(refused.text.contains("at most 60 s"), "{}", refused.text);
    // Whoever tells nothing is named in the end.
    ask(&mut world, 3, profile);
    world.pass(Duration::from_secs(46));
    let rows = &reports(&world, driver)[2].tables.as_ref().expect("rows").stacks;
    assert!(rows[0].note.starts_with("it did not answer"), "{rows:?}");
}
