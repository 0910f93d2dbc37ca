//! What the command line understands.

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
    /// Shows what is used, by whom, and what waits.
    Status(StatusOptions),
    /// Shows who holds which device, and what runs and waits, as it goes; --once prints it.
    Top(TopOptions),
    /// Ends with status 0 where the cluster answers, and with 1 where it does not.
    HealthCheck(HealthOptions),
    /// Lists actors, events, jobs, nodes, objects, placement-groups, runtime-envs, tasks or workers.
    List(ListOptions),
    /// Shows one of them by its identifier, in detail.
    Get(GetOptions),
    /// Explains why a task, an actor or a placement group waits: for each node, the first rule that it fails.
    Explain(ExplainOptions),
    /// Shows where the threads and asyncio tasks of programs are, those in the same place together.
    Stack(StackOptions),
    /// Drains a node: nothing new is placed there, and it ends when nothing is left on it, or at the deadline.
    #[command(visible_alias = "drain-node")]
    Drain(DrainOptions),
    /// Takes a device out of service, has it checked, and puts it back: drain, undrain, check.
    Device(DeviceCommand),
    /// Checks the first CUDA device that this process can see, for a daemon.
    #[command(hide = true)]
    DeviceCheck,
    /// Counts actors or tasks by name and state, or references to objects by where they were made.
    Summary(SummaryOptions),
    /// Shows which process refers to which object, why, how large it is, and where it lies.
    Memory(MemoryOptions),
    /// Lists files of logs, or prints one, or what an actor, a task, a worker or a job printed, wherever it ran.
    Logs(Box<crate::logs::LogsOptions>),
    /// Prints what programs count and measure with `ray.util.metrics`, in the text format of Prometheus.
    Metrics(MetricsOptions),
    /// Brings machines for what waits, and takes away those that nobody uses.
    Autoscaler(AutoscalerOptions),
    /// Prints the address of the cluster's page, which opens it once within a minute; and the token by which programs are let in.
    Dashboard(crate::dashboard::DashboardOrder),
    /// Makes, lists and revokes what lets machines join.
    Token(crate::token::TokenOptions),
    /// Submits programs to the cluster, and shows their status and output: submit, status, logs, stop, list.
    Job(crate::job::JobOptions),
    /// Shows the accelerators of this machine, how they were found, and what was ruled out.
    Hardware(HardwareOptions),
    /// Prints what has a shell complete the words of this command; `oxiray completions --help` says how to load it.
    #[command(after_help = crate::completions::HOW_TO_LOAD)]
    Completions(CompletionsOptions),
    /// Runs the Kubernetes operator: the program `oxiray-operator`, which takes what follows.
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
    /// With --head: keeps what must outlive the head in etcd, so that a standby on another machine can go on with it.
    #[arg(long, value_name = "etcd://HOST:PORT[,HOST:PORT...][/NAME]")]
    pub(crate) store: Option<String>,
    /// With --head and --store: waits while another is the head of that cluster, and goes on where that one ends.
    #[arg(long)]
    pub(crate) standby: bool,
    /// With --store: the certificates by which etcd's is verified, as PEM. With them it is spoken over TLS.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_authority: Option<PathBuf>,
    /// With --store-authority: the certificate that is shown to etcd, as PEM, where it asks for one.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_certificate: Option<PathBuf>,
    /// With --store-certificate: its private key, as PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_key: Option<PathBuf>,
    /// With --store-authority: the user of etcd that the head is, where etcd demands one.
    #[arg(long, value_name = "NAME")]
    pub(crate) store_user: Option<String>,
    /// With --store-user: the file with the password.
    #[arg(long, value_name = "FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
}

