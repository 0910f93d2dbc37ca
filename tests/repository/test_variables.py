"""Every environment variable stands in one register, from which its page is made."""

from __future__ import annotations

import re
from pathlib import Path

from oxiray import _switches, _variables

ROOT = Path(__file__).resolve().parent.parent.parent
REGISTER = ROOT / "python/oxiray/_variables.py"
#: Texts that may be a name: of Ray's and ours, and whatever is written as variables of others are, in words of capitals.
NAMES = re.compile(r"[\"'`]((?:OXIRAY|RAY)_[A-Za-z0-9_]*[A-Za-z0-9]|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)[\"'`]")
#: What reads or sets a variable, and the text or the constant that names it.
READS = (
    re.compile(r"""\b(?:env::(?:remove_|set_)?var(?:_os)?|(?:process_|take_)?variable|getenv|env_(?:bool|integer|float))\(\s*&?(["']?)(\w+)"""),
    re.compile(r"""\benviron(?:\.get|\.setdefault|\.pop)?[\[(]\s*(["']?)(\w+)"""),
    re.compile(r"""(["'])(\w+)["'] (?:not )?in os\.environ\b"""),
    re.compile(r"""\benv!?(?: = |\()\s*(["'])(\w+)["']"""),
)
CONSTANT = re.compile(r"""^(?:pub(?:\([^)]*\))? )?(?:const )?(_?[A-Z][A-Z0-9_]*)(?:: [^=\n]+)? = ["'](\w+)["'];?$""", re.MULTILINE)
#: Files whose texts in capitals are words of Ray's API and of Slurm. Variables that they read by name are found all the same.
VOCABULARIES = {
    "crates/autoscaler/src/slurm/queue.rs",
    "crates/dashboard/src/export/shapes.rs",
    "crates/state/src/columns.rs",
    "crates/wire/src/state/words.rs",
    "python/oxiray/_alternatives.py",
    "python/oxiray/_error_facts.py",
    "python/oxiray/job_submission.py",
    "python/oxiray/util/accelerators/__init__.py",
    "python/oxiray/util/accelerators/accelerators.py",
}
#: Names of Python's, states and fragments of names, which are no variables.
NO_VARIABLES = {
    "ACTOR_UNSCHEDULABLE_ERROR", "CAP_BPF", "CAP_NET_ADMIN", "CAP_SYS_ADMIN", "COLLECTIVE_WARN_INTERVAL_S_ENV_VAR",
    "COORDINATOR_ADDRESS", "CORE_WORKER", "CUDA_IPC", "DEFAULT_MAX_RETRIES", "DEFAULT_PROTOCOL",
    "DRAIN_NODE_REASON_IDLE_TERMINATION", "FOLDER_OR_URL", "GRACE_S", "HEALTH_CHECK_INTERVAL_S_ENV_VAR", "IMPORT_FROM",
    "IMPORT_NAME", "INT32_MAX", "INTERNAL_TIMESTAMP_LOG_KEY", "JOB_ENTRYPOINT_COMMAND_ERROR",
    "JOB_SUPERVISOR_ACTOR_DIED", "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
    "LOGGER_FORMAT", "MMAP_SHM", "NODE_ADDRESS", "NODE_ID_LABEL_KEY", "NO_UPLOAD", "NUM_SLICES", "OBJECT_SIZE",
    "OBJECT_STORE", "OUT_OF_MEMORY", "PCI_BUS_ID", "PENDING_CREATION", "PENDING_NODE_ASSIGNMENT", "PENDING_VALIDATION",
    "RAY_EXCEPTION_TYPES", "REFERENCE_TYPE",
    "RESTORE_WORKER_MODE", "RUNTIME_ENV_SETUP_FAILURE", "SCREAMING_SNAKE_CASE", "SCRIPT_MODE", "SC_PAGE_SIZE",
    "SC_PHYS_PAGES", "SLICE_ID", "SPILL_WORKER_MODE", "STACK_TRACE", "STRICT_PACK", "STRICT_SPREAD",
    "TASK_EXECUTION_EXCEPTION", "TASK_UNSCHEDULABLE_ERROR", "TORCH_GLOO", "TRAIN_DATASET_KEY", "V2_ENABLED_ENV_VAR",
    "VALIDATION_FAILED", "VALIDATION_TIMEOUT", "VALID_PLACEMENT_GROUP_STRATEGIES", "WORKER_DIED",
    "WORKER_GROUP_START_TIMEOUT_S_ENV_VAR", "WORKER_HEALTH_CHECK_TIMEOUT_S_ENV_VAR", "WORKER_MODE",
}
#: What no source of ours names, since a library reads it: `object_store` of storage, and `kube` of the operator.
READ_BY_LIBRARIES = {
    "AWS_DEFAULT_REGION", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS", "AWS_METADATA_ENDPOINT", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID", "AWS_REQUEST_PAYER", "KUBERNETES_SERVICE_PORT", "KUBECONFIG",
}


