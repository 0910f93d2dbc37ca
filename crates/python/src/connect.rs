//! A driver joins its daemon, and leaves it.

use crate::environment::AskedEnvironment;
use crate::{context, process};
use bytes::Bytes;
use oxiray_runtime::{Entry, Identity, News, Runtime};
use oxiray_visitor::session::{self, heads_first};
use oxiray_visitor::{Description, FoundSession};
use oxiray_wire::frame::HELLO_BYTES_LIMIT;
use oxiray_wire::message::{Driver, Hello, Welcome};
use oxiray_wire::{Connection, Message, Received};
use pyo3::exceptions::{PyConnectionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What of a greeting is not told here: names, token, framing.
const HELLO_BYTES_SPARED: usize = 8 << 10;
/// Characters of the command that started a program which its daemon is told.
const ENTRYPOINT_MAX: usize = 1000;

/// How long a daemon may take to answer a greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(60);

/// Raises where references must not be pickled by others than the runtime.
pub(crate) fn check_out_of_band(py: Python<'_>) -> PyResult<()> {
    py.import("oxiray._serialization")?.getattr("check_out_of_band")?.call0().map(|_| ())
}

/// Two connected stream sockets: `(ours, the child's)`, both closed on exec.
#[pyfunction]
fn socket_pair() -> PyResult<(i32, i32)> {
    let (near, far) = oxiray_wire::connection::socket_pair().map_err(std::io::Error::from)?;
    Ok((near.into_raw_fd(), far.into_raw_fd()))
}

/// The sessions of this user on this machine: heads first, those of killed daemons among them. Raises `OSError` where others
/// could enter the directory of sessions.
#[pyfunction]
fn sessions(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let found = heads_first(session::described(&session::root()?));
    let described = found.into_iter().map(|FoundSession { directory, description, is_current, is_alive }| {
        let row = PyDict::new(py);
        row.set_item("directory", directory.to_string_lossy())?;
        let Description { address, token, ip, member, .. } = description;
        row.set_item("address", address)?;
        row.set_item("token", token)?;
        row.set_item("ip", ip)?;
        row.set_item("member", member)?;
        row.set_item("current", is_current)?;
        row.set_item("alive", is_alive)?;
        Ok(row)
    });
    described.collect()
}

/// A connection to the daemon of the session in a directory.
#[pyfunction]
fn connect_session(directory: &str) -> PyResult<i32> {
    Ok(OwnedFd::from(session::connect(Path::new(directory))?).into_raw_fd())
}

/// Greets the daemon at the other end of `descriptor` and starts this process's runtime on it.
/// Raises `ConnectionError` with the daemon's reason where it refuses.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call from one place in Python, by keyword")]
#[pyo3(signature = (*, descriptor, token, interpreter, setup, namespace, wants_logs, environment, entrypoint, metadata))]
fn connect<'py>(
    py: Python<'py>,
    descriptor: i32,
    token: String,
    interpreter: String,
    setup: &[u8],
    namespace: String,
    wants_logs: bool,
    environment: AskedEnvironment,
    entrypoint: &str,
    metadata: String,
) -> PyResult<Bound<'py, PyDict>> {
    // SAFETY: the caller passes a descriptor of its own that nothing else uses.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut connection = Connection::new(socket).map_err(std::io::Error::from)?;
    let environment_bytes = environment.bytes();
    let started_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let driver = Driver {
        pid: std::process::id(),
        interpreter,
        setup: Bytes::copy_from_slice(setup),
        namespace,
        wants_logs,
        environment: Some(environment.into()),
        entrypoint: entrypoint.chars().take(ENTRYPOINT_MAX).collect(),
        started_ms,
        metadata,
    };
    let told = driver.metadata.len() + driver.setup.len() + environment_bytes;
    if told > HELLO_BYTES_LIMIT - HELLO_BYTES_SPARED {
        return Err(PyValueError::new_err(format!(
            "this program's import path and runtime_env take {told} bytes together, and a daemon reads at most {} from a \
             program it does not know yet: put large values into a file or into put()",
            HELLO_BYTES_LIMIT - HELLO_BYTES_SPARED
        )));
    }
    let entry = Entry { token: token.clone(), driver: driver.clone() };
    connection.send(&Hello { token, driver: Some(driver), ..Hello::default() });
    let _ = connection.flush();
    let greeting = py.detach(|| first_message(&mut connection, Some(Instant::now() + GREETING_LIMIT)));
    let (first, early) = greeting.map_err(PyConnectionError::new_err)?;
    let welcome = match first.message {
        Message::Welcome(welcome) => welcome,
        Message::Refused(refused) => return Err(PyValueError::new_err(refused.text)),
        _ => return Err(PyConnectionError::new_err("the daemon did not greet back: it is of another build")),
    };
    let entry = welcome.comes_back.then_some(entry);
    start(py, &welcome, connection, early, entry)
}

