//! A fixed part of what `make fuzz` says.

use oxiray_fuzz::{frames, run};

/// Seeds that did harm once.
const HARMFUL: [u64; 1] = [0];

#[test]
fn nothing_that_peers_say_ends_the_core() {
    let mut frames = 0;
    for seed in HARMFUL.into_iter().chain(1_000..1_010) {
        let told = run(seed).unwrap_or_else(|failed| panic!("{failed:#?}"));
        assert!(told.messages > told.frames / 2, "hardly anything could be read: {told:?}");
        assert!(told.effective.len() > 15, "hardly anything had an effect: {told:?}");
        frames += told.frames;
    }
    assert!(frames >= 55_000);
}

#[test]
fn nothing_that_comes_over_a_connection_ends_its_reader() {
    assert!(frames::run(1, 20_000) > 1_000);
}
