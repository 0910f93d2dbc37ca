"""Where the ranks of a group meet: an actor that takes nothing of the cluster.

Purpose: a report is one call of each rank, answered when the last has called. What the controller is to know waits
here until it asks, in one call that is answered when there is something. Values are bytes: nothing of the user's is
loaded here.

Invariants:
1. Round i of a rank is the i-th report that it makes; all ranks get the same answer.
2. A round that can never be whole, since a rank has ended, fails at once for those that wait in it.
3. A rank that is excused is waited for by nobody in the meetings of `_RELAXED`, and by all in others, which need the values of
   all ranks; one that comes late to a round that went on without it does not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

#: Reports that the controller has not asked for yet; the next ones wait.
_UNREAD_MAX = 1000
#: Meetings that go on without excused ranks.
_RELAXED = frozenset({"report", "stored", "get_preemption_info"})


@dataclass
class _Round:
    entries: dict[int, Any] = field(default_factory=dict)
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    timer: Any = None


class Exchange:
    """The meeting place of `size` ranks. A meeting that is late by `late_s` seconds is told to the controller."""

    def __init__(self, size: int, late_s: float) -> None:
        self.size = size
        self.late_s = late_s
        self.rounds: dict[tuple[str, int], _Round] = {}
        #: Of reports with a checkpoint that is not stored yet, what the ranks that came have measured.
        self.metrics: dict[int, dict[int, bytes]] = {}
        self.kept: dict[int, asyncio.Future[Any]] = {}
        self.ended: dict[int, int] = {}
        self.reported = [0] * size
        self.leaving: set[int] = set()
        #: Ranks that are waited for no more, each with the end of its machine as `get_preemption_info` has it.
        self.excused: dict[int, bytes] = {}
        #: Rounds that went on without ranks, until these have come.
        self.missed: dict[tuple[str, int], set[int]] = {}
        self.validating: set[str] = set()
        self.validated: dict[str, tuple[str, bytes]] = {}
        self.all_validated = asyncio.Event()
        self.all_validated.set()
        self.parts: dict[str, asyncio.Future[tuple[bool, Any]]] = {}
        self.unread: deque[tuple[Any, ...]] = deque()
        self.reader: asyncio.Future[Any] | None = None
        self.room = asyncio.Event()
        self.room.set()

    async def report(self, rank: int, index: int, metrics: bytes, name: str | None, is_leaving: bool) -> str | None:
        """A rank reports, and says whether its machine is being drained.

        Returns the name of the round's checkpoint, which rank 0 decides on; None without one.
        """
        if is_leaving and rank not in self.leaving:
            self.leaving.add(rank)
            self._tell("leaving", index, rank)
        if not self.room.is_set():
            await self.room.wait()
        self.reported[rank] = index
        key = ("report", index)
        if self._missed(key, rank):
            return None
        entries = await self._meet(key, rank, (metrics, name))
        return next((entries[other][1] for other in sorted(entries) if entries[other][1] is not None), None)

    async def stored(self, rank: int, index: int, outcome: Any) -> tuple[bool, Any]:
        """A rank has stored its files, or says why it could not.

        Returns whether the checkpoint was kept without it, and else what the controller made of the checkpoint.
        """
        if self._missed(("stored", index), rank):
            return True, None
        if index not in self.kept:
            self.kept[index] = asyncio.get_running_loop().create_future()
        kept = self.kept[index]
        await self._meet(("stored", index), rank, outcome)
        return False, await kept

    async def settle(self, index: int, outcome: Any, validating: str | None) -> None:
        """The controller has kept a checkpoint, or says why it could not; it names one that it has validated."""
        if validating is not None:
            await self.validate([validating])
        kept = self.kept.pop(index)
        if not kept.done():
            kept.set_result(outcome)

    async def validate(self, names: list[str]) -> None:
        """Checkpoints whose validation is not over."""
        self.validating.update(names)
        if self.validating:
            self.all_validated.clear()

    async def settle_validation(self, name: str, status: str, metrics: bytes) -> None:
        """The validation of a checkpoint is over; its metrics are these now."""
        self.validated[name] = (status, metrics)
        self.validating.discard(name)
        if not self.validating:
            self.all_validated.set()

    async def validations(self, waits: bool, timeout_s: float | None) -> tuple[set[str], dict[str, tuple[str, bytes]]]:
        """The checkpoints whose validation is not over, after a wait for that, and those of which it is."""
        if waits:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.all_validated.wait(), timeout_s)
        return self.validating, self.validated

    async def part(self, rank: int, name: str) -> tuple[bool, Any]:
        """A rank asks for its part of a dataset: True and a list with the reference to it, or False and an exception as bytes."""
        if name not in self.parts:
            self.parts[name] = asyncio.get_running_loop().create_future()
            self._tell("dataset", 0, name)
        # Others wait for it too, when one is cancelled.
        is_divided, found = await asyncio.shield(self.parts[name])
        return (True, [found[rank]]) if is_divided else (False, found)

    async def hand_out(self, name: str, is_divided: bool, found: Any) -> None:
        """The controller has divided a dataset: a reference for each rank; or an exception, as bytes."""
        self.parts[name].set_result((is_divided, found))

    async def meet(self, kind: str, index: int, rank: int, value: Any) -> dict[int, Any]:
        """All ranks' values, once all have come."""
        if self._missed((kind, index), rank):
            return {rank: value}
        return await self._meet((kind, index), rank, value)

    async def excuse(self, ranks: dict[int, bytes]) -> None:
        """Rounds go on without these ranks, whose machines are going; of each, what `get_preemption_info` tells of it."""
        self.excused.update(ranks)
        for key, meeting in list(self.rounds.items()):
            if not self._awaited(key, meeting):
                self._close(key, meeting)

    async def end(self, rank: int) -> None:
        """A rank's training function has returned: it will report no more."""
        self.ended[rank] = self.reported[rank]
        for key in list(self.rounds):
            self._fail_if_never_whole(key)
        if len(self.ended) == self.size:
            self._tell("ended", 0, None)

    async def news(self) -> list[tuple[Any, ...]]:
        """What happened since the last call of this, at least one thing: `(kind, index, value)`."""
        if not self.unread:
            self.reader = asyncio.get_running_loop().create_future()
            await self.reader
        taken = list(self.unread)
        self.unread.clear()
        self.room.set()
        return taken

    async def missing(self) -> dict[str, list[int]]:
        """The ranks that others wait for, by what they wait in."""
        return {
            f"{kind} {index}": self._awaited((kind, index), meeting)
            for (kind, index), meeting in self.rounds.items()
        }

    async def _meet(self, key: tuple[str, int], rank: int, entry: Any) -> dict[int, Any]:
        meeting = self.rounds.setdefault(key, _Round())
        meeting.entries[rank] = entry
        if not self._awaited(key, meeting):
            self._close(key, meeting)
            return meeting.entries
        loop = asyncio.get_running_loop()
        if meeting.timer is None:
            meeting.timer = loop.call_later(self.late_s, self._late, key)
        waiting = meeting.waiting[rank] = loop.create_future()
        self._fail_if_never_whole(key)
        await waiting
        return meeting.entries

    def _awaited(self, key: tuple[str, int], meeting: _Round) -> list[int]:
        """The ranks that have not come and are not excused."""
        return sorted(set(range(self.size)) - set(meeting.entries) - self._excused_from(key[0]))

    def _excused_from(self, kind: str) -> set[int]:
        return set(self.excused) if kind in _RELAXED else set()

    def _missed(self, key: tuple[str, int], rank: int) -> bool:
        """Whether the round went on without this rank, which has come now."""
        late = self.missed.get(key, set())
        if rank not in late:
            return False
        late.remove(rank)
        if not late:
            del self.missed[key]
        return True

    def _close(self, key: tuple[str, int], meeting: _Round) -> None:
        del self.rounds[key]
        absent = set(range(self.size)) - set(meeting.entries)
        if meeting.timer is not None:
            meeting.timer.cancel()
        for waiting in meeting.waiting.values():
            if not waiting.done():
                waiting.set_result(None)
        kind, index = key
        entries = [meeting.entries[rank] for rank in sorted(meeting.entries)]
        # Who missed a report stores nothing for it.
        if missed := absent & set(self.metrics[index]) if kind == "stored" else absent:
            self.missed[key] = missed
        if kind == "get_preemption_info":
            meeting.entries.update({rank: self.excused[rank] for rank in absent})
        if kind == "report":
            metrics = {rank: meeting.entries[rank][0] for rank in sorted(meeting.entries)}
            if any(entry[1] is not None for entry in entries):
                self.metrics[index] = metrics
            else:
                self._tell("report", index, list(metrics.values()))
        elif kind == "stored":
            self._tell("checkpoint", index, (list(self.metrics.pop(index).values()), entries))

    def _late(self, key: tuple[str, int]) -> None:
        meeting = self.rounds[key]
        meeting.timer = asyncio.get_running_loop().call_later(self.late_s, self._late, key)
        self._tell("late", key[1], (key[0], self._awaited(key, meeting)))

    def _fail_if_never_whole(self, key: tuple[str, int]) -> None:
        meeting = self.rounds[key]
        here = {*meeting.entries, *self._excused_from(key[0])}
        gone = {rank: count for rank, count in self.ended.items() if rank not in here}
        if not gone:
            return
        said = ", ".join(f"rank {rank} returned after {count} reports" for rank, count in sorted(gone.items()))
        kind, index = key
        for rank, waiting in meeting.waiting.items():
            if not waiting.done():
                waiting.set_exception(
                    RuntimeError(
                        f"rank {rank} waits for all ranks in {kind} number {index}, but {said}: each rank must call "
                        "report() and the collective functions equally often"
                    )
                )
        if meeting.timer is not None:
            meeting.timer.cancel()
        del self.rounds[key]

    def _tell(self, kind: str, index: int, value: Any) -> None:
        self.unread.append((kind, index, value))
        if len(self.unread) >= _UNREAD_MAX:
            self.room.clear()
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)
