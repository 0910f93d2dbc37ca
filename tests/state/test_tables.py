"""Tables of the command line: no wider than a terminal, whole in a pipe, with identifiers that commands accept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import pytest
from homes import Home
from watching import wait_until

PROGRAM = """
import time, ray
from ray.util.placement_group import placement_group

ray.init()

@ray.remote
class KeepsAVeryLongNameForItsClass:
    def work(self):
        return 1

@ray.remote
def function_with_a_long_name_that_is_cut_on_a_terminal():
    return ray.put(1)

actors = [KeepsAVeryLongNameForItsClass.options(name=f"an-actor-with-a-name-{number}").remote() for number in range(2)]
kept = [ray.get([actor.work.remote() for actor in actors]), ray.put(b"x" * 1_000_000), ray.put(2)]
kept.append([function_with_a_long_name_that_is_cut_on_a_terminal.remote() for _ in range(3)])
# What is made from here on would change the tables while they are read.
ray.wait(kept[-1], num_returns=3)
groups = [placement_group([{"GPU": 8}]) for _ in range(2)]
print("all is made", flush=True)
time.sleep(600)
"""
#: Each list, and the column that names what stands in it.
LISTS = {
    "actors": "actor_id",
    "jobs": "job_id",
    "nodes": "node_id",
    "objects": "object_id",
    "placement-groups": "placement_group_id",
    "tasks": "task_id",
    "workers": "worker_id",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A head on which the program runs as two jobs."""
    made = Home(tmp_path_factory.mktemp("tables"))
    assert made.oxiray("start", "--head", f"--port={made.port}", "--num-cpus=4", "--num-gpus=1").returncode == 0
    made.environment["RAY_ADDRESS"] = f"127.0.0.1:{made.port}"
    program = made.folder / "program.py"
    program.write_text(PROGRAM)
    for name in ("train-monday", "train-tuesday"):
        assert made.oxiray("job", "submit", "--no-wait", f"--submission-id={name}", "--", f"python {program}").returncode == 0
        wait_until(lambda name=name: "all is made" in made.oxiray("job", "logs", name).stdout, 60)
    yield made
    made.oxiray("stop", "--force")


def rows(home: Home, kind: str) -> list[dict[str, Any]]:
    return answered(home, "list", kind, "--json", "--limit=1000")


def answered(home: Home, *words: str) -> list[dict[str, Any]]:
    done = home.oxiray(*words)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def shown(home: Home, *words: str) -> list[str]:
    return commands.on_a_terminal(*words, environment=home.environment).splitlines()


@pytest.mark.parametrize(
    "words",
    [
        *(("list", kind) for kind in (*LISTS, "events", "runtime-envs")),
        ("status",),
        ("job", "list"),
        ("token", "list"),
        ("memory",),
        ("summary", "tasks"),
        ("summary", "actors"),
        ("summary", "objects"),
        ("explain", "train"),
        ("top", "--once"),
    ],
    ids=" ".join,
)
def test_what_is_printed_is_no_wider_than_the_terminal(home: Home, words: tuple[str, ...]) -> None:
    if words[0] == "explain":
        words = ("explain", rows(home, "placement-groups")[0]["placement_group_id"])
    lines = shown(home, *words)
    assert lines
    # A word that is longer than the terminal is wide, such as the path of a control group, stays whole.
    assert [line for line in lines if len(line) > commands.COLUMNS and len(line.split()) > 1] == []


@pytest.mark.parametrize("kind", LISTS)
def test_everything_is_whole_in_a_pipe_and_with_wide(home: Home, kind: str) -> None:
    piped = home.oxiray("list", kind).stdout
    assert {row[LISTS[kind]] for row in rows(home, kind)} <= set(piped.split())
    assert "--wide shows more" not in piped and "\u2026" not in piped
    heading = piped.splitlines()[0]
    for option in ("--wide", "--no-trunc"):
        assert heading.split() == shown(home, "list", kind, option)[0].split()


