//! Processes are kept ready by what was wanted lately.

use super::*;

const QUARTER: (&str, u64) = ("CPU", 2500);

#[test]
fn workers_that_served_at_once_serve_again_and_end_when_that_is_long_ago() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    let mut number = 0;
    let mut serve = |world: &mut World| {
        let first = number + 1;
        number += 8;
        (first..=number).for_each(|request_number| world.say(driver, request(request_number, &[QUARTER])));
        let granted: Vec<_> = (first..=number).map(|request_number| world.granted(driver, request_number)).collect();
        for (lease, _) in &granted {
            world.say(driver, LeaseReturn { lease: *lease, retiring: false });
        }
        granted.into_iter().map(|(_, worker)| worker).collect::<BTreeSet<Key>>()
    };
    let first = serve(&mut world);
    assert_eq!(first.len(), 8);
    world.pass(Duration::from_secs(20));
    assert_eq!(serve(&mut world), first, "no process was thrown away");
    assert!(world.ending().is_empty());
    world.pass(Duration::from_secs(600));
    assert_eq!(world.ending().len(), 6, "as many stay as there are processors");
}

#[test]
fn spare_workers_follow_bursts_and_end_when_they_are_long_ago() {
    let mut world = World::with([("CPU", 2.0), ("GPU", 1.0), ("memory", 8e9)]);
    let driver = world.driver();
    let spares = |world: &World| world.core.node().spares().count();
    assert_eq!(spares(&world), 1);
    for number in 1..=10 {
        world.say(driver, request(number, &[GPU]));
        let (lease, worker) = world.granted(driver, number);
        world.say(driver, LeaseReturn { lease, retiring: false });
        world.bury(worker, "done");
    }
    assert_eq!(spares(&world), 1, "nobody waits for the forks of others");
    world.pass(Duration::from_secs(1));
    assert_eq!(spares(&world), 10, "the next ten find a process each");
    world.pass(Duration::from_secs(600));
    for worker in world.ending() {
        world.bury(worker, "killed");
    }
    assert_eq!(spares(&world), 1);
}
