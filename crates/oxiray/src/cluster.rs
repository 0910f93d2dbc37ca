//! This process's connection to a cluster: begun, and ended.

use crate::error::{Error, Result};
use crate::{context, folder, news, process, template};
use bytes::Bytes;
use oxiray_families::GPU;
use oxiray_node::Config;
use oxiray_runtime::{Entry, Identity, Runtime};
use oxiray_visitor::session::{self, heads_first};
use oxiray_visitor::{Description, FoundSession};
use oxiray_wire::message::{Driver, Environment, Hello, Variable, Welcome};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a daemon may take to answer a greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(60);
/// How long a private daemon may take to end its workers.
const DAEMON_END_LIMIT: Duration = Duration::from_secs(20);
/// How long the last output of workers may take to arrive.
const LAST_NEWS_LIMIT: Duration = Duration::from_secs(10);
/// Characters of the command that started a program which its daemon is told.
const ENTRYPOINT_MAX: usize = 1000;

/// How to connect, and what a private cluster is to have.
///
/// ```standalone_crate
/// fn main() -> oxiray::Result<()> {
///     let cluster = oxiray::Builder::new().address("local").num_cpus(4.0).num_gpus(2.0).init()?;
///     println!("a cluster of its own at {}", cluster.address());
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    address: Option<String>,
    resources: BTreeMap<String, f64>,
    labels: BTreeMap<String, String>,
    object_store_memory: Option<u64>,
    namespace: String,
    shows_output: bool,
    variables: BTreeMap<String, String>,
    python: String,
    working_dir: Option<PathBuf>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            address: None,
            resources: BTreeMap::new(),
            labels: BTreeMap::new(),
            object_store_memory: None,
            namespace: String::new(),
            shows_output: true,
            variables: BTreeMap::new(),
            python: std::env::var("OXIRAY_PYTHON").unwrap_or_else(|_| "python3".into()),
            working_dir: None,
        }
    }
}

/// The connection. When it is dropped, the job is over: what its tasks still do is ended, and so is a private cluster.
#[derive(Debug)]
#[must_use = "the connection ends when this is dropped"]
pub struct Cluster {
    /// Nothing in a worker, which had its connection before.
    runtime: Option<Runtime>,
    daemon: Option<Child>,
}

/// Connects to the cluster that runs on this machine, or starts a private one that ends with this process: call it first
/// in `main`, and keep what it returns.
///
/// The daemon starts this same program as its workers. Such a process never returns from here; whatever `main` does
/// before is done there, too.
pub fn init() -> Result<Cluster> {
    Builder::new().init()
}

impl Builder {
    /// Nothing said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The cluster to connect to: its address, `auto` for whichever runs on this machine, or `local` for a private one.
    #[must_use]
    pub fn address(mut self, address: &str) -> Self {
        self.address = Some(address.to_owned());
        self
    }

    /// How many CPUs a private cluster has; those of the machine where nothing is said.
    #[must_use]
    pub fn num_cpus(self, count: f64) -> Self {
        self.resource("CPU", count)
    }

    /// How many GPUs a private cluster has; those of the machine where nothing is said.
    #[must_use]
    pub fn num_gpus(self, count: f64) -> Self {
        self.resource(GPU.name, count)
    }

    /// How much of any resource a private cluster has.
    #[must_use]
    pub fn resource(mut self, name: &str, quantity: f64) -> Self {
        self.resources.insert(name.to_owned(), quantity);
        self
    }

    /// A label of a private cluster's one node.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Bytes of a private cluster's object store.
    #[must_use]
    pub fn object_store_memory(mut self, bytes: u64) -> Self {
        self.object_store_memory = Some(bytes);
        self
    }

    /// Where this job's actors have their names; one of its own where nothing is said.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Whether what workers print is printed here; so where nothing is said.
    #[must_use]
    pub fn show_output(mut self, show: bool) -> Self {
        self.shows_output = show;
        self
    }