fn start<'py>(
    py: Python<'py>,
    welcome: &Welcome,
    connection: Connection,
    early: Vec<Received>,
    entry: Option<Entry>,
) -> PyResult<Bound<'py, PyDict>> {
    let identity = Identity::from_welcome(welcome)
        .ok_or_else(|| PyConnectionError::new_err("the daemon greeted with malformed identifiers"))?;
    let runtime = Runtime::start(identity, connection, early, None, entry)?;
    process::set(Some(runtime.clone()));
    oxiray_runtime::begin_metrics(&runtime);
    context::context(py)
}

/// The first message on a connection, and what came behind it.
pub(crate) fn first_message(
    connection: &mut Connection,
    deadline: Option<Instant>,
) -> Result<(Received, Vec<Received>), String> {
    let mut inbox = Vec::new();
    loop {
        let over = connection.receive(&mut inbox).err();
        if !inbox.is_empty() {
            let first = inbox.remove(0);
            return Ok((first, inbox));
        }
        if let Some(error) = over {
            return Err(format!("the daemon did not answer: {error}. Its daemon.log tells more"));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(format!("the daemon did not answer within {} s", GREETING_LIMIT.as_secs()));
        }
        let timeout = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let _ = rustix::event::poll(&mut [PollFd::new(connection, PollFlags::IN)], timeout.as_ref());
    }
}

/// Says that the job is over, and which exception ended its program, if one did.
#[pyfunction]
#[pyo3(signature = (error = ""))]
fn say_goodbye(error: &str) {
    if let Some(runtime) = process::current() {
        runtime.say_goodbye(error);
    }
}

/// Ends this process's runtime.
#[pyfunction]
fn disconnect(py: Python<'_>) {
    if let Some(runtime) = process::set(None) {
        runtime.close();
        py.detach(|| drop(runtime));
    }
}

/// Whether this process has a runtime.
#[pyfunction]
fn is_connected() -> bool {
    process::current().is_some()
}

/// After a fork of the user's own: the child has no runtime, and leaves the parent's alone.
#[pyfunction]
#[pyo3(name = "_after_fork")]
fn after_fork() {
    if let Some(runtime) = process::set(None) {
        runtime.abandon();
        std::mem::forget(runtime);
    }
}

/// The next thing to know: `("lines", pid, name, is_error, bytes)`, `("notice", text)`, `("ready", id)`,
/// `("unseen", exception)`, `("over",)`.
#[pyfunction]
fn next_news(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let runtime = process::required()?;
    Ok(match py.detach(|| runtime.next_news()) {
        News::Lines(said) => {
            ("lines", said.pid, said.name, said.error, PyBytes::new(py, &said.lines)).into_pyobject(py)?.into_any()
        }
        News::Notice(text) => ("notice", text).into_pyobject(py)?.into_any(),
        News::Ready(id) => ("ready", PyBytes::new(py, id.as_bytes())).into_pyobject(py)?.into_any(),
        News::Unseen(value) => match crate::values::exception(py, &value) {
            Some(error) => ("unseen", error.into_value(py)).into_pyobject(py)?.into_any(),
            None => ("unseen", py.None()).into_pyobject(py)?.into_any(),
        },
        News::Over => ("over",).into_pyobject(py)?.into_any(),
    })
}

/// What the cluster has: `(totals, available, detail as JSON)`.
#[pyfunction]
fn cluster(py: Python<'_>) -> PyResult<(Bound<'_, PyDict>, Bound<'_, PyDict>, String)> {
    let runtime = process::required()?;
    let report = py.detach(|| runtime.cluster()).map_err(|error| process::error(py, &error))?;
    Ok((context::amounts(py, &report.totals)?, context::amounts(py, &report.available)?, report.detail))
}

/// Raises `ValueError` where a task or actor may not ask for this much of a resource.
#[pyfunction]
fn check_quantity(resource: &str, quantity: f64) -> PyResult<()> {
    oxiray_families::check_quantity(resource, quantity).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The table of the families of accelerators, as JSON: `python/oxiray/_families.py` reads it.
#[pyfunction]
fn families() -> String {
    oxiray_families::table().to_string()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(socket_pair, module)?)?;
    module.add_function(wrap_pyfunction!(sessions, module)?)?;
    module.add_function(wrap_pyfunction!(connect_session, module)?)?;
    module.add_function(wrap_pyfunction!(connect, module)?)?;
    module.add_function(wrap_pyfunction!(say_goodbye, module)?)?;
    module.add_function(wrap_pyfunction!(disconnect, module)?)?;
    module.add_function(wrap_pyfunction!(is_connected, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(next_news, module)?)?;
    module.add_function(wrap_pyfunction!(cluster, module)?)?;
    module.add_function(wrap_pyfunction!(check_quantity, module)?)?;
    module.add_function(wrap_pyfunction!(families, module)?)
}
