//! Simulated clusters come to rest, whatever goes wrong in them; and a seed tells everything of its run.

use oxiray_sim::{Options, Outcome, Seen, run, run_backlog, run_cloud};
use std::ops::Range;
use std::time::Duration;

fn told(outcome: &Outcome) -> String {
    let Outcome { seed, hash, failure, last_lines, .. } = outcome;
    let failure = failure.as_deref().unwrap_or_default();
    let options = Options::of_seed(*seed);
    format!(
        "{}\nseed {seed}, hash {hash:016x}: {failure}\noptions: {options:?}\n\
         again, with all events: cargo run -p oxiray-sim --release -- --seed {seed} --log events.txt",
        last_lines.join("\n")
    )
}

fn run_all(seeds: Range<u64>) {
    let (mut runs, mut events, mut seen) = (0, 0, Seen::default());
    for seed in seeds {
        let outcome = run(Options::of_seed(seed), None);
        assert!(outcome.failure.is_none(), "{}", told(&outcome));
        runs += 1;
        events += outcome.events;
        seen.add(outcome.seen);
    }
    assert!(events > runs * 500, "{events} events in {runs} runs: little happened");
    if runs >= 100 {
        let has_all = seen.instances > runs / 10 && seen.memory > runs && seen.deadlocks > runs / 100;
        assert!(has_all, "{seen:?} in {runs} runs: little of that was judged");
    }
}

#[test]
fn a_seed_tells_everything_of_its_run() {
    for seed in [0, 1, 2, 3, 1_000_000] {
        let outcomes = [(); 2].map(|()| run(Options::of_seed(seed), None));
        assert_eq!(outcomes[0], outcomes[1], "SIM-1");
    }
    let [one, other] = [0, 1].map(|seed| run(Options::of_seed(seed), None).hash);
    assert_ne!(one, other);
}

/// 2,000 seeds, as several tests so that they run beside each other.
macro_rules! seeds {
    ($($name:ident: $seeds:expr,)*) => {
        $(
            #[test]
            fn $name() {
                run_all($seeds);
            }
        )*
    };
}

seeds! {
    seeds_0_to_500: 0..500,
    seeds_500_to_1000: 500..1000,
    seeds_1000_to_1500: 1000..1500,
    seeds_1500_to_2000: 1500..2000,
    // A worker is placed in a group and the group is removed before its node has its turn.
    seed_3395: 3395..3396,
}

#[test]
fn what_is_wanted_comes_from_any_cloud_and_goes() {
    let mut machines = 0;
    for seed in 0..500 {
        let result = std::panic::catch_unwind(|| run_cloud(seed));
        machines += result.unwrap_or_else(|_| panic!("cloud seed {seed}"));
    }
    assert!(machines > 1000, "{machines} machines in 500 runs: little happened");
}

/// Twice the term of a lease.
const TURN_LIMIT: Duration = Duration::from_secs(1);
/// A task that needs several leases back may have to wait until room is kept for it again.
const LARGE_TURN_LIMIT: Duration = Duration::from_secs(12);

fn check_turns(seed: u64, tasks: u64) {
    let turns = run_backlog(seed, tasks);
    assert_eq!(turns.recalled_alone, 0, "backlog seed {seed}: {turns:?}: who is alone keeps what it has");
    let is_soon = turns.waited.is_some_and(|waited| waited <= TURN_LIMIT);
    assert!(is_soon, "backlog seed {seed}: {turns:?}: the second driver has its turn");
    let is_soon = turns.waited_for_all.is_some_and(|waited| waited <= LARGE_TURN_LIMIT);
    assert!(is_soon, "backlog seed {seed}: {turns:?}: and so it does with a task that needs a whole machine");
    let [first, second] = turns.begun;
    let is_even = first.abs_diff(second) * 4 <= first + second;
    assert!(is_even, "backlog seed {seed}: {turns:?}: two with a backlog have about the same");
    assert!((first + second) * 4 >= turns.begun_alone * 3, "backlog seed {seed}: {turns:?}: nothing lies idle");
}

#[test]
fn nobody_waits_for_the_end_of_a_million_tasks() {
    check_turns(0, 1_000_000);
}

#[test]
fn a_driver_beside_a_backlog_has_its_turn() {
    for seed in 1..60 {
        check_turns(seed, 20_000);
    }
}
