//! Misuse: unsafe function.

extern crate oxiray_macros as oxiray;

#[oxiray::remote]
unsafe fn train() {}

fn main() {}
