//! Misuse: consuming method.

extern crate oxiray_macros as oxiray;

struct Counter;

#[oxiray::remote]
impl Counter {
    pub fn new() -> Self {
        Self
    }

    pub fn end(self) {}
}

fn main() {}
