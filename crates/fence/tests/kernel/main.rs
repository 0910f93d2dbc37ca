//! Fences that the running kernel holds.
//!
//! What a test needs and the kernel refuses (no root, no writable cgroups, no Landlock) it says, and is skipped.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

mod attempts;
mod cgroup;
mod landlock;
mod means;
mod strays;
