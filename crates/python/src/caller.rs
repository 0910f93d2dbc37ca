//! What `.remote(...)` calls: arguments in, references out.

use crate::actors::Hold;
use crate::blob::Serialized;
use crate::environment::AskedEnvironment;
use crate::generator::ObjectRefGenerator;
use crate::reference::ObjectRef;
use crate::strategy::{self, StrategyTuple};
use crate::values::keep;
use crate::{common, context, process};
use bytes::Bytes;
use oxiray_client::assigned;
use oxiray_ids::ObjectId;
use oxiray_resources::Quantity;
use oxiray_runtime::{Arguments, Class, ClassIndex, INLINE_BYTES, Place, Routine, Runtime, Streaming, Work};
use oxiray_wire::message::Content;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Clone, Copy)]
enum Callee {
    Class(ClassIndex),
    Actor(oxiray_ids::ActorId),
}

/// One function with its options, or one method of one actor, ready to be called.
#[pyclass(frozen, module = "oxiray._core")]
pub(crate) struct Caller {
    runtime: Runtime,
    callee: Callee,
    work: Work,
    /// Whether another language answers.
    is_common: bool,
    least_arguments: usize,
    most_arguments: usize,
    /// `inspect.Signature.bind`: says what is wrong with arguments that do not fit.
    bind: Option<Py<PyAny>>,
    /// A method that outlives the handle it came from still keeps the actor.
    _hold: Option<Py<Hold>>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let (Callee::Class(class), false) = (self.callee, self.runtime.is_abandoned()) {
            self.runtime.release_class(class);
        }
    }
}