/// How devices are kept from those that they were not granted to.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeviceOptions {
    /// How far devices are kept from those that they were not granted to: `variable` tells each process its devices, `watch`
    /// looks besides which it has open, `fence` has the kernel refuse it others where that is possible, `require` refuses to start or to run what cannot be fenced.
    #[arg(long, value_name = "variable|watch|fence|require")]
    pub(crate) device_isolation: Option<String>,
    /// What becomes of a process that `watch` finds with a device open which it was not granted: `tell` tells its driver, `end`
    /// ends it besides, and what it ran fails with DeviceViolationError.
    #[arg(long, value_name = "tell|end")]
    pub(crate) device_violations: Option<String>,
    /// How much memory each GPU has, as a number of bytes or as in `80GiB`; what is found where it is left out. Requests with
    /// gpu_memory= need GPUs of a known size.
    #[arg(long, value_name = "BYTES", value_parser = oxiray_resources::size_from_text)]
    pub(crate) gpu_memory: Option<u64>,
    /// What keeps processes to memory of GPUs that they asked for, in the order in which it is tried: a list of `mps` (the MPS
    /// server whose control daemon runs), `interposer` (the library of --gpu-memory-library), `framework` (allocators of
    /// frameworks), `watched` (who is seen with more is ended) and `none`. With `require:NAME` the node does not start where
    /// that one does not work. All that work where it is left out.
    #[arg(long, value_name = "LIST")]
    pub(crate) gpu_memory_enforcement: Option<String>,
    /// A library that keeps programs of CUDA to CUDA_DEVICE_MEMORY_LIMIT_0: it is loaded (LD_PRELOAD) into workers that asked for
    /// memory of a GPU.
    #[arg(long, value_name = "PATH")]
    pub(crate) gpu_memory_library: Option<String>,
    /// Which of several free devices are taken: `topology` takes those that are near to each other, `lowest` those with the
    /// lowest numbers.
    #[arg(long, value_name = "topology|lowest")]
    pub(crate) device_order: Option<String>,
    /// Whether a share of a GPU (num_gpus=0.25) is a limit on its memory: with `cap` it is, as gpu_memory= is (frameworks are told
    /// the limit, and a process that is seen with more is ended); with `promise` it is not. `promise` where it is left out.
    #[arg(long, value_name = "promise|cap")]
    pub(crate) share_memory: Option<String>,
    /// Where workers with whole devices run: `local` keeps them on the processors of the devices' NUMA node, `off` anywhere. `off`
    /// where it is left out.
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

/// Who goes first.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SchedulingOptions {
    /// With --head: whether tasks, actors and placement groups that were made with preemptible=True end early when work of a
    /// higher priority waits for what they hold; they are run, or made, again later. `off` where it is left out.
    #[arg(long, value_name = "on|off")]
    pub(crate) preemption: Option<String>,
    /// With --head: how many seconds preempted work has between being told and being ended; 30 where it is left out.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) preemption_grace_s: Option<f64>,
    /// With --head: how jobs of equal priority are served: `fair` serves first the job that holds the smaller share of what it
    /// asks for, and recalls leases for it; `arrival` the job that asked first. `fair` where it is left out.
    #[arg(long, value_name = "fair|arrival")]
    pub(crate) job_order: Option<String>,
}

