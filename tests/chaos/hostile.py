"""Who means harm while the honest load runs: a stranger, a member and the workers of a job, each a process that says
anything for some seconds (`crates/fuzz/src/hostile.rs`) and is renewed for the whole run.

What they do must cost nobody but themselves: the load is judged as if they were not there.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from daemons import Cluster

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
#: How long each lasts, in milliseconds.
LASTS_MS = (4_000, 10_000)
#: How much longer than that one may take to end, in seconds, before it is killed. A job is killed at that time.
_GRACE_S = 5.0
#: What each must have done, or the run shows nothing of it.
DEEDS = {
    "stranger": ["connections to ports", "connections to sockets", "handshakes", "refused secrets"],
    "member": ["joins", "frames", "frames to other nodes"],
    "worker": ["streams", "frames", "frames that never come", "floods"],
    "job": ["tasks", "actors"],
}


def binary() -> Path:
    """The program of the hostile, as cargo made it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", _ROOT / "target"))
    found = target / "release" / "oxiray-fuzz"
    if not found.exists():
        raise FileNotFoundError(f"{found} is missing: cargo build --release --locked -p oxiray-fuzz")
    return found


@dataclass(frozen=True)
class Kind:
    """A kind of hostile process: its name, and its command besides what each is told."""

    name: str
    words: Callable[[Cluster], list[str]]


def _stranger(cluster: Cluster) -> list[str]:
    addresses = [f"--address={cluster.address(host)}" for host in cluster.daemons]
    return [str(binary()), "stranger", *addresses, *[f"--root={cluster.sessions(host)}" for host in cluster.daemons]]


def _member(cluster: Cluster) -> list[str]:
    nodes = [f"--node={node}" for host in cluster.daemons for node in cluster.nodes(host)]
    return [str(binary()), "member", f"--address={cluster.address(0)}", f"--token-file={cluster.token_file()}", *nodes]


def _job(cluster: Cluster) -> list[str]:
    worker = cluster.folder / "hostile-worker.jsonl"
    return [sys.executable, str(_HERE / "hostile_job.py"), f"--binary={binary()}", f"--worker-report={worker}"]


KINDS = [Kind("stranger", _stranger), Kind("member", _member), Kind("job", _job)]


class Hostiles:
    """One process of each kind, renewed until they are ended."""

    def __init__(self, cluster: Cluster, seed: int, kinds: list[Kind] = KINDS) -> None:
        self._cluster, self._kinds = cluster, kinds
        self._chance = random.Random(f"{seed} hostile")
        self.faults: list[str] = []

    def _log(self, kind: Kind) -> Path:
        return self._cluster.folder / f"hostile-{kind.name}.log"

    def renew(self, now: float) -> None:
        """Starts another in the place of each that is over, and ends those that do not end."""
        running = self._cluster.hostiles
        for kind in self._kinds:
            if kind.name in running:
                until, process = running[kind.name]
                if process.poll() is None and now < until:
                    continue
                self._judge(kind, self._end(process))
            lasts_ms = self._chance.randrange(*LASTS_MS)
            told = [f"--seed={self._chance.randrange(1 << 48)}", f"--lasts-ms={lasts_ms}"]
            told += [f"--report={self._cluster.folder / f'hostile-{kind.name}.jsonl'}"]
            started = self._cluster.start_hostile([*kind.words(self._cluster), *told], self._log(kind).name)
            running[kind.name] = (now + lasts_ms / 1000 + _GRACE_S, started)

    def end(self) -> None:
        """Nobody means harm any more."""
        for kind in self._kinds:
            if kind.name in self._cluster.hostiles:
                _, process = self._cluster.hostiles.pop(kind.name)
                self._judge(kind, self._end(process))

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> int:
        if process.poll() is None:
            process.kill()
        return process.wait()

    def _judge(self, kind: Kind, status: int) -> None:
        """One that fails by itself harms nobody, so that the run would show nothing of it."""
        if status not in (0, -signal.SIGKILL):
            self.faults.append(f"a hostile {kind.name} ended with {status}: {Cluster.tail(self._log(kind))}")

    def deeds(self) -> dict[str, dict[str, int]]:
        """What each kind did, by its reports."""
        return {name: dict(deeds_in(self._cluster.folder / f"hostile-{name}.jsonl")) for name in DEEDS}


def deeds_in(report: Path) -> Counter[str]:
    """The sums of a report's lines; a last one that a kill cut short is passed over."""
    found: Counter[str] = Counter()
    for line in report.read_text().splitlines(keepends=True) if report.exists() else []:
        if line.endswith("\n"):
            found.update(json.loads(line))
    return found


def lacking(deeds: dict[str, dict[str, int]]) -> list[str]:
    """What the hostile did not do, and must have done; and what nobody may ever do."""
    lacks = [
        f"the run shows nothing: the hostile {name} had no {deed}"
        for name, wanted in DEEDS.items()
        for deed in wanted
        if not deeds.get(name, {}).get(deed)
    ]
    let_in = deeds.get("stranger", {}).get("let in", 0)
    return [*lacks, *([f"no stranger is let in: {let_in} were"] if let_in else [])]
