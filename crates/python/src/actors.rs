//! Actors as Python asks for them: made, found, held, handed on, killed.

use crate::caller::{arguments, common_arguments, implicit, units};
use crate::environment::AskedEnvironment;
use crate::ids::ActorID;
use crate::reference::note_contained;
use crate::strategy::{self, StrategyTuple};
use crate::{connect, process, python};
use bytes::Bytes;
use oxiray_client::{assigned, borrowing};
use oxiray_ids::ActorId;
use oxiray_runtime::{ActorPhase, ActorWork, Runtime, amounts};
use oxiray_wire::message::{ActorCreate, ConcurrencyGroup};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use std::collections::BTreeMap;

/// Counts one handle of an actor for as long as it lives.
#[pyclass(frozen, module = "oxiray._core")]
pub(crate) struct Hold {
    runtime: Runtime,
    actor: ActorId,
    /// Whether the actor lives as long as the handle; not so where the handle was found by the actor's name.
    keeps: bool,
}

impl Hold {
    fn on(runtime: Runtime, actor: ActorId, keeps: bool) -> Self {
        runtime.retain_actor(actor, keeps);
        Self { runtime, actor, keeps }
    }

    /// The same hold, or, where it is of a connection that has ended, one on this.
    pub(crate) fn on_current(this: &Bound<'_, Self>, runtime: &Runtime) -> PyResult<Py<Self>> {
        if this.get().runtime.is(runtime) {
            return Ok(this.clone().unbind());
        }
        Py::new(this.py(), Self::on(runtime.clone(), this.get().actor, false))
    }

    pub(crate) fn actor(&self) -> ActorId {
        self.actor
    }
}

#[pymethods]
impl Hold {
    #[new]
    #[pyo3(signature = (actor, keeps = true))]
    fn new(actor: &Bound<'_, ActorID>, keeps: bool) -> PyResult<Self> {
        let actor = actor.get().0;
        if keeps {
            borrowing::note(actor.anchor());
        }
        Ok(Self::on(process::required()?, actor, keeps))
    }

    /// Whether the actor belongs to this process's connection.
    fn is_current(&self) -> bool {
        process::current().is_some_and(|runtime| runtime.is(&self.runtime))
    }

    /// Whether the actor lives as long as the handle.
    #[getter]
    fn keeps(&self) -> bool {
        self.keeps
    }

    /// The handle is pickled: whatever that becomes part of holds the actor.
    fn hand_on(&self, py: Python<'_>) -> PyResult<()> {
        if !self.keeps || note_contained(self.actor.anchor()) || !self.is_current() {
            return Ok(());
        }
        connect::check_out_of_band(py)?;
        // Nobody knows when such a copy is gone.
        let driver = assigned::current().driver.unwrap_or(self.runtime.identity().worker);
        self.runtime.keep_for_job(self.actor, driver);
        Ok(())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, (ActorID, bool))> {
        let this = slf.get();
        this.hand_on(slf.py())?;
        Ok((slf.get_type(), (ActorID(this.actor), this.keeps)))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.runtime.is_abandoned() {
            self.runtime.release_actor(self.actor, self.keeps);
        }
    }
}

/// Makes an actor: `(ActorID, Hold, None)` for a new one, `(ActorID, Hold, handle)` for one of that name that existed.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call from one place in Python, by keyword")]
#[pyo3(signature = (*, class_name, body, args, kwargs, placement, running, environment, name, namespace, detached,
                    get_if_exists, max_concurrency, groups, max_restarts, handle, strategy, common = false,
                    urgency = (None, false)))]
fn create_actor<'py>(
    py: Python<'py>,
    class_name: String,
    body: &[u8],
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
    placement: BTreeMap<String, f64>,
    running: BTreeMap<String, f64>,
    environment: AskedEnvironment,
    name: String,
    namespace: String,
    detached: bool,
    get_if_exists: bool,
    max_concurrency: u32,
    groups: Vec<(String, u32)>,
    max_restarts: i32,
    handle: &[u8],
    strategy: Option<StrategyTuple>,
    common: bool,
    urgency: (Option<i32>, bool),
) -> PyResult<(ActorID, Hold, Option<Bound<'py, PyBytes>>)> {
    let runtime = process::required()?;
    let arguments = if common { common_arguments(&runtime, args, kwargs)? } else { arguments(&runtime, args, kwargs)? };
    let named = !name.is_empty();
    let create = ActorCreate {
        name,
        namespace,
        detached,
        get_if_exists,
        placement: amounts(&units(placement)?),
        running: amounts(&units(running)?),
        environment: Some(environment.into()),
        class_name,
        class: Bytes::copy_from_slice(body),
        handle: Bytes::copy_from_slice(handle),
        max_concurrency,
        groups: groups.into_iter().map(|(name, limit)| ConcurrencyGroup { name, limit }).collect(),
        max_restarts,
        strategy: strategy.map(strategy::from_told).transpose()?,
        priority: urgency.0.unwrap_or_else(assigned::priority),
        preemptible: urgency.1,
        ..ActorCreate::default()
    };
    let implicit = implicit(&arguments);
    let mut work = Some(ActorWork { create, named, arguments, parent: crate::context::current_task(py) });
    let made = py.detach(|| runtime.create_actor(work.take().expect("it is made once")));
    if let Some(id) = implicit {
        runtime.release(id);
    }
    let (id, answer) = made.map_err(|error| process::error(py, &error))?;
    let existing = answer.filter(|answer| answer.existed).map(|answer| python::bytes(py, &answer.handle));
    let keeps = existing.is_none();
    Ok((ActorID(id), Hold { runtime, actor: id, keeps }, existing))
}

/// The actor of this name: `(ActorID, handle)`.
#[pyfunction]
fn find_actor<'py>(py: Python<'py>, name: &str, namespace: &str) -> PyResult<(ActorID, Bound<'py, PyBytes>)> {
    let runtime = process::required()?;
    let answer = py.detach(|| runtime.find_actor(name, namespace)).map_err(|error| process::error(py, &error))?;
    let id = answer.actor.ok_or_else(|| PyRuntimeError::new_err("the daemon named an actor without an id"))?;
    Ok((ActorID(id), python::bytes(py, &answer.handle)))
}

/// Ends an actor's process; `restart` is whether there may be another.
#[pyfunction]
fn kill_actor(actor: &Bound<'_, ActorID>, restart: bool) -> PyResult<()> {
    process::required()?.kill_actor(actor.get().0, restart);
    Ok(())
}

/// What this process knows of an actor, in the words of Ray's states, without asking anybody; `None` where that is nothing.
#[pyfunction]
fn actor_phase(actor: &Bound<'_, ActorID>) -> PyResult<Option<&'static str>> {
    Ok(process::required()?.actor_phase(actor.get().0).map(|phase| match phase {
        ActorPhase::Pending => "PENDING_CREATION",
        ActorPhase::Alive => "ALIVE",
        ActorPhase::Restarting => "RESTARTING",
        ActorPhase::Dead => "DEAD",
    }))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(create_actor, module)?)?;
    module.add_function(wrap_pyfunction!(actor_phase, module)?)?;
    module.add_function(wrap_pyfunction!(find_actor, module)?)?;
    module.add_function(wrap_pyfunction!(kill_actor, module)?)
}