/// What answers over HTTP.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DashboardOptions {
    /// With --head: answers over HTTP: Ray's jobs API, lists of what runs, and a page. It is not, unless this, --dashboard-port or an
    /// address of --dashboard-host that other machines reach is given; `false` wins over both.
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
        value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) include_dashboard: Option<bool>,
    /// The address where it is answered; 127.0.0.1 where this is left out. One that other machines reach needs --dashboard-tls-cert
    /// or --dashboard-plaintext.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) dashboard_host: Option<String>,
    /// The port where it is answered; the first free one from 8265 on where this is left out.
    #[arg(long, value_name = "PORT")]
    pub(crate) dashboard_port: Option<u16>,
    /// A further port of that address that tells the node's health and nothing else, for probes of KubeRay.
    #[arg(long, value_name = "PORT")]
    pub(crate) dashboard_agent_listen_port: Option<u16>,
    /// A name of this machine that requests may bear, beside its addresses and `localhost`; may be given several times. Requests for
    /// other names are refused, so that no page of a browser reaches this by a name of its own.
    #[arg(long = "dashboard-allow-host", value_name = "NAME")]
    pub(crate) dashboard_allow_hosts: Vec<String>,
    /// The certificate by which it is known, as PEM, with those that lead to its authority.
    #[arg(long, value_name = "FILE", requires = "dashboard_tls_key")]
    pub(crate) dashboard_tls_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "dashboard_tls_cert")]
    pub(crate) dashboard_tls_key: Option<PathBuf>,
    /// Answers other machines without TLS: whoever can read the network can then run programs on the cluster.
    #[arg(long, conflicts_with = "dashboard_tls_cert")]
    pub(crate) dashboard_plaintext: bool,
    /// Exports the metrics of this node at this port, for Prometheus. Without it no port is opened for them.
    #[arg(long, value_name = "PORT")]
    pub(crate) metrics_export_port: Option<u16>,
    /// With --metrics-export-port: the address where they are exported; 127.0.0.1 where this is left out. One that other machines
    /// reach needs --metrics-open.
    #[arg(long, value_name = "ADDRESS", requires = "metrics_export_port")]
    pub(crate) metrics_host: Option<IpAddr>,
    /// With --metrics-export-port: whoever reaches that port reads the metrics, without a token.
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
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StartOptions {
    /// Starts a cluster's first machine.
    #[arg(long)]
    pub(crate) head: bool,
    /// Joins the cluster at this address; with --token-file, at the first of several that a head answers at: those of
    /// the head and of its standbys, with commas between.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// With --head: listens at this port for nodes of other machines, on the address of --node-ip-address, or on
    /// 127.0.0.1 where that is left out. Without it no port is opened.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// With --address: the file that the head's machine named, or a copy of it, which lets this machine in.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The port at which a node that joined with --token-file listens for the other nodes; any where it is left out.
    #[arg(long)]
    pub(crate) node_manager_port: Option<u16>,
    /// With --head: for how many seconds a node of another machine may go on without a word from the head, and how long
    /// the head waits before it gives the node up.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) node_lease: Option<f64>,
    /// With --head: for how long the certificate of a node is valid, such as 30m, 24h or 7d; 24h where it is left out.
    /// Nodes renew theirs when half of that is over.
    #[arg(long, value_name = "TIME")]
    pub(crate) node_certificate: Option<String>,
    /// With --head: begins anew where a head that had this port was killed. Otherwise the cluster goes on with what that
    /// head had written down.
    #[arg(long)]
    pub(crate) fresh: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// With --head: SIGTERM ends the head and not its cluster, which the next `start --head` goes on with, as if this one
    /// had been killed. `oxiray stop` ends both.
    #[arg(long)]
    pub(crate) keep_cluster: bool,
    /// With --head and --port: the file with the authority of the cluster, where whoever starts it has made one.
    #[arg(long, value_name = "FILE")]
    pub(crate) authority_file: Option<PathBuf>,
    /// With --token-file: for how many seconds the node waits for a head that is not there yet.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) join_wait: Option<u64>,
    /// With --head: brings further machines for what waits, daemons on this one, of the groups that this file names, and
    /// takes them away when nobody uses them.
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
    /// Where sessions live.
    #[arg(long)]
    pub(crate) temp_dir: Option<PathBuf>,
    /// Where objects go that the store has no room for.
    #[arg(long)]
    pub(crate) object_spilling_directory: Option<PathBuf>,
    /// Stays in the foreground until it is stopped.
    #[arg(long)]
    pub(crate) block: bool,
    /// Switches of the cluster, as a JSON object: those that `init(_system_config=...)` takes.
    #[arg(long, value_name = "JSON")]
    pub(crate) system_config: Option<String>,
    #[command(flatten)]
    pub(crate) without_effect: crate::without_effect::WithoutEffect,
}

/// With those of `start`, which say what each node offers. Outside of Slurm, `--address` names the head, and `--token-file` a
/// file that all nodes see.
#[derive(Debug, Args)]
pub(crate) struct SymmetricRunOptions {
    /// How many nodes have to be there before the program begins; those of the Slurm step where it is left out, else 1.
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
    /// Works for a cluster on this machine until that ends: `oxiray start --head --autoscale` starts it.
    Run(RunOptions),
    /// Says what would be brought and taken away now, and why, and does nothing.
    Plan(PlanOptions),
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// The file that names the groups.
    #[arg(long, value_name = "GROUPS.YAML")]
    pub(crate) groups: PathBuf,
    /// The cluster's address; the current one where it is left out.
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
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// The cluster's address; the one on this machine where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Prints one frame as text and ends.
    #[arg(long)]
    pub(crate) once: bool,
    /// Prints what a frame would be made of as JSON and ends.
    #[arg(long)]
    pub(crate) json: bool,
    /// The view that is shown first: devices, nodes, jobs, tasks, actors, waiting, events.
    #[arg(long, default_value = "devices")]
    pub(crate) view: String,
    /// How wide the frame of --once is.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u16).range(20..=1000))]
    pub(crate) cols: u16,
    /// How high it is.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(5..=1000))]
    pub(crate) rows: u16,
}

