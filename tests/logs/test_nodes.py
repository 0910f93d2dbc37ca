"""Logs of other nodes: shown with their address, read from wherever one asks, kept while the head is away."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import ray
from homes import Home
from nodes import three_nodes
from oxiray import _core
from oxiray._cli import native_binary
from ray.cluster_utils import Cluster
from ray.util.state import get_log, list_logs
from watching import alive, wait_until


def log(**named: Any) -> str:
    return "".join(get_log(**named))


@pytest.fixture(params=[False, True], ids=["socket", "network"])
def over_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "over_network", request.param)


@ray.remote(num_cpus=0)
class Speaker:
    def speak(self, word: str) -> str:
        print(word, flush=True)
        return ray.get_runtime_context().get_node_id()


def test_what_ran_on_another_node_is_read_here(over_network: None) -> None:
    with three_nodes():
        speakers = [Speaker.options(resources={name: 1}).remote() for name in ("head", "first", "second")]
        refs = [speaker.speak.remote(f"line {number}") for number, speaker in enumerate(speakers)]
        nodes = ray.get(refs)
        assert len(set(nodes)) == 3
        for number, (speaker, ref) in enumerate(zip(speakers, refs, strict=True)):
            assert log(task_id=ref.task_id().hex()) == f"line {number}\n"
            assert log(actor_id=speaker._actor_id.hex(), tail=1) == f"line {number}\n"
            (name,) = list_logs(node_id=nodes[number], glob_filter="worker-*.out")["worker_out"]
            assert log(node_id=nodes[number], filename=name, tail=1) == f"line {number}\n"
        assert "template" in log(node_id=nodes[1], filename="daemon.log")
        # One that asks on another node asks the head, too.
        asked = ray.remote(lambda task: log(task_id=task)).options(resources={"second": 1})
        assert ray.get(asked.remote(refs[1].task_id().hex())) == "line 1\n"


def test_a_node_that_has_left_is_named() -> None:
    with three_nodes():
        node = ray.get(Speaker.options(resources={"first": 1}).remote().speak.remote("gone"))
        address = _core.context()["address"]
        subprocess.run([str(native_binary()), "drain", f"--address={address}", "--node-id", node, "--deadline=0", "--wait"], check=True)
        command = [str(native_binary()), "logs", f"--address={address}", f"--node={node}", "daemon.log"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "on its machine's disk" in done.stderr, done


def test_only_lines_of_other_nodes_have_an_address(tmp_path: Path) -> None:
    text = """
        import ray
        from ray.cluster_utils import Cluster
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"head": 1}})
        cluster.add_node(num_cpus=1, resources={"member": 1})
        cluster.connect()
        @ray.remote(num_cpus=0)
        def here(): print("near")
        @ray.remote(num_cpus=0)
        def there():
            print("far")
            return ray.util.get_node_ip_address()
        ip = ray.get(there.options(resources={"member": 1}).remote())
        ray.get(here.options(resources={"head": 1}).remote())
        ray.shutdown()
        cluster.shutdown()
        print("ip", ip)
        """
    own = {**os.environ, "OXIRAY_TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=own, timeout=180)
    assert done.returncode == 0, done
    ip = done.stdout.split()[-1]
    far = next(line for line in done.stdout.splitlines() if line.endswith("far"))
    near = next(line for line in done.stdout.splitlines() if line.endswith("near"))
    assert f", ip={ip}) far" in far and "ip=" not in near, done.stdout


def test_what_is_printed_while_the_head_is_away_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    start = ("start", "--head", f"--port={home.port}", "--num-cpus=1", "--node-lease=10")
    assert home.oxiray(*start).returncode == 0
    try:
        joined = home.oxiray("start", f"--address=127.0.0.1:{home.port}", "--num-cpus=1", '--resources={"member": 1}')
        assert joined.returncode == 0, joined
        begun, away, said = (tmp_path / name for name in ("begun", "away", "said"))
        text = f"""
        import pathlib
        @ray.remote(resources={{"member": 1}}, num_cpus=0)
        class Speaker:
            def wait(self):
                begun, away, said = map(pathlib.Path, {[str(begun), str(away), str(said)]!r})
                begun.touch()
                while not away.exists(): time.sleep(0.01)
                print("said while the head is away", flush=True)
                said.touch()
                time.sleep(1000)
        speaker = Speaker.options(name="speaker", lifetime="detached").remote()
        ref = speaker.wait.remote()
        while not pathlib.Path({str(begun)!r}).exists(): time.sleep(0.01)
        print(ref.task_id().hex(), speaker._actor_id.hex())
        """
        task, actor = home.program(textwrap.dedent(text)).split()
        head = _pid_of_head(home)
        os.kill(head, 9)
        wait_until(lambda: not alive(head))
        away.touch()
        wait_until(said.exists)
        assert home.oxiray(*start).returncode == 0
        line = "said while the head is away\n"
        wait_until(lambda: line in home.oxiray("logs", "actor", actor).stdout)
        assert home.oxiray("logs", "task", task).stdout == line
    finally:
        home.oxiray("stop")


def _pid_of_head(home: Home) -> int:
    import json

    for found in home.folder.glob("oxiray-*/session_*/session.json"):
        description = json.loads(found.read_text())
        if not description["member"]:
            return int(description["pid"])
    raise AssertionError("there is a head")
