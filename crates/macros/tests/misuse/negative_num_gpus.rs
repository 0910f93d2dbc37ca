//! Misuse: negative num gpus.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(num_gpus = -1)]
fn train() {}

fn main() {}
