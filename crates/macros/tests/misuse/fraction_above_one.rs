//! Misuse: fraction above one.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(num_gpus = 1.5)]
fn train() {}

fn main() {}
