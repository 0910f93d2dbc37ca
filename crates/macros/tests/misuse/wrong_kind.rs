//! Misuse: wrong kind.

extern crate oxiray_macros as oxiray;

#[oxiray::remote(max_retries = 1.5)]
fn retried() {}

#[oxiray::remote(num_cpus = "two")]
fn counted() {}

#[oxiray::remote(max_retries = -2)]
fn endless() {}

#[oxiray::remote(retry_exceptions = "all")]
fn stubborn() {}

fn main() {}
