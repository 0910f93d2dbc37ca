"""Files of logs, on whichever node they lie: the native command lists and reads them (`oxiray logs`)."""

from __future__ import annotations

import codecs
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from oxiray import _cli, _core
from oxiray.util.state.common import DEFAULT_RPC_TIMEOUT
from oxiray.util.state.exception import RayStateApiException

#: How a file's name begins and ends, and what it is listed under.
_CATEGORIES = (
    ("worker-", ".out", "worker_out"),
    ("worker-", ".err", "worker_err"),
    ("daemon", "", "raylet"),
    ("runtime_env_setup-", "", "runtime_env"),
    ("submitted-", "", "driver"),
    ("autoscaler", "", "autoscaler"),
    ("", "", "internal"),
)
_ANSI_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: How much is read at once.
_PIECE_BYTES = 1 << 16


def _command(address: str | None, node_id: str | None, node_ip: str | None, timeout: float) -> list[str]:
    """What begins a command about logs of the cluster at `address`, which this process is connected to from here on."""
    from oxiray.util.state.api import _connect

    _connect(address)
    command = [str(_cli.native_binary()), "logs", f"--address={_core.context()['address']}", f"--timeout={timeout}"]
    if node_id is not None:
        command.append(f"--node={node_id}")
    elif node_ip is not None:
        command.append(f"--node-ip={node_ip}")
    return command


def list_logs(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    glob_filter: str | None = None,
    timeout: int = DEFAULT_RPC_TIMEOUT,
) -> dict[str, list[str]]:
    """The names of a node's files of logs that fit `glob_filter`, by what they are of.

    The node is that of this machine where neither `node_id` nor `node_ip` names another. Raises `RayStateApiException`
    where there is no such node, or it does not answer within `timeout` seconds.
    """
    command = [*_command(address, node_id, node_ip, timeout), "--json", "--", "cluster", glob_filter or "*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    if done.returncode != 0:
        raise RayStateApiException(done.stderr.strip().removeprefix("error: "))
    found: dict[str, list[str]] = {}
    for row in json.loads(done.stdout):
        name = row["name"]
        fits = (kind for begin, end, kind in _CATEGORIES if name.startswith(begin) and name.endswith(end))
        found.setdefault(next(fits), []).append(name)
    return found


def get_log(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    filename: str | None = None,
    actor_id: str | None = None,
    task_id: str | None = None,
    pid: int | None = None,
    follow: bool = False,
    tail: int = -1,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    suffix: str = "out",
    encoding: str | None = "utf-8",
    errors: str | None = "strict",
    submission_id: str | None = None,
    attempt_number: int = 0,
    _interval: float | None = None,
    filter_ansi_code: bool = False,
) -> Iterator[Any]:
    """The last `tail` lines (all for -1) of one file, in pieces of text, or of bytes where `encoding` is None.

    The file is `filename`, or what the process of `actor_id` or `pid` printed (`suffix` "out" or "err"), or what the
    submitted job `submission_id` did; of `task_id` it is what that attempt printed and no more. Without `node_id` and
    `node_ip` it is looked for on all nodes; `filename` on that of this machine. With `follow` what is added is given too,
    also what later processes of a restarted actor print, until the actor is dead for good, the attempt is over, or the
    process or job has ended; at once, or each `_interval` seconds at most. `errors` says what becomes of bytes that are not
    in the `encoding`, as for `bytes.decode`. `filter_ansi_code` leaves colors and the like out of text. Raises
    `RayStateApiException` where there is no such file, or a node does not answer within `timeout` seconds; `ValueError` where
    `_interval` is given without `follow`.
    """
    command = [*_command(address, node_id, node_ip, timeout), "--quiet", f"--tail={tail}"]
    if follow:
        command.append("--follow")
    if _interval is not None:
        if not follow:
            raise ValueError(f"_interval={_interval} says how often new lines are given with follow=True, and follow is False")
        command.append(f"--interval={float(_interval)}")
    command += _subject(filename, actor_id, task_id, pid, submission_id, attempt_number, suffix)
    decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)(errors or "strict")
    for piece in _printed(command):
        # A letter may lie in two pieces.
        text = piece if decoder is None else decoder.decode(piece)
        if text:
            yield _ANSI_CODE.sub("", text) if filter_ansi_code and isinstance(text, str) else text
    # What is left of a letter whose rest never came.
    if decoder is not None and (rest := decoder.decode(b"", final=True)):
        yield rest


def _subject(
    filename: str | None,
    actor_id: str | None,
    task_id: str | None,
    pid: int | None,
    submission_id: str | None,
    attempt: int,
    suffix: str,
) -> list[str]:
    if suffix not in ("out", "err"):
        raise ValueError(f"suffix is 'out' or 'err', and {suffix!r} was given")
    stream = ["--err"] if suffix == "err" else []
    if filename is not None:
        return ["--", "cluster", filename]
    if submission_id is not None:
        return ["--", "job", submission_id]
    if actor_id is not None:
        return [*stream, "--", "actor", actor_id]
    if task_id is not None:
        return [*stream, f"--attempt={attempt}", "--", "task", task_id]
    if pid is not None:
        return [*stream, "--", "worker", str(pid)]
    raise ValueError("say whose log is meant: filename, actor_id, task_id, pid or submission_id")


def _printed(command: list[str]) -> Iterator[bytes]:
    """What a command prints, as it comes. Raises `RayStateApiException` with what it says where it fails."""
    with tempfile.TemporaryFile() as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as process:
        assert process.stdout is not None
        try:
            while piece := process.stdout.read1(_PIECE_BYTES):  # type: ignore[attr-defined]
                yield piece
            if process.wait() != 0:
                said.seek(0)
                raise RayStateApiException(said.read().decode(errors="replace").strip().removeprefix("error: "))
        finally:
            # Who asked may have heard enough.
            process.kill()
