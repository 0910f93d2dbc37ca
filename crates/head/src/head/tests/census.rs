//! Questions that every process is asked.

use super::*;
use oxiray_wire::message::{Amount, StateQuery, StateReport, TaskLog, TaskRecord};
use oxiray_wire::state::StateKind;
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
