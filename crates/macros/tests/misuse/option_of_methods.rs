//! Misuse: option of methods.

extern crate oxiray_macros as oxiray;

struct Trainer;

#[oxiray::remote]
impl Trainer {
    pub fn new() -> Self {
        Self
    }

    #[remote(num_gpus = 1)]
    pub fn train(&self) {}
}

fn main() {}
