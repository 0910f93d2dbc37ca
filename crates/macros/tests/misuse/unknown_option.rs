//! Misuse: unknown option.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(num_gpu = 1)]
fn train() {}

fn main() {}
