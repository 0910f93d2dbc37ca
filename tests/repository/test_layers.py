"""The rules a compiler does not check: which crate may lean on which, and what the pure ones never name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parent.parent.parent

# Top to bottom. A crate may lean on crates of lower layers only; within a layer only as `BESIDE` says.
LAYERS = [
    {"cli", "dashboard", "operator", "python", "oxiray", "sim", "fuzz", "scale", "storage"},
    {"client"},
    {"autoscaler", "node", "runtime"},
    {"head", "ray-api"},
    {"machine"},
    {"visitor", "logs"},
    {"state"},
    {"wire", "network", "store", "journal", "accelerators", "scheduler", "processes", "fence", "device-check", "kubernetes", "values", "macros"},
    {"resources", "ids", "records", "threads", "fields"},
    {"families"},
    {"workspace-hack"},
]
BESIDE: set[tuple[str, str]] = set()
# Crates that only tests use: any crate may name them as a dev-dependency, none as a dependency.
TEST_ONLY = {"eighth-family", "models", "nvml-fixture"}
# Where a clock, a socket, a file, a thread or chance would make a decision impossible to replay.
PURE = ["families", "resources", "scheduler", "kubernetes", "state", "ray-api"]
IMPURE = re.compile(
    r"\bstd::(time|net|fs|thread|process|env|os|io)\b|\b(getrandom|rand|tokio|rustix|libc|SystemTime|Instant)\b"
)


def layer_of(crate: str) -> int:
    """The crate's layer, 0 on top."""
    return next(depth for depth, layer in enumerate(LAYERS) if crate in layer)


def violations(crates: dict[str, dict[str, set[str]]]) -> list[str]:
    """What is wrong with these crates' dependencies, given per crate and kind of dependency as names without prefix."""
    found = []
    declared = set().union(*LAYERS) | TEST_ONLY
    for crate in sorted(crates.keys() - declared):
        found.append(f"`{crate}` is in no layer: say where it belongs in {Path(__file__).name} and ARCHITECTURE.md")
    for crate, kinds in sorted(crates.items()):
        if crate not in declared or crate in TEST_ONLY:
            continue
        for kind, names in kinds.items():
            for other in sorted(names):
                if other in TEST_ONLY:
                    if kind != "dev-dependencies":
                        found.append(f"`{crate}` leans on `{other}`, which is for tests only")
                elif other not in declared:
                    found.append(f"`{crate}` leans on `{other}`, which is in no layer")
                elif other == crate and kind == "dev-dependencies":
                    continue  # itself, with more features
                elif layer_of(other) <= layer_of(crate) and (crate, other) not in BESIDE:
                    found.append(f"`{crate}` leans on `{other}`, which is not below it")
    return found


def workspace_crates() -> dict[str, dict[str, set[str]]]:
    """Every crate's dependencies on crates of this workspace, by kind."""
    crates = {}
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        parsed = tomllib.loads(manifest.read_text())
        tables = [parsed, *parsed.get("target", {}).values()]
        kinds: dict[str, set[str]] = {}
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            names = {
                spec.get("package", name) if isinstance(spec, dict) else name
                for table in tables
                for name, spec in table.get(kind, {}).items()
            }
            kinds[kind] = {name.removeprefix("oxiray-") for name in names if name.startswith("oxiray")}
        crates[manifest.parent.name] = kinds
    return crates


def test_dependencies_point_down() -> None:
    assert violations(workspace_crates()) == []


def test_every_layer_exists() -> None:
    assert set().union(*LAYERS) <= workspace_crates().keys()


@pytest.mark.parametrize(
    ("crate", "kind", "other"),
    [
        ("resources", "dependencies", "wire"),
        ("wire", "dependencies", "runtime"),
        ("store", "dev-dependencies", "node"),
        ("head", "dependencies", "node"),
        ("machine", "dependencies", "head"),
        ("wire", "dependencies", "store"),
        ("node", "dependencies", "nvml-fixture"),
        ("node", "dependencies", "unheard-of"),
    ],
)
def test_a_wrong_dependency_is_found(crate: str, kind: str, other: str) -> None:
    crates = workspace_crates()
    crates[crate][kind] = crates[crate][kind] | {other}
    assert [found for found in violations(crates) if f"`{crate}`" in found and f"`{other}`" in found]


def test_an_undeclared_crate_is_found() -> None:
    assert violations({"surprise": {}})


