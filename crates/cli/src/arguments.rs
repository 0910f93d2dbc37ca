//! What the command line understands.

use crate::table::{JsonOption, Printing};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// This version, and that of Ray whose API programs find.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (speaks the public API of Ray 2.60.0)");

/// Runs functions and actors across processes, and hands each the accelerators it asked for.
#[derive(Debug, Parser)]
#[command(name = "oxiray", version = VERSION, after_help = crate::python_commands::in_words())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) order: Order,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Order {
    /// Runs a daemon in the foreground.
    #[command(hide = true)]
    Daemon(DaemonOptions),
    /// Starts a cluster on this machine.
    Start(Box<StartOptions>),
    /// Starts a cluster over the nodes on which it is run, such as those of a Slurm job (`srun oxiray symmetric-run --
    /// PROGRAM`), runs the program on the first, and stops the cluster.
    SymmetricRun(Box<SymmetricRunOptions>),
    /// Stops every cluster of this user on this machine.
    Stop(StopOptions),
    /// Shows the resources and devices in use, who holds them, and which requests wait.
    Status(StatusOptions),
    /// Shows devices and their holders, jobs, tasks and actors in a terminal, updated every second; --once prints one frame.
    Top(TopOptions),
    /// Checks whether the cluster answers: the exit status is 0 if it does, and 1 if it does not.
    HealthCheck(HealthOptions),
    /// Lists actors, events, jobs, nodes, objects, placement-groups, runtime-envs, tasks or workers.
    List(ListOptions),
    /// Shows one actor, job, node, object, placement group, task or worker in detail.
    Get(GetOptions),
    /// Explains why a task, an actor or a placement group waits: for each node, the first rule that it does not meet.
    Explain(ExplainOptions),
    /// Shows the stacks of the threads and asyncio tasks of programs and workers, equal ones once.
    Stack(StackOptions),
    /// Profiles programs and workers for some seconds: which functions compute, wait or allocate memory.
    Profile(ProfileOptions),
    /// Drains a node: no new work is placed there, and the node ends when it is empty, or at the deadline.
    #[command(visible_alias = "drain-node")]
    Drain(DrainOptions),
    /// Takes a device out of service (drain), checks it (check), or puts it back into service (undrain).
    Device(DeviceCommand),
    /// Checks the first CUDA device that this process can see, for a daemon.
    #[command(hide = true)]
    DeviceCheck,
    /// Counts actors or tasks by name and state, or references to objects by the line that made them.
    Summary(SummaryOptions),
    /// Shows which process refers to which object and why, the size of the object, and where it is stored.
    Memory(MemoryOptions),
    /// Lists log files, or prints one of them, or the output of an actor, a task, a worker or a job on any node.
    Logs(Box<crate::logs::LogsOptions>),
    /// Prints the metrics of the cluster and of its programs (`ray.util.metrics`) in the text format of Prometheus.
    Metrics(MetricsOptions),
    /// Starts machines for requests that wait, and ends idle ones.
    Autoscaler(AutoscalerOptions),
    /// Prints a link that opens the cluster's page once within a minute; `url` prints the address alone, `token` the token for programs.
    Dashboard(crate::dashboard::DashboardOrder),
    /// Writes what was recorded of a job into one HTML file that needs no server: `oxiray start --head --history` records it.
    Report(crate::dashboard::ReportOptions),
    /// Creates, lists and revokes the tokens with which machines join the cluster.
    Token(crate::token::TokenOptions),
    /// Submits programs to the cluster, and shows their status and output: submit, status, logs, stop, delete, list.
    Job(crate::job::JobOptions),
    /// Shows the accelerators of this machine, how they were found, and which ones were ruled out.
    Hardware(HardwareOptions),
    /// Prints the shell completions of this command; `oxiray completions --help` says how to load them.
    #[command(after_help = crate::completions::HOW_TO_LOAD)]
    Completions(CompletionsOptions),
    /// Runs the Kubernetes operator: the program `oxiray-operator`, with the arguments that follow.
    #[command(disable_help_flag = true)]
    Operator(OperatorOptions),
}

