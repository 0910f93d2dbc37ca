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
        Variable("RAY_DASHBOARD_ADDRESS", "the dashboard whose cluster the commands of Ray Serve are for", "none"),
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
        Variable("OXIRAY_DEADLOCK", "`report`: their drivers are notified, and no call fails; `fail`", "`fail`"),
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
            "what becomes of a process that has a device open which it was not granted: `report` it to its driver, or `end` it as well",
            "report",
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
        Variable(
            "OXIRAY_VISIBLE_DEVICES",
            "what variables such as `CUDA_VISIBLE_DEVICES` name a process's devices by: numbers (`ordinal`), or UUIDs where they are known (`uuid`)",
            "ordinal",
        ),
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

#: What users and administrators set whose names others have given, by what it is about.
OF_OTHERS: dict[str, tuple[Variable, ...]] = {
    "Storage that speaks S3": (
        Variable("AWS_ACCESS_KEY_ID", "the credentials of `s3://` where objects, packages, checkpoints or history lie", "the role of the pod or the machine"),
        Variable("AWS_SECRET_ACCESS_KEY", "the secret of that key", "none"),
        Variable("AWS_SESSION_TOKEN", "the token of credentials that end", "none"),
        Variable("AWS_REGION", "the region", "AWS_DEFAULT_REGION"),
        Variable("AWS_DEFAULT_REGION", "the same", "`us-east-1`"),
        Variable("AWS_ENDPOINT_URL", "the server where it is not Amazon's", "Amazon's, of the region"),
        Variable("AWS_ENDPOINT_URL_S3", "the same, for S3 alone", "AWS_ENDPOINT_URL"),
        Variable("AWS_ENDPOINT", "the same", "AWS_ENDPOINT_URL"),
        Variable("AWS_ALLOW_HTTP", "true: an endpoint without TLS is allowed", "false"),
        Variable("AWS_SKIP_SIGNATURE", "true: requests are not signed, for a public bucket", "false"),
        Variable("AWS_EC2_METADATA_DISABLED", "true: the machine is not asked for its role, and missing credentials are an error at once", "false"),
        Variable("AWS_WEB_IDENTITY_TOKEN_FILE", "the file with the token of a pod's role; EKS sets it", "none"),
        Variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "where a container asks for the credentials of its role; ECS sets it", "none"),
        Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI", "the same, as EKS sets it", "none"),
        Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "the file with the token for that; EKS sets it", "none"),
        Variable("AWS_ROLE_ARN", "the role that the token of AWS_WEB_IDENTITY_TOKEN_FILE is for; EKS sets it", "none"),
        Variable("AWS_ROLE_SESSION_NAME", "the name of the session of that role", "`WebIdentitySession`"),
        Variable("AWS_ENDPOINT_URL_STS", "the server that gives credentials for that role", "`https://sts.REGION.amazonaws.com`"),
        Variable("AWS_METADATA_ENDPOINT", "where a machine asks for its role", "`http://169.254.169.254`"),
        Variable("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true: the bucket's name is in the host's name and not in the path", "false"),
        Variable("AWS_SERVER_SIDE_ENCRYPTION", "how the server encrypts what is written, such as `aws:kms`", "as the bucket says"),
        Variable("AWS_SSE_KMS_KEY_ID", "the key for that", "the bucket's"),
        Variable("AWS_REQUEST_PAYER", "true: who asks pays", "false"),
    ),
    "Devices, by their vendors": (
        Variable("CUDA_VISIBLE_DEVICES", "of a node: the NVIDIA GPUs that it offers. In a worker: those that it was granted", "all that are found"),
        Variable("ROCR_VISIBLE_DEVICES", "the same, of AMD's GPUs", "all that are found"),
        Variable("HIP_VISIBLE_DEVICES", "the same, of AMD's GPUs, by their place among those of `ROCR_VISIBLE_DEVICES`", "all that are found"),
        Variable("ZE_AFFINITY_MASK", "the same, of Intel's GPUs", "all that are found"),
        Variable("ONEAPI_DEVICE_SELECTOR", "the same, of Intel's GPUs, by their place among those of `ZE_AFFINITY_MASK`", "all that are found"),
        Variable("ZE_FLAT_DEVICE_HIERARCHY", "`COMPOSITE`: a card of Intel's with several tiles is one GPU", "each tile is one"),
        Variable("HABANA_VISIBLE_MODULES", "the same as `CUDA_VISIBLE_DEVICES`, of Intel Gaudi's accelerators", "all that are found"),
        Variable("NEURON_RT_VISIBLE_CORES", "the same, of AWS Neuron's cores", "all that are found"),
        Variable("ASCEND_RT_VISIBLE_DEVICES", "the same, of Huawei Ascend's NPUs", "all that are found"),
        Variable("TPU_VISIBLE_CHIPS", "the same, of Google's TPU chips", "all that are found"),
        Variable("TPU_ACCELERATOR_TYPE", "the type of a TPU slice, such as `v4-16`", "what the machine's metadata service says"),
        Variable("TPU_NAME", "the name of a TPU slice; set in pods of one", "what the machine's metadata service says"),
        Variable("TPU_WORKER_ID", "the machine's number in the slice; set in pods of one", "what the machine's metadata service says"),
        Variable("TPU_TOPOLOGY", "how the chips of the slice are connected, such as `2x2x4`", "what the machine's metadata service says"),
        Variable("CUDA_MPS_PIPE_DIRECTORY", "where NVIDIA's MPS control daemon listens, which keeps processes to `gpu_memory=`", "MPS is not used"),
        Variable("PYTORCH_ALLOC_CONF", "settings of PyTorch's allocator; work with `gpu_memory=` adds its share to them", "none"),
        Variable("PYTORCH_CUDA_ALLOC_CONF", "the same, as PyTorch before 2.9 reads it", "none"),
    ),
    "Slurm": (
        Variable("SLURM_JOB_ID", "of `symmetric-run`: the job that it is in. Slurm sets these for each task of a step", "it is in none"),
        Variable("SLURM_STEP_ID", "the step of the job", "it is in none"),
        Variable("SLURM_NODEID", "the number of the node in the step; 0 starts the head", "an error"),
        Variable("SLURM_STEP_NUM_NODES", "how many nodes the step has", "an error"),
        Variable("SLURM_STEP_NUM_TASKS", "how many tasks the step has: as many as nodes", "an error"),
        Variable("SLURM_SRUN_COMM_HOST", "where `srun` runs, by which a node learns its own address", "`--node-ip-address`"),
        Variable("SLURM_CONF", "kept for `sbatch`, `squeue` and `scancel`, as the next two; other variables that begin with `SLURM_` or `SQUEUE_` are not", "Slurm's own"),
        Variable("SLURM_CONF_SERVER", "kept for Slurm's commands", "Slurm's own"),
        Variable("SLURM_JWT", "kept for Slurm's commands", "Slurm's own"),
    ),
    "Kubernetes": (
        Variable("KUBERNETES_SERVICE_HOST", "set in every pod: MIG instances, all of one profile, are offered as one GPU each, as with `OXIRAY_MIG_STRATEGY=single`", "it is no pod"),
        Variable("KUBERNETES_SERVICE_PORT", "set in every pod, with the host: where the operator reaches the API server when it finds no KUBECONFIG", "it is no pod"),
        Variable("KUBECONFIG", "of the operator: the file that says how it reaches the API server", "`~/.kube/config`"),
        Variable("POD_NAME", "of the operator: its name in the lease", "a name of its own"),
        Variable("POD_NAMESPACE", "of the operator: the namespace of the lease", "`default`"),
        Variable("CLUSTER_DOMAIN", "of the operator: the domain of services", "`cluster.local`"),
    ),
    "Programs, packages and terminals": (
        Variable("NO_COLOR", "if set and not empty: `oxiray top` uses no colours", "not set"),
        Variable("OTEL_EXPORTER_OTLP_HEADERS", "headers of what `oxiray start --head --otlp` sends, as `name=value` by commas", "none"),
        Variable("OMP_NUM_THREADS", "of a node: how many threads numeric libraries start in workers", "the CPUs that the work asked for"),
        Variable("OPENBLAS_NUM_THREADS", "the same, of OpenBLAS. While a template imports modules it is 1, as are the next three", "not set"),
        Variable("MKL_NUM_THREADS", "the same, of MKL", "not set"),
        Variable("NUMEXPR_NUM_THREADS", "the same, of NumExpr", "not set"),
        Variable("VECLIB_MAXIMUM_THREADS", "the same, of Accelerate", "not set"),
        Variable("PYTHONBREAKPOINT", "what `breakpoint()` does in a worker", "it waits for `oxiray debug`"),
        Variable("CONDA_EXE", "the program conda", "conda, mamba or micromamba in `PATH`"),
        Variable("CONDA_PREFIX", "the active environment of conda, by which others are found", "none"),
        Variable("CONDA_ENVS_PATH", "folders with environments of conda", "none"),
        Variable("CONDA_ENVS_DIRS", "the same", "none"),
        Variable("PIP_[...]", "settings of pip in the `env_vars` of a runtime environment: its installer gets them", "pip's own"),
        Variable("UV_[...]", "the same, of uv", "uv's own"),
        Variable("CONDA_[...]", "the same, of conda", "conda's own"),
        Variable("MAMBA_[...]", "the same, of mamba", "mamba's own"),
        Variable("HTTP_PROXY", "the proxy of these installers, also as `http_proxy`", "none"),
        Variable("HTTPS_PROXY", "the same, also as `https_proxy`", "none"),
        Variable("NO_PROXY", "the hosts that need none, also as `no_proxy`", "none"),
        Variable("JAX_PROFILER_PORT", "the port of `ray.util.tpu.init_jax_profiler`", "9999"),
        Variable("JAX_PLATFORMS", "in workers of a `JaxTrainer`: where JAX computes", "`tpu` or `cuda`, as the workers were asked for"),
        Variable("MEGASCALE_PORT", "in workers of a `JaxTrainer` on several slices: the port of their coordinator", "8081"),
        Variable("TORCH_NCCL_BLOCKING_WAIT", "if set in workers of a `TorchTrainer`: `TORCH_NCCL_ASYNC_ERROR_HANDLING` is left alone", "not set"),
        Variable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "in workers of a `TorchTrainer`: NCCL's errors end the process", "1"),
        Variable("GLOO_SOCKET_IFNAME", "in workers of a `TorchTrainer`: the network interface of Gloo", "that of the node's address"),
        Variable("TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES", "0: ranks on one machine do not see each other's devices", "1 for PyTorch"),
        Variable("RANK", "of a program that `torchrun` started and that trains with `num_workers=0`; also set in workers of a `TorchTrainer`", "it stands alone"),
        Variable("WORLD_SIZE", "the same", "it stands alone"),
        Variable("LOCAL_RANK", "the same", "it stands alone"),
        Variable("LOCAL_WORLD_SIZE", "the same", "it stands alone"),
        Variable("MASTER_ADDR", "the same", "it stands alone"),
        Variable("MASTER_PORT", "the same", "it stands alone"),
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
    Variable("FQ_RAY_IP", "in a pod: the head's service, with its domain"),
    Variable("KUBERAY_GEN_RAY_START_CMD", "in a pod whose container keeps its own command: what starts the node"),
    Variable("NVIDIA_VISIBLE_DEVICES", "in a pod without a GPU: `void`, so that the container sees none"),
    Variable("TPU_WORKER_HOSTNAMES", "in a pod of a TPU slice: the hosts of the slice"),
    Variable("CUDA_DEVICE_ORDER", "in a fenced worker: `PCI_BUS_ID`"),
    Variable("TPU_CHIPS_PER_HOST_BOUNDS", "in a worker with some of a machine's TPU chips: how they are arranged"),
    Variable("TPU_HOST_BOUNDS", "the same"),
    Variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "in a worker with `gpu_memory=`: its limit, for MPS"),
    Variable("CUDA_DEVICE_MEMORY_LIMIT_0", "the same, for the library of `--gpu-memory-library`"),
    Variable("LD_PRELOAD", "the same: that library, before what was there"),
    Variable("XLA_PYTHON_CLIENT_MEM_FRACTION", "the same, for JAX, where the node has no such variable"),
    Variable("CUPY_GPU_MEMORY_LIMIT", "the same, for CuPy, where the node has no such variable"),
    Variable("TF_FORCE_GPU_ALLOW_GROWTH", "`true`, so that TensorFlow does not take the whole GPU, where the node has no such variable"),
    Variable("NODE_RANK", "in a worker of a `TorchTrainer`: the number of its node"),
    Variable("ACCELERATE_TORCH_DEVICE", "in a worker of a `TorchTrainer`: its device, for Accelerate"),
    Variable("CUBLAS_WORKSPACE_CONFIG", "in a worker that called `enable_reproducibility`: `:4096:8`"),
    Variable("MEGASCALE_[...]", "in a worker of a `JaxTrainer` on several slices: coordinator, number of slices, and its slice"),
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
    Variable("TEST_EXTERNAL_REDIS", "of Ray's own tests: 1 asks for a Redis, which helpers of tests refuse"),
    Variable("TEST_EXTERNAL_REDIS_REPLICAS", "of Ray's own tests: how many Redis servers there are"),
    Variable("TEST_EXTERNAL_REDIS_SENTINEL_REPLICAS", "of Ray's own tests: how many there are behind a sentinel"),
    Variable("TEST_GCS_ROCKSDB", "of Ray's own tests: 1 asks for a head with RocksDB"),
    Variable("TEST_OUTPUT_JSON", "of Ray's own tests: the file that results are written to"),
    Variable("OXIRAY_NVML_FIXTURE", "the file that the NVML-compatible library of tests answers from"),
)


