//! Misuse: constructor of another.

extern crate oxiray_macros as oxiray;

struct Trainer;

#[oxiray::remote]
impl Trainer {
    pub fn new() -> i64 {
        1
    }
}

fn main() {}
