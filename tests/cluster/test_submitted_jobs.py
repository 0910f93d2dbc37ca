"""Submitted jobs: a program that the head starts and looks after, by `oxiray job` and `ray job`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from homes import Home
from watching import alive, wait_until

#: Several waits of one test may each take long on a machine that has other things to do.
pytestmark = pytest.mark.timeout(300)


def status(home: Home, name: str) -> dict[str, Any]:
    done = home.oxiray("job", "status", name, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def begun(home: Home, name: str) -> None:
    wait_until(lambda: status(home, name)["status"] != "PENDING")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("jobs"))
    # As in a pod, where the variable is everybody's.
    made.environment["RAY_ADDRESS"] = f"127.0.0.1:{made.port}"
    started = made.oxiray("start", "--head", f"--port={made.port}", "--num-cpus=2", "--num-gpus=2")
    assert started.returncode == 0, started.stderr
    yield made
    made.oxiray("stop", "--force")


def test_a_program_runs_in_its_environment_and_its_end_is_the_command_s(home: Home, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, ray\n"
        "ray.init(logging_level='WARNING')\n"
        "where = ray.remote(lambda: (os.environ['WHO'], sorted(os.listdir('.')))).remote()\n"
        "print(os.environ['WHO'], ray.get(where), flush=True)\n"
    )
    environment = json.dumps({"env_vars": {"WHO": "me"}, "working_dir": str(tmp_path)})
    done = home.oxiray("job", "submit", "--runtime-env-json", environment, "--", "python", "program.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "me ('me', ['program.py'])\n"
    done = home.oxiray("job", "submit", "--submission-id=three", "--", "echo told; exit 3")
    assert done.returncode == 1 and done.stdout == "told\n"
    assert "job three FAILED: its entrypoint ended with status 3" in done.stderr
    assert home.oxiray("job", "logs", "three").stdout == "told\n"
    assert status(home, "three")["exit_code"] == 3
    assert "three" in home.oxiray("job", "list").stdout


def listed_jobs(home: Home) -> list[dict[str, Any]]:
    done = home.oxiray("list", "jobs", "--detail", "--format=json", "--limit=1000")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_a_submission_is_listed_as_one_job_with_the_driver_that_it_connected(home: Home) -> None:
    line = "python -c 'import ray; ray.init()'; exit 3"
    assert home.oxiray("job", "submit", "--submission-id=fails", "--", line).returncode == 1
    (row,) = [row for row in listed_jobs(home) if row["submission_id"] == "fails"]
    assert (row["type"], row["status"], row["driver_exit_code"]) == ("SUBMISSION", "FAILED", 3)
    assert row["entrypoint"] == line and row["error_type"] == "JOB_ENTRYPOINT_COMMAND_ERROR"
    assert row["start_time"] <= row["end_time"] and "status 3" in row["message"]
    # Neither the driver that the entrypoint connected nor the one that runs the entrypoint is a job of its own.
    drivers = [row for row in listed_jobs(home) if row["type"] == "DRIVER"]
    assert all(row["job_id"] != other["job_id"] for other in drivers)
    assert not [other for other in drivers if "job_submission_id" in (other["metadata"] or {})]
    by_name, by_beginning = home.oxiray("get", "jobs", "fails").stdout, home.oxiray("get", "jobs", row["job_id"]).stdout
    assert "submission_id: fails" in by_name and by_name == by_beginning


@pytest.mark.parametrize(
    ("last", "status", "message"),
    [
        ("ray.shutdown()", "SUCCEEDED", None),
        ("raise ValueError('no such file')", "FAILED", "ValueError: no such file"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "FAILED", "its driver ended without disconnecting"),
    ],
)
def test_a_driver_that_failed_is_listed_as_failed(home: Home, tmp_path: Path, last: str, status: str, message: str | None) -> None:
    program = tmp_path / f"driver_{status}.py"
    program.write_text(f"import ray\nray.init(runtime_env={{'env_vars': {{'A': '1'}}}})\n{last}\n")
    subprocess.run([sys.executable, str(program)], env=home.environment, capture_output=True, check=False, timeout=60)

    def row() -> dict[str, Any]:
        (found,) = [row for row in listed_jobs(home) if str(program) in (row["entrypoint"] or "")]
        return found

    wait_until(lambda: row()["status"] != "RUNNING")
    told = row()
    assert (told["type"], told["status"], told["submission_id"]) == ("DRIVER", status, None)
    assert told["runtime_env"] == {"env_vars": {"A": "1"}}
    assert told["message"] is None if message is None else message in told["message"]


def test_an_identifier_s_beginning_is_enough_and_an_unknown_one_is_an_error(home: Home) -> None:
    node = json.loads(home.oxiray("list", "nodes", "--format=json").stdout)[0]["node_id"]
    assert f"node_id: {node}" in home.oxiray("get", "nodes", node[:10]).stdout.replace('"', "")
    unknown = home.oxiray("get", "actors", "ffffffffff")
    assert unknown.returncode == 1 and "there is no actor whose identifier is or begins with `ffffffffff`" in unknown.stderr
    waiting = home.oxiray("explain", "0123")
    assert waiting.returncode == 1 and "begins with `0123`" in waiting.stderr


def test_a_job_runs_once_under_its_name(home: Home, tmp_path: Path) -> None:
    words = ["job", "submit", "--submission-id=once", "--", f"echo ran >> {tmp_path}/ran"]
    for _ in range(2):
        assert home.oxiray(*words).returncode == 0
    assert (tmp_path / "ran").read_text() == "ran\n"
    other = home.oxiray("job", "submit", "--submission-id=once", "--", "true")
    assert other.returncode == 1 and "is that of another job" in other.stderr


def test_the_entrypoint_holds_what_it_asked_for(home: Home) -> None:
    look = "echo CUDA=$CUDA_VISIBLE_DEVICES; python -c 'import ray; ray.init(logging_level=30); print(ray.available_resources().get(\"GPU\"))'"
    done = home.oxiray("job", "submit", "--entrypoint-num-gpus=1", "--", look)
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("CUDA=0\n1.0\n", "CUDA=1\n1.0\n")


def test_a_stopped_job_leaves_no_process(home: Home, tmp_path: Path) -> None:
    line = f"trap '' TERM; setsid sleep 1000 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/shell; sleep 1000 & wait; wait"
    assert home.oxiray("job", "submit", "--submission-id=long", "--no-wait", "--", line).returncode == 0
    files = [tmp_path / "child", tmp_path / "shell"]
    wait_until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files))
    pids = [int(file.read_text()) for file in files]
    assert all(map(alive, pids))
    assert home.oxiray("job", "stop", "long").stdout == "Job long STOPPED: it was stopped on request.\n"
    wait_until(lambda: not any(map(alive, pids)))


def test_one_that_waits_for_room_is_stopped_and_what_cannot_be_is_told(home: Home) -> None:
    # Both GPUs are held, so that the next waits.
    for name in ("holder", "waiting"):
        words = ["job", "submit", f"--submission-id={name}", "--no-wait", "--entrypoint-num-gpus=2", "--", "sleep 1000"]
        assert home.oxiray(*words).returncode == 0
        if name == "holder":
            begun(home, name)
    assert status(home, "waiting")["status"] == "PENDING"
    assert "STOPPED" in home.oxiray("job", "stop", "waiting").stdout
    assert "STOPPED" in home.oxiray("job", "stop", "holder").stdout
    missing = home.oxiray("job", "submit", "--working-dir=/no/such/folder", "--", "true")
    assert missing.returncode == 1 and "there is no such folder or file" in missing.stderr
    assert "there is no job whose identifier is or begins with `nobody`" in home.oxiray("job", "status", "nobody").stderr
    assert "the submission id `a/b` is not" in home.oxiray("job", "submit", "--submission-id=a/b", "true").stderr


def test_a_job_ends_with_its_head_and_the_next_head_says_so(tmp_path: Path) -> None:
    home = Home(tmp_path)
    start = ["start", "--head", f"--port={home.port}", "--num-cpus=1"]
    assert home.oxiray(*start).returncode == 0
    try:
        line = f"echo $$ > {tmp_path}/shell; sleep 1000; true"
        assert home.oxiray("job", "submit", "--submission-id=lost", "--no-wait", "--", line).returncode == 0
        shell = tmp_path / "shell"
        wait_until(lambda: shell.exists() and shell.read_text().endswith("\n"))
        pid = int(shell.read_text())
        description = next(tmp_path.glob("oxiray-*/session_*/session.json"))
        os.kill(json.loads(description.read_text())["pid"], signal.SIGKILL)
        wait_until(lambda: not alive(pid))
        assert home.oxiray(*start).returncode == 0
        told = status(home, "lost")
        assert (told["status"], told["message"]) == ("FAILED", "the head that ran it ended, and it with the head")
    finally:
        home.oxiray("stop", "--force")


def test_a_job_is_submitted_from_another_machine_and_runs_where_there_is_room(home: Home, tmp_path: Path) -> None:
    token = next(home.folder.glob("oxiray-*/session_*/join-token"))
    member = Home(tmp_path)
    address = f"127.0.0.1:{home.port}"
    joined = member.oxiray("start", f"--address={address}", f"--token-file={token}", "--num-cpus=1", '--resources={"there": 1}')
    assert joined.returncode == 0, joined.stderr
    try:
        line = "echo $OXIRAY_TMPDIR $WHO; python -c 'import ray; ray.init(logging_level=30); print(ray.get(ray.remote(lambda: 7).remote()))'"
        needs = ["--entrypoint-resources", '{"there": 1}', "--runtime-env-json", '{"env_vars": {"WHO": "me"}}']
        done = member.oxiray("job", "submit", *needs, "--", line)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout == f"{tmp_path} me\n7\n", "the member's sessions are where it keeps them"
    finally:
        member.oxiray("stop", "--force")
