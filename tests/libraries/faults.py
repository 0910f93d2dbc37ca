"""Processes are killed under Ray's libraries: a worker, a node, and the head, in a shuffle of Data, in an experiment of Tune,
and under 50 requests a second to Serve. Results must be those of a run that nobody disturbed, and of the requests only those
may be lost that were on their way where something was killed.

A head and two members, which join over TLS, each at a loopback address of its own. Prints how long each took, and how long it
took to recover; exits non-zero where something was lost. `python faults.py [LIBRARY] [VICTIM]` runs some.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import requests

#: How long anything may take, in seconds.
PATIENCE_S = 180
MEMBERS = 2
CPUS = 2
STORE_BYTES = 256 << 20
REQUESTS_PER_S = 50
URL = "http://127.0.0.1:8000/"
#: How long Serve is asked before something is killed, and after it has recovered, in seconds.
BEFORE_S, AFTER_S = 3, 3
REPLICAS = 4
_PR_SET_PDEATHSIG = 1


def until(holds: Callable[[], Any], what: str) -> Any:
    """What `holds` returns once that is true."""
    end = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {PATIENCE_S} s")
        time.sleep(0.02)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _dies_with_its_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemons:
    """The cluster, and this program as its driver. Host 0 has the head."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        for host in range(MEMBERS + 1):
            self.start(host)
        os.environ |= {"OXIRAY_TMPDIR": str(self.sessions(0)), "RAY_TMPDIR": str(self.sessions(0))}
        ray.init(address=self.address, log_to_driver=False)
        until(lambda: len([node for node in ray.nodes() if node["Alive"]]) == MEMBERS + 1, "all nodes are there")

    def sessions(self, host: int) -> Path:
        return self.folder / f"h{host}"

    def start(self, host: int) -> None:
        """Starts a host's daemon, or starts it again. Raises `RuntimeError` where it does not come to serve."""
        self.sessions(host).mkdir(exist_ok=True)
        # On the head's node nothing runs that could run elsewhere.
        words = ["start", "--block", f"--num-cpus={CPUS if host else 0}", f"--object-store-memory={STORE_BYTES}"]
        if host == 0:
            words += ["--head", f"--port={self.address.partition(':')[2]}"]
        else:
            token = next(self.sessions(0).glob("oxiray-*/session_*/join-token"))
            words += [f"--address={self.address}", f"--token-file={token}", f"--node-ip-address=127.0.0.{host + 1}"]
        log = self.folder / f"daemon-{host}.log"
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self.processes[host] = subprocess.Popen(
                [str(Path(sys.executable).parent / "oxiray"), *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=os.environ | {"OXIRAY_TMPDIR": str(self.sessions(host)), "RAY_TMPDIR": str(self.sessions(host))},
                preexec_fn=_dies_with_its_parent,
            )  # fmt: skip
        process = self.processes[host]
        until(lambda: b"runtime started" in log.read_bytes()[before:] or process.poll() is not None, "a daemon serves")
        if process.poll() is not None:
            raise RuntimeError(f"the daemon of host {host} does not serve: {log.read_bytes()[before:].decode()[-2000:]}")

    def daemon(self, host: int) -> int:
        """The process that serves: `oxiray start --block` has it for a child."""
        found = []
        for path in self.sessions(host).glob("oxiray-*/session_*/session.json"):
            with contextlib.suppress(OSError, ValueError):
                found.append(int(json.loads(path.read_text())["pid"]))
        return next(pid for pid in found if is_alive(pid))

    def kill_daemon(self, host: int) -> None:
        """Kills a host's daemon, and with it all that runs there."""
        pid = self.daemon(host)
        os.kill(pid, signal.SIGKILL)
        self.processes[host].kill()
        self.processes[host].wait()
        until(lambda: not is_alive(pid), "a daemon that was killed is gone")

    def host_of(self, pid: int) -> int:
        """The host that a process runs on: its nearest ancestor that is a daemon."""
        daemons = {self.daemon(host): host for host in self.processes}
        while pid not in daemons:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return daemons[pid]

    def end(self) -> None:
        ray.shutdown()
        for process in self.processes.values():
            process.kill()
            process.wait()


@dataclass
class Marks:
    """A folder where what runs says that it does: a file by its process's number for each piece."""

    folder: Path
    taken: set[str] = field(default_factory=set)

    def living(self) -> list[int]:
        """Processes that have begun a piece, and live; those that began last come first."""
        files = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        pids = dict.fromkeys(int(path.name.partition("-")[0]) for path in files)
        return [pid for pid in pids if is_alive(pid)]

    def count(self) -> int:
        return len(list(self.folder.iterdir()))


def mark(folder: str) -> None:
    """Called in a worker: a piece begins here."""
    Path(folder, f"{os.getpid()}-{time.monotonic_ns()}").touch()


def kill(victim: str, daemons: Daemons, marks: Marks) -> None:
    """Kills one of a kind, at work, and sees to it that another daemon comes in a daemon's place."""
    pid = until(lambda: next((one for one in marks.living() if daemons.host_of(one)), None), "a worker is at work")
    host = daemons.host_of(pid)
    if victim == "worker":
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_alive(pid), "a worker that was killed is gone")
        return
    killed = host if victim == "node" else 0
    daemons.kill_daemon(killed)
    daemons.start(killed)


