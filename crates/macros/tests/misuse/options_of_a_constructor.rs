//! Misuse: options of a constructor.

extern crate oxiray_macros as oxiray;

struct Trainer;

#[oxiray::remote]
impl Trainer {
    #[remote(max_unread = 1)]
    pub fn new() -> Self {
        Self
    }

    pub fn train(&self) {}
}

fn main() {}
