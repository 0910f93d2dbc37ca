"""Metrics as each node exports them: Ray's names with values, the token, and how Prometheus finds the nodes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from homes import Home, free_port
from watching import wait_until, written

PROMTOOL = shutil.which("promtool")

#: Those by which Ray's default board fills its variables and its panels of machines.
OF_MACHINES = (
    "ray_node_network_receive_speed", "ray_node_network_send_speed", "ray_node_cpu_utilization", "ray_node_cpu_count",
    "ray_node_mem_used", "ray_node_mem_available", "ray_node_mem_total", "ray_node_disk_usage", "ray_node_disk_free",
    "ray_node_disk_utilization_percentage", "ray_node_disk_io_read_speed", "ray_node_disk_io_write_speed",
)  # fmt: skip
OF_CLUSTER = (
    "ray_cluster_active_nodes", "ray_cluster_idle_nodes", "ray_running_jobs", "autoscaler_active_nodes", "oxiray_chronicle_dropped_total",
)  # fmt: skip
#: What each node's daemon counts.
OF_DAEMONS = (
    "oxiray_loop_stall_seconds_bucket", "oxiray_loop_stall_seconds_count", "ray_object_store_num_local_objects",
    "ray_spill_manager_objects", "ray_spill_manager_objects_bytes", "ray_spill_manager_request_total",
)  # fmt: skip


class Exporting(Home):
    """A head and a member, each of which exports metrics: the head to whoever has a token, the member to everybody."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.head_port, self.member_port = free_port(), free_port()
        self.oxiray_or_fail("start", "--head", f"--port={self.port}", "--num-cpus=2", f"--metrics-export-port={self.head_port}")
        [self.session] = self.sessions()
        token = self.session / "join-token"
        member = (f"--metrics-export-port={self.member_port}", "--metrics-open", "--num-cpus=1")
        self.oxiray_or_fail("start", f"--address=127.0.0.1:{self.port}", f"--token-file={token}", *member)
        self.token = written(self.session / "http-token-read").strip()

    def oxiray_or_fail(self, *words: str) -> None:
        done = self.oxiray(*words)
        assert done.returncode == 0, done

    def sessions(self) -> list[Path]:
        return list(self.folder.glob("oxiray-*/session_*"))

    def scraped(self, port: int, **headers: str) -> tuple[int, str]:
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def of_head(self) -> str:
        status, text = self.scraped(self.head_port, Authorization=f"Bearer {self.token}")
        assert status == 200, text
        return text

    def measured(self, port: int, **headers: str) -> bool:
        try:
            return "ray_node_cpu_utilization{" in self.scraped(port, **headers)[1]
        except OSError:
            return False


@pytest.fixture(scope="module")
def exporting() -> Iterator[Exporting]:
    ray.shutdown()
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    home = None
    try:
        home = Exporting(folder)
        authorization = f"Bearer {home.token}"
        wait_until(lambda: home.measured(home.head_port, Authorization=authorization))
        wait_until(lambda: home.measured(home.member_port))
        yield home
    finally:
        if home is not None:
            home.oxiray("stop", "--force")
        shutil.rmtree(folder, ignore_errors=True)


def names(text: str) -> set[str]:
    return set(re.findall(r"^(\w+)\{", text, re.MULTILINE))


def test_each_node_exports_its_machine_and_the_head_the_cluster(exporting: Exporting) -> None:
    head, member = exporting.of_head(), exporting.scraped(exporting.member_port)[1]
    assert names(head) >= {*OF_MACHINES, *OF_CLUSTER, *OF_DAEMONS}
    assert names(member) >= {*OF_MACHINES, *OF_DAEMONS} and not names(member) & set(OF_CLUSTER)
    of_session = f'SessionName="{exporting.session.name}",Version="2.60.0"'
    for text, is_head, role in ((head, "true", "head"), (member, "false", "worker")):
        assert f'ray_node_cpu_count{{IsHeadNode="{is_head}",RayNodeType="{role}",{of_session},ip="' in text
    assert f'ray_cluster_active_nodes{{{of_session},node_type="node"}} 2.0' in head
    assert head.count('ray_resources{Name="CPU"') == member.count('ray_resources{Name="CPU"') == 2


