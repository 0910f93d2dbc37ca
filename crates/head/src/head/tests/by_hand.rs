//! Actors killed and tasks cancelled by hand, from the command line.

use super::{CPU, World, actor, id};
use oxiray_ids::{ActorId, TaskId, Unique};
use oxiray_wire::Message;
use oxiray_wire::message::{ActorReady, EndAsked, StateReport};

/// Who asks: the command line.
const VISITOR: u64 = 1 << 41;

fn ask(world: &mut World, asked: &EndAsked) -> StateReport {
    world.core.end_asked(VISITOR, &EndAsked { request: 1, reason: "no use".into(), ..asked.clone() });
    world.settle();
    let told = world.sent.iter().rev().find_map(|(to, message)| match message {
        Message::StateReport(report) if *to == VISITOR => Some(report.clone()),
        _ => None,
    });
    *told.expect("it is answered")
}

fn refusal(world: &mut World, asked: &EndAsked) -> String {
    ask(world, asked).failure.expect("it is refused").text
}

#[test]
fn an_actor_is_killed_by_hand_once() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU], &[]));
    let worker = world.placed(driver, 1).expect("placed");
    world.say(worker, ActorReady::default());
    let asked = || EndAsked { actor: Some(id(1)), ..EndAsked::default() };
    assert_eq!(ask(&mut world, &asked()).ended.map(|ended| ended.processes), Some(1));
    assert!(world.is_killed(worker));
    assert!(world.deaths(driver, 1)[0].contains("killed by hand: no use."), "{:?}", world.deaths(driver, 1));
    assert!(refusal(&mut world, &asked()).contains("is dead already"));
    let unknown = EndAsked { actor: Some(id(9)), ..EndAsked::default() };
    assert!(refusal(&mut world, &unknown).contains("`oxiray list actors`"));
    assert!(refusal(&mut world, &EndAsked::default()).contains("name an actor"));
}

#[test]
fn the_processes_of_a_task_s_job_are_told_to_cancel_it() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    let job = world.core.as_head().clients.job_of(driver).expect("it is connected");
    let task = TaskId::generate(ActorId::nil_of(job), &mut Unique::new());
    let asked = |task| EndAsked { task: Some(task), ..EndAsked::default() };
    assert_eq!(ask(&mut world, &asked(task)).ended.map(|ended| ended.processes), Some(1));
    let is_told = |(to, message): &(u64, Message)| {
        *to == driver
            && matches!(message, Message::CancelObject(told) if told.object == task.object(1) && !told.force && told.recursive)
    };
    assert!(world.sent.iter().any(is_told));
    let of_another = TaskId::new([7; 24]);
    assert!(refusal(&mut world, &asked(of_another)).contains("the task is over"));
}
