//! Misuse: option of actors.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(max_restarts = 3)]
fn train() {}

fn main() {}