@pytest.mark.parametrize("kind", LISTS)
def test_commands_accept_the_identifiers_that_tables_show(home: Home, kind: str) -> None:
    key, known = LISTS[kind], {row[LISTS[kind]] for row in rows(home, kind)}
    lines = shown(home, "list", kind)
    short = [line.split()[0] for line in lines[1 : lines.index("", 1)] if not line.startswith(("(", " "))]
    assert len(short) == len(rows(home, kind))
    for given in short:
        got = answered(home, "get", kind, given, "--json")
        assert {row[key] for row in got} <= known and len({row[key] for row in got}) == 1
        assert got[0][key].startswith(given.partition("\u2026")[0])
        filtered = answered(home, "list", kind, "--json", "--filter", f"{key}={given}")
        assert {row[key] for row in filtered} == {got[0][key]}


def test_a_beginning_of_several_names_them_and_one_of_none_says_so(home: Home) -> None:
    groups = [row["placement_group_id"] for row in rows(home, "placement-groups")]
    assert len(groups) == 4
    # Actors' creation tasks all begin with the nil identifier.
    several = home.oxiray("get", "tasks", "ffffffff")
    assert several.returncode == 1 and "`ffffffff` may be any of " in several.stderr
    named = [row["task_id"] for row in rows(home, "tasks") if row["task_id"].startswith("ffffffff")]
    assert all(task in several.stderr for task in named)
    jobs = home.oxiray("job", "status", "train-")
    assert jobs.returncode == 1 and "train-monday" in jobs.stderr and "train-tuesday" in jobs.stderr
    none = {
        ("get", "actors", "0000ffff"): "there is no actor whose identifier is or begins with `0000ffff`: see `oxiray list actors`",
        ("explain", "0000ffff"): "there is no task or actor or placement group whose identifier",
        ("stack", "0000ffffff"): "there is no actor or task or worker whose identifier",
        ("logs", "worker", "0000ffff"): "there is no worker whose identifier",
        ("logs", "--node", "0000ffff"): "there is no node whose identifier",
        ("job", "logs", "holiday"): "there is no job whose identifier is or begins with `holiday`: see `oxiray job list`",
        ("token", "revoke", "zz"): "there is no token whose identifier is or begins with `zz`: see `oxiray token list`",
        ("drain", "zz"): "no living node is `zz`",
    }
    for words, says in none.items():
        done = home.oxiray(*words)
        assert done.returncode == 1 and says in done.stderr, (words, done.stderr)


def test_other_commands_accept_beginnings(home: Home) -> None:
    group = rows(home, "placement-groups")[0]["placement_group_id"]
    assert group in home.oxiray("explain", group[:10]).stdout
    actor = rows(home, "actors")[0]["actor_id"]
    assert json.loads(home.oxiray("stack", actor[:10], "--json").stdout)[0]["actor_id"] == actor
    node = rows(home, "nodes")[0]["node_id"]
    assert home.oxiray("logs", "--node", node[:10]).stdout.count("daemon.log") == 1
    assert "all is made" in home.oxiray("job", "logs", "train-m").stdout
    assert json.loads(home.oxiray("job", "status", "train-t", "--json").stdout)["submission_id"] == "train-tuesday"
    assert "is being checked" in home.oxiray("device", "check", f"{node[:10]}/0").stdout
    made = json.loads(home.oxiray("token", "create", "--json").stdout)
    assert home.oxiray("token", "revoke", made["token_id"][:6]).returncode == 0
    states = {row["token_id"]: row["state"] for row in json.loads(home.oxiray("token", "list", "--json").stdout)}
    assert states[made["token_id"]] == "revoked"


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("list", "events"),
        ("summary", "tasks"),
        ("memory",),
        ("memory", "--stats-only"),
        ("metrics",),
        ("job", "list"),
        ("token", "list"),
        ("top",),
        ("hardware",),
        ("logs",),
        ("stack",),
    ],
    ids=" ".join,
)
def test_what_is_printed_for_programs_is_json(home: Home, words: tuple[str, ...]) -> None:
    done = home.oxiray(*words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_an_order_tells_programs_what_it_did(home: Home, tmp_path: Path) -> None:
    made = home.oxiray("token", "create", "--json", f"--output={tmp_path / 'token'}")
    told = json.loads(made.stdout)
    assert Path(told["file"]).read_text().strip() and "token" not in told
