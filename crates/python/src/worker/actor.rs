//! The actor that a worker is, and the names that a worker's output and process have.

use super::{Worker, flush_output};
use crate::context::{self, Running};
use crate::raised::raised;
use crate::values::exception;
use crate::values_of_call::mark_as_of_argument;
use crate::{caller, common, python};
use oxiray_client::borrowing;
use oxiray_wire::message::{ActorCreate, Value};
use pyo3::exceptions::{PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::PoisonError;

impl Worker {
    /// Makes the actor; `false` where its constructor failed, which the daemon was told.
    pub(super) fn construct(&self, py: Python<'_>, create: &ActorCreate) -> bool {
        self.class.get_or_init(|| create.class_name.clone());
        self.label(py, &create.class_name);
        let id = create.actor;
        let name = format!("{}.__init__", create.class_name);
        let task = id.creation_task();
        oxiray_runtime::show_title(&name);
        context::enter(Running::new(task, name.clone(), "__init__".into()));
        self.runtime.constructor_begins(create);
        oxiray_runtime::begin_prints(task, 0, false);
        borrowing::begin();
        if let Some(flaw) = self.flaw() {
            self.runtime.actor_failed(flaw);
            return false;
        }
        let failed = create
            .references
            .iter()
            .find_map(|reference| reference.value.clone().filter(|value| caller::is_error(value.content.as_ref())));
        let made = match failed {
            Some(value) if common::is_common(&create.arguments) => {
                self.runtime.actor_failed(value);
                return false;
            }
            Some(value) => Err(argument_error(py, &value)),
            None => {
                self.arguments(py, &create.arguments, &create.references, Some(task)).and_then(|(args, kwargs, _)| {
                    let kwargs = kwargs.unwrap_or_else(|| PyDict::new(py));
                    let (class, traits) = (PyBytes::new(py, &create.class), PyBytes::new(py, &create.handle));
                    python::construct(py)?
                        .call1((class, args, kwargs, traits))?
                        .extract::<(Py<PyAny>, Option<String>)>()
                })
            }
        };
        context::leave();
        oxiray_runtime::show_title(&create.class_name);
        flush_output(py);
        oxiray_runtime::end_prints(task, 0, made.is_err());
        let borrowed = borrowing::end();
        match made {
            Ok((actor, name)) => {
                *self.actor.lock().unwrap_or_else(PoisonError::into_inner) = Some(actor);
                if let Some(name) = &name {
                    self.relabel(py, name);
                    oxiray_runtime::label_output(name);
                }
                self.runtime.actor_ready(&borrowed, name.unwrap_or_default());
                true
            }
            Err(error) if error.is_instance_of::<PySystemExit>(py) => {
                self.end_with_status_of(py, &error);
                self.runtime.actor_leaving("its constructor called sys.exit()".into(), false);
                false
            }
            Err(error) => {
                self.runtime.actor_failed(raised(py, &name, task, &error, common::is_common(&create.arguments)));
                false
            }
        }
    }

    pub(super) fn qualified(&self, name: &str) -> String {
        self.class.get().map_or_else(|| name.to_owned(), |class| format!("{class}.{name}"))
    }

    /// Labels the output of the call that begins; that of an actor keeps the name that it has.
    pub(super) fn label(&self, py: Python<'_>, name: &str) {
        let label = self.label.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = *label == name || (!label.is_empty() && self.class.get().is_some());
        drop(label);
        if !is_kept {
            self.relabel(py, name);
        }
    }

    fn relabel(&self, py: Python<'_>, name: &str) {
        // What the last one printed without a newline is still in Python's buffers. Nothing is locked meanwhile, since
        // other threads run.
        flush_output(py);
        name.clone_into(&mut self.label.lock().unwrap_or_else(PoisonError::into_inner));
        oxiray_runtime::label_next_call(name);
    }
}

/// What the constructor fails with that has this error for an argument.
fn argument_error(py: Python<'_>, value: &Value) -> PyErr {
    let error =
        exception(py, value).unwrap_or_else(|| PyRuntimeError::new_err("an argument is an error without content"));
    mark_as_of_argument(py, &error);
    error
}
