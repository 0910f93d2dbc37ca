//! Misuse: undefinite argument.

extern crate oxiray_macros as oxiray;

#[oxiray::remote]
fn train(data: impl Iterator<Item = i64>) {
    drop(data);
}

fn main() {}
