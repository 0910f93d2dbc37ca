//! Workers that end for want of memory, and what their owners are told.

use super::*;
use oxiray_machine::DeviceMemoryLimit;
use oxiray_machine::Exceeded;
use oxiray_machine::Level;
use oxiray_machine::Measured;
use oxiray_wire::message::{LeaseEnded, LeaseReturn, OutOfMemory};
use oxiray_wire::state::MemoryTier;

fn measured(workers: &[(Key, u64)]) -> Measured {
    let level = Level {
        source: "/sys/fs/cgroup/memory.max".into(),
        limit: 1000 << 20,
        used: 960 << 20,
        shared: 100 << 20,
        stalled: None,
    };
    let workers = workers.iter().map(|(key, mebibytes)| (*key, mebibytes << 20)).collect();
    Measured { level, threshold: 950, workers, store: 100 << 20 }
}

fn ends(world: &World, driver: Key) -> Vec<LeaseEnded> {
    let ended = world.to(driver).filter_map(|message| match message {
        Message::LeaseEnded(ended) => Some(LeaseEnded::clone(ended)),
        _ => None,
    });
    ended.collect()
}

#[test]
fn the_owner_of_a_hog_is_told_sizes_and_that_it_is_not_to_be_run_again() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    for number in 1..=2 {
        world.say(driver, LeaseRequest { may_repeat: true, ..request(number, &[CPU]) });
    }
    let ((lease, hog), (_, honest)) = (world.granted(driver, 1), world.granted(driver, 2));
    assert_eq!(world.core.end_for_memory(&measured(&[(hog, 700), (honest, 30)])), Some(hog));
    world.settle();
    assert!(world.is_killed(hog) && !world.is_killed(honest));
    assert_eq!(world.core.end_for_memory(&measured(&[(hog, 700)])), None, "it is ending already");
    world.bury(hog, "killed by signal 9 (SIGKILL)");
    let told = ends(&world, driver);
    assert_eq!((told.len(), told[0].lease, told[0].out_of_memory), (1, lease, OutOfMemory::Lasting));
    for part in ["it used 700 MiB", "960 MiB of 1000 MiB", "/sys/fs/cgroup/memory.max", "the object store 100 MiB"] {
        assert!(told[0].text.contains(part), "{}", told[0].text);
    }
}

#[test]
fn tasks_that_have_no_room_beside_each_other_wait_for_each_other() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    for number in 1..=2 {
        world.say(driver, LeaseRequest { may_repeat: true, ..request(number, &[CPU]) });
    }
    let (older, newer) = (world.granted(driver, 1).1, world.granted(driver, 2).1);
    assert_eq!(world.core.end_for_memory(&measured(&[(older, 400), (newer, 400)])), Some(newer));
    world.settle();
    world.bury(newer, "killed by signal 9 (SIGKILL)");
    assert_eq!(ends(&world, driver)[0].out_of_memory, OutOfMemory::Passing);
}

#[test]
fn a_kill_by_the_kernel_is_told_as_one() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (_, worker) = world.granted(driver, 1);
    world.core.killed_for_memory(worker, Some(&measured(&[]).level));
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    let told = ends(&world, driver);
    assert_eq!(told[0].out_of_memory, OutOfMemory::Kernel);
    assert!(told[0].text.contains("the kernel killed it") && told[0].text.contains("1000 MiB"), "{}", told[0].text);
}

const MEMORY: (&str, u64) = ("memory", 10_000 * (200 << 20));

/// One processor, and memory to ask for.
fn world_with_memory() -> World {
    World::with([("CPU", 1.0), ("memory", f64::from(1 << 30))])
}

#[test]
fn a_worker_has_the_limit_that_its_lease_asked_for_and_none_without_one() {
    let mut world = world_with_memory();
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (lease, worker) = world.granted(driver, 1);
    assert_eq!(world.confined, [], "CONFINED-1: it asked for nothing, and costs no word");
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.say(driver, request(2, &[CPU, MEMORY]));
    let (lease, same) = world.granted(driver, 2);
    assert_eq!((same, &world.confined[..]), (worker, &[(worker, Some(200 << 20))][..]));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.say(driver, request(3, &[CPU]));
    assert_eq!(world.granted(driver, 3).1, worker);
    assert_eq!(world.confined[1..], [(worker, None)]);
}