#[pymethods]
impl Caller {
    /// A function: its code is exported under its hash.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "one call from one place in Python, by keyword")]
    #[pyo3(signature = (*, hash, body, name, label, resources, environment, fresh, results, max_calls, retries,
                        retry_exceptions, stream, least_arguments, most_arguments, bind, strategy, common = false, urgency = (None, false)))]
    fn of_function(
        hash: &[u8],
        body: &[u8],
        name: String,
        label: String,
        resources: BTreeMap<String, f64>,
        environment: AskedEnvironment,
        fresh: bool,
        results: u32,
        max_calls: u32,
        retries: i32,
        retry_exceptions: &[u8],
        stream: Option<(u32, u32)>,
        least_arguments: usize,
        most_arguments: Option<usize>,
        bind: Option<Py<PyAny>>,
        strategy: Option<StrategyTuple>,
        common: bool,
        urgency: (Option<i32>, bool),
    ) -> PyResult<Self> {
        let runtime = process::required()?;
        let hash = Bytes::copy_from_slice(hash);
        let (demand, environment) = (units(resources)?, environment.into());
        let strategy = strategy.map(strategy::from_told).transpose()?;
        let class = runtime.class(Class {
            demand,
            environment,
            fresh,
            strategy,
            near: Vec::new(),
            priority: urgency.0.unwrap_or_else(assigned::priority),
            preemptible: urgency.1,
        });
        let routine = Arc::new(Routine {
            function: hash,
            code: Bytes::copy_from_slice(body),
            name,
            label,
            results,
            max_calls,
            retry_exceptions: Bytes::copy_from_slice(retry_exceptions),
            stream: streaming(stream),
            ..Routine::default()
        });
        let work = Work { routine, retries, ..Work::default() };
        let most_arguments = most_arguments.unwrap_or(usize::MAX);
        Ok(Self {
            runtime,
            callee: Callee::Class(class),
            work,
            is_common: common,
            least_arguments,
            most_arguments,
            bind,
            _hold: None,
        })
    }

    /// A method of an actor.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "one call from one place in Python, by keyword")]
    #[pyo3(signature = (*, hold, class_name, name, label, group, results, retries, retry_exceptions, stream,
                        unordered, pending_limit, least_arguments, most_arguments, bind, common = false))]
    fn of_method(
        hold: &Bound<'_, Hold>,
        class_name: String,
        name: String,
        label: String,
        group: String,
        results: u32,
        retries: i32,
        retry_exceptions: &[u8],
        stream: Option<(u32, u32)>,
        unordered: bool,
        pending_limit: usize,
        least_arguments: usize,
        most_arguments: Option<usize>,
        bind: Option<Py<PyAny>>,
        common: bool,
    ) -> PyResult<Self> {
        let routine = Arc::new(Routine {
            name,
            class_name,
            label,
            group,
            results,
            retry_exceptions: Bytes::copy_from_slice(retry_exceptions),
            stream: streaming(stream),
            unordered,
            pending_limit,
            ..Routine::default()
        });
        let work = Work { routine, retries, ..Work::default() };
        let runtime = process::required()?;
        let hold = Hold::on_current(hold, &runtime)?;
        Ok(Self {
            callee: Callee::Actor(hold.get().actor()),
            runtime,
            _hold: Some(hold),
            work,
            is_common: common,
            least_arguments,
            most_arguments: most_arguments.unwrap_or(usize::MAX),
            bind,
        })
    }

    /// Calls; returns a reference, a list of them, or `None`, by the number of results, or what yields references.
    fn call<'py>(&self, args: &Bound<'py, PyTuple>, kwargs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        hear_of_errors(py)?;
        let count = args.len();
        let fits = kwargs.is_empty() && self.least_arguments <= count && count <= self.most_arguments;
        if !fits && let Some(bind) = &self.bind {
            bind.bind(py).call(args, Some(kwargs))?;
        }
        let mut work = self.work.clone();
        work.arguments = if self.is_common {
            common_arguments(&self.runtime, args, kwargs)?
        } else {
            arguments(&self.runtime, args, kwargs)?
        };
        work.parent = context::current_task(py);
        let implicit = implicit(&work.arguments);
        let called = match self.callee {
            Callee::Class(class) => Ok(self.runtime.submit(class, work)),
            Callee::Actor(actor) => self.runtime.call_actor(actor, work),
        };
        if let Some(id) = implicit {
            self.runtime.release(id);
        }
        let task = called.map_err(|error| process::error(py, &error))?;
        let how = if matches!(self.callee, Callee::Class(_)) { "task call" } else { "actor call" };
        let results = (1..=self.work.results).map(|index| task.object(index));
        crate::sites::note(py, &self.runtime, results.clone(), how)?;
        if self.work.stream.is_some() {
            let generator = ObjectRefGenerator::adopt(self.runtime.clone(), task);
            return Ok(Bound::new(py, generator)?.into_any());
        }
        let mut references = results.map(|id| ObjectRef::adopt(self.runtime.clone(), id));
        match self.work.results {
            0 => Ok(py.None().into_bound(py)),
            1 => Ok(Bound::new(py, references.next().expect("a call has as many results as asked"))?.into_any()),
            _ => {
                let list = PyList::empty(py);
                for reference in references {
                    list.append(Bound::new(py, reference)?)?;
                }
                Ok(list.into_any())
            }
        }
    }
}

/// Errors that nobody looks at are told by a thread, which a process has from its first call on.
fn hear_of_errors(py: Python<'_>) -> PyResult<()> {
    static HEARS: AtomicBool = AtomicBool::new(false);
    if !HEARS.load(Ordering::Relaxed) && !HEARS.swap(true, Ordering::Relaxed) {
        py.import("oxiray._events")?.call_method0("start")?;
    }
    Ok(())
}

/// How results come one by one: how many at most before one is read, and how many each yield has.
fn streaming(terms: Option<(u32, u32)>) -> Option<Streaming> {
    terms.map(|(ahead, per_yield)| Streaming { ahead, per_yield })
}