    /// An environment variable for all tasks and actors of the job.
    #[must_use]
    pub fn env_var(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A folder, or a `.zip` file, that is shipped to wherever tasks and actors of the job run, and is their directory
    /// there; see [`crate::TaskOptions::working_dir`]. Where nothing is said they are in this program's directory, on
    /// machines that have it.
    #[must_use]
    pub fn working_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.working_dir = Some(folder.as_ref().to_owned());
        self
    }

    /// The interpreter that runs the Python functions which this program calls; `python3`, or what `OXIRAY_PYTHON` names,
    /// where nothing is said.
    #[must_use]
    pub fn python(mut self, interpreter: &str) -> Self {
        interpreter.clone_into(&mut self.python);
        self
    }

    /// Connects, see [`init`].
    pub fn init(self) -> Result<Cluster> {
        template::serve_if_asked();
        if context::is_worker() {
            return Ok(Cluster { runtime: None, daemon: None });
        }
        if process::current().is_some() {
            return Err(Error::Invalid(
                "this process is connected already: keep what the first init() returned".into(),
            ));
        }
        folder::set_of_job(self.working_dir.as_deref())?;
        let (stream, token, mut daemon) = if let Some(FoundSession { directory, description, .. }) = self.find()? {
            self.refuse_capacity(&description)?;
            let stream = session::connect(&directory).map_err(|error| {
                Error::Connect(format!("the cluster at {} does not answer: {error}", description.address))
            })?;
            (OwnedFd::from(stream), description.token, None)
        } else {
            let (stream, daemon) = self.start_private()?;
            (stream, String::new(), Some(daemon))
        };
        match self.greet(stream, token) {
            Ok(runtime) => {
                process::set(Some(runtime.clone()));
                oxiray_runtime::begin_metrics(&runtime);
                news::start(&runtime);
                Ok(Cluster { runtime: Some(runtime), daemon })
            }
            Err(error) => {
                reap(&mut daemon);
                Err(error)
            }
        }
    }

    /// The running cluster that is meant; nothing for a private one.
    fn find(&self) -> Result<Option<FoundSession>> {
        if self.address.as_deref() == Some("local") {
            return Ok(None);
        }
        let root = session::root().map_err(|error| Error::Connect(error.to_string()))?;
        let mut all = heads_first(session::living(&root)).into_iter().filter(|found| !found.description.private);
        let Some(address) = self.address.as_deref().filter(|address| *address != "auto") else {
            let first = all.next();
            if first.is_none() && self.address.is_some() {
                return Err(Error::Connect(
                    "no cluster of this user runs on this machine: start one with `oxiray start --head`, or leave the \
                     address out to have a private one"
                        .into(),
                ));
            }
            return Ok(first);
        };
        let mut known = Vec::new();
        for found in all {
            if found.description.answers_to(address) {
                return Ok(Some(found));
            }
            known.push(found.description.address);
        }
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::Connect(format!(
            "no cluster answers at {address}. Running on this machine: {known}. A program connects to a \
             node on its own machine: have this one join the cluster with `oxiray start --address=HOST:PORT \
             --token-file=FILE`"
        )))
    }

    /// A cluster that runs already has its size.
    fn refuse_capacity(&self, description: &Description) -> Result<()> {
        if self.resources.is_empty() && self.labels.is_empty() && self.object_store_memory.is_none() {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "resources, labels and memory were asked for, and a cluster runs at {}, which has its own: leave them out to \
             join it, or use address(\"local\") for a cluster of this program's own",
            description.address
        )))
    }

    /// Starts this program as the daemon of a private cluster.
    fn start_private(&self) -> Result<(OwnedFd, Child)> {
        let config = Config {
            resources: self.resources.clone(),
            labels: self.labels.clone(),
            object_store_memory: self.object_store_memory,
            ..Config::default()
        };
        let failed = |error: std::io::Error| Error::Connect(format!("no private cluster can be started: {error}"));
        let (near, far) = oxiray_wire::connection::socket_pair().map_err(|error| failed(error.into()))?;
        let mut command = Command::new("/proc/self/exe");
        command.env(template::DAEMON_VARIABLE, serde_json::to_string(&config).expect("texts and numbers"));
        command.stdin(Stdio::null());
        let number = far.as_raw_fd();
        // SAFETY: the closure runs in the child between fork and exec, and only makes system calls, which is allowed
        // there; `far` is open until the child was started.
        unsafe {
            command.pre_exec(move || {
                template::inherit(number)?;
                rustix::process::setsid()?;
                Ok(())
            });
        }
        let daemon = command.spawn().map_err(failed)?;
        Ok((near, daemon))
    }

    fn greet(&self, stream: OwnedFd, token: String) -> Result<Runtime> {
        let broken = |error: std::io::Error| Error::Connect(format!("the daemon cannot be greeted: {error}"));
        let mut connection = Connection::new(stream).map_err(|error| broken(error.into()))?;
        let variable = |(name, value): (&String, &String)| Variable { name: name.clone(), value: Some(value.clone()) };
        let environment =
            Environment { variables: self.variables.iter().map(variable).collect(), ..Environment::default() };
        let command: Vec<String> = std::env::args().collect();
        let driver = Driver {
            pid: std::process::id(),
            interpreter: self.python.clone(),
            setup: Bytes::new(),
            namespace: self.namespace.clone(),
            wants_logs: self.shows_output,
            environment: Some(environment),
            entrypoint: command.join(" ").chars().take(ENTRYPOINT_MAX).collect(),
            started_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            metadata: std::env::var("OXIRAY_SUBMISSION_ID")
                .map_or_else(|_| "{}".into(), |id| serde_json::json!({"job_submission_id": id}).to_string()),
        };
        let entry = Entry { token: token.clone(), driver: driver.clone() };
        connection.send(&Hello { token, driver: Some(driver), ..Hello::default() });
        let _ = connection.flush();
        let (welcome, early) = welcomed(&mut connection, Instant::now() + GREETING_LIMIT)?;
        let identity = Identity::from_welcome(&welcome)
            .ok_or_else(|| Error::Connect("the daemon greeted with malformed identifiers".into()))?;
        let entry = welcome.comes_back.then_some(entry);
        Runtime::start(identity, connection, early, None, entry).map_err(broken)
    }
}

