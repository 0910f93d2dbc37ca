//! Misuse: less than the least.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(max_retries = -2)]
fn train() {}

fn main() {}