def test_values_of_a_machine_are_those_of_the_kernel(exporting: Exporting) -> None:
    text = exporting.of_head()
    value = {name: float(number) for name, number in re.findall(r"^(ray_node_\w+)\{.*\} (\S+)$", text, re.MULTILINE)}
    kib = {name: int(number) for name, number in re.findall(r"^(\w+): +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)}
    assert value["ray_node_mem_total_host"] == kib["MemTotal"] * 1024
    disk = shutil.disk_usage("/")
    assert (value["ray_node_disk_usage"] + value["ray_node_disk_free"]) / (disk.used + disk.free) == pytest.approx(1, rel=0.05)
    assert 0 <= value["ray_node_cpu_utilization"] <= 100


def test_promtool_finds_nothing_wrong(exporting: Exporting) -> None:
    if PROMTOOL is None:
        pytest.skip("promtool is not there: Debian has it in its package prometheus")
    for text in (exporting.of_head(), exporting.scraped(exporting.member_port)[1]):
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        # Ray's own names break rules of style, which promtool tells with status 3; status 1 is a text that is no metrics.
        assert done.returncode in (0, 3), done.stderr
        assert "error while linting" not in done.stderr, done.stderr


def test_workers_are_added_up_by_what_they_run(exporting: Exporting) -> None:
    code = (
        "import sys, ray\nray.init(address=sys.argv[1])\n"
        "@ray.remote(num_cpus=1)\nclass Holder:\n    def ready(self): pass\n"
        "holders = [Holder.remote() for _ in range(2)]\nray.get([one.ready.remote() for one in holders])\n"
        "print('ready', flush=True)\nsys.stdin.read()\n"
    )
    address = json.loads((exporting.session / "session.json").read_text())["address"]
    line = [sys.executable, "-c", code, address]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=exporting.environment) as program:
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == "ready\n"

        def resident() -> float:
            text = exporting.of_head() + exporting.scraped(exporting.member_port)[1]
            return sum(map(float, re.findall(r'^ray_component_rss_bytes\{Component="ray::Holder".*\} (\S+)$', text, re.MULTILINE)))

        wait_until(lambda: resident() > 2 << 20)
        actors = r'^ray_actors\{JobId="\w+",Name="Holder",NodeAddress="[\d.]+",SessionName="[^"]+",Source="gcs",State="ALIVE".*\} (\S+)$'
        # A text of metrics is told again for a while.
        wait_until(lambda: sum(map(float, re.findall(actors, exporting.of_head(), re.MULTILINE))) == 2)
        program.stdin.close()


def test_a_token_is_needed_where_the_port_is_not_open(exporting: Exporting) -> None:
    assert exporting.scraped(exporting.head_port)[0] == 401
    assert exporting.scraped(exporting.head_port, Authorization="Bearer wrong")[0] == 403
    assert exporting.scraped(exporting.member_port)[0] == 200
    assert exporting.scraped(exporting.member_port, Host="evil.example")[0] == 421
    assert exporting.scraped(exporting.member_port, Origin="http://evil.example")[0] == 403
    asked = urllib.request.Request(f"http://127.0.0.1:{exporting.member_port}/api/jobs/")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=30)
    assert refused.value.code == 401


def test_an_open_port_elsewhere_has_to_be_said(exporting: Exporting) -> None:
    done = exporting.oxiray("start", "--head", f"--port={free_port()}", f"--metrics-export-port={free_port()}", "--metrics-host=0.0.0.0")
    assert done.returncode != 0 and "--metrics-open" in done.stderr


def test_prometheus_finds_the_nodes_by_a_file(exporting: Exporting) -> None:
    file = exporting.session / "prom_metrics_service_discovery.json"
    wanted = {f"127.0.0.1:{port}" for port in (exporting.head_port, exporting.member_port)}

    def found() -> set[str]:
        [told] = json.loads(file.read_text())
        assert told["labels"] == {"job": "ray"}
        return set(told["targets"])

    wait_until(lambda: file.exists() and found() == wanted)
