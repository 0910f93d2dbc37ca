//! Misuse: undefinite result.

extern crate oxiray_macros as oxiray;

#[oxiray::remote]
fn train() -> impl std::fmt::Display {
    1
}

fn main() {}