#[test]
fn who_takes_more_than_it_asked_for_is_told_both_and_not_run_again() {
    let mut world = world_with_memory();
    let driver = world.driver();
    world.say(driver, LeaseRequest { may_repeat: true, ..request(1, &[CPU, MEMORY]) });
    let (_, worker) = world.granted(driver, 1);
    world.core.exceeded_memory(worker, Exceeded { asked: 200 << 20, limit: 270 << 20, used: 269 << 20 });
    world.settle();
    assert!(world.is_killed(worker), "CONFINED-2: it ends as a whole");
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    let told = ends(&world, driver);
    assert_eq!(told[0].out_of_memory, OutOfMemory::Lasting);
    for part in ["memory=209715200, which is 200 MiB", "269 MiB of the 270 MiB", "Ask for more"] {
        assert!(told[0].text.contains(part), "{}", told[0].text);
    }
}

#[test]
fn a_worker_that_met_its_limit_of_processes_serves_nobody_else() {
    let mut world = world_with_memory();
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.core.met_process_limit(worker, 64);
    world.settle();
    let is_retired = |message: &Message| matches!(message, Message::LeaseRetire(said) if said.lease == lease);
    assert!(world.to(driver).any(is_retired), "CONFINED-3: nothing more is begun on it");
    assert!(!world.is_killed(worker), "its task goes on");
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.say(driver, request(2, &[CPU]));
    assert!(world.is_dismissed(worker));
    world.bury(worker, "exited with status 0");
    assert_ne!(world.granted(driver, 2).1, worker);
}

/// What a worker is told that keeps it to `gpu_memory=`.
fn tier_of(world: &World, worker: Key) -> String {
    let variables = &world.assignment(worker).variables;
    let told = variables.iter().find(|variable| variable.name == "OXIRAY_GPU_MEMORY_TIER");
    told.and_then(|variable| variable.value.clone()).unwrap_or_default()
}

pub(super) fn gpu_memory(gibibytes: u64) -> [(&'static str, u64); 1] {
    [("GPU:memory", 10_000 * (gibibytes << 30))]
}

#[test]
fn the_kernel_is_told_of_a_worker_s_memory_of_a_gpu_or_the_worker_is_ended() {
    let mut world = World::with_memory_tiers(&[MemoryTier::Mig, MemoryTier::Dmem, MemoryTier::Framework], false);
    let driver = world.driver();
    world.say(driver, request(1, &gpu_memory(8)));
    let (_, worker) = world.granted(driver, 1);
    let region = "drm/0000:03:00.0/vram0".to_owned();
    assert_eq!(world.device_limits, [DeviceMemoryLimit { worker, region, bytes: 8 << 30 }], "TIERS-2");
    assert_eq!(tier_of(&world, worker), "dmem");
    world.say(driver, request(2, &gpu_memory(4)));
    let (_, other) = world.granted(driver, 2);
    world.core.device_memory_unlimited(other, "dmem.max: permission denied");
    world.settle();
    assert!(world.is_killed(other) && !world.is_killed(worker), "TIERS-2");
    world.bury(other, "killed by signal 9 (SIGKILL)");
    world.say(driver, request(3, &gpu_memory(4)));
    let (_, third) = world.granted(driver, 3);
    assert_eq!((tier_of(&world, third).as_str(), world.device_limits.len()), ("framework", 2), "it is named no more");
}

#[test]
fn a_part_of_a_gpu_keeps_whoever_has_all_of_it() {
    let tiers = [MemoryTier::Mig, MemoryTier::Framework];
    for (is_part, gibibytes, tier) in [(true, 16, "mig"), (true, 8, "framework"), (false, 16, "framework")] {
        let mut world = World::with_memory_tiers(&tiers, is_part);
        let driver = world.driver();
        world.say(driver, request(1, &gpu_memory(gibibytes)));
        let (_, worker) = world.granted(driver, 1);
        assert_eq!(tier_of(&world, worker), tier, "TIERS-1: {gibibytes} GiB, a part: {is_part}");
        assert_eq!(world.device_limits, []);
    }
}
