//! Misuse: borrowed argument.

extern crate oxiray_macros as oxiray;

#[oxiray::remote]
fn length(text: &str) -> usize {
    text.len()
}

fn main() {}