#: What is read and stands in no table, with the reason.
LEFT_OUT: dict[str, str] = {
    "PATH": "programs are found by it, as everywhere; relative entries are left out",
    "PYTHONPATH": "interpreters that Oxiray starts have it, without relative entries",
    "LD_LIBRARY_PATH": "the same",
    "TZ": "the page shows times in that zone, as every program does",
    "CARGO_PKG_VERSION": "it is read when the program is built",
    "OUT_DIR": "it is read when the program is built",
    "PYTEST_CURRENT_TEST": "a library of Ray's asks whether it is in a test, and pytest sets it there",
    "BUILDKITE": "the same, of the builds that run there",
}


def every() -> tuple[Variable, ...]:
    """All of them."""
    tables = (*SETTINGS.values(), *OF_OTHERS.values())
    return (*(variable for about in tables for variable in about), *SET_HERE, *INTERNAL)


def is_known(name: str) -> bool:
    """Whether the environment variable of that name is read or set by anything here."""
    return any(variable.matches(name) for variable in every())


def page() -> str:
    """The page of the documentation, in Markdown."""
    lines = [
        "# Environment variables",
        "",
        "This page is made by `scripts/write-variables` from the register in `python/oxiray/_variables.py`. Variables of a",
        "daemon are those that it was started with; workers inherit them. Variables whose names others have given, such as those of",
        "storage and devices, come after those of Ray and Oxiray. `PATH`, `HOME` and their like mean what they mean everywhere.",
    ]
    for about, variables in (SETTINGS | OF_OTHERS).items():
        lines += ["", f"## {about}", "", "| Variable | What it says | Where it is not set |", "|---|---|---|"]
        lines += [f"| `{variable.name}` | {variable.meaning} | {variable.default} |" for variable in variables]
    for about, variables in (("Set for workers, jobs and pods", SET_HERE), ("Between processes of Oxiray, and in tests", INTERNAL)):
        lines += ["", f"## {about}", "", "| Variable | What it says |", "|---|---|"]
        lines += [f"| `{variable.name}` | {variable.meaning} |" for variable in variables]
    return "\n".join([*lines, ""])