#[derive(Debug, Args)]
pub(crate) struct DaemonOptions {
    /// Lives for the driver at the other end of --driver-fd.
    #[arg(long, requires = "driver_fd")]
    pub(crate) private: bool,
    /// The descriptor of the driver's stream.
    #[arg(long)]
    pub(crate) driver_fd: Option<i32>,
    /// What the machine offers and where things lie, as JSON.
    #[arg(long, default_value = "{}")]
    pub(crate) config: String,
}

/// Where a head keeps what must outlive it, and by what it and etcd know each other there.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StoreOptions {
    /// With --head: keeps the cluster's durable state in etcd, so that a standby head on another machine can take over.
    #[arg(long, value_name = "etcd://HOST:PORT[,HOST:PORT...][/NAME]")]
    pub(crate) store: Option<String>,
    /// With --head and --store: waits as a standby while the cluster has another head, and takes over when that head ends.
    #[arg(long)]
    pub(crate) standby: bool,
    /// With --store: the certificate authorities that etcd's certificate is verified with, as PEM. With this option the
    /// connection to etcd uses TLS.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_authority: Option<PathBuf>,
    /// With --store-authority: the client certificate for etcd, as PEM, if etcd asks for one.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_certificate: Option<PathBuf>,
    /// With --store-certificate: the private key of that certificate, as PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_key: Option<PathBuf>,
    /// With --store-authority: the user as which the head logs in to etcd, if etcd asks for one.
    #[arg(long, value_name = "NAME")]
    pub(crate) store_user: Option<String>,
    /// With --store-user: the file with that user's password.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
}

/// How devices are kept from those that they were not granted to.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeviceOptions {
    /// How processes are kept from devices that they were not granted: `variable` sets environment variables only, `watch` also
    /// looks which devices each process has open, `fence` lets the kernel refuse other devices if it can, and `require` does not
    /// start a node or run work that cannot be fenced. The default is `variable`.
    #[arg(long, value_name = "variable|watch|fence|require")]
    pub(crate) device_isolation: Option<String>,
    /// What happens to a process that `watch` finds with a device open that it was not granted: `report` reports it to the driver,
    /// `end` also ends the process, and its work fails with DeviceViolationError.
    #[arg(long, value_name = "report|end")]
    pub(crate) device_violations: Option<String>,
    /// The memory of each GPU, as a number of bytes or as in `80GiB`; the default is the size that is detected. Requests with
    /// gpu_memory= need GPUs of a known size.
    #[arg(long, value_name = "BYTES", value_parser = oxiray_resources::size_from_text)]
    pub(crate) gpu_memory: Option<u64>,
    /// What keeps processes to memory of GPUs that they asked for, in the order in which it is tried: a list of `mig` (an
    /// instance of a partitioned GPU that is granted whole), `dmem` (the kernel, for AMD's and Intel's GPUs), `mps` (the MPS
    /// server whose control daemon runs), `interposer` (the library of --gpu-memory-library), `framework` (allocators of
    /// frameworks), `watched` (a process that uses more is ended) and `none`. With `require:NAME` the node does not start where
    /// that one does not work. All that work where it is left out.
    #[arg(long, value_name = "LIST")]
    pub(crate) gpu_memory_enforcement: Option<String>,
    /// A library that keeps programs of CUDA to CUDA_DEVICE_MEMORY_LIMIT_0: it is loaded (LD_PRELOAD) into workers that asked for
    /// memory of a GPU.
    #[arg(long, value_name = "PATH")]
    pub(crate) gpu_memory_library: Option<String>,
    /// Which of several free devices are granted: `topology` grants devices that are close to each other, `lowest` those with
    /// the lowest numbers.
    #[arg(long, value_name = "topology|lowest")]
    pub(crate) device_order: Option<String>,
    /// What variables such as CUDA_VISIBLE_DEVICES name a process's devices by: `ordinal`, the default, gives numbers, which
    /// programs for Ray read as such; `uuid` gives UUIDs where they are known (NVIDIA's devices).
    #[arg(long, value_name = "ordinal|uuid")]
    pub(crate) visible_devices: Option<String>,
    /// Whether a share of a GPU (num_gpus=0.25) is a limit on its memory: with `cap` it is, as gpu_memory= is (frameworks get
    /// the limit, and a process that uses more is ended); with `promise`, the default, it is not.
    #[arg(long, value_name = "promise|cap")]
    pub(crate) share_memory: Option<String>,
    /// Which processors workers with whole devices run on: `local` keeps them on the NUMA node of their devices, `off` (the
    /// default) lets them run anywhere.
    #[arg(long, value_name = "local|off")]
    pub(crate) pin_cpus: Option<String>,
    /// How GPUs are offered that are partitioned into MIG instances: `none` does not offer them, `single` offers each instance as
    /// one GPU (all must be alike), `mixed` as one of its profile's resource, such as `mig-1g.10gb`.
    #[arg(long, value_name = "none|single|mixed")]
    pub(crate) mig: Option<String>,
}