#[derive(Debug, Args)]
pub(crate) struct StopOptions {
    /// Kills at once instead of asking.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// How many seconds to wait before killing.
    #[arg(short, long, default_value_t = 16)]
    pub(crate) grace_period: u64,
    /// Names each daemon that is stopped.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Prints all that is known as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints in the form of `ray status`, which the command `ray` does by itself.
    #[arg(long, conflicts_with = "json")]
    pub(crate) ray: bool,
    /// Adds each node, in the form of `ray status`.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HealthOptions {
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// What is listed: actors, jobs, nodes, objects, placement-groups, runtime-envs, tasks or workers.
    pub(crate) kind: String,
    /// How the rows are printed.
    #[arg(long, default_value = "default")]
    pub(crate) format: Format,
    /// Only rows whose column has this value, as key=value, or another, as key!=value. May be given several times.
    #[arg(short, long = "filter", value_name = "KEY=VALUE")]
    pub(crate) filters: Vec<String>,
    /// The most rows.
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: u32,
    /// Shows every column.
    #[arg(long)]
    pub(crate) detail: bool,
    /// Shows every cell whole, however wide the table becomes. On a terminal, long cells are cut to its width otherwise.
    #[arg(long)]
    pub(crate) no_trunc: bool,
    /// How many seconds the daemon may take to answer.
    #[arg(long, default_value_t = 30)]
    pub(crate) timeout: u64,
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    /// What it is: actors, jobs, nodes, objects, placement-groups, tasks or workers.
    pub(crate) kind: String,
    /// Its identifier, or the beginning of it; of a job, the submission's name as well.
    pub(crate) id: String,
    /// How many seconds the daemon may take to answer.
    #[arg(long, default_value_t = 30)]
    pub(crate) timeout: u64,
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// The identifier of a task, an actor or a placement group, or the beginning of it.
    pub(crate) id: String,
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Prints all that is known as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StackOptions {
    /// The number of a process, or the identifier of a task, an actor or a worker, or the beginning of one; every worker and
    /// driver of this machine where it is left out.
    pub(crate) target: Option<String>,
    /// Every worker and driver of the cluster.
    #[arg(long, conflicts_with = "target")]
    pub(crate) all: bool,
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Prints each process's stacks as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrainOptions {
    /// The node's identifier, or the beginning of it; or its name or address.
    pub(crate) node: Option<String>,
    /// The same, as Ray spells it.
    #[arg(long, conflicts_with = "node")]
    pub(crate) node_id: Option<String>,
    /// In how many seconds the node ends, whatever still runs there; when nothing is left there where this is left out.
    #[arg(long, visible_alias = "deadline-remaining-seconds", value_name = "SECONDS")]
    pub(crate) deadline: Option<f64>,
    /// Why, for people. With DRAIN_NODE_REASON_IDLE_TERMINATION a node on which anything runs is left alone.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Why, for people, where --reason is one of Ray's.
    #[arg(long)]
    pub(crate) reason_message: Option<String>,
    /// Keeps the node after all.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Returns when the node is gone.
    #[arg(long)]
    pub(crate) wait: bool,
    /// The cluster's address; the current one where it is left out.
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
    /// Gives the device to nobody any more; who has it keeps it.
    Drain {
        #[command(flatten)]
        order: DeviceOrderOptions,
        /// Why, for people.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Puts the device back into service when it has passed a check. One that somebody has is put back at once.
    Undrain {
        #[command(flatten)]
        order: DeviceOrderOptions,
        /// Puts it back without a check.
        #[arg(long)]
        force: bool,
    },
    /// Checks a device that nobody has: whether it computes, and remembers what is written to it.
    Check {
        #[command(flatten)]
        order: DeviceOrderOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DeviceOrderOptions {
    /// A node's identifier, name or address, and of its devices a number, RESOURCE:NUMBER, or a UUID or its beginning.
    #[arg(value_name = "NODE/DEVICE")]
    pub(crate) device: String,
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SummaryOptions {
    /// What is counted: actors, objects or tasks.
    pub(crate) kind: String,
    /// How many seconds the daemon may take to answer.
    #[arg(long, default_value_t = 30)]
    pub(crate) timeout: u64,
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsOptions {
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MemoryOptions {
    /// The cluster's address; the current one where it is left out.
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// What references stand together by.
    #[arg(long, default_value = "NODE_ADDRESS", ignore_case = true)]
    pub(crate) group_by: GroupBy,
    /// What they are sorted by.
    #[arg(long, default_value = "OBJECT_SIZE", ignore_case = true)]
    pub(crate) sort_by: SortBy,
    /// What sizes are told in.
    #[arg(long, default_value = "B", ignore_case = true)]
    pub(crate) units: Units,
    /// Shows only what the store holds altogether.
    #[arg(long)]
    pub(crate) stats_only: bool,
    /// The most references shown of each group.
    #[arg(short, long)]
    pub(crate) num_entries: Option<usize>,
    /// Shows rows without aligned columns, a comma and a space between their fields.
    #[arg(long)]
    pub(crate) no_format: bool,
}

/// What references stand together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum GroupBy {
    /// The machine of the process that has them.
    NodeAddress,
    /// Where they were made.
    StackTrace,
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
    /// Looks at a recorded machine instead of this one.
    #[arg(long, value_name = "DIR")]
    pub(crate) host_root: Option<PathBuf>,
    /// Prints all that was found as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Shows besides how each two devices are connected, where that is known.
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