/// Arguments as they travel. References stand outside of the pickled rest, so that values can take their place.
pub(crate) fn arguments(
    runtime: &Runtime,
    args: &Bound<'_, PyTuple>,
    kwargs: &Bound<'_, PyDict>,
) -> PyResult<Arguments> {
    let py = args.py();
    if args.is_empty() && kwargs.is_empty() {
        return Ok(Arguments::default());
    }
    let mut references = Vec::new();
    for (position, argument) in args.iter_borrowed().enumerate() {
        if let Ok(reference) = argument.cast::<ObjectRef>() {
            references.push((Place::Position(position as u32), reference.get().id_on(runtime)?));
        }
    }
    for (keyword, argument) in kwargs.iter() {
        if let Ok(reference) = argument.cast::<ObjectRef>() {
            references.push((Place::Keyword(keyword.extract()?), reference.get().id_on(runtime)?));
        }
    }
    let (args, kwargs) = without(args, kwargs, &references)?;
    let kwargs = (!kwargs.is_empty()).then_some(kwargs);
    let serialized = Serialized::of((args, kwargs).into_pyobject(py)?.as_any())?;
    packed(py, runtime, serialized, references)
}

/// Arguments for another language: by their places alone.
pub(crate) fn common_arguments(
    runtime: &Runtime,
    args: &Bound<'_, PyTuple>,
    kwargs: &Bound<'_, PyDict>,
) -> PyResult<Arguments> {
    let py = args.py();
    if let Some(name) = kwargs.keys().iter().next() {
        return Err(PyTypeError::new_err(format!(
            "{name} was passed by its name, and Rust takes arguments by their place: leave the name out"
        )));
    }
    let mut references = Vec::new();
    for (position, argument) in args.iter_borrowed().enumerate() {
        if let Ok(reference) = argument.cast::<ObjectRef>() {
            references.push((Place::Position(position as u32), reference.get().id_on(runtime)?));
        }
    }
    let (args, _) = without(args, kwargs, &references)?;
    packed(py, runtime, common::serialized(args.as_any())?, references)
}

/// With the message where they are small, and as an object otherwise.
fn packed(
    py: Python<'_>,
    runtime: &Runtime,
    serialized: Serialized,
    mut references: Vec<(Place, ObjectId)>,
) -> PyResult<Arguments> {
    let contained = serialized.contained.clone();
    if serialized.size() <= INLINE_BYTES {
        return Ok(Arguments { payload: serialized.into_bytes(), references, contained });
    }
    let (task, index) = runtime.next_put(serialized.size());
    let value = keep(py, runtime, task.object(index), serialized, INLINE_BYTES)?;
    references.push((Place::Everything, runtime.put(task, index, value)));
    Ok(Arguments { payload: Bytes::new(), references, contained })
}

/// The object that stands for arguments too large to travel; it has one use for the caller.
pub(crate) fn implicit(arguments: &Arguments) -> Option<ObjectId> {
    arguments.references.iter().find(|(place, _)| *place == Place::Everything).map(|(_, id)| *id)
}

type Split<'py> = (Bound<'py, PyTuple>, Bound<'py, PyDict>);

fn without<'py>(
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
    references: &[(Place, ObjectId)],
) -> PyResult<Split<'py>> {
    if references.is_empty() {
        return Ok((args.clone(), kwargs.clone()));
    }
    let py = args.py();
    let mut items: Vec<Bound<'py, PyAny>> = args.iter().collect();
    let kwargs = kwargs.copy()?;
    for (place, _) in references {
        match place {
            Place::Position(position) => items[*position as usize] = py.None().into_bound(py),
            Place::Keyword(keyword) => kwargs.set_item(keyword, py.None())?,
            Place::Everything => {}
        }
    }
    Ok((PyTuple::new(py, items)?, kwargs))
}

/// Quantities as the ledger counts them.
pub(crate) fn units(resources: BTreeMap<String, f64>) -> PyResult<Vec<(String, u64)>> {
    let counted = |(name, quantity): (String, f64)| match Quantity::from_f64(quantity) {
        Ok(counted) => Ok((name, counted.units())),
        Err(error) => Err(PyValueError::new_err(format!("{quantity} of resource `{name}` was asked for: {error}"))),
    };
    let counted: Vec<(String, u64)> = resources.into_iter().map(counted).collect::<PyResult<_>>()?;
    Ok(counted.into_iter().filter(|(_, units)| *units > 0).collect())
}

/// Whether a failed value's content is an error.
pub(crate) fn is_error(content: Option<&Content>) -> bool {
    matches!(content, Some(Content::Raised(_) | Content::Failed(_)))
}
