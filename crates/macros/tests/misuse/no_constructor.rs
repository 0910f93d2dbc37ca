//! Misuse: no constructor.

extern crate oxiray_macros as oxiray;

struct Counter;

#[oxiray::remote]
impl Counter {
    pub fn add(&mut self) {}
}

fn main() {}
