//! Placement groups, waiting, cancelling, killing.

use crate::{GateHandle, LIMIT, MOMENT, gate};
use oxiray::{Error, PlacementGroup, Result, Spread, TaskOptions, runtime_context};
use std::time::Duration;

#[oxiray::remote]
fn same(number: i64) -> i64 {
    number
}

#[oxiray::remote(num_cpus = 0)]
fn passing(gate: GateHandle, number: i64) -> Result<i64> {
    gate.pass()?.get()?;
    Ok(number)
}

/// Goes on until somebody wants it no more.
#[oxiray::remote(num_cpus = 0)]
fn patient(gate: GateHandle) -> Result<()> {
    gate.pass()?.get()?;
    while !runtime_context()?.is_cancelled() {
        std::thread::yield_now();
    }
    Ok(())
}

/// Asks nobody, and never ends.
#[oxiray::remote(num_cpus = 0, max_retries = 0)]
fn stubborn(gate: GateHandle) -> Result<()> {
    gate.pass()?.get()?;
    loop {
        std::thread::park();
    }
}

pub(crate) fn a_placement_group_is_granted_whole_and_given_back() {
    let everything: &[&[(&str, f64)]] = &[&[("CPU", 3.0)], &[("CPU", 1.0)]];
    let group = PlacementGroup::create(everything, Spread::Pack).unwrap();
    assert!(group.wait(LIMIT).unwrap());
    // Nothing is left for others, who run as soon as it is given up.
    let outside = same::remote(1).unwrap();
    let other = PlacementGroup::create(&[&[("CPU", 1.0)], &[("CPU", 1.0)]], Spread::StrictPack).unwrap();
    let within = |bundle| same::remote_with(TaskOptions::new().placement_group(&group, bundle), 2).unwrap();
    for bundle in [Some(0), Some(1), None] {
        assert_eq!(within(bundle).get_timeout(LIMIT).unwrap(), 2);
    }
    assert!(!other.wait(MOMENT).unwrap());
    assert!(matches!(outside.get_timeout(MOMENT), Err(Error::TimedOut)));
    group.remove().unwrap();
    assert_eq!(outside.get_timeout(LIMIT).unwrap(), 1);
    assert!(other.wait(LIMIT).unwrap());
    other.remove().unwrap();
    // No machine is large enough for this bundle, and none can come.
    let never = PlacementGroup::create(&[&[("CPU", 5.0)]], Spread::Pack).unwrap();
    let within = TaskOptions::new().placement_group(&never, Some(0));
    assert!(!never.wait(MOMENT).unwrap_or(false));
    never.remove().unwrap();
    let refused = same::remote_with(within, 3).unwrap().get_timeout(LIMIT);
    assert!(matches!(refused, Err(Error::Unschedulable(_))), "{refused:?}");
}

pub(crate) fn wait_returns_those_that_are_there() {
    let gate = gate();
    let late = passing::remote(gate.clone(), 1).unwrap();
    let soon = same::remote(2).unwrap();
    let (ready, rest) = oxiray::wait(vec![late.clone(), soon.clone()], 1, Some(LIMIT)).unwrap();
    assert_eq!((ready, rest), (vec![soon.clone()], vec![late.clone()]));
    let (ready, rest) = oxiray::wait(vec![late.clone(), soon.clone()], 2, Some(MOMENT)).unwrap();
    assert_eq!((ready, rest), (vec![soon.clone()], vec![late.clone()]));
    gate.open().unwrap();
    // In the order given, whichever came first.
    let (ready, rest) = oxiray::wait(vec![late.clone(), soon.clone()], 2, Some(LIMIT)).unwrap();
    assert_eq!((ready, rest), (vec![late.clone(), soon.clone()], vec![]));
    assert_eq!(oxiray::get(&[late, soon]).unwrap(), [1, 2]);
}

pub(crate) fn a_running_task_that_asks_is_cancelled() {
    let gate = gate();
    let running = patient::remote(gate.clone()).unwrap();
    gate.come(1).unwrap().get_timeout(LIMIT).unwrap();
    gate.open().unwrap();
    oxiray::cancel(&running, false).unwrap();
    let ended = running.get_timeout(LIMIT);
    assert!(matches!(ended, Err(Error::Cancelled(_))), "{ended:?}");
}

pub(crate) fn a_task_that_waits_is_cancelled() {
    let gate = gate();
    let argument = passing::remote(gate.clone(), 1).unwrap();
    let waiting = same::remote(&argument).unwrap();
    assert!(matches!(waiting.get_timeout(Duration::ZERO), Err(Error::TimedOut)));
    oxiray::cancel(&waiting, false).unwrap();
    let ended = waiting.get_timeout(LIMIT);
    assert!(matches!(ended, Err(Error::Cancelled(_))), "{ended:?}");
    gate.open().unwrap();
    assert_eq!(argument.get_timeout(LIMIT).unwrap(), 1);
}

pub(crate) fn force_ends_a_task_that_never_asks() {
    let gate = gate();
    let running = stubborn::remote(gate.clone()).unwrap();
    gate.come(1).unwrap().get_timeout(LIMIT).unwrap();
    gate.open().unwrap();
    oxiray::cancel(&running, true).unwrap();
    let ended = running.get_timeout(LIMIT);
    assert!(matches!(ended, Err(Error::Cancelled(_) | Error::WorkerDied(_))), "{ended:?}");
    // A method's process serves others, too.
    let refused = oxiray::cancel(&gate.come(2).unwrap(), true);
    assert!(matches!(&refused, Err(Error::Invalid(text)) if text.contains("kill the actor")), "{refused:?}");
}

pub(crate) fn options_that_make_no_sense_are_refused() {
    let refused = |options: TaskOptions| same::remote_with(options, 1).and_then(|called| called.get_timeout(LIMIT));
    let told = [
        refused(TaskOptions::new().num_gpus(-1.0)),
        refused(TaskOptions::new().num_gpus(1.5)),
        refused(TaskOptions::new().num_cpus(f64::NAN)),
        refused(TaskOptions::new().resource("TPU", 0.5)),
    ];
    for (told, named) in told.into_iter().zip(["GPU", "GPU", "CPU", "TPU"]) {
        let text = told.expect_err("it cannot be given").to_string();
        assert!(text.contains(named), "{text}");
    }
}

struct Phoenix;

#[oxiray::remote(max_restarts = 1, max_task_retries = -1)]
impl Phoenix {
    pub fn new() -> Self {
        Self
    }

    pub fn restarts(&self) -> Result<u32> {
        Ok(runtime_context()?.restarts())
    }
}

pub(crate) fn a_killed_actor_is_made_anew_or_gone() {
    let phoenix = Phoenix::remote().unwrap();
    assert_eq!(phoenix.restarts().unwrap().get_timeout(LIMIT).unwrap(), 0);
    oxiray::kill(&phoenix, true);
    assert_eq!(phoenix.restarts().unwrap().get_timeout(LIMIT).unwrap(), 1);
    oxiray::kill(&phoenix, false);
    let ended = phoenix.restarts().unwrap().get_timeout(LIMIT);
    assert!(matches!(ended, Err(Error::ActorDied(_))), "{ended:?}");
}
