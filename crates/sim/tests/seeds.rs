//! Simulated clusters come to rest, whatever goes wrong in them; and a seed tells everything of its run.

use oxiray_sim::{Options, Outcome, run, run_cloud};
use std::ops::Range;

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
    let (mut runs, mut events) = (0, 0);
    for seed in seeds {
        let outcome = run(Options::of_seed(seed), None);
        assert!(outcome.failure.is_none(), "{}", told(&outcome));
        runs += 1;
        events += outcome.events;
    }
    assert!(events > runs * 500, "{events} events in {runs} runs: little happened");
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
