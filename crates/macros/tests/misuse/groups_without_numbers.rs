//! Misuse: groups without numbers.

extern crate oxiray_macros as oxiray;

struct Trainer;

#[oxiray::remote(concurrency_groups = 2)]
impl Trainer {
    pub fn new() -> Self {
        Self
    }
}

fn main() {}