def sources() -> dict[str, str]:
    """The product's sources without comments and tests, by their place."""
    rust = [path for path in (ROOT / "crates").glob("*/src/**/*.rs") if "tests" not in path.with_suffix("").parts]
    rust = [path for path in rust if path.relative_to(ROOT / "crates").parts[0] not in ("eighth-family", "fuzz", "sim")]
    texts = {path: path.read_text().split("#[cfg(test)]\nmod tests {")[0] for path in rust}
    texts |= {path: path.read_text() for path in (ROOT / "python/oxiray").rglob("*.py") if path != REGISTER}
    assert len(texts) > 400
    return {
        path.relative_to(ROOT).as_posix(): "\n".join(line.split("//")[0] for line in text.splitlines()) for path, text in texts.items()
    }


def read_in(code: str) -> set[str]:
    """The variables that code reads or sets by a text, or by a constant of its own file."""
    constants = dict(CONSTANT.findall(code))
    named = {found for pattern in READS for found in pattern.findall(code)}
    return {name if quote else constants[name] for quote, name in named if quote or name in constants}


def named_in_the_sources() -> set[str]:
    """The names that stand as texts in the product's sources, and those that are made of a prefix and a switch."""
    code = sources()
    written = {name for path, text in code.items() if path not in VOCABULARIES for name in NAMES.findall(text)} - NO_VARIABLES
    read = {name for text in code.values() for name in read_in(text)}
    return written | read | {f"RAY_{name}" for name in _switches.KNOWN}


def unknown(names: set[str]) -> list[str]:
    return [name for name in sorted(names) if not _variables.is_known(name) and name not in _variables.LEFT_OUT]


def test_every_variable_in_the_sources_is_in_the_register() -> None:
    assert unknown(named_in_the_sources()) == [], "put it into python/oxiray/_variables.py, and run scripts/write-variables"


def test_a_variable_of_any_name_is_found() -> None:
    code = (
        'let a = std::env::var("EDITOR"); env::var_os(NAME); host.variable("pager"); const X: u8 = 1;\n'
        'pub(crate) const NAME: &str = "BROWSER";\n#[arg(long, env = "SHELL")]\n'
    )
    assert read_in(code) == {"EDITOR", "BROWSER", "pager", "SHELL"}
    python = "_LEVEL = 'VERBOSITY'\nos.environ.get(_LEVEL)\nos.environ['LANG'] = 'C'\nif 'CI' in os.environ: os.getenv(name)\n"
    assert read_in(python) == {"VERBOSITY", "LANG", "CI"}
    assert NAMES.findall('["SOME_LEVEL", "SOMETHING", "RAY_x"]') == ["SOME_LEVEL", "RAY_x"]
    assert unknown({"PATH", "SOME_LEVEL", "AWS_REGION", "PIP_INDEX_URL"}) == ["SOME_LEVEL"]


def test_what_is_no_variable_is_in_the_sources() -> None:
    code = sources()
    assert code.keys() >= VOCABULARIES
    texts = {name for path, text in code.items() if path not in VOCABULARIES for name in NAMES.findall(text)}
    assert sorted(NO_VARIABLES - texts) == []


def test_every_variable_of_the_register_is_in_the_sources() -> None:
    named = named_in_the_sources()
    code = "\n".join(sources().values())
    # What a library reads for us stands in what we say of it.
    unread = [one.name for one in _variables.every() if not any(map(one.matches, named)) and not is_told_of(one.name, code)]
    # The one of Ray's says what is so in any case.
    assert set(unread) == {"RAY_USAGE_STATS_ENABLED"} | READ_BY_LIBRARIES
    assert [name for name in _variables.LEFT_OUT if name not in named] == []


def is_told_of(name: str, code: str) -> bool:
    """Whether a variable of others is named within a longer text, or a family of them by its prefix."""
    return not name.startswith(("RAY_", "OXIRAY_")) and re.search(rf"\b{name.removesuffix('[...]')}", code) is not None


def test_the_command_line_knows_the_switches() -> None:
    source = (ROOT / "crates/cli/src/start.rs").read_text()
    listed = re.search(r"const SWITCHES: [^=]*= \[(.*?)\];", source, re.DOTALL)
    assert listed is not None and tuple(re.findall(r'"(\w+)"', listed[1])) == _switches.KNOWN


def test_the_page_is_made_from_the_register() -> None:
    assert (ROOT / "docs/environment-variables.md").read_text() == _variables.page(), "run scripts/write-variables"


def test_a_family_of_names_is_known_by_its_prefix() -> None:
    assert _variables.is_known("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES")
    assert not _variables.is_known("RAY_EXPERIMENTAL_NOSET_") and not _variables.is_known("RAY_NOBODY")