/// What a machine offers.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfferOptions {
    /// Processors to offer.
    #[arg(long)]
    pub(crate) num_cpus: Option<f64>,
    /// GPUs to offer.
    #[arg(long)]
    pub(crate) num_gpus: Option<f64>,
    /// Further resources to offer, as a JSON object of numbers.
    #[arg(long, value_name = "JSON")]
    pub(crate) resources: Option<String>,
    /// Bytes of memory that tasks may ask for.
    #[arg(long)]
    pub(crate) memory: Option<f64>,
    /// Bytes of the object store.
    #[arg(long)]
    pub(crate) object_store_memory: Option<u64>,
}

/// In which order requests are served.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SchedulingOptions {
    /// With --head: whether tasks, actors and placement groups that were made with preemptible=True end early when work of a
    /// higher priority waits for what they hold; they are run, or created, again later. The default is `off`.
    #[arg(long, value_name = "on|off")]
    pub(crate) preemption: Option<String>,
    /// With --head: how many seconds preempted work has between the notice and its end; the default is 30.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) preemption_grace_s: Option<f64>,
    /// With --head: how jobs of equal priority are served: `fair` serves first the job that holds the smaller share of what it
    /// asks for, and recalls leases for it; `arrival` serves the job that asked first. The default is `fair`.
    #[arg(long, value_name = "fair|arrival")]
    pub(crate) job_order: Option<String>,
}

/// The dashboard and metrics, over HTTP.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DashboardOptions {
    /// With --head: starts the dashboard, which serves Ray's jobs API, lists of the cluster's state, and a page. It is off unless
    /// this option, --dashboard-port, or a --dashboard-host that other machines reach is given; `false` wins over both.
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
        value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) include_dashboard: Option<bool>,
    /// The address at which the dashboard listens; the default is 127.0.0.1. At an address that other machines reach it speaks TLS,
    /// with --dashboard-tls-cert or, in a cluster with --port, with a certificate that the cluster makes; or it is told
    /// --dashboard-plaintext.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) dashboard_host: Option<String>,
    /// The port of the dashboard; the default is the first free one from 8265 on.
    #[arg(long, value_name = "PORT")]
    pub(crate) dashboard_port: Option<u16>,
    /// A port which reports the node's health and nothing else, for probes of KubeRay: a further one of the dashboard, or of
    /// 127.0.0.1 on a node without one.
    #[arg(long, value_name = "PORT")]
    pub(crate) dashboard_agent_listen_port: Option<u16>,
    /// A name of this machine that requests may have in their Host header, beside its addresses and `localhost`; may be given
    /// several times. Requests for other names are refused, which protects against DNS rebinding.
    #[arg(long = "dashboard-allow-host", value_name = "NAME")]
    pub(crate) dashboard_allow_hosts: Vec<String>,
    /// The certificate of the dashboard, as PEM, with its chain.
    #[arg(long, value_name = "FILE", requires = "dashboard_tls_key")]
    pub(crate) dashboard_tls_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "dashboard_tls_cert")]
    pub(crate) dashboard_tls_key: Option<PathBuf>,
    /// Serves other machines without TLS: everyone who can read the network can then run programs on the cluster.
    #[arg(long, conflicts_with = "dashboard_tls_cert")]
    pub(crate) dashboard_plaintext: bool,
    /// With --head: records what happens in the cluster in files in this directory, or at `s3://bucket/prefix`, where it outlives
    /// the cluster: `oxiray dashboard --history` shows it.
    #[arg(long, value_name = "DIRECTORY|URL", env = "OXIRAY_HISTORY")]
    pub(crate) history: Option<String>,
    /// With --head: sends each call that has ended as a span to the OpenTelemetry collector at this URL, `http://HOST:4318`
    /// (OTLP over HTTP). Headers are taken from OTEL_EXPORTER_OTLP_HEADERS.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// Exports the metrics of this node at this port, for Prometheus. Without it no port is opened for them.
    #[arg(long, value_name = "PORT")]
    pub(crate) metrics_export_port: Option<u16>,
    /// With --metrics-export-port: the address at which metrics are exported; the default is 127.0.0.1. An address that other
    /// machines reach needs --metrics-open.
    #[arg(long, value_name = "ADDRESS", requires = "metrics_export_port")]
    pub(crate) metrics_host: Option<IpAddr>,
    /// With --metrics-export-port: serves the metrics without a token to everyone who reaches the port.
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true", requires = "metrics_export_port",
        value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) metrics_open: Option<bool>,
}

