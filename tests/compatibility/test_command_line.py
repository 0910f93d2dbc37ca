"""Command line: what scripts call and look for."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

RAY = str(Path(sys.executable).parent / "ray")


def free_port() -> int:
    """One below those that the kernel hands out, so that nobody gets it by chance before it is used."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Head:
    """A cluster that `ray start --head --block` started, and commands that are about it."""

    def __init__(self, folder: str) -> None:
        self.environment = {**os.environ, "RAY_TMPDIR": folder, "RAY_NODE_ZONE": "zone-a", "PYTHONUNBUFFERED": "1"}
        self.environment.pop("RAY_ADDRESS", None)
        self.port = free_port()
        self.folder = Path(folder)
        labels = self.folder / "labels.yaml"
        labels.write_text("from-file: here\nrack: of-file\n")
        options = [
            *("--head", "--block", f"--port={self.port}", "--num-cpus=2", "--include-dashboard=true"),
            *("--labels=rack=of-option", f"--labels-file={labels}"),
            *(f"--object-manager-port={free_port()}", f"--metrics-export-port={free_port()}"),
            *(f"--dashboard-port={free_port()}", "--disable-usage-stats", "--include-log-monitor=true", "--log-style=record"),
            *("--log-color=false", "-v", "--object-store-memory=100000000", '--resources={"part": 2}'),
            '--system-config={"task_retry_delay_ms": 1}',
        ]
        # A file, so that nobody has to read on.
        told = self.folder / "printed.txt"
        with told.open("w") as file:
            self.process = subprocess.Popen(
                [RAY, "start", *options],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while "ray start --address=" not in told.read_text() and time.monotonic() < deadline:
            assert self.process.poll() is None, told.read_text()
            time.sleep(0.05)
        self.printed = told.read_text()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([RAY, *words], env=self.environment, capture_output=True, text=True, timeout=60, check=False)

    def python(self, text: str) -> str:
        begin = f"import os, ray\nray.init(address='127.0.0.1:{self.port}', logging_level='ERROR')\n"
        environment = {**self.environment, "RAY_COLOR_PREFIX": "0"}
        command = [sys.executable, "-c", begin + text]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _kind() -> str:
    import importlib.util

    return "oxiray" if importlib.util.find_spec("oxiray") else "ray"


RAY_KIND = _kind()


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:
        started = Head(folder)
        yield started
        started.end()


def test_start_says_that_the_runtime_started(head: Head) -> None:
    assert "Ray runtime started." in head.printed


def test_start_says_how_to_add_a_node(head: Head) -> None:
    assert re.search(rf"ray start --address='[\d.]+:{head.port}'", head.printed), head.printed


def test_start_takes_the_options_of_scripts(head: Head) -> None:
    assert head.process.poll() is None


def test_a_program_joins_by_address(head: Head) -> None:
    assert head.python("print(ray.cluster_resources()['part'])").split() == ["2.0"]


def test_the_variable_of_the_address_is_used(head: Head) -> None:
    environment = {**head.environment, "RAY_ADDRESS": f"127.0.0.1:{head.port}"}
    program = "import ray; ray.init(logging_level='ERROR'); print(ray.cluster_resources()['part'])"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False).stdout.split() == ["2.0"]


def test_a_node_has_the_labels_of_the_command_and_of_variables(head: Head) -> None:
    labels = json.loads(head.python("import json; print(json.dumps(ray.nodes()[0]['Labels']))"))
    assert (labels["rack"], labels["ray.io/availability-zone"]) == ("of-option", "zone-a")


def test_status_shows_nodes_and_resources(head: Head) -> None:
    shown = head.run("status", f"--address=127.0.0.1:{head.port}").stdout
    assert re.search(r"^=+ Autoscaler status: \d{4}-\d\d-\d\d [\d:.]+ =+$", shown, re.MULTILINE), shown
    for line in ("Node status", "Active:", "Pending:", "Recent failures:", "Resources", "Pending Demands:"):
        assert re.search(rf"^{line}", shown, re.MULTILINE), shown
    assert re.search(r"^ 1 node_[0-9a-f]{56}$", shown, re.MULTILINE), shown
    assert re.search(r"^ 0\.0/2\.0 CPU$", shown, re.MULTILINE), shown
    assert re.search(r"^ 0B/[\d.]+GiB memory$", shown, re.MULTILINE), shown
    assert " (no resource demands)" in shown


def test_a_verbose_status_shows_each_node(head: Head) -> None:
    shown = head.run("status", "-v", f"--address=127.0.0.1:{head.port}").stdout
    assert re.search(r"^Node: [0-9a-f]{56}", shown, re.MULTILINE), shown
    assert re.search(r"^ Usage:", shown, re.MULTILINE)


