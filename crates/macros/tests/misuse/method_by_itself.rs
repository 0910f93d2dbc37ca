//! Misuse: method by itself.

extern crate oxiray_macros as oxiray;

struct Trainer;

impl Trainer {
    #[oxiray::remote]
    pub fn train(&self) {}
}

fn main() {}