/// What a head does beside starting its machine.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HeadOptions {
    #[command(flatten)]
    pub(crate) scheduling: SchedulingOptions,
    #[command(flatten)]
    pub(crate) dashboard: DashboardOptions,
    /// With --head: keeps the last 64 KiB that each failed task printed on another node on the head's disk, so that
    /// `oxiray logs task ID` prints it when that node is gone.
    #[arg(long)]
    pub(crate) keep_logs_at_head: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StartOptions {
    /// Starts a cluster's first machine.
    #[arg(long)]
    pub(crate) head: bool,
    /// Joins the cluster at this address. With --token-file, several addresses may be given with commas between them,
    /// those of the head and of its standbys: the node joins at the first one at which a head answers.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// With --head: listens at this port for nodes of other machines, on the address of --node-ip-address, or on
    /// 127.0.0.1 where that is left out. Without it no port is opened.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// With --address: a copy of the token file that `oxiray start --head` named, which admits this machine; `-` reads the
    /// token from standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The port at which a node that joined with --token-file listens for the other nodes; the default is any free one.
    #[arg(long)]
    pub(crate) node_manager_port: Option<u16>,
    /// With --head: for how many seconds a node of another machine may go on without a word from the head, and how long
    /// the head waits before it gives the node up.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) node_lease: Option<f64>,
    /// With --head: for how long the certificate of a node is valid, such as 30m, 24h or 7d; the default is 24h. Nodes renew
    /// their certificates when half of that time is over.
    #[arg(long, value_name = "TIME")]
    pub(crate) node_certificate: Option<String>,
    /// With --head: starts a new cluster where a head that had this port was killed. Otherwise the cluster continues from the
    /// journal of that head.
    #[arg(long)]
    pub(crate) fresh: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// With --head: SIGTERM ends the head and not the cluster, and the next `start --head` continues the cluster, as it does
    /// after a head was killed. `oxiray stop` ends both.
    #[arg(long)]
    pub(crate) keep_cluster: bool,
    /// With --head and --port: a file with the certificate authority of the cluster; the default is a new one.
    #[arg(long, value_name = "FILE")]
    pub(crate) authority_file: Option<PathBuf>,
    /// With --token-file: for how many seconds the node waits for a head that does not answer yet.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) join_wait: Option<u64>,
    /// With --head: starts further nodes for requests that wait, of the groups in this file, and ends them when they are idle:
    /// daemons on this machine, or jobs of Slurm.
    #[arg(long, value_name = "GROUPS.YAML")]
    pub(crate) autoscale: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) offer: OfferOptions,
    /// Labels of the machine, as a JSON object of texts or as key=value,key=value.
    #[arg(long)]
    pub(crate) labels: Option<String>,
    /// Labels of the machine, as a YAML map of texts; --labels wins where both name one.
    #[arg(long, value_name = "FILE")]
    pub(crate) labels_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) devices: DeviceOptions,
    #[command(flatten)]
    pub(crate) of_head: HeadOptions,
    /// The machine's address.
    #[arg(long)]
    pub(crate) node_ip_address: Option<String>,
    /// The machine's name in listings.
    #[arg(long)]
    pub(crate) node_name: Option<String>,
    /// The folder for sessions and logs; the default is /tmp.
    #[arg(long)]
    pub(crate) temp_dir: Option<PathBuf>,
    /// Where objects are spilled when the object store is full: a folder, or storage that speaks S3 as `s3://bucket/prefix`.
    #[arg(long, value_name = "FOLDER_OR_URL")]
    pub(crate) object_spilling_directory: Option<PathBuf>,
    /// Runs in the foreground until the node is stopped.
    #[arg(long)]
    pub(crate) block: bool,
    /// Settings of the cluster, as a JSON object: those that `init(_system_config=...)` takes.
    #[arg(long, value_name = "JSON")]
    pub(crate) system_config: Option<String>,
    #[command(flatten)]
    pub(crate) without_effect: crate::without_effect::WithoutEffect,
}

