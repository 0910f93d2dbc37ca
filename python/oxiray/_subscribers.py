"""What a driver is told while it runs, for who wants to read it: the output of workers, and notices.

Invariant: a subscriber has all that came since `subscribe()`, in the order in which it came, up to `_KEPT_MAX` pieces;
of more, the oldest are gone.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import Any

from oxiray import _core, _events, _session

#: The most pieces that a subscriber keeps for who does not read them.
_KEPT_MAX = 10_000


class _Subscriber:
    """Keeps what came of one kind of news until it is read."""

    _kind = ""

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._kept: collections.deque[dict[str, Any]] = collections.deque(maxlen=_KEPT_MAX)
        self._came = threading.Condition()
        self._leave: Callable[[], None] | None = None
        #: How many pieces the last read took.
        self.last_batch_size = 0

    def subscribe(self) -> None:
        """Has what comes from now on be kept.

        Raises `RuntimeError` where nothing can come, `ValueError` where `address` is not that of the connection there is.
        """
        if not _session.is_initialized():
            raise RuntimeError(f"{type(self).__name__} reads what the cluster tells this program: call ray.init() first")
        _session.ensure_at(self._address)
        if self._leave is None:
            self._leave = _events.listen(self._kind, self._keep, self.close)

    def close(self) -> None:
        """Has nothing more be kept; who waits in `poll` goes on. The end of the connection does the same."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()
        with self._came:
            self._came.notify_all()

    def _keep(self, *told: Any) -> None:
        with self._came:
            self._kept.append(self._described(*told))
            self._came.notify()

    def _described(self, *told: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _next(self, timeout: float | None) -> dict[str, Any] | None:
        """The oldest piece that was not read yet, waited for up to `timeout` seconds; None where none comes."""
        with self._came:
            self._came.wait_for(lambda: self._kept or self._leave is None, timeout)
            found = self._kept.popleft() if self._kept else None
        self.last_batch_size = int(found is not None)
        return found


class GcsLogSubscriber(_Subscriber):
    """The lines that workers of this program print. `address` can only be that of the connection there is.

    A piece has `ip`, `pid`, `job`, `is_err`, `lines`, and `name`: what is printed before the line, a task's name or an
    actor's. It is not told which of the two it is.
    """

    _kind = "lines"

    def subscribe(self) -> None:
        """Has lines from now on be kept. Raises `RuntimeError` where none can come."""
        if _session.is_initialized() and not _session.is_shown_logs:
            raise RuntimeError("this program is not told what its workers print: call ray.init() without log_to_driver=False")
        super().subscribe()

    def poll(self, timeout: float | None = None) -> dict[str, Any]:
        """The oldest lines of one process that were not read yet, waited for; empty where none come within `timeout` seconds."""
        return self._next(timeout) or {}

    def _described(self, *told: Any) -> dict[str, Any]:
        pid, name, is_error, lines, ip = told
        return {
            "ip": ip or _session.address_info()["node_ip_address"],
            "pid": pid,
            "job": _core.context()["job_id"],
            "is_err": is_error,
            "lines": lines.decode("utf-8", "replace").splitlines(),
            "name": name,
        }


class GcsErrorSubscriber(_Subscriber):
    """The notices to this program: what is printed after `(oxiray)`. `address` can only be that of the connection there is.

    A piece has `job_id`, `type`, `error_message` and `timestamp`. The `type` is always `notice`: Ray's types (`worker_died`)
    are not told apart.
    """

    _kind = "notice"

    def poll(self, timeout: float | None = None) -> tuple[bytes | None, dict[str, Any] | None]:
        """The job that the oldest notice is for and the notice, waited for; two None where none comes within `timeout` seconds."""
        found = self._next(timeout)
        return (None, None) if found is None else (found["job_id"], found)

    def _described(self, *told: Any) -> dict[str, Any]:
        job = bytes.fromhex(_core.context()["job_id"])
        return {"job_id": job, "type": "notice", "error_message": told[0], "timestamp": time.time()}


def pieces(poll: Callable[[float], Any], limit: float, timeout: float, fits: Callable[[Any], bool]) -> list[Any]:
    """What `poll` gives and fits, up to `limit` pieces, within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    found: list[Any] = []
    while len(found) < limit and (rest := deadline - time.monotonic()) > 0:
        one = poll(rest)
        if not one:
            break
        if fits(one):
            found.append(one)
    return found