def disturbed(work: Callable[[str], Any], victim: str, daemons: Daemons, pieces: int) -> tuple[Any, float]:
    """What the work comes to, and how long it took; somebody is killed when so many of its pieces have begun."""
    folder = tempfile.mkdtemp(prefix="marks-", dir=daemons.folder)
    marks, began = Marks(Path(folder)), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(work, folder)
        if victim != "nobody":
            until(lambda: marks.count() >= pieces or result.done(), "the work is in its middle")
            if result.done():
                raise RuntimeError(f"the work was over before anybody was killed: {result.result()}")
            kill(victim, daemons, marks)
        value = result.result(timeout=PATIENCE_S)
    return value, time.monotonic() - began


def shuffle(folder: str) -> Any:
    """Sums of groups and the rows in order, over blocks that each take a moment."""
    import ray.data

    def slowly(batch: dict[str, Any]) -> dict[str, Any]:
        mark(folder)
        time.sleep(0.2)
        return {"key": batch["id"] % 7, "value": (batch["id"] * 7919) % 10_007, "filled": batch["id"].astype(float).repeat(20).reshape(-1, 20)}

    rows = ray.data.range(20_000, override_num_blocks=24).map_batches(slowly, batch_size=None)
    sums = rows.groupby("key", num_partitions=8).sum("value").take_all()
    first = rows.sort("value").select_columns(["value"]).take(2_500)
    return [sorted([int(row["key"]), int(row["sum(value)"])] for row in sums), sum(int(row["value"]) for row in first)]


def experiment(folder: str) -> Any:
    """Six trials of ten steps, each of which keeps a checkpoint and goes on from it."""
    from ray import tune

    def climb(config: dict[str, Any]) -> None:
        kept, begin, total = tune.get_checkpoint(), 0, 0
        if kept is not None:
            with kept.as_directory() as place:
                begin, total = json.loads(Path(place, "kept.json").read_text())
        for step in range(begin, 10):
            mark(folder)
            time.sleep(0.2)
            total += config["rate"] * step
            with tempfile.TemporaryDirectory() as place:
                Path(place, "kept.json").write_text(json.dumps([step + 1, total]))
                tune.report({"total": total, "step": step}, checkpoint=tune.Checkpoint.from_directory(place))

    with tempfile.TemporaryDirectory() as storage:
        run = tune.RunConfig(storage_path=storage, name="run", verbose=0, failure_config=tune.FailureConfig(max_failures=3))
        results = tune.Tuner(climb, param_space={"rate": tune.grid_search([1, 2, 3, 4, 5, 6])}, run_config=run).fit()
        return [results.num_errors, sorted([result.config["rate"], result.metrics["total"], result.metrics["step"]] for result in results)]


#: Work, and how many of its pieces have begun when somebody is killed.
WORKS = {"data": (shuffle, 32), "tune": (experiment, 25)}


@dataclass
class Asked:
    """A request: when it began and ended, what was wrong, and how often a proxy refused it that had no routes yet."""

    began: float
    ended: float
    wrong: str | None
    refused: int


def is_unready(answer: requests.Response) -> bool:
    return answer.status_code == 404 and "/-/routes" in answer.text


