//! Misuse: options of main.

extern crate oxiray_macros as oxiray;

#[oxiray::main(num_gpus = 1)]
fn main() {}
