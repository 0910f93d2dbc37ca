//! Misuse: fraction of a whole.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(max_retries = 1.5)]
fn train() {}

fn main() {}
