//! The oxiray command.
fn main() {}
