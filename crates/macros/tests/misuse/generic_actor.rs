//! Misuse: generic actor.

extern crate oxiray_macros as oxiray;

struct Trainer<T>(T);

#[oxiray::remote]
impl<T> Trainer<T> {
    pub fn new(data: T) -> Self {
        Self(data)
    }
}

fn main() {}