@pytest.mark.parametrize("manifest", sorted((ROOT / "crates").glob("*/Cargo.toml")), ids=lambda path: path.parent.name)
def test_crate_is_one_sentence_under_its_folder_name(manifest: Path) -> None:
    package = tomllib.loads(manifest.read_text())["package"]
    # The public Rust API bears the project's name.
    folder = manifest.parent.name
    assert package["name"] == ("oxiray" if folder == "oxiray" else f"oxiray-{folder}")
    assert len(package["description"].split()) > 2


def code_of(path: Path) -> str:
    """A Rust file without its comments."""
    return "\n".join(line.split("//")[0] for line in path.read_text().splitlines())


@pytest.mark.parametrize("crate", PURE)
def test_pure_crate_names_no_world(crate: str) -> None:
    sources = [path for path in (ROOT / "crates" / crate / "src").rglob("*.rs") if "tests" not in path.parts]
    assert sources
    # Tests of these crates may do as they like; they stand in folders or files of their own.
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources
        if path.stem != "tests"
        for match in IMPURE.finditer(code_of(path).split("#[cfg(test)]\nmod tests {")[0])
    ]
    assert found == []


def test_the_core_of_the_runtime_names_no_world() -> None:
    """What time it is, is told to it: it may name moments, and ask no clock. Its tests may do as they like."""
    folder = ROOT / "crates" / "runtime" / "src" / "core"
    sources = [path for path in folder.rglob("*.rs") if path.stem != "tests"]
    assert len(sources) > 30
    forbidden = re.compile(
        r"\bstd::(net|fs|thread|process|env|os|io)\b|\b(getrandom|rand|tokio|rustix|libc|parking_lot|Mutex|OwnedFd|SegmentCache|"
        r"Connection)\b|\b(Instant|SystemTime|Unique)::(now|new)\b|crate::(shell|links|lead|runtime)\b"
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources
        for match in forbidden.finditer(code_of(path).split("#[cfg(test)]\nmod tests {")[0])
    ]
    assert found == []


@pytest.mark.parametrize("crate", ["machine", "head"])
def test_a_core_of_the_daemon_names_no_world(crate: str) -> None:
    """What was found out and what time it is, is told to it, and what is to be done, said by it. Its tests may do as they
    like."""
    folder = ROOT / "crates" / crate / "src"
    sources = [path for path in folder.rglob("*.rs") if not {"tests", "tests.rs"} & set(path.parts)]
    assert len(sources) > 20
    forbidden = re.compile(
        r"\bstd::(net|fs|thread|process|env|os|io)\b|Box<dyn\b|\b(getrandom|rand|tokio|rustix|libc|parking_lot|Mutex|OwnedFd|Connection)\b|"
        r"\b(Instant|SystemTime)::now\b|\b(oxiray_threads|oxiray_processes|oxiray_store|oxiray_node)\b"
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources
        for match in forbidden.finditer(code_of(path).split("#[cfg(test)]\nmod tests {")[0])
    ]
    assert found == []


@pytest.mark.parametrize("crate", ["machine", "head", "state"])
def test_json_is_made_at_the_edge(crate: str) -> None:
    """The cluster's state is types; who shows it makes JSON of them (decision 29). Tests hold to the same."""
    folder = ROOT / "crates" / crate
    sources = [folder / "Cargo.toml", *folder.rglob("*.rs")]
    assert len(sources) > 3
    assert [str(path.relative_to(ROOT)) for path in sources if re.search(r"serde_json|\bjson!", path.read_text())] == []


def linked_by(crate: str) -> set[str]:
    """The crates of this workspace that are in a program which leans on this one, itself among them."""
    crates, reached, unseen = workspace_crates(), set(), [crate]
    while unseen:
        crate = unseen.pop()
        if crate not in reached:
            reached.add(crate)
            unseen += [name for name in crates[crate]["dependencies"] if name in crates]
    return reached


@pytest.mark.parametrize("front", ["oxiray", "python"])
def test_no_program_of_a_user_has_the_daemon_in_it(front: str) -> None:
    linked = linked_by(front)
    assert {"client", "runtime"} <= linked
    # A private cluster is the installed program `oxiray`, which has all of these.
    daemons = {"node", "head", "machine", "network", "journal", "scheduler"}
    assert daemons <= linked_by("cli")
    assert linked & daemons == set()


def test_the_daemon_can_read_no_pickle_and_runs_no_python() -> None:
    reached = linked_by("cli")
    named = "\n".join((ROOT / "crates" / crate / "Cargo.toml").read_text() for crate in sorted(reached))
    assert {"node", "head", "network"} <= reached
    assert re.findall(r"^(.*(?:pyo3|pickle|python).*)=", named, re.MULTILINE) == []
