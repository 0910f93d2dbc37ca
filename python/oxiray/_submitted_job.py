"""The process that runs one submitted job: a driver that has the job's entrypoint started in an actor.

The actor holds what was asked for, on the node that has it, and is in the job's environment; where nothing was asked for it
is on the head's machine. What the entrypoint prints is printed here, which is the job's file.

Invariants:
1. It says how the job goes on the pipe that the order names, one JSON line each: "started", {"ended": status},
   {"failed": why}. After the last two nothing more is said.
2. SIGTERM ends the entrypoint: its process group is asked, and killed `GRACE_S` later, or as the job's variables say. Whatever
   left that group is killed with the actor.
3. This process ends with its daemon.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

#: How long an entrypoint that is to end has before it is killed, in seconds, and the most that a job may say instead.
GRACE_S = 5.0
GRACE_S_MAX = 3600.0
#: A job's variables that say how it is ended: by which signal, and how long it has then.
STOP_SIGNAL_VARIABLE = "RAY_JOB_STOP_SIGNAL"
STOP_WAIT_VARIABLE = "RAY_JOB_STOP_WAIT_TIME_S"
#: How much of its output travels at once, in bytes.
PIECE_BYTES = 64 << 10
#: How much of it is kept, in bytes.
KEPT_BYTES_MAX = 256 << 20
#: The longest reason for a failure, in characters.
REASON_CHARACTERS_MAX = 4000
#: How much of the output travels ahead of what was written down, in pieces.
PIECES_AHEAD = 16
#: How long it may take, in seconds, until what the entrypoint printed before it ended is written down.
LAST_OUTPUT_S = 3.0
#: Variables that are the worker's own business.
OWN_VARIABLES = ("OXIRAY_TEMPLATE_FD", "OXIRAY_TEMPLATE_PRELOAD")


class Entrypoint:
    """Runs one line of the shell, in the environment and with the devices of the actor that this is."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()
        self._is_stopped = False

    def run(self, line: str, variables: dict[str, str]) -> Iterator[bytes | int]:
        """What it prints, piece after piece, and at last its status. Nothing before the first empty piece has begun."""
        environment = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES} | variables
        if session := environment.get("OXIRAY_SESSION"):
            environment["OXIRAY_TMPDIR"] = os.path.dirname(os.path.dirname(session))
        # `python` is the one that has this cluster's packages and the job's, though nobody activated its environment.
        own, path = os.path.dirname(sys.executable), environment.get("PATH") or os.defpath
        if own not in path.split(os.pathsep):
            environment["PATH"] = f"{own}{os.pathsep}{path}"
        with self._changing:
            if self._is_stopped:
                yield -signal.SIGTERM
                return
            self._process = process = subprocess.Popen(
                ["/bin/sh", "-c", line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=environment, start_new_session=True,
            )  # fmt: skip
        yield b""
        assert process.stdout is not None
        output = process.stdout.fileno()
        os.set_blocking(output, False)
        ended = os.pidfd_open(process.pid)
        try:
            # What it left running may hold the pipe open: its own end is the end.
            while ended not in select.select([output, ended], [], [])[0]:
                piece = _read(output)
                if piece == b"":
                    select.select([ended], [], [])
                elif piece:
                    yield piece
            status = process.wait()
            while piece := _read(output):
                yield piece
        finally:
            os.close(ended)
        yield status

    def stop(self) -> None:
        """Has it end, and returns when it has."""
        with self._changing:
            self._is_stopped = True
            process = self._process
        if process is None:
            return
        first, grace = ending(os.environ)
        for number in (first, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                return
            watched = select.poll()
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue  # it has ended; what else is in its group is killed
            watched.register(descriptor, select.POLLIN)
            watched.poll(grace * 1000)
            os.close(descriptor)


def ending(variables: Mapping[str, str]) -> tuple[signal.Signals, float]:
    """By which signal a job is asked to end, and how many seconds it has then. What makes no sense is as if it were not said."""
    named = getattr(signal, variables.get(STOP_SIGNAL_VARIABLE) or "SIGTERM", None)
    first = named if isinstance(named, signal.Signals) else signal.SIGTERM
    try:
        grace = float(variables.get(STOP_WAIT_VARIABLE) or GRACE_S)
    except ValueError:
        grace = GRACE_S
    return first, min(grace, GRACE_S_MAX) if grace >= 0 else GRACE_S


def _read(descriptor: int) -> bytes | None:
    """A piece, nothing at the end, or None where there is none now."""
    try:
        return os.read(descriptor, PIECE_BYTES)
    except BlockingIOError:
        return None


class Job:
    """One job, from its order to its last word."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._words = open(order["words"], "w", buffering=1)  # noqa: SIM115 - open as long as this process is
        os.set_inheritable(order["words"], False)
        self._has_ended = False
        self._is_running = False
        self._entrypoint: Any = None
        self._is_over = threading.Event()
        self._written = 0
        self._variables: dict[str, str] = {}

    def say(self, word: Any) -> None:
        """Invariant 1."""
        if not self._has_ended:
            self._has_ended = word != "started"
            print(json.dumps(word), file=self._words, flush=True)

    def run(self) -> None:
        """Until the job has ended."""
        try:
            self._run()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            print(text, file=sys.stderr, flush=True)
            self.say({"failed": text[:REASON_CHARACTERS_MAX]})
        finally:
            self._is_over.set()

    def end_on_request(self) -> None:
        """Invariant 2. A thread's work: the main one may be waiting."""
        signal.sigwait({signal.SIGTERM})
        import oxiray

        # What has not begun is killed with the actor, or never made.
        if self._is_running:
            limit = 2 * ending(self._variables)[1] + 1
            end = time.monotonic() + limit + LAST_OUTPUT_S
            oxiray.wait([self._entrypoint.stop.remote()], timeout=limit)
            # The entrypoint has ended; the last that it printed may still be on its way to the main thread.
            self._is_over.wait(timeout=end - time.monotonic())
        self.say({"ended": -signal.SIGTERM})
        os._exit(0)

    def _run(self) -> None:
        import oxiray
        from oxiray import _environment
        from oxiray.exceptions import RuntimeEnvSetupError
        from oxiray.job_config import JobConfig
        from oxiray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        order = self._order
        # This driver stands for no program of the user's: lists of jobs leave out such namespaces.
        about = JobConfig(metadata={"job_submission_id": order["id"]})
        namespace = f"_ray_internal_submitted_{order['id']}"
        oxiray.init(address=order["address"], namespace=namespace, log_to_driver=False, logging_level="WARNING", job_config=about)
        asked = json.loads(order["runtime_env"]) if order["runtime_env"] else {}
        if not isinstance(asked, dict):
            raise ValueError(f"the runtime environment is {asked!r}: it is a dictionary, such as {{'env_vars': {{}}}}")
        # Settled here, so that what the entrypoint starts is told the very packages.
        try:
            environment = _environment.settled(oxiray.runtime_env.checked(asked))
        except (OSError, TypeError, ValueError) as error:
            raise RuntimeEnvSetupError(str(error)) from error
        self._variables = dict(environment.get("env_vars") or {})
        options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": 2, "runtime_env": environment}
        resources = dict(order["resources"])
        for name, option in (("CPU", "num_cpus"), ("GPU", "num_gpus"), ("memory", "memory")):
            if name in resources:
                options[option] = resources.pop(name)
        if resources:
            options["resources"] = resources
        if order["label_selector"]:
            options["label_selector"] = order["label_selector"]
        elif not order["resources"]:
            own = oxiray.get_runtime_context().get_node_id()
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(own, soft=False)
        # What the program starts is in the job's environment, too.
        variables = {
            "RAY_ADDRESS": order["address"],
            **({"RAY_RUNTIME_ENV": json.dumps(environment)} if environment else {}),
            "OXIRAY_SUBMISSION_ID": order["id"],
            "PYTHONUNBUFFERED": "1",
        }
        self._entrypoint = oxiray.remote(Entrypoint).options(**options).remote()
        run = self._entrypoint.run.options(
            num_returns="streaming", _generator_backpressure_num_objects=PIECES_AHEAD
        )
        for reference in run.remote(order["entrypoint"], variables):
            piece = oxiray.get(reference)
            if piece == b"":
                self._is_running = True
                self.say("started")
            elif isinstance(piece, bytes):
                self._write(piece)
            else:
                self.say({"ended": piece})

    def _write(self, piece: bytes) -> None:
        room = KEPT_BYTES_MAX - self._written
        if room > 0:
            self._written += len(piece)
            os.write(1, piece[:room])
            if len(piece) >= room:
                os.write(1, f"\n[the first {KEPT_BYTES_MAX} bytes are kept; the rest is not]\n".encode())


def main() -> None:
    """Carries out one order."""
    order = json.load(sys.stdin)
    from oxiray._environment_setup import _end_with

    # In every thread but the one that waits for it: each has what was blocked when it was started.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with, args=(order["daemon"],), daemon=True).start()
    job = Job(order)
    threading.Thread(target=job.end_on_request, daemon=True).start()
    job.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # The end of its connection is a driver's goodbye, too, and nothing here can hold that up.
    os._exit(0)
