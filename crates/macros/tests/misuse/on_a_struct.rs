//! Misuse: on a struct.

extern crate oxiray_macros as oxiray;

#[oxiray::remote]
struct Counter;

fn main() {}
