//! This process's connection to a cluster: begun, and ended.

use crate::error::{Error, Result};
use crate::{client_events, folder, process, stacks, template};
use oxiray_client::driver::NotEntered;
use oxiray_client::{assigned, daemon, driver};
use oxiray_families::GPU;
use oxiray_runtime::Runtime;
use oxiray_visitor::{Description, FoundSession};
use oxiray_wire::message::{Driver, Environment, Variable};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the last output of workers may take to arrive.
const LAST_NEWS_LIMIT: Duration = Duration::from_secs(10);
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
    gpu_memory: Option<u64>,
    labels: BTreeMap<String, String>,
    object_store_memory: Option<u64>,
    namespace: String,
    shows_output: bool,
    variables: BTreeMap<String, String>,
    python: String,
    working_dir: Option<PathBuf>,
    binary: Option<PathBuf>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            address: None,
            resources: BTreeMap::new(),
            gpu_memory: None,
            labels: BTreeMap::new(),
            object_store_memory: None,
            namespace: String::new(),
            shows_output: true,
            variables: BTreeMap::new(),
            python: std::env::var("OXIRAY_PYTHON").unwrap_or_else(|_| "python3".into()),
            working_dir: None,
            binary: None,
        }
    }
}

/// The connection. When it is dropped, the job is over: what its tasks still do is ended, and so is a private cluster.
#[derive(Debug)]
#[must_use = "the connection ends when this is dropped"]
pub struct Cluster {
    /// Nothing in a worker, which had its connection before.
    runtime: Option<Runtime>,
    /// The process of a private cluster's daemon.
    daemon: Option<u32>,
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

    /// How many bytes of memory each GPU of a private cluster has, for requests with `gpu_memory`; what is found where nothing
    /// is said.
    #[must_use]
    pub fn gpu_memory(mut self, bytes: u64) -> Self {
        self.gpu_memory = Some(bytes);
        self
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

    /// The program `oxiray` that a private cluster is started with. Where nothing is said it is the one that
    /// `OXIRAY_BINARY` names, one that lies beside this program, or the one in `PATH`: `cargo install oxiray-cli` puts it
    /// there, and so does `pip install oxiray`.
    #[must_use]
    pub fn oxiray_binary(mut self, program: impl AsRef<Path>) -> Self {
        self.binary = Some(program.as_ref().to_owned());
        self
    }

    /// Connects, see [`init`].
    pub fn init(self) -> Result<Cluster> {
        template::serve_if_asked();
        if assigned::current().is_worker {
            return Ok(Cluster { runtime: None, daemon: None });
        }
        if process::current().is_some() {
            return Err(Error::Invalid(
                "this process is connected already: keep what the first init() returned".into(),
            ));
        }
        folder::set_of_job(self.working_dir.as_deref())?;
        assigned::set_priority(assigned::job_priority(None).map_err(Error::Invalid)?);
        let found = driver::find(self.address.as_deref(), None).map_err(not_entered)?;
        let (stream, token, daemon) = if let Some(FoundSession { directory, description, .. }) = found {
            self.refuse_capacity(&description)?;
            let stream = driver::connect(&directory, &description.address).map_err(not_entered)?;
            (stream, description.token, None)
        } else {
            let (stream, daemon) = self.start_private()?;
            (stream, String::new(), Some(daemon))
        };
        match driver::enter(stream, token, self.described()) {
            Ok(runtime) => {
                client_events::start(&runtime);
                stacks::tell(&runtime);
                Ok(Cluster { runtime: Some(runtime), daemon })
            }
            Err(error) => {
                daemon.into_iter().for_each(daemon::end);
                Err(not_entered(error))
            }
        }
    }

    /// A cluster that runs already has its size.
    fn refuse_capacity(&self, description: &Description) -> Result<()> {
        let sizes = [self.object_store_memory, self.gpu_memory];
        if self.resources.is_empty() && self.labels.is_empty() && sizes.iter().all(Option::is_none) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "resources, labels and memory were asked for, and a cluster runs at {}, which has its own: leave them out to \
             join it, or use address(\"local\") for a cluster of this program's own",
            description.address
        )))
    }

    /// Starts the daemon of a private cluster: its stream and its process.
    fn start_private(&self) -> Result<(OwnedFd, u32)> {
        let machine = serde_json::json!({
            "resources": self.resources,
            "labels": self.labels,
            "object_store_memory": self.object_store_memory,
            "gpu_memory": self.gpu_memory,
        });
        let config = serde_json::json!({"machine": machine});
        let program = daemon::program(self.binary.as_deref()).map_err(|error| Error::Connect(error.to_string()))?;
        daemon::start(&program, &config.to_string(), []).map_err(|error| {
            Error::Connect(format!("no private cluster can be started: {} cannot be run: {error}", program.display()))
        })
    }

    /// What the daemon is told of this program.
    fn described(&self) -> Driver {
        let variable = |(name, value): (&String, &String)| Variable { name: name.clone(), value: Some(value.clone()) };
        let environment =
            Environment { variables: self.variables.iter().map(variable).collect(), ..Environment::default() };
        let command: Vec<String> = std::env::args().collect();
        Driver {
            interpreter: self.python.clone(),
            namespace: self.namespace.clone(),
            wants_logs: self.shows_output,
            environment: Some(environment),
            entrypoint: command.join(" "),
            metadata: std::env::var("OXIRAY_SUBMISSION_ID")
                .into_iter()
                .map(|id| ("job_submission_id".to_owned(), id))
                .collect(),
            ..Driver::default()
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` hands the error over")]
fn not_entered(error: NotEntered) -> Error {
    Error::Connect(error.to_string())
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
        client_events::await_end(LAST_NEWS_LIMIT);
        process::set(None);
        runtime.close();
        drop(runtime);
        self.daemon.take().into_iter().for_each(daemon::end);
    }
}
