//! Misuse: too many results.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(num_returns = 9)]
fn train() {}

fn main() {}