fn welcomed(connection: &mut Connection, deadline: Instant) -> Result<(Welcome, Vec<Received>)> {
    let mut inbox = Vec::new();
    loop {
        let over = connection.receive(&mut inbox).err();
        if !inbox.is_empty() {
            return match inbox.remove(0).message {
                Message::Welcome(welcome) => Ok((*welcome, inbox)),
                Message::Refused(refused) => Err(Error::Connect(refused.text)),
                _ => Err(Error::Connect("the daemon did not greet back: it is of another build".into())),
            };
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if let Some(error) = over {
            return Err(Error::Connect(format!(
                "the daemon did not answer: {error}. Its daemon.log tells more; a private one is this program, started \
                 anew: oxiray::init() must be the first thing that main() does"
            )));
        }
        if left.is_zero() {
            return Err(Error::Connect(format!("the daemon did not answer within {} s", GREETING_LIMIT.as_secs())));
        }
        wait_readable(&*connection, left);
    }
}

fn wait_readable(descriptor: impl std::os::fd::AsFd, limit: Duration) {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let _ = rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit));
}

/// Waits for a private daemon to end, as it does with its connection; one that hangs is ended.
fn reap(daemon: &mut Option<Child>) {
    let Some(mut child) = daemon.take() else { return };
    if let Ok(watched) = oxiray_processes::pidfd_of(child.id()) {
        wait_readable(&watched, DAEMON_END_LIMIT);
    }
    if !matches!(child.try_wait(), Ok(Some(_))) {
        let _ = child.kill();
    }
    let _ = child.wait();
}

impl Cluster {
    /// What `Builder::address` takes to come here; empty in a worker.
    pub fn address(&self) -> &str {
        self.runtime.as_ref().map_or("", |runtime| &runtime.identity().address)
    }

    /// Ends the connection, as dropping it does.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        runtime.say_goodbye(if std::thread::panicking() { "its program panicked" } else { "" });
        news::await_end(LAST_NEWS_LIMIT);
        process::set(None);
        runtime.close();
        drop(runtime);
        reap(&mut self.daemon);
    }
}
