//! Misuse: option given twice.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(num_gpus = 1, num_gpus = 2)]
fn train() {}

fn main() {}
