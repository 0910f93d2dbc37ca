"""Files of logs: listed and read where the node is on this machine, in whose session's directory they lie."""

from __future__ import annotations

import codecs
import fnmatch
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oxiray import _api
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
#: How often it is looked for more of a file that is followed, in seconds, where nothing else is said.
_INTERVAL_S = 0.5


def _directory(node_id: str | None, node_ip: str | None) -> Path:
    """Where the logs of a node are; of the node that this process is on where none is named."""
    from oxiray.runtime_context import get_runtime_context

    if node_id is None and node_ip is None:
        node_id = get_runtime_context().get_node_id()
    for node in _api.nodes():
        if node["NodeID"] == node_id or (node_id is None and node["NodeManagerAddress"] == node_ip):
            found = Path(node["RayletSocketName"]).parent / "logs"
            if found.is_dir():
                return found
            raise RayStateApiException(
                f"the logs of node {node['NodeID']} are not on this machine: read them on {node['NodeManagerAddress']}"
            )
    raise RayStateApiException(f"there is no node {node_id or node_ip}: list_nodes() names those there are")


def list_logs(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    glob_filter: str | None = None,
    timeout: int = DEFAULT_RPC_TIMEOUT,
) -> dict[str, list[str]]:
    """The names of a node's files of logs that fit `glob_filter`, by what they are of.

    The node is that of this process where neither `node_id` nor `node_ip` names another. Raises `RayStateApiException`
    where there is no such node, or it is on another machine.
    """
    from oxiray.util.state.api import _connect

    _connect(address)
    found: dict[str, list[str]] = {}
    for path in sorted(_directory(node_id, node_ip).iterdir()):
        if path.is_file() and fnmatch.fnmatch(path.name, glob_filter or "*"):
            fits = (kind for begin, end, kind in _CATEGORIES if path.name.startswith(begin) and path.name.endswith(end))
            found.setdefault(next(fits), []).append(path.name)
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

    The file is `filename`, or what the process of `actor_id`, `task_id` or `pid` printed (`suffix` "out" or "err"), or what
    the submitted job `submission_id` did. With `follow` it never ends, and gives what is added. `filter_ansi_code` leaves
    colors and the like out of text. Raises `RayStateApiException` where there is no such file on this machine.
    """
    from oxiray.util.state.api import _connect

    _connect(address)
    folder = _directory(node_id, node_ip)
    pattern = filename or _pattern(actor_id, task_id, pid, submission_id, attempt_number, suffix)
    paths = [path for path in folder.iterdir() if path.is_file() and fnmatch.fnmatch(path.name, pattern)]
    if not paths:
        raise RayStateApiException(f"there is no file of logs {pattern!r} in {folder}: list_logs() names those there are")
    decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)(errors or "strict")
    with paths[0].open("rb") as file:
        file.seek(_begin_of_tail(paths[0], tail))
        while True:
            while piece := file.read(_PIECE_BYTES):
                # A letter may lie in two pieces.
                text = piece if decoder is None else decoder.decode(piece)
                yield _ANSI_CODE.sub("", text) if filter_ansi_code and isinstance(text, str) else text
            if not follow:
                return
            time.sleep(_interval or _INTERVAL_S)


def _pattern(
    actor_id: str | None, task_id: str | None, pid: int | None, submission_id: str | None, attempt: int, suffix: str
) -> str:
    from oxiray.util.state import api

    if suffix not in ("out", "err"):
        raise ValueError(f"suffix is 'out' or 'err', and {suffix!r} was given")
    if submission_id is not None:
        return f"submitted-{submission_id}.log"
    if actor_id is not None:
        actor = api.get_actor(actor_id)
        pid = actor.pid if actor is not None else None
    elif task_id is not None:
        attempts = api.get_task(task_id)
        all_attempts = attempts if isinstance(attempts, list) else [attempts]
        pid = next((one.worker_pid for one in all_attempts if one is not None and one.attempt_number == attempt), None)
    if not pid:
        raise RayStateApiException("no process is known of it: name filename, pid, or an actor_id or task_id that has run")
    return f"worker-*-{pid}.{suffix}"


def _begin_of_tail(path: Path, lines: int) -> int:
    """Where the last so many lines begin."""
    if lines < 0:
        return 0
    end = position = path.stat().st_size
    seen = 0
    with path.open("rb") as file:
        while position > 0:
            step = min(_PIECE_BYTES, position)
            position -= step
            file.seek(position)
            piece = file.read(step)
            for index in range(len(piece) - 1, -1, -1):
                # The newline at the very end closes the last line.
                if piece[index] == 0x0A and position + index + 1 < end:
                    seen += 1
                    if seen == lines:
                        return position + index + 1
    return 0 if lines else end