def test_status_without_a_cluster_fails(head: Head) -> None:
    done = subprocess.run(
        [RAY, "status", f"--address=127.0.0.1:{free_port()}"],
        env={**head.environment, "RAY_gcs_rpc_server_reconnect_timeout_s": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0


def test_health_check_says_whether_the_cluster_lives(head: Head) -> None:
    assert head.run("health-check", f"--address=127.0.0.1:{head.port}").returncode == 0


def test_the_version_is_that_of_ray() -> None:
    done = subprocess.run([RAY, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "ray, version 2.60.0"


def test_a_timeline_is_written(head: Head, tmp_path: Path) -> None:
    file = tmp_path / "timeline.json"
    done = head.run("timeline", f"--address=127.0.0.1:{head.port}", f"--filename={file}") if RAY_KIND == "oxiray" else None
    if done is None:
        done = subprocess.run(
            [RAY, "timeline", f"--address=127.0.0.1:{head.port}"],
            env={**head.environment, "RAY_TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0 and "timeline" in done.stdout + done.stderr, done.stderr


@pytest.mark.parametrize("label", ["zone", '{"zone": 1}'])
def test_labels_that_are_none_are_refused(label: str) -> None:
    done = subprocess.run(
        [RAY, "start", "--head", f"--port={free_port()}", f"--labels={label}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "Label string is not a key-value pair" in done.stdout + done.stderr


def test_start_without_head_or_address_fails() -> None:
    done = subprocess.run([RAY, "start"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0


def test_an_unknown_option_has_status_two() -> None:
    done = subprocess.run([RAY, "start", "--no-such-option"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2


def test_the_latest_session_is_linked(head: Head, eventually: Callable[..., Any]) -> None:
    text = """
import sys

def f():
    print("kept")
    return os.getpid()

# In one piece, with a line of its own: what the task printed may be shown just now.
sys.stdout.write(f"\\npid {ray.get(ray.remote(f).remote())}\\n")
"""
    number = re.search(r"^pid (\d+)$", head.python(text), re.MULTILINE)[1]
    logs = head.folder / "ray" / "session_latest" / "logs"
    # Ray's worker makes and writes it itself; Oxiray's node does, a moment later.
    (file,) = eventually(lambda: list(logs.glob(f"worker-*-{number}.out")))
    eventually(lambda: "kept" in file.read_text())


def test_memory_and_summaries_answer(head: Head) -> None:
    for words in (["memory", "--stats-only"], ["summary", "tasks"], ["summary", "actors"]):
        done = head.run(*words, f"--address=127.0.0.1:{head.port}" if words[0] == "memory" else "--timeout=20")
        assert done.returncode == 0, (words, done.stderr)


def test_memory_is_told_without_a_table(head: Head) -> None:
    done = head.run("memory", "--no-format", "--units=MB", f"--address=127.0.0.1:{head.port}")
    assert done.returncode == 0, done.stderr


def test_the_output_of_an_actor_is_printed_by_its_identifier(head: Head) -> None:
    text = """
import sys
import time
from ray.util.state import get_log

class Prints:
    def speak(self):
        print("a line for the command")

prints = ray.remote(Prints).options(name="prints", lifetime="detached", namespace="logs").remote()
ray.get(prints.speak.remote())

def printed():
    try:
        return "".join(get_log(actor_id=prints._actor_id.hex()))
    except Exception:  # Ray's agent of the node may not be there yet
        return ""

deadline = time.monotonic() + 40
while "a line for the command" not in printed() and time.monotonic() < deadline:
    time.sleep(0.1)
# In one piece, with a line of its own: what the actor printed may be shown just now.
sys.stdout.write(f"\\nactor {prints._actor_id.hex()}\\n")
"""
    actor = next(line for line in head.python(text).splitlines() if line.startswith("actor ")).split()[1]
    done = head.run("logs", "actor", "--id", actor, "--tail=5")
    assert "a line for the command" in done.stdout, done.stderr


def test_the_files_of_logs_are_listed(head: Head) -> None:
    # Ray's agent of the node may not be there yet.
    deadline = time.monotonic() + 60
    while (done := head.run("logs", "cluster")).returncode != 0 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert done.returncode == 0, done.stderr
    assert "worker" in done.stdout


def test_a_list_is_printed_as_json(head: Head) -> None:
    done = head.run("list", "nodes", "--format=json")
    (row,) = json.loads(done.stdout)
    assert row["state"] == "ALIVE", done.stderr


def test_a_named_actor_is_killed(head: Head) -> None:
    command = f"--address=127.0.0.1:{head.port}"
    head.python("A = ray.remote(type('A', (), {}))\nA.options(name='victim', namespace='n', lifetime='detached').remote()")
    done: Any = head.run("kill-actor", "--name=victim", "--namespace=n", "--force", "--no-restart", command)
    assert done.returncode == 0, done.stdout + done.stderr
    gone = "try:\n    ray.get_actor('victim', namespace='n')\n    time.sleep(0.1)\nexcept ValueError:\n    print('gone')"
    assert "gone" in head.python(f"import time\nfor _ in range(100):\n    exec({gone!r})")
