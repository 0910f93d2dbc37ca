"""Ray's board for Grafana over a Prometheus that scrapes a cluster: each of its questions has an answer.

The board is the one that Ray 2.60 makes, which `make bench` installs; Prometheus is Debian's. Without them the test is skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nvml
import pytest
import ray
from homes import Home, free_port
from watching import wait_until

PROMETHEUS = shutil.which("prometheus")
RAY = Path(__file__).parent.parent.parent / ".build" / "ray" / "bin" / "python"
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed: `make test-dashboard` does it"),
    pytest.mark.skipif(not RAY.exists(), reason="Ray's wheel is absent: `make bench` installs it into .build/ray"),
]
GPU = "NVIDIA H100 80GB HBM3|GPU-{slot}||85899345920|40000000000|{holder}||71\nwarm={slot}:350000:61\n"
#: Questions without an answer here, by what is found in them.
UNANSWERED = {
    "ray_tpu_": "a machine with TPUs says nothing of their use, which only libtpu's own process knows",
    "ray_memory_manager_worker_eviction_total": "nobody was ended for want of memory",
    "autoscaler_pending_nodes": "no machine was asked for",
    "autoscaler_recently_failed_nodes": "no node has died",
    "autoscaler_pending_resources": "a question for what is to come beside what there is, which is nothing",
}
PROGRAM = """
import os, sys, time
import numpy, ray
ray.init(address=sys.argv[1], logging_level="ERROR")

@ray.remote(num_gpus=1, num_cpus=0.5)
def trains(folder):
    # Long enough for the machine to see who uses the device.
    slot = os.environ["CUDA_VISIBLE_DEVICES"].removeprefix("GPU-")
    with open(folder + "/holder.new", "w") as file:
        file.write(f"{slot} {os.getpid()}")
    os.rename(folder + "/holder.new", folder + "/holder")
    while not os.path.exists(folder + "/enough"):
        time.sleep(0.1)

@ray.remote(num_cpus=0.1)
class Holder:
    def ready(self):
        return numpy.ones(8 << 20, dtype=numpy.uint8)

@ray.remote(num_cpus=0.1, max_retries=1)
def dies():
    os._exit(1)

folder = sys.argv[2]
holder = Holder.remote()
kept = [holder.ready.remote() for _ in range(20)]
ray.wait(kept, num_returns=20)
group = ray.util.placement_group([{"CPU": 0.1}])
ray.get(group.ready())
running = trains.remote(folder)
@ray.remote(num_cpus=0.1, max_retries=2)
def again(folder):
    if not os.path.exists(folder + "/once"):
        open(folder + "/once", "w").close()
        os._exit(1)
    while not os.path.exists(folder + "/enough"):
        time.sleep(0.1)

retried = again.remote(folder)
waits = [ray.remote(num_cpus=2)(trains._function).remote(folder) for _ in range(2)]
try:
    ray.get(dies.remote())
except ray.exceptions.WorkerCrashedError:
    print("ready", flush=True)
sys.stdin.read()
"""


def gpus(held: int | None = None, holder: str = "") -> str:
    """Eight GPUs as NVML would describe them, one of which a process holds."""
    return "".join(GPU.format(slot=slot, holder=holder if slot == held else "") for slot in range(8))


class Prometheus:
    """A Prometheus that finds the nodes of a session."""

    def __init__(self, folder: Path, session: Path) -> None:
        self.port = free_port()
        token = session / "http-token-read"
        found_in = session / "prom_metrics_service_discovery.json"
        configuration = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {
                    "job_name": "ray",
                    "authorization": {"credentials_file": str(token)},
                    "file_sd_configs": [{"files": [str(found_in)]}],
                    "relabel_configs": [{"target_label": "ray_io_cluster", "replacement": "here"}],
                }
            ],
        }
        file = folder / "prometheus.json"
        # Every JSON document is a YAML document.
        file.write_text(json.dumps(configuration))
        assert PROMETHEUS is not None
        command = [PROMETHEUS, f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self.port}"]
        with (folder / "prometheus.log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, question: str) -> list[Any]:
        """The series that answer; none while it does not listen yet."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': question})}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return list(json.load(answer)["data"]["result"])
        except ConnectionError:
            return []
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionError):
                return []
            raise

    def end(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    ray.shutdown()
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    home, found = None, None
    with pytest.MonkeyPatch.context() as patch:
        answers = nvml.Answers(folder, patch, nvml.library())
        answers.write(gpus())
        patch.setenv("PYTHONUNBUFFERED", "1")
        try:
            home = Home(folder)
            store = "--object-store-memory=100000000"
            done = home.oxiray("start", "--head", f"--port={home.port}", "--num-cpus=2", store, f"--metrics-export-port={free_port()}")
            assert done.returncode == 0, done
            [session] = folder.glob("oxiray-*/session_*")
            address = json.loads((session / "session.json").read_text())["address"]
            line = [sys.executable, "-c", PROGRAM, address, str(folder)]
            with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=home.environment) as program:
                assert program.stdin is not None and program.stdout is not None
                assert program.stdout.readline() == "ready\n"
                wait_until((folder / "holder").exists)
                slot, pid = map(int, (folder / "holder").read_text().split())
                answers.write(gpus(slot, f"{pid}:40000000000") + f"sm={slot}:{pid}:35\n")
                wait_until((session / "prom_metrics_service_discovery.json").exists)
                found = Prometheus(folder, session)
                yield found
                (folder / "enough").touch()
                program.stdin.close()
        finally:
            if found is not None:
                found.end()
            if home is not None:
                home.oxiray("stop", "--force")
            shutil.rmtree(folder, ignore_errors=True)


def questions() -> list[tuple[str, str]]:
    """Those of the board, each with its panel, with all variables as wide as they go."""
    code = (
        "from ray.dashboard.modules.metrics import grafana_dashboard_factory as factory\n"
        "print(factory.generate_default_grafana_dashboard()[0])\n"
    )
    done = subprocess.run([RAY, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    panels = json.loads(done.stdout)["panels"]
    panels += [inner for panel in panels for inner in panel.get("panels", [])]
    asked = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
    return [(title, re.sub(r"\$\w+", ".+", question)) for title, question in asked]


def test_each_question_of_rays_board_has_an_answer(prometheus: Prometheus) -> None:
    asked = [(title, question) for title, question in questions() if not any(re.search(part, question) for part in UNANSWERED)]
    assert len(asked) > 50
    unanswered: list[tuple[str, str]] = asked

    def are_answered() -> bool:
        nonlocal unanswered
        unanswered = [(title, question) for title, question in unanswered if not prometheus.ask(question)]
        return not unanswered

    try:
        wait_until(are_answered, timeout=120)
    except AssertionError:
        pytest.fail("\n".join(f"{title}: {question}" for title, question in unanswered))


def test_the_board_finds_its_variables(prometheus: Prometheus) -> None:
    wait_until(lambda: prometheus.ask("ray_node_network_receive_speed"))
    (series,) = prometheus.ask("ray_node_network_receive_speed")
    assert {"SessionName", "instance", "RayNodeType", "ray_io_cluster"} <= set(series["metric"])
