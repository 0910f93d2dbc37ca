//! Misuse: option without value.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(num_gpus)]
fn train() {}

fn main() {}
