//! Misuse: borrowed result.

extern crate oxiray_macros as oxiray;

#[oxiray::remote]
fn train() -> &'static str {
    "trained"
}

fn main() {}
