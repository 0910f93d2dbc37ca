use super::*;
use crate::core::work::{Arguments, Routine};
use bytes::Bytes;
use oxiray_ids::{ActorId, JobId, Unique};
use oxiray_wire::message::Environment;

fn tasks(count: usize) -> Vec<TaskId> {
    let mut unique = Unique::new();
    (0..count).map(|_| TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut unique)).collect()
}

fn task_spec(retries: i32, payload: usize, held: Vec<ObjectId>, sources: Vec<TaskId>) -> TaskSpec {
    let arguments = Arguments { payload: Bytes::from(vec![0; payload]), ..Arguments::default() };
    let routine = Arc::new(Routine { results: 1, ..Routine::default() });
    let work = Work { routine, arguments, retries, ..Work::default() };
    let class = Some(Arc::new(Class {
        demand: Vec::new(),
        environment: Environment::default(),
        fresh: false,
        strategy: None,
        near: Vec::new(),
        priority: 0,
        preemptible: false,
    }));
    TaskSpec { work, class, attempt: 0, held, sources, held_bytes: 0, items: 0 }
}

#[test]
fn a_recipe_goes_with_its_last_user_and_takes_its_sources_along() {
    let tasks = tasks(2);
    let small = tasks[0].object(7);
    let mut lineage = Lineage::default();
    assert!(lineage.keep(tasks[0], 1, task_spec(3, 10, vec![small], vec![])).is_empty());
    assert!(lineage.retain(tasks[0]));
    lineage.keep(tasks[1], 2, task_spec(3, 10, vec![], vec![tasks[0]]));
    assert!(lineage.release(tasks[0]).is_empty(), "the other recipe takes its result");
    assert!(lineage.release(tasks[1]).is_empty());
    assert!(lineage.follow(tasks[0]).is_ok());
    assert_eq!(lineage.release(tasks[1]), [small]);
    assert_eq!(lineage.figures(), (0, 0));
    assert!(!lineage.retain(tasks[0]) && lineage.release(tasks[0]).is_empty());
}

#[test]
fn retries_are_shared_between_failures_and_losses() {
    let tasks = tasks(2);
    let mut lineage = Lineage::default();
    lineage.keep(tasks[0], 1, task_spec(3, 0, vec![], vec![]));
    assert_eq!(lineage.follow(tasks[0]).map(|task_spec| (task_spec.work.retries, task_spec.attempt)), Ok((2, 1)));
    lineage.followed(tasks[0], 1, 2);
    assert_eq!(lineage.follow(tasks[0]).map(|task_spec| task_spec.work.retries), Ok(0));
    assert_eq!(lineage.follow(tasks[0]).map(|_| ()), Err(Reason::AttemptsExceeded));
    lineage.keep(tasks[1], 1, task_spec(-1, 0, vec![], vec![]));
    for _ in 0..10 {
        assert!(lineage.follow(tasks[1]).is_ok(), "always");
    }
}

#[test]
fn the_oldest_recipe_gives_way_and_leaves_the_reason() {
    let tasks = tasks(3);
    let small = tasks[0].object(7);
    let mut lineage = Lineage::default();
    lineage.configure(true, 3 * TASK_SPEC_BYTES);
    lineage.keep(tasks[0], 1, task_spec(3, TASK_SPEC_BYTES / 2, vec![small], vec![]));
    lineage.keep(tasks[1], 1, task_spec(3, 0, vec![], vec![]));
    assert_eq!(lineage.keep(tasks[2], 1, task_spec(3, TASK_SPEC_BYTES / 2, vec![], vec![])), [small]);
    assert_eq!(lineage.follow(tasks[0]).map(|_| ()), Err(Reason::Evicted));
    assert!(lineage.follow(tasks[1]).is_ok() && lineage.follow(tasks[2]).is_ok());
    for task in tasks {
        lineage.release(task);
    }
    assert_eq!(lineage.figures(), (0, 0));
}

/// LINEAGE-1 and LINEAGE-4: whatever the order, what was kept comes back once, and nothing is left.
#[test]
fn everything_kept_comes_back_once() {
    use proptest::prelude::*;
    let strategy = (prop::collection::vec((0..400_usize, prop::bool::ANY), 1..40), 600..4_000_usize);
    proptest!(|((steps, limit) in strategy)| {
        let tasks = tasks(steps.len());
        let mut lineage = Lineage::default();
        lineage.configure(true, limit);
        let (mut kept, mut back) = (Vec::new(), Vec::new());
        for (number, (payload, chained)) in steps.iter().enumerate() {
            let small = tasks[number].object(9);
            kept.push(small);
            let source = number.checked_sub(1).filter(|_| *chained).map(|number| tasks[number]);
            let sources = source.into_iter().filter(|source| lineage.retain(*source)).collect();
            back.extend(lineage.keep(tasks[number], 1, task_spec(3, *payload, vec![small], sources)));
            prop_assert!(lineage.figures().1 <= limit, "LINEAGE-2");
        }
        for task in &tasks {
            back.extend(lineage.release(*task));
        }
        prop_assert_eq!(lineage.figures(), (0, 0));
        back.sort();
        kept.sort();
        prop_assert_eq!(back, kept);
    });
}

#[test]
fn what_is_not_to_be_run_again_leaves_its_reason() {
    let tasks = tasks(1);
    let mut lineage = Lineage::default();
    lineage.keep_reason(tasks[0], 2, Reason::Cancelled);
    assert_eq!(lineage.follow(tasks[0]).map(|_| ()), Err(Reason::Cancelled));
    assert!(lineage.release(tasks[0]).is_empty() && lineage.knows(tasks[0]));
    lineage.release(tasks[0]);
    assert_eq!(lineage.figures(), (0, 0));
}