/// With those of `start`, which say what each node offers. Outside of Slurm, `--address` names the head, and `--token-file` a
/// file that all nodes see.
#[derive(Debug, Args)]
pub(crate) struct SymmetricRunOptions {
    /// How many nodes have to join before the program starts; the default is the number of nodes of the Slurm step, or 1.
    #[arg(long, visible_alias = "wait-for-nnodes", value_name = "NODES")]
    pub(crate) min_nodes: Option<usize>,
    #[command(flatten)]
    pub(crate) start: StartOptions,
    /// The program that runs in the cluster, with its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct AutoscalerOptions {
    #[command(subcommand)]
    pub(crate) order: AutoscalerOrder,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AutoscalerOrder {
    /// Scales a cluster on this machine until the cluster ends: `oxiray start --head --autoscale` starts this.
    Run(RunOptions),
    /// Prints which machines the autoscaler would start and end now, and why, without doing it.
    Plan(PlanOptions),
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// The file that names the groups.
    #[arg(long, value_name = "GROUPS.YAML")]
    pub(crate) groups: PathBuf,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Leaves the terminal's session, and starts another autoscaler whenever one is killed.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanOptions {
    /// Plans for a recorded situation instead of the running cluster.
    #[arg(long, value_name = "FILE")]
    pub(crate) demand: Option<PathBuf>,
    /// Plans with the groups of this file.
    #[arg(long, value_name = "GROUPS.YAML")]
    pub(crate) groups: Option<PathBuf>,
    /// Prints the situation, to be given to --demand later.
    #[arg(long)]
    pub(crate) record: bool,
    #[command(flatten)]
    pub(crate) printing: JsonOption,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// The cluster's address; the default is the one on this machine.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Prints one frame as text and ends.
    #[arg(long)]
    pub(crate) once: bool,
    /// Prints the data of a frame as JSON and ends.
    #[arg(long)]
    pub(crate) json: bool,
    /// The view that is shown first: devices, nodes, jobs, tasks, actors, waiting, events, tree.
    #[arg(long, default_value = "devices")]
    pub(crate) view: String,
    /// The width of the frame of --once, in columns.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u16).range(20..=1000))]
    pub(crate) cols: u16,
    /// The height of the frame of --once, in rows.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(5..=1000))]
    pub(crate) rows: u16,
}

#[derive(Debug, Args)]
pub(crate) struct StopOptions {
    /// Kills the processes at once instead of asking them to end.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// How many seconds to wait before the processes are killed.
    #[arg(short, long, default_value_t = 16)]
    pub(crate) grace_period: u64,
    /// Names each daemon that is stopped.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Prints the form of `ray status`; the command `ray status` always does.
    #[arg(long, conflicts_with_all = ["json", "wide"])]
    pub(crate) ray: bool,
    /// Adds each node, in the form of `ray status`.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HealthOptions {
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// What to list: actors, events, jobs, nodes, objects, placement-groups, runtime-envs, tasks or workers.
    pub(crate) kind: String,
    /// How the rows are printed.
    #[arg(long, default_value = "default", conflicts_with = "json")]
    pub(crate) format: Format,
    /// Shows only rows whose column has this value (key=value) or another one (key!=value). An identifier may be shortened. May
    /// be given several times.
    #[arg(short, long = "filter", value_name = "KEY=VALUE")]
    pub(crate) filters: Vec<String>,
    /// The maximum number of rows.
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: u32,
    /// Shows every column.
    #[arg(long)]
    pub(crate) detail: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// How many seconds the daemon may take to answer.
    #[arg(long, default_value_t = 30)]
    pub(crate) timeout: u64,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    /// Its kind: actors, jobs, nodes, objects, placement-groups, tasks or workers.
    pub(crate) kind: String,
    /// Its identifier, or the beginning of it; for a job, also the name of the submission.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) printing: JsonOption,
    /// How many seconds the daemon may take to answer.
    #[arg(long, default_value_t = 30)]
    pub(crate) timeout: u64,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// The identifier of a task, an actor or a placement group, or the beginning of it.
    pub(crate) id: String,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Args)]
