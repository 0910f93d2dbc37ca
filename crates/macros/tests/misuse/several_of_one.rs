//! Misuse: several of one.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(num_returns = 2)]
fn train() -> Vec<i64> {
    vec![1, 2]
}

fn main() {}
