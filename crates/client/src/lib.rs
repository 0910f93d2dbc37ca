//! What drivers, templates and workers of every language do the same way.
//!
//! A *client* is a process with the runtime in it. A front, the Rust API or the extension module of Python, is a language's
//! way to write programs; what is the same in all of them is here, and knows no language.
//!
//! ```text
//! driver     driver.rs    finds the cluster that is meant, enters it
//!            daemon.rs    the private daemon of a driver: its program, its start, its end
//! template   template.rs  forks workers as the daemon asks for them
//! worker     worker.rs    how a worker begins, and how it ends
//!            call.rs      a call: run, perhaps again, and answered; the thread that does so (`attend`)
//!            language.rs  what a language adds to that
//!            functions.rs, assigned.rs, borrowing.rs   what a worker knows of functions, of itself, of references
//! both       process.rs   the one runtime of the process
//!            demand.rs    what tasks and actors ask for where their program does not say
//!            isolation.rs the words for how far processes are kept from devices
//!            package_cache.rs   what workers are made of, kept for this user's programs of every language
//! ```

pub mod assigned;
pub mod borrowing;
mod call;
pub mod daemon;
pub mod demand;
pub mod driver;
mod functions;
pub mod isolation;
mod language;
pub mod package_cache;
mod pinning;
pub mod process;
pub mod template;
pub mod worker;

pub use assigned::Assigned;
pub use call::{UnderWay, attend, complete};
pub use functions::Functions;
pub use language::{Attempt, Language};
