//! Misuse: generic.

extern crate oxiray_macros as oxiray;

#[oxiray::remote]
fn identity<T>(value: T) -> T {
    value
}

fn main() {}
