//! Placement groups, waiting, killing.

use crate::{GateHandle, LIMIT, MOMENT, gate};
use oxiray::{Awaited, Error, Items, PlacementGroup, Result, Spread, TaskOptions, runtime_context};
use std::collections::BTreeMap;

#[oxiray::remote]
fn same(number: i64) -> i64 {
    number
}

#[oxiray::remote(num_cpus = 0)]
fn passing(gate: GateHandle, number: i64) -> Result<i64> {
    gate.pass()?.get()?;
    Ok(number)
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

#[oxiray::remote(num_cpus = 0, gpu_memory = 4_294_967_296)]
fn held() -> Result<BTreeMap<String, f64>> {
    Ok(runtime_context()?.resources().clone())
}

pub(crate) fn memory_of_a_gpu_is_asked_for_in_bytes() {
    let gibs =
        |gibs: u64| BTreeMap::from([("GPU".into(), gibs as f64 / 16.0), ("gpu_memory".into(), (gibs << 30) as f64)]);
    assert_eq!(held::remote().unwrap().get_timeout(LIMIT).unwrap(), gibs(4));
    let group = PlacementGroup::create(&[&[("gpu_memory", (12_u64 << 30) as f64)]], Spread::Pack).unwrap();
    assert!(group.wait(LIMIT).unwrap());
    let within = TaskOptions::new().num_cpus(0.0).gpu_memory(12 << 30).placement_group(&group, Some(0));
    assert_eq!(held::remote_with(within).unwrap().get_timeout(LIMIT).unwrap(), gibs(12));
    group.remove().unwrap();
    let both = TaskOptions::new().num_gpus(0.5).gpu_memory(1);
    assert!(held::remote_with(both).and_then(|result| result.get_timeout(LIMIT)).is_err());
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

#[oxiray::remote(num_cpus = 0)]
fn gated(gate: GateHandle) -> impl Iterator<Item = Result<i64>> {
    (0..2).map(move |number| {
        gate.pass()?.get()?;
        Ok(number)
    })
}

pub(crate) fn wait_takes_items_and_references() {
    let gate = gate();
    let (mut items, late) = (gated::remote(gate.clone()).unwrap(), passing::remote(gate.clone(), 7).unwrap());
    let waiting = |items: &Items<i64>, count, limit| {
        let (ready, rest) = oxiray::wait(vec![items as &dyn Awaited, &late], count, Some(limit)).unwrap();
        (ready.len(), rest.len())
    };
    assert_eq!(waiting(&items, 1, MOMENT), (0, 2));
    gate.open().unwrap();
    assert_eq!(waiting(&items, 2, LIMIT), (2, 0));
    // Looking does not take the item; at its end a generator is always there.
    let mut read = Vec::new();
    while let Some(item) = items.next_timeout(LIMIT) {
        read.push(item.unwrap().get_timeout(LIMIT).unwrap());
        assert_eq!(waiting(&items, 2, LIMIT), (2, 0));
    }
    assert_eq!(read, [0, 1]);
    let (ready, rest) = oxiray::wait(vec![items], 1, Some(LIMIT)).unwrap();
    assert_eq!((ready.len(), rest.len()), (1, 0));
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
