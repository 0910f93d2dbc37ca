//! Misuse: several of items.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(num_returns = 2)]
fn train() -> impl Iterator<Item = i64> {
    0..2
}

fn main() {}
