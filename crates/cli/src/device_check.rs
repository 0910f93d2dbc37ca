//! `oxiray device-check`: what a daemon runs to find out whether a device computes and remembers. It prints one line.

use crate::say;
use oxiray_device_check::{CheckError, check};
use std::path::PathBuf;

/// Names the library to load instead of the system's.
const LIBRARY_VARIABLE: &str = "OXIRAY_CUDA_LIBRARY";
/// The name under which the NVIDIA driver installs CUDA's driver API.
const LIBRARY: &str = "libcuda.so.1";

pub(crate) fn run() {
    let library = std::env::var_os(LIBRARY_VARIABLE).map_or_else(|| PathBuf::from(LIBRARY), PathBuf::from);
    match check(&library) {
        Ok(()) => say("passed"),
        Err(CheckError::Failed(how)) => say(&format!("failed: {how}")),
        Err(CheckError::NotMade(why)) => say(&format!("not-made: {why}")),
    }
}
