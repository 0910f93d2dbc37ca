"""The register of environment variables: each that something here reads or sets, and what it says.

`docs/environment-variables.md` is made from it (`scripts/write-variables`), and `oxiray compat` knows by it which of Ray's
variables act here.

Invariant: `tests/repository/test_variables.py` fails where a name in the sources is not here, or one here is in no source.
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Variable:
    """An environment variable.

    Attributes:
        name: str. Its name; `[...]` stands for what varies in the names of a family of variables.
        meaning: str. What it says, as part of a sentence.
        default: str. What holds where it is not set.
    """

    name: str
    meaning: str
    default: str = ""

    def matches(self, name: str) -> bool:
        """Whether that is its name."""
        return re.fullmatch(re.escape(self.name).replace(r"\[\.\.\.\]", "[A-Za-z0-9_]+"), name) is not None


#: What users and administrators set, by what it is about.
SETTINGS: dict[str, tuple[Variable, ...]] = {
    "Clusters and sessions": (
        Variable("RAY_ADDRESS", "the cluster that a program, a job or a command connects to", "the user's own cluster"),
        Variable("RAY_ENABLE_AUTO_CONNECT", "0: a program calls init() itself, and is not connected on first use", "1"),
        Variable("RAY_NAMESPACE", "the namespace of a program's named actors", "one of the program's own"),
        Variable("RAY_RUNTIME_ENV", "the runtime environment of a program as JSON", "none"),
        Variable("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1: what init() asks for wins over RAY_RUNTIME_ENV", "0"),
        Variable("OXIRAY_TMPDIR", "the folder of the sessions of daemons, before RAY_TMPDIR", "RAY_TMPDIR"),
        Variable("RAY_TMPDIR", "the same, as in Ray", "`/tmp`"),
        Variable("RAY_AUTH_MODE", "what an `AuthenticationError` of Ray's says of tokens; nothing else follows from it", "disabled"),
        Variable(
            "RAY_AUTH_TOKEN",
            "the token that opens the dashboard, and that clients of one send; 16 characters or more",
            "RAY_AUTH_TOKEN_PATH",
        ),
        Variable("RAY_OVERRIDE_DASHBOARD_URL", "what `dashboard_url` of what init() returns says in place of the dashboard's address", "none"),
        Variable("RAY_API_SERVER_ADDRESS", "the address that jobs are submitted to over HTTP, before what the program names", "none"),
        Variable("RAY_JOB_HEADERS", "headers of requests about jobs over HTTP, as a JSON object of texts", "none"),
        Variable("RAY_JOB_STOP_SIGNAL", "in a job's `env_vars`: the signal by which it is asked to end", "SIGTERM"),
        Variable("RAY_JOB_STOP_WAIT_TIME_S", "in a job's `env_vars`: how many seconds it has then before it is killed (0 to 3600)", "5"),
        Variable("RAY_AUTH_TOKEN_PATH", "the file with that token", "`http-token` in the session's folder"),
        Variable(
            "OXIRAY_MACHINE_LABELS_FILE",
            "a file with labels of the machine as a JSON object of texts, for which a node waits 60 s; they hold where nothing else "
            "says otherwise. The operator sets it in pods",
            "none",
        ),
        Variable("OXIRAY_BINARY", "the program `oxiray` that is started as a daemon", "the one that is installed"),
        Variable("OXIRAY_INTERPRETER", "the interpreter with Oxiray, which stands for one that a machine has not", "the command's own"),
        Variable("OXIRAY_PYTHON", "the interpreter that runs what a Rust program calls in Python", "`python3`"),
    ),
    "Scheduling, retries and lineage": (
        Variable(
            "OXIRAY_INFEASIBLE_WAIT_S",
            "for how many seconds a demand that no node can meet waits for a node to join (0 to 86400)",
            "30, and 0 in a program's own cluster",
        ),
        Variable(
            "OXIRAY_DEADLOCK_WAIT_S",
            "for how many seconds processes wait for what the others of them hold until a call of theirs fails with "
            "`DeviceDeadlockError` (0 to 86400)",
            "10",
        ),
        Variable("OXIRAY_DEADLOCK", "`tell`: their drivers are told, and no call fails; `fail`", "`fail`"),
        Variable("OXIRAY_PREEMPTION", "`on`: work that was made with `preemptible=True` ends early for work of a higher priority; `off`", "`off`"),
        Variable("OXIRAY_PREEMPTION_GRACE_S", "for how many seconds preempted work may go on after it was told (0 to 86400)", "30"),
        Variable(
            "OXIRAY_JOB_ORDER",
            "how jobs of equal priority are served: `fair`, who holds less first, or `arrival`, who came first",
            "`fair`",
        ),
        Variable("RAY_TASK_MAX_RETRIES", "how often a task whose worker died is run again", "3"),
        Variable("RAY_task_retry_delay_ms", "milliseconds before it is run again", "0"),
        Variable("RAY_task_oom_retries", "how often a task that was ended for want of memory is run again; -1 for ever", "-1"),
        Variable("RAY_task_oom_retry_delay_base_ms", "milliseconds before that, doubled each time", "1000"),
        Variable("RAY_lineage_pinning_enabled", "0: results that are lost are not made again", "1"),
        Variable("RAY_max_lineage_bytes", "bytes of what is kept in a process to make lost results again", "1 GiB"),
        Variable(
            "RAY_allow_out_of_band_object_ref_serialization", "0: a reference that is pickled by other means raises", "1"
        ),
        Variable("RAY_record_ref_creation_sites", "1: references remember the line that made them", "0"),
    ),
    "Memory and disk": (
        Variable("RAY_memory_usage_threshold", "the share of the memory from which on workers are ended (0 to 1)", "0.95"),
        Variable("RAY_memory_monitor_refresh_ms", "milliseconds between two looks at it; 0 for none", "250"),
        Variable("OXIRAY_MEMORY_LIMITS", "0: `memory=` reserves and does not limit", "1"),
        Variable("OXIRAY_WORKER_PIDS_MAX", "how many processes and threads a worker may have; 0 for no limit", "4096"),
        Variable(
            "RAY_object_spilling_directory",
            "where objects are spilled that memory has no room for: a directory, or storage as `s3://bucket/prefix`",
            "the session's folder",
        ),
        Variable("RAY_object_spilling_config", "the same as Ray's JSON, of type `filesystem` or `smart_open`", "none"),
        Variable("RAY_local_fs_capacity_threshold", "how full the disk may get that objects are spilled to (0 to 1)", "0.95"),
    ),
    "Devices and labels": (
        Variable("OXIRAY_GPU_FAMILY", "which vendor's devices `GPU` is: nvidia, amd or intel", "the one that is found"),
        Variable("RAY_OVERRIDE_RESOURCES", "a JSON object of resources that a node offers in place of those found", "none"),
        Variable(
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1: work that asks for no device sees none (`CUDA_VISIBLE_DEVICES=`)", "0"
        ),
        Variable("RAY_EXPERIMENTAL_NOSET_[...]", "1: the variable of that name is left as it is on workers", "0"),
        Variable(
            "OXIRAY_DEVICE_ISOLATION",
            "how far devices are kept from those that they were not granted to: variable, watch, fence or require",
            "variable",
        ),
        Variable(
            "OXIRAY_DEVICE_VIOLATIONS",
            "what becomes of a process that has a device open which it was not granted: `tell` its driver, or `end` it besides",
            "tell",
        ),
        Variable(
            "OXIRAY_GPU_MEMORY",
            "set for work with `gpu_memory=`: how many bytes of its GPU it asked for",
            "not set for other work",
        ),
        Variable(
            "OXIRAY_GPU_MEMORY_FRACTION",
            "set for work with `gpu_memory=`: the share of its GPU's memory that a framework may take (0 to 1)",
            "not set for other work",
        ),
        Variable(
            "OXIRAY_GPU_MEMORY_TIER",
            "set for work with `gpu_memory=`: the strongest of what keeps it to that (mig, dmem, mps, interposer, framework, watched or none)",
            "not set for other work",
        ),
        Variable(
            "OXIRAY_GPU_MEMORY_ENFORCEMENT",
            "what keeps work to its `gpu_memory=`, in order: a list of mig, dmem, mps, interposer, framework, watched and none, or `require:mps`",
            "all that work",
        ),
        Variable(
            "OXIRAY_GPU_MEMORY_LIBRARY",
            "a library that is loaded into workers with `gpu_memory=` and keeps them to `CUDA_DEVICE_MEMORY_LIMIT_0`",
            "none",
        ),
        Variable("OXIRAY_JOB_PRIORITY", "how urgent what a program makes is (-1000 to 1000), the higher one first", "0"),
        Variable("OXIRAY_MIG_STRATEGY", "how GPUs are offered that are partitioned into MIG instances: `none`, `single` or `mixed`", "mixed"),
        Variable("OXIRAY_DEVICE_ORDER", "which of several free devices are taken: those that are near to each other (`topology`), or `lowest`", "topology"),
        Variable("OXIRAY_PIN_CPUS", "`local`: workers with whole devices run on the processors of these devices' NUMA node; `off`", "`off`"),
        Variable("OXIRAY_SHARE_MEMORY", "`cap`: a share of a GPU is a limit on its memory, as `gpu_memory=` is; `promise`", "`promise`"),
        Variable("OXIRAY_NVML_LIBRARY", "the NVML library that is asked about NVIDIA's devices", "the system's"),
        Variable("OXIRAY_CUDA_LIBRARY", "the library of CUDA's driver API by which a device is checked", "the system's"),
        Variable("OXIRAY_XIDS_FATAL", "Xids after which a GPU is out of service, such as `31,74`", "as NVIDIA's catalogue says"),
        Variable("OXIRAY_XIDS_IGNORE", "Xids of which nothing is made, such as `95`", "none"),
        Variable("RAY_NODE_MARKET_TYPE", "a node's label `ray.io/market-type`", "no label"),
        Variable("RAY_NODE_TYPE_NAME", "a node's label `ray.io/node-group`", "no label"),
        Variable("RAY_NODE_REGION", "a node's label `ray.io/availability-region`", "no label"),
        Variable("RAY_NODE_ZONE", "a node's label `ray.io/availability-zone`", "no label"),
    ),
    "Runtime environments": (
        Variable("OXIRAY_PACKAGE_BYTES_MAX", "the most bytes of a folder that is shipped", "512 MiB"),
        Variable("OXIRAY_ENVIRONMENT_CACHE_BYTES", "the most bytes of environments that a user's cache keeps", "10 GiB"),
        Variable("RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT", "how many seconds the nodes of `symmetric-run` wait for each other", "120"),
        Variable(
            "RAY_RUNTIME_ENV_PLUGIN_SCHEMAS",
            "files and folders of `.json` files, between commas: JSON schemas that the field of a runtime environment named by "
            "their `title` has to meet",
            "none",
        ),
        Variable("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1: files that `.gitignore` names are shipped, too", "0"),
        Variable(
            "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES",
            "names that are never shipped, by commas",
            "`.git`, `.venv`, `venv`, `__pycache__`",
        ),
        Variable(
            "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper",
            "true: a worker's finished children vanish without being waited for",
            "false",
        ),
    ),
    "Logs and history": (
        Variable("OXIRAY_HISTORY", "where a head records the cluster's history, as `oxiray start --head --history`: a directory or `s3://bucket/prefix`", "nowhere"),
        Variable("OXIRAY_HISTORY_JOB_BYTES", "the most bytes of history that are kept of a job, of the head's daemon", "256 MiB"),
        Variable("OXIRAY_HISTORY_BYTES", "the most bytes of history that are kept of all sessions, of the head's daemon", "5 GiB"),
        Variable("OXIRAY_HISTORY_DAYS", "for how many days history is kept, of the head's daemon", "30"),
        Variable(
            "RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR",
            "where a head sends what happens as Ray's events, of `oxiray start --head`: a URL of plain HTTP, as that of KubeRay's collector",
            "nowhere",
        ),
        Variable("RAY_LOG_TO_DRIVER", "0: the output of workers is not shown in the driver", "1"),
        Variable("OXIRAY_WORKER_LOGS", "0: the daemon writes nothing of what workers print to files", "1"),
        Variable("RAY_ROTATION_MAX_BYTES", "bytes of a worker's file of logs after which it is begun anew, of the daemon", "64 MiB"),
        Variable("RAY_ROTATION_BACKUP_COUNT", "how many files are kept of those that were full, of the daemon (0 to 100)", "1"),
        Variable("RAY_LOGGING_CONFIG_ENCODING", "TEXT or JSON: how the driver and its workers log", "as Python does"),
        Variable("RAY_COLOR_PREFIX", "1 or 0: whether the names before lines of workers have colors", "1 on a terminal"),
        Variable("RAY_DEDUP_LOGS", "0: lines that several workers print are all shown", "1"),
        Variable("RAY_DEDUP_LOGS_AGG_WINDOW_S", "for how many seconds such a line is held back", "5"),
        Variable("RAY_DEDUP_LOGS_ALLOW_REGEX", "lines that are always shown", "none"),
        Variable("RAY_DEDUP_LOGS_SKIP_REGEX", "lines that are never shown", "none"),
        Variable("RAY_IGNORE_UNHANDLED_ERRORS", "if set: errors that nobody looked at are not logged", "not set"),
        Variable("RAY_metric_cardinality_level", "`low`: exported metrics of tasks and actors leave out their names", "`recommended`"),
        Variable("RAY_DEBUG_POST_MORTEM", "1: what fails in a worker waits for `oxiray debug` where it failed", "0"),
        Variable("RAY_USAGE_STATS_ENABLED", "nothing, as nothing is ever reported to anybody", "0"),
    ),
    "Training": (
        Variable("RAY_TRAIN_CALLBACKS", "classes of callbacks, by commas, that each run has", "none"),
        Variable("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "seconds between two questions to the workers", "2"),
        Variable("RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S", "seconds after which a worker that is silent has failed", "600"),
        Variable("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "seconds that the workers have to start", "60"),
        Variable("RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S", "seconds after which a rank that waits for others says so", "60"),
        Variable("RAY_TRAIN_V2_ENABLED", "nothing, as training always is Ray Train's second version", "1"),
    ),
}

#: What is set for workers, jobs and pods.
SET_HERE: tuple[Variable, ...] = (
    Variable("RAY_JOB_ID", "in a worker: the job that it works for"),
    Variable("RAY_RAYLET_PID", "in a worker: the process of its daemon"),
    Variable("RAY_RUNTIME_ENV_CREATE_WORKING_DIR", "while requirements are installed: the working directory"),
    Variable("OXIRAY_SESSION", "in a template and a job: the name of its session"),
    Variable("OXIRAY_SUBMISSION_ID", "in a submitted job: its name"),
    Variable("RAY_CLOUD_INSTANCE_ID", "in a pod: its name, and so the node's"),
    Variable("RAY_CLUSTER_NAME", "in a pod: the name of its RayCluster"),
    Variable("RAY_CLUSTER_NAMESPACE", "in a pod: the namespace of its RayCluster"),
    Variable("RAY_IP", "in a pod: the address of the head"),
    Variable("RAY_PORT", "in a pod: the port of the head"),
    Variable("OXIRAY_POD_IP", "in a pod: its address"),
    Variable("OXIRAY_POD_UID", "in a pod: its identifier"),
)

#: What processes of Oxiray tell each other, and what tests set; nobody else has a use for it.
INTERNAL: tuple[Variable, ...] = (
    Variable("OXIRAY_TEMPLATE_FD", "the descriptor by which a template hears its daemon"),
    Variable("OXIRAY_TEMPLATE_PRELOAD", "the modules that a template imports"),
    Variable("OXIRAY_TEMPLATE_PRELOAD_REFUSED", "why it did not"),
    Variable("OXIRAY_WORKER_OF", "what a worker that is a Rust program serves"),
    Variable("OXIRAY_WORKER_GROUPS", "the control groups that it enters at its start"),
    Variable("OXIRAY_WORKER_FENCES", "those of them that keep it from devices, without which it does not begin"),
    Variable("OXIRAY_HOST_ROOT", "the folder of a recorded machine that is read in place of this one"),
    Variable("OXIRAY_NVML_FIXTURE", "the file that the NVML-compatible library of tests answers from"),
)


def every() -> tuple[Variable, ...]:
    """All of them."""
    return (*(variable for about in SETTINGS.values() for variable in about), *SET_HERE, *INTERNAL)


def is_known(name: str) -> bool:
    """Whether the environment variable of that name is read or set by anything here."""
    return any(variable.matches(name) for variable in every())


def page() -> str:
    """The page of the documentation, in Markdown."""
    lines = [
        "# Environment variables",
        "",
        "This page is made by `scripts/write-variables` from the register in `python/oxiray/_variables.py`. Variables of a",
        "daemon are those that it was started with; workers inherit them.",
    ]
    for about, variables in SETTINGS.items():
        lines += ["", f"## {about}", "", "| Variable | What it says | Where it is not set |", "|---|---|---|"]
        lines += [f"| `{variable.name}` | {variable.meaning} | {variable.default} |" for variable in variables]
    for about, variables in (("Set for workers, jobs and pods", SET_HERE), ("Between processes of Oxiray, and in tests", INTERNAL)):
        lines += ["", f"## {about}", "", "| Variable | What it says |", "|---|---|"]
        lines += [f"| `{variable.name}` | {variable.meaning} |" for variable in variables]
    return "\n".join([*lines, ""])