class Load:
    """So many requests a second over HTTP, each on a connection of its own, whatever becomes of those before.

    The proxies of all nodes share one port of this machine. Serve's proxy listens before it has heard of any route, and says
    so at `/-/healthz`; where proxies have addresses of their own, a balancer of the load asks there first. Here who gets to such
    a proxy asks again.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def _go_on(self) -> None:
        with ThreadPoolExecutor(64) as pool:
            due = time.monotonic()
            while not self._is_over.wait(max(0.0, due - time.monotonic())):
                pool.submit(self._ask)
                due += 1 / REQUESTS_PER_S

    def _ask(self) -> None:
        began, wrong, refused = time.monotonic(), None, 0
        try:
            while is_unready(answer := requests.get(URL, timeout=PATIENCE_S)) and time.monotonic() < began + PATIENCE_S:
                refused += 1
            if answer.status_code != 200 or not answer.text.isdigit():
                wrong = f"{answer.status_code}: {answer.text[-300:]}"
        except requests.RequestException as error:
            wrong = f"{type(error).__name__}: {error}"
        self.asked.append(Asked(began, time.monotonic(), wrong, refused))

    def end(self) -> None:
        """No more is asked, and all that was is answered."""
        self._is_over.set()
        self._thread.join()


def served(victim: str, daemons: Daemons) -> str:
    """Kills under a load. Raises `RuntimeError` where a request was lost that was not on its way then."""
    from ray import serve

    folder = tempfile.mkdtemp(prefix="marks-", dir=daemons.folder)

    @serve.deployment(num_replicas=REPLICAS, ray_actor_options={"num_cpus": 0.5}, max_ongoing_requests=100, health_check_period_s=1)
    class Pid:
        def __init__(self) -> None:
            mark(folder)

        async def __call__(self, request: Any) -> str:
            import asyncio

            await asyncio.sleep(0.02)
            return str(os.getpid())

    marks = Marks(Path(folder))

    def whole() -> bool:
        """Whether the controller answers, and all replicas and proxies that it wants are well."""
        try:
            told = serve.status()
            states = told.applications["default"].deployments["Pid"].replica_states
        except (ray.exceptions.RayError, KeyError):
            return False
        proxies = [str(state.value) for state in told.proxies.values()]
        return states == {"RUNNING": REPLICAS} and len(marks.living()) == REPLICAS and proxies == ["HEALTHY"] * (MEMBERS + 1)

    serve.start(proxy_location="EveryNode")
    serve.run(Pid.bind(), route_prefix="/")
    until(whole, "all replicas run")
    # Each connection is taken by any of the proxies, and each of them hears of the route for itself.
    until(lambda: all(requests.get(URL, timeout=PATIENCE_S).ok for _ in range(30)), "all proxies know the route")
    load = Load()
    try:
        until(lambda: len(load.asked) >= BEFORE_S * REQUESTS_PER_S, "the load is under way")
        killed_at = time.monotonic()
        kill(victim, daemons, marks)
        gone_at = time.monotonic()
        until(whole, "all replicas run again")
        recovered_s = time.monotonic() - killed_at
        enough = len(load.asked) + AFTER_S * REQUESTS_PER_S
        until(lambda: len(load.asked) >= enough, "the load goes on")
    finally:
        load.end()
        serve.shutdown()
    return judged(load.asked, killed_at, gone_at, recovered_s)


def judged(asked: list[Asked], killed_at: float, gone_at: float, recovered_s: float) -> str:
    lost = [one for one in asked if one.wrong is not None]
    # Killed daemons and workers are gone some moments after `killed_at`, at `gone_at` at the latest.
    late = [one for one in lost if not (one.began <= gone_at and one.ended >= killed_at)]
    slowest = max((one.ended - one.began for one in asked if one.wrong is None), default=0.0)
    refused = sum(one.refused for one in asked)
    told = (
        f"{len(asked)} requests, {len(lost)} lost on their way, {refused} refused by a proxy without routes, the slowest {slowest:.2f} s, "
        f"all replicas again after {recovered_s:.2f} s"
    )
    if late:
        shown = "; ".join(f"{one.began - killed_at:+.2f} s to {one.ended - killed_at:+.2f} s: {one.wrong}" for one in late[:5])
        raise RuntimeError(f"{told}; {len(late)} lost that were not on their way: {shown}")
    return told


def case(library: str, victim: str, undisturbed: dict[str, tuple[Any, float]]) -> str:
    """One case in a cluster of its own; what is to be said of it."""
    folder = Path(tempfile.mkdtemp(prefix="oxlf-"))
    daemons = None
    try:
        daemons = Daemons(folder)
        if library == "serve":
            return served(victim, daemons)
        work, pieces = WORKS[library]
        if library not in undisturbed:
            # The first run imports what it needs: the second tells how long it takes.
            disturbed(work, "nobody", daemons, pieces)
            undisturbed[library] = disturbed(work, "nobody", daemons, pieces)
        expected, usual_s = undisturbed[library]
        value, seconds = disturbed(work, victim, daemons, pieces)
        if value != expected:
            raise RuntimeError(f"it came to {value}, and undisturbed to {expected}")
        return f"equal; {seconds:.2f} s, undisturbed {usual_s:.2f} s, recovery {max(0.0, seconds - usual_s):.2f} s"
    finally:
        if daemons is not None:
            daemons.end()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("chosen", nargs="*", help="of data, tune, serve, worker, node, head (default: all)")
    given = set(parser.parse_args().chosen)
    libraries = [one for one in ("data", "tune", "serve") if one in given] or ["data", "tune", "serve"]
    victims = [one for one in ("worker", "node", "head") if one in given] or ["worker", "node", "head"]
    undisturbed: dict[str, tuple[Any, float]] = {}
    wrong = 0
    for library in libraries:
        for victim in victims:
            try:
                told = case(library, victim, undisturbed)
            except Exception:
                told, wrong = f"FAILED: {traceback.format_exc()[-3000:]}", wrong + 1
            print(f"{library:<6} {victim:<7} {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
