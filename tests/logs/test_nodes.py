"""Logs of other nodes: shown with their address, read from wherever one asks, kept while the head is away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
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


def test_an_actor_is_followed_to_another_node() -> None:
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        members = [nodes.add_node(num_cpus=1, resources={"member": 1}) for _ in range(2)]
        nodes.connect()

        @ray.remote(num_cpus=0, resources={"member": 1}, max_restarts=1)
        class Restarted:
            def speak(self, word: str) -> str:
                print(word, flush=True)
                return ray.get_runtime_context().get_node_id()

        speaker = Restarted.remote()
        first = ray.get(speaker.speak.remote("on one node"))
        heard: list[str] = []
        follower = threading.Thread(target=lambda: heard.extend(get_log(actor_id=speaker._actor_id.hex(), follow=True)))
        follower.start()
        wait_until(lambda: "on one node" in "".join(heard))
        nodes.remove_node(next(member for member in members if member.node_id == first), allow_graceful=False)

        def speaks_elsewhere() -> bool:
            try:
                return ray.get(speaker.speak.remote("on the other")) != first
            except ray.exceptions.RayActorError:
                return False

        wait_until(speaks_elsewhere)
        wait_until(lambda: "on the other" in "".join(heard))
        ray.kill(speaker)
        follower.join(60)
        assert not follower.is_alive(), "it is dead for good"
    finally:
        ray.shutdown()
        nodes.shutdown()


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


@pytest.mark.parametrize("listens", [True, False])
def test_a_driver_is_told_once_what_it_was_not_shown(tmp_path: Path, listens: bool) -> None:
    home = Home(tmp_path)
    start = ("start", "--head", f"--port={home.port}", "--num-cpus=1", "--node-lease=10")
    assert home.oxiray(*start).returncode == 0
    driver = None
    try:
        joined = home.oxiray("start", f"--address=127.0.0.1:{home.port}", "--num-cpus=1", '--resources={"member": 1}')
        assert joined.returncode == 0, joined
        begun, away, said, end = (tmp_path / name for name in ("begun", "away", "said", "end"))
        text = f"""
        import pathlib, sys, time
        import ray
        ray.init(address="127.0.0.1:{home.port}", log_to_driver={listens})
        @ray.remote(resources={{"member": 1}}, num_cpus=0, max_retries=0)
        def speak():
            begun, away, said, end = map(pathlib.Path, {[str(begun), str(away), str(said), str(end)]!r})
            begun.touch()
            while not away.exists(): time.sleep(0.01)
            for number in range(7): print("line", number, flush=True)
            said.touch()
            while not end.exists(): time.sleep(0.01)
        ref = speak.remote()
        job = ray.get_runtime_context().get_job_id()
        ray.get(ref)
        print("job", job)
        """
        command = [sys.executable, "-c", textwrap.dedent(text)]
        pipe = subprocess.PIPE
        driver = subprocess.Popen(command, env=home.environment, stdout=pipe, stderr=pipe, text=True)
        errors: list[str] = []
        assert driver.stderr is not None
        reader = threading.Thread(target=errors.extend, args=(driver.stderr,))
        reader.start()
        wait_until(begun.exists)
        head = _pid_of_head(home)
        os.kill(head, 9)
        member_log = _session(home, is_member=True) / "logs" / "daemon.log"
        wait_until(lambda: "the head is looked for" in member_log.read_text())
        away.touch()
        wait_until(said.exists)
        assert home.oxiray(*start).returncode == 0
        wait_until(lambda: "the head is back" in member_log.read_text())
        is_told = lambda: any("that were not shown here" in line for line in errors)  # noqa: E731
        if listens:
            # It ends when it has heard of that.
            wait_until(is_told)
        end.touch()
        assert driver.stdout is not None
        out = driver.stdout.read()
        reader.join(60)
        err = "".join(errors)
        assert driver.wait(60) == 0, err
        job = out.split("job ")[1].strip()
        told = [line for line in (out + err).splitlines() if "that were not shown here" in line]
        if not listens:
            assert told == []
            return
        assert len(told) == 1 and "7 lines (49 bytes)" in told[0] and f"`oxiray logs job {job}`" in told[0], (out, err)
        assert "line 0" not in out
    finally:
        if driver is not None:
            driver.kill()
        home.oxiray("stop")


def test_what_a_failed_task_printed_last_is_read_when_its_node_is_gone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.oxiray("start", "--head", f"--port={home.port}", "--num-cpus=1", "--keep-logs-at-head").returncode == 0
    try:
        joined = home.oxiray("start", f"--address=127.0.0.1:{home.port}", "--num-cpus=1", '--resources={"member": 1}')
        assert joined.returncode == 0, joined
        text = """
        @ray.remote(resources={"member": 1}, num_cpus=0, max_retries=0)
        def speak(how):
            if how == "long": print("x" * 100_000)
            print("last words of", how, flush=True)
            if how == "crash": __import__("os").abort()
            if how != "well": raise ValueError(how)
        refs = {how: speak.remote(how) for how in ("well", "badly", "long", "crash")}
        for how, ref in refs.items():
            try: ray.get(ref)
            except Exception: pass
            print(how, ref.task_id().hex())
        """
        tasks = dict(line.split() for line in home.program(textwrap.dedent(text)).splitlines())
        folder = _session(home, is_member=False) / "logs"
        wait_until(lambda: len(list(folder.glob("failed-*.out"))) == 3)
        # As long as the node is there it tells of them itself, whole and once.
        assert home.oxiray("logs", "task", tasks["badly"]).stdout == "last words of badly\n"
        assert len(home.oxiray("logs", "task", tasks["long"], "--tail=-1").stdout) > 100_000
        nodes = json.loads(home.oxiray("list", "nodes", "--format=json", "--detail").stdout)
        (member,) = (node for node in nodes if not node["is_head_node"])
        gone = home.oxiray("drain", "--node-id", member["node_id"], "--deadline=0", "--wait")
        assert gone.returncode == 0, gone
        for how in ("badly", "crash"):
            assert home.oxiray("logs", "task", tasks[how]).stdout == f"last words of {how}\n"
        long = home.oxiray("logs", "task", tasks["long"], "--tail=-1").stdout
        assert long.startswith("[oxiray] the first ") and long.endswith("last words of long\n") and len(long) < 66_000
        well = home.oxiray("logs", "task", tasks["well"])
        assert well.stdout == "" and "nothing is kept" in well.stderr, well
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.glob("failed-*"))
    finally:
        home.oxiray("stop")


def test_a_member_cannot_be_started_to_keep_logs_at_the_head(tmp_path: Path) -> None:
    done = Home(tmp_path).oxiray("start", "--address=127.0.0.1:1", "--keep-logs-at-head")
    assert done.returncode == 1 and "--keep-logs-at-head" in done.stderr and "--head only" in done.stderr, done


def _session(home: Home, *, is_member: bool) -> Path:
    """The directory of the head's session, or of the member's."""
    for found in home.folder.glob("oxiray-*/session_*/session.json"):
        if json.loads(found.read_text())["member"] == is_member:
            return found.parent
    raise AssertionError("there is one")


def _pid_of_head(home: Home) -> int:
    return int(json.loads((_session(home, is_member=False) / "session.json").read_text())["pid"])
