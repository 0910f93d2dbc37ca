//! Misuse: trait of an actor.

extern crate oxiray_macros as oxiray;

struct Trainer;

#[oxiray::remote]
impl Default for Trainer {
    fn default() -> Self {
        Self
    }
}

fn main() {}
