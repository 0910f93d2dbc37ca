//! Python bindings: the module `oxiray._core`.
//!
//! ```text
//! connect.rs    a driver joins its daemon, and leaves it
//! actors.rs     actors made, found, held, killed
//! cancel.rs     calls that are not wanted any more, and how a running one is interrupted
//! caller.rs     what `.remote(...)` calls: arguments in, references out
//! reference.rs  ObjectRef, and what happens when one is pickled
//! generator.rs  ObjectRefGenerator; streaming.rs: what feeds it, in the worker
//! groups.rs     placement groups
//! ids.rs        JobID, ActorID, ...
//! blob.rs       values as bytes, and back; plain.rs: those of built-in types, without pickle
//! common.rs     values that cross to and from Rust
//! buffer.rs     memory of Python objects and Python views of our memory
//! values.rs     put, get, wait
//! metrics.rs    what programs count and measure
//! worker.rs     a worker; worker/thread.rs: what Python adds to the loop of its threads; values_of_call.rs and
//!               raised.rs: what it calls with, and what comes of it; completion.rs: how an event loop answers one
//! environment.rs  a runtime environment as the front describes it
//! template.rs   the process that forks workers
//! ```
//!
//! What all languages do in the same way is in `oxiray_client`.
//!
//! - PYTHON-1: the runtime's lock is never held while Python runs, and the GIL is never held while this
//!   waits for another process.

mod actors;
mod arrays;
mod blob;
mod buffer;
mod caller;
mod cancel;
mod common;
mod completion;
mod connect;
mod context;
mod environment;
mod generator;
mod groups;
mod ids;
mod looking;
mod memory;
mod metrics;
mod package_cache;
mod plain;
mod process;
mod profile;
mod python;
mod raised;
mod reference;
mod sites;
mod stacks;
mod state;
mod strategy;
mod streaming;
mod template;
mod values;
mod values_of_call;
mod worker;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    ids::register(module)?;
    module.add_class::<reference::ObjectRef>()?;
    module.add_class::<generator::ObjectRefGenerator>()?;
    module.add_class::<caller::Caller>()?;
    module.add_class::<actors::Hold>()?;
    module.add_class::<buffer::Pin>()?;
    module.add_class::<buffer::Private>()?;
    module.add_class::<template::Template>()?;
    module.add_class::<metrics::Metric>()?;
    module.add_class::<completion::Completion>()?;
    connect::register(module)?;
    groups::register(module)?;
    values::register(module)?;
    common::register(module)?;
    memory::register(module)?;
    sites::register(module)?;
    actors::register(module)?;
    cancel::register(module)?;
    looking::register(module)?;
    package_cache::register(module)?;
    state::register(module)?;
    worker::register(module)?;
    reference::register(module)
}
