//! `ObjectRef`: a value that is here, elsewhere, or still being made.

use crate::ids::{JobID, TaskID, hash, wrong_length};
use crate::plain::Uncollected;
use crate::{process, python};
use oxiray_client::borrowing;
use oxiray_ids::{ObjectId, WorkerId};
use oxiray_runtime::Runtime;
use oxiray_values::{Blob, RawReference};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use std::cell::RefCell;

thread_local! {
    /// References met while a value is pickled in this thread; `None` outside of the runtime's pickling.
    static CONTAINED: RefCell<Option<Contained>> = const { RefCell::new(None) };
    /// References that the value contains which is unpickled in this thread.
    static EXPECTED: RefCell<Option<Expected>> = const { RefCell::new(None) };
}

/// What `__reduce__` returns: how to make the reference anew, and of what.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, Bound<'py, PyBytes>));

#[derive(Default)]
struct Contained {
    ids: Vec<ObjectId>,
    /// The owner of the last of them. Pickle writes the same object once, and most references of a value have one owner.
    owner: Option<(WorkerId, Py<PyBytes>)>,
}

/// Notes the references that one value contains.
pub(crate) struct Collected {
    outer: Option<Contained>,
}

impl Collected {
    pub(crate) fn begin() -> Self {
        Self { outer: CONTAINED.replace(Some(Contained::default())) }
    }

    pub(crate) fn end(self) -> Vec<ObjectId> {
        CONTAINED.replace(self.outer).unwrap_or_default().ids
    }
}

fn owner_bytes(py: Python<'_>, owner: WorkerId) -> Bound<'_, PyBytes> {
    let make = || PyBytes::new(py, owner.as_bytes());
    CONTAINED.with_borrow_mut(|contained| match contained {
        None => make(),
        Some(Contained { owner: Some((last, bytes)), .. }) if *last == owner => bytes.bind(py).clone(),
        Some(contained) => {
            let bytes = make();
            contained.owner = Some((owner, bytes.clone().unbind()));
            bytes
        }
    })
}

/// References that are about to be unpickled, in the order in which they were pickled, each with one use counted.
struct Expected {
    runtime: Runtime,
    ids: std::vec::IntoIter<ObjectId>,
}

/// While this lives, the references inside of an object's value take uses that were counted together, so that not each of
/// them asks for the runtime's lock. One that comes out of turn counts its own; what is left over is given back.
pub(crate) struct Expecting<'py> {
    outer: Option<Expected>,
    _uncollected: Option<Uncollected<'py>>,
}

impl<'py> Expecting<'py> {
    /// From so many references on Python's collector waits until all are made: it would look at them again and again,
    /// and none of them is garbage.
    const MANY: usize = 256;

    /// Has the value of `id` unpickled in this thread, which contains so many references.
    pub(crate) fn begin(py: Python<'py>, runtime: &Runtime, id: ObjectId, contained: usize) -> Option<Self> {
        if contained == 0 {
            return None;
        }
        let mut ids = runtime.use_contained(id);
        // Handles of actors count themselves.
        let anchors: Vec<ObjectId> = ids.extract_if(.., |inner| inner.anchored_actor().is_some()).collect();
        runtime.release_all(&anchors);
        let expected = Expected { runtime: runtime.clone(), ids: ids.into_iter() };
        let uncollected = (contained >= Self::MANY).then(|| Uncollected::begin(py));
        Some(Self { outer: EXPECTED.replace(Some(expected)), _uncollected: uncollected })
    }

    fn take(id: ObjectId) -> Option<Runtime> {
        EXPECTED.with_borrow_mut(|expected| {
            let expected = expected.as_mut()?;
            (expected.ids.as_slice().first() == Some(&id)).then(|| {
                expected.ids.next();
                expected.runtime.clone()
            })
        })
    }
}

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        if let Some(left) = EXPECTED.replace(self.outer.take()) {
            left.runtime.release_all(left.ids.as_slice());
        }
    }
}

/// The value that is pickled in this thread contains the object; `false` where the runtime pickles nothing.
pub(crate) fn note_contained(id: ObjectId) -> bool {
    CONTAINED.with_borrow_mut(|contained| contained.as_mut().map(|contained| contained.ids.push(id)).is_some())
}

/// A reference to a value. The value is kept as long as references to it exist.
#[pyclass(frozen, weakref, subclass, module = "oxiray")]
pub(crate) struct ObjectRef {
    pub(crate) id: ObjectId,
    runtime: Option<Runtime>,
}

impl ObjectRef {
    /// Takes over one use that was counted already.
    pub(crate) fn adopt(runtime: Runtime, id: ObjectId) -> Self {
        Self { id, runtime: Some(runtime) }
    }

    /// The object's id, where the reference belongs to this connection.
    pub(crate) fn id_on(&self, runtime: &Runtime) -> PyResult<ObjectId> {
        if self.runtime.as_ref().is_some_and(|own| own.is(runtime)) {
            return Ok(self.id);
        }
        Err(PyValueError::new_err(format!(
            "An application is trying to access a Ray object whose owner is unknown ({}): the reference is of a connection \
             that has ended, or of none. Values do not outlive shutdown(): make it anew",
            self.id
        )))
    }
}

impl Drop for ObjectRef {
    fn drop(&mut self) {
        if let Some(runtime) = &self.runtime
            && !runtime.is_abandoned()
        {
            runtime.release(self.id);
        }
    }
}

