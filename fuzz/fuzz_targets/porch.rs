//! Bytes at the porch. What they are held against is what `make fuzz` holds its own requests against.

#![no_main]

use fastrand::Rng;
use libfuzzer_sys::fuzz_target;
use oxiray_network::porch::PorchRules;
use std::sync::LazyLock;

#[path = "../../crates/fuzz/src/porch.rs"]
#[allow(dead_code)]
mod porch;

static RULES: LazyLock<PorchRules> = LazyLock::new(porch::rules);

fuzz_target!(|bytes: &[u8]| {
    // The pieces in which they come follow from the bytes, so that an input does the same each time.
    let seed = bytes.iter().fold(0_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    porch::look_at(bytes, &RULES, &mut Rng::with_seed(seed));
});