pub(crate) struct StackOptions {
    /// The number of a process, or the identifier of a task, an actor or a worker, or the beginning of one; every worker and
    /// driver of this machine where it is left out.
    pub(crate) target: Option<String>,
    /// Every worker and driver of the cluster.
    #[arg(long, conflicts_with = "target")]
    pub(crate) all: bool,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Prints each process's stacks as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProfileOptions {
    /// The number of a process, or the identifier of a task, an actor or a worker, or the beginning of one.
    pub(crate) target: String,
    /// For how many seconds, 60 at most.
    #[arg(long, visible_alias = "duration", value_name = "SECONDS", default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Counts the time that threads wait as well; otherwise only the time that they compute.
    #[arg(long, conflicts_with = "memory")]
    pub(crate) wall: bool,
    /// Shows where memory is allocated that is not freed by the end. Allocations take several times as long meanwhile.
    #[arg(long)]
    pub(crate) memory: bool,
    /// How many samples are taken each second, 1000 at most.
    #[arg(long, value_name = "HZ", default_value_t = 100, conflicts_with = "memory")]
    pub(crate) rate: u32,
    /// Writes the profile to this file. The format is told by the end of its name: .svg (a flame graph), .json (for
    /// https://www.speedscope.app), or .txt and .folded (a line for each stack).
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The format of the file, or of what is printed.
    #[arg(long, value_enum)]
    pub(crate) format: Option<crate::profile::Format>,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Prints each process's stacks and their weights, in microseconds or bytes, as JSON.
    #[arg(long, conflicts_with_all = ["output", "format"])]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrainOptions {
    /// The node's identifier, or the beginning of it; or its name or address.
    pub(crate) node: Option<String>,
    /// The same, as Ray spells it.
    #[arg(long, conflicts_with = "node")]
    pub(crate) node_id: Option<String>,
    /// In how many seconds the node ends, whatever still runs there. Without a deadline it ends when it is empty.
    #[arg(long, visible_alias = "deadline-remaining-seconds", value_name = "SECONDS")]
    pub(crate) deadline: Option<f64>,
    /// The reason, for people. With DRAIN_NODE_REASON_IDLE_TERMINATION, a node that is in use is not drained.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// The reason, for people, if --reason is one of Ray's constants.
    #[arg(long)]
    pub(crate) reason_message: Option<String>,
    /// Cancels the drain: the node stays.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Waits until the node has ended.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) printing: JsonOption,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DeviceCommand {
    #[command(subcommand)]
    pub(crate) verb: DeviceVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceVerb {
    /// Takes a device out of service: it is not granted any more. Its present holder keeps it.
    Drain {
        #[command(flatten)]
        order: DeviceOrderOptions,
        /// The reason, for people.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Puts a device back into service when it has passed a check. A device that is held is put back at once.
    Undrain {
        /// As for `drain`. With `--all` the node alone, or nothing for all nodes.
        #[arg(value_name = "NODE/DEVICE", required_unless_present = "all")]
        device: Option<String>,
        /// Puts back every device that is out of service, of a node or of the cluster.
        #[arg(long)]
        all: bool,
        /// Puts the device back without a check.
        #[arg(long)]
        force: bool,
        /// The cluster's address; the default is the current cluster.
        #[arg(long)]
        address: Option<String>,
    },
    /// Checks a device that is free: whether it computes, and whether its memory keeps what is written to it.
    Check {
        #[command(flatten)]
        order: DeviceOrderOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DeviceOrderOptions {
    /// A node's identifier, or the beginning of it; or its name or address. Of its devices a number, RESOURCE:NUMBER, or a UUID
    /// or the beginning of it.
    #[arg(value_name = "NODE/DEVICE")]
    pub(crate) device: String,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SummaryOptions {
    /// What to count: actors, objects or tasks.
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// How many seconds the daemon may take to answer.
    #[arg(long, default_value_t = 30)]
    pub(crate) timeout: u64,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsOptions {
    #[command(flatten)]
    pub(crate) printing: JsonOption,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MemoryOptions {
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// How references are grouped.
    #[arg(long, default_value = "NODE_ADDRESS", ignore_case = true)]
    pub(crate) group_by: GroupBy,
    /// How references are sorted.
    #[arg(long, default_value = "OBJECT_SIZE", ignore_case = true)]
    pub(crate) sort_by: SortBy,
    /// The unit of sizes.
    #[arg(long, default_value = "B", ignore_case = true)]
    pub(crate) units: Units,
    /// Shows only the totals of the object store.
    #[arg(long)]
    pub(crate) stats_only: bool,
    /// The maximum number of references that are shown of each group.
    #[arg(short, long)]
    pub(crate) num_entries: Option<usize>,
    /// Shows rows without aligned columns, a comma and a space between their fields.
    #[arg(long)]
    pub(crate) no_format: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// What references stand together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum GroupBy {
    /// The machine of the process that has them.
    NodeAddress,
    /// Where they were made.
    StackTrace,
    /// The process that made the object, which owns it.
    Owner,
}

/// What references are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum SortBy {
    /// The process that has them.
    Pid,
    /// The object's size, largest first.
    ObjectSize,
    /// What keeps the object.
    ReferenceType,
}

/// What sizes are told in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum Units {
    /// Bytes.
    B,
    /// Thousands of bytes.
    Kb,
    /// Millions.
    Mb,
    /// Thousands of millions.
    Gb,
}

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table, or YAML where every column is wanted.
    Default,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// A table.
    Table,
}

#[derive(Debug, Args)]
pub(crate) struct HardwareOptions {
    /// Shows a recorded machine instead of this one.
    #[arg(long, value_name = "DIR")]
    pub(crate) host_root: Option<PathBuf>,
    /// Prints everything that was found as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also shows how each two devices are connected, if that is known.
    #[arg(long)]
    pub(crate) topology: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell that reads it.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorOptions {
    /// What the operator takes: see `oxiray operator --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) rest: Vec<std::ffi::OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, CommandFactory as _};

    /// Commands that print no data, each with what it prints instead.
    const WITHOUT_JSON: &[(&str, &str)] = &[
        ("autoscaler run", "its log"),
        ("completions", "a script for a shell"),
        ("daemon", "its log"),
        ("dashboard", "one address"),
        ("dashboard token", "one token"),
        ("dashboard url", "one address"),
        ("device check", "a sentence on what it ordered"),
        ("device drain", "a sentence on what it ordered"),
        ("device undrain", "a sentence on what it ordered"),
        ("device-check", "JSON, for a daemon"),
        ("health-check", "nothing: the exit status is the answer"),
        ("job delete", "a sentence on what it did"),
        ("job logs", "what the job printed"),
        ("job stop", "a sentence on what it did"),
        ("job submit", "what the job prints"),
        ("operator", "what the program `oxiray-operator` prints"),
        ("report", "nothing: it writes a file"),
        ("start", "how to go on"),
        ("stop", "a sentence on what it did"),
        ("symmetric-run", "what the program prints"),
        ("token revoke", "a sentence on what it did"),
    ];

    fn without_json(command: &Command, path: &str, found: &mut Vec<String>) {
        let is_leaf = !command.has_subcommands() || !command.is_subcommand_required_set();
        if is_leaf && !command.get_arguments().any(|option| option.get_long() == Some("json")) {
            found.push(path.to_owned());
        }
        for below in command.get_subcommands() {
            without_json(below, format!("{path} {}", below.get_name()).trim(), found);
        }
    }

    #[test]
    fn each_command_that_prints_data_prints_it_as_json() {
        let mut found = Vec::new();
        for command in Arguments::command().get_subcommands() {
            without_json(command, command.get_name(), &mut found);
        }
        found.sort_unstable();
        let known: Vec<&str> = WITHOUT_JSON.iter().map(|(command, _)| *command).collect();
        assert_eq!(found, known, "a command takes --json, or stands in the table with what it prints");
    }
}