#[pymethods]
impl ObjectRef {
    /// A reference from its 28 bytes; only where the object is known to this process.
    #[new]
    fn new(id: &[u8]) -> PyResult<Self> {
        let id = parse(id)?;
        let runtime = process::current();
        if let Some(runtime) = &runtime {
            runtime.borrow(id, runtime.identity().worker);
        }
        Ok(Self { id, runtime })
    }

    /// As the constructor.
    #[staticmethod]
    fn from_binary(id: &[u8]) -> PyResult<Self> {
        Self::new(id)
    }

    /// A reference from its 56 hexadecimal digits; only where the object is known to this process.
    #[staticmethod]
    fn from_hex(hex: &str) -> PyResult<Self> {
        let id = ObjectId::from_hex(hex).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Self::new(id.as_bytes())
    }

    #[staticmethod]
    pub(crate) fn nil() -> Self {
        Self { id: ObjectId::NIL, runtime: None }
    }

    #[staticmethod]
    fn from_random() -> Self {
        Self { id: ObjectId::new(oxiray_ids::random()), runtime: None }
    }

    #[staticmethod]
    fn size() -> usize {
        ObjectId::BYTES
    }

    #[classmethod]
    fn __class_getitem__(class: &Bound<'_, PyType>, _item: &Bound<'_, PyAny>) -> Py<PyType> {
        class.clone().unbind()
    }

    fn hex(&self) -> String {
        self.id.hex()
    }

    fn binary<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.id.as_bytes())
    }

    fn is_nil(&self) -> bool {
        self.id.is_nil()
    }

    fn task_id(&self) -> TaskID {
        TaskID(self.id.task())
    }

    fn job_id(&self) -> JobID {
        JobID(self.id.task().job())
    }

    /// The process that owns the value, as its identifier's bytes.
    fn owner_address<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        match &self.runtime {
            Some(runtime) => PyBytes::new(py, runtime.owner(self.id).as_bytes()),
            None => PyBytes::new(py, &[]),
        }
    }

    /// Where the reference was made; empty where that is not recorded.
    fn call_site(&self) -> String {
        self.runtime.as_ref().map(|runtime| runtime.site(self.id)).unwrap_or_default()
    }

    /// A `concurrent.futures.Future` of the value.
    fn future<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("oxiray._events")?.getattr("future")?.call1((slf,))
    }

    /// Has another thread call `callback` with the value, or with the exception that it is, once that is there.
    fn _on_completed<'py>(slf: &Bound<'py, Self>, callback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        slf.py().import("oxiray._events")?.getattr("on_completed")?.call1((slf, callback))?;
        Ok(slf.clone())
    }

    /// Has another thread call `callback(None)` once the value is there, or the error that it is, and without fetching it; with
    /// an exception where the connection ends before. Returns what calls that off.
    fn _on_ready<'py>(slf: &Bound<'py, Self>, callback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("oxiray._events")?.getattr("on_ready")?.call1((slf, callback))
    }

    /// An `asyncio.Future` of the value, in the loop that runs, else in that of this thread.
    #[pyo3(signature = (_internal = false))]
    fn as_future<'py>(slf: &Bound<'py, Self>, _internal: bool) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("oxiray._events")?.getattr("as_future")?.call1((slf,))
    }

    /// An `asyncio.Future` of this reference, when its value is there, or the error that it is, and without fetching it.
    fn _ready<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("oxiray._events")?.getattr("as_future_of_itself")?.call1((slf,))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::as_future(slf, false)?.call_method0("__await__")
    }

    fn __hash__(&self) -> u64 {
        hash(&self.id)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().id == self.id)
    }

    fn __repr__(&self) -> String {
        format!("ObjectRef({})", self.id)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let py = slf.py();
        let this = slf.get();
        let runtime = process::required()?;
        this.id_on(&runtime)?;
        if !note_contained(this.id) {
            crate::connect::check_out_of_band(py)?;
            // Nobody knows when such a copy is gone, so the value is kept for as long as this process lives.
            runtime.retain(this.id);
            runtime.promise(&[this.id]);
        }
        let owner = owner_bytes(py, runtime.owner(this.id));
        Ok((python::borrow(py)?.clone(), (PyBytes::new(py, this.id.as_bytes()), owner)))
    }
}

/// The reference as part of a value for every language.
pub(crate) fn as_common(this: &Bound<'_, ObjectRef>) -> PyResult<RawReference> {
    let runtime = process::required()?;
    let id = this.get().id_on(&runtime)?;
    if !note_contained(id) {
        return Err(PyValueError::new_err(
            "a reference cannot be part of this value: pass it as an argument of its own",
        ));
    }
    let owner = runtime.owner(id);
    Ok(RawReference { object: Blob::from(&id.as_bytes()[..]), owner: Blob::from(&owner.as_bytes()[..]) })
}

fn parse(id: &[u8]) -> PyResult<ObjectId> {
    ObjectId::from_slice(id).ok_or_else(|| PyValueError::new_err(wrong_length("ObjectRef", ObjectId::BYTES, id.len())))
}

/// A reference that was pickled.
#[pyfunction]
#[pyo3(name = "_borrow")]
pub(crate) fn borrow(id: &[u8], owner: &[u8]) -> PyResult<ObjectRef> {
    let id = parse(id)?;
    let runtime = if let Some(runtime) = Expecting::take(id) {
        runtime
    } else {
        let runtime = process::required()?;
        runtime.borrow(id, WorkerId::from_slice(owner).unwrap_or(WorkerId::NIL));
        runtime
    };
    borrowing::note(id);
    Ok(ObjectRef::adopt(runtime, id))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(borrow, module)?)
}
