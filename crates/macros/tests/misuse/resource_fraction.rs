//! Misuse: resource fraction.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(resources(NPU = 2.5))]
fn train() {}

fn main() {}
