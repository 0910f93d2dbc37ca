"""Breakpoints in workers: a process that stops at one is debugged from a terminal anywhere in the cluster.

A process that stops makes an actor, the session, and waits for lines that `oxiray debug` gives to it. What is typed and printed
travels as calls do: no port is opened, and who may connect to the cluster may debug what runs there.

Invariants:
1. A session ends with the process that stopped, which owns the actor.
2. One terminal at a time has a session: the one that attached last.
"""

from __future__ import annotations

import asyncio
import bdb
import os
import pdb
import secrets
import sys
import time
from types import FrameType, TracebackType
from typing import Any

from oxiray import _core, exceptions

#: Where sessions have their names: their identifiers.
NAMESPACE = "_oxiray_debugger"
#: The most characters that a terminal is shown of what was printed before it attached.
_PRINTED_MAX = 64 << 10
#: How long a process that goes on waits for its terminal to be told, in seconds.
_TOLD_S = 2.0
#: How long a session may take to tell of itself, in seconds.
_ANSWER_S = 10.0


class DebugSession:
    """What passes between a process that stopped and a terminal."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._printed = ""
        #: How many characters were printed before those that are kept.
        self._dropped = 0
        self._lines: list[str] = []
        self._waits = False
        self._is_over = False
        self._terminal = 0
        self._is_attached = False
        self._is_told = False
        self._changed = asyncio.Condition()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def about(self) -> dict[str, Any]:
        """What stopped where, and whether it waits for a line and has a terminal."""
        return {**self._facts, "state": "waits" if self._waits else "runs", "attached": self._is_attached}

    async def stops(self, place: str) -> None:
        """The process has stopped there."""
        self._facts["place"] = place

    async def print(self, text: str) -> None:
        """The process prints."""
        self._printed += text
        if (surplus := len(self._printed) - _PRINTED_MAX) > 0:
            self._printed, self._dropped = self._printed[surplus:], self._dropped + surplus
        await self._notify()

    async def line(self) -> str:
        """The next line for the process, which waits for it."""
        self._waits = True
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(lambda: bool(self._lines))
        return self._lines.pop(0)

    async def end(self) -> None:
        """The process goes on. Returns when the terminal has been told, or after a time."""
        self._is_over = True

        async def is_told() -> None:
            async with self._changed:
                self._changed.notify_all()
                await self._changed.wait_for(lambda: self._is_told or not self._is_attached)

        try:
            await asyncio.wait_for(is_told(), _TOLD_S)
        except asyncio.TimeoutError:
            pass

    async def attach(self) -> int:
        """A terminal takes the session over; returns its number."""
        self._terminal += 1
        self._is_attached = True
        await self._notify()
        return self._terminal

    async def detach(self, terminal: int) -> None:
        """The terminal leaves."""
        if self._terminal == terminal:
            self._is_attached = False
            await self._notify()

    async def read(self, terminal: int, position: int) -> tuple[str, int, str]:
        """What was printed after that position, the position after it, and what follows.

        That is `more`, `typing` where the process waits for a line, `over` where it goes on, `taken` where another terminal
        has the session.
        """
        end = lambda: self._dropped + len(self._printed)  # noqa: E731
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._terminal != terminal or end() > position or self._waits or self._is_over
            )
        if self._terminal != terminal:
            return "", position, "taken"
        text = self._printed[max(0, position - self._dropped) :]
        # What is printed comes before the line that is waited for.
        state = "more" if text else "over" if self._is_over else "typing"
        if state == "over":
            self._is_told = True
            await self._notify()
        return text, end(), state

    async def type(self, terminal: int, line: str) -> bool:
        """The terminal gives a line; False where another has the session."""
        if self._terminal != terminal:
            return False
        self._waits = False
        self._lines.append(line)
        await self._notify()
        return True


class _Input:
    """Standard input of the debugger."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    def readline(self) -> str:
        return self._session.ask("line")


class _Output:
    """Standard output of the debugger; what is printed travels when it is flushed, or a line is asked for."""

    encoding = "utf-8"

    def __init__(self, session: _Session) -> None:
        self._session = session

    def write(self, text: str) -> int:
        self._session.held.append(text)
        return len(text)

    def flush(self) -> None:
        self._session.flush()


class _Session:
    """The session as the process sees it that stopped."""

    def __init__(self, place: str, reason: str, identifier: str | None = None) -> None:
        self.identifier = identifier or secrets.token_hex(4)
        self.held: list[str] = []
        try:
            self._actor = self._begin(place, reason)
        except ValueError:
            # Another task, or an attempt before this one, has stopped under this name.
            self.identifier = f"{self.identifier}-{secrets.token_hex(4)}"
            self._actor = self._begin(place, reason)
        self.ask("about")

    def _begin(self, place: str, reason: str) -> Any:
        import oxiray

        options = {"name": self.identifier, "namespace": NAMESPACE, "num_cpus": 0, "scheduling_strategy": "DEFAULT"}
        return oxiray.remote(DebugSession).options(**options).remote(_facts(self.identifier, place, reason))

    def ask(self, method: str, *arguments: object) -> Any:
        """Calls the session, after all that was printed."""
        if method != "print":
            self.flush()
        import oxiray

        return oxiray.get(getattr(self._actor, method).remote(*arguments))

    def flush(self) -> None:
        text, self.held = "".join(self.held), []
        if text:
            self.ask("print", text)

    def end(self) -> None:
        """The process goes on without a debugger."""
        import oxiray

        self.ask("end")
        oxiray.kill(self._actor)


def _facts(identifier: str, place: str, reason: str) -> dict[str, Any]:
    context = _core.context()
    return {
        "session": identifier,
        "reason": reason,
        "place": place,
        "name": context.get("task_name") or "driver",
        "task_id": context.get("task_id"),
        "actor_id": context.get("actor_id"),
        "job_id": context["job_id"],
        "node_id": context["node_id"],
        "pid": os.getpid(),
        "since": time.time(),
    }


class _Debugger(pdb.Pdb):
    """Python's debugger, whose terminal is a session."""

    def __init__(self, session: _Session) -> None:
        # The program's own files of commands are none of whoever attaches.
        super().__init__(stdin=_Input(session), stdout=_Output(session), nosigint=True, readrc=False)  # type: ignore[arg-type]
        self._session: _Session | None = session

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        if self._session is not None and frame is not None:
            self._session.ask("stops", _place_of(frame))
        super().interaction(frame, traceback)

    def set_continue(self) -> None:
        super().set_continue()
        if not self.breaks:
            self.leave()

    def set_quit(self) -> None:
        super().set_quit()
        self.leave()

    def leave(self) -> None:
        """Ends the session, once."""
        if (session := self._session) is not None:
            self._session = None
            session.end()


def _place_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _begin(place: str, reason: str, identifier: str | None = None) -> _Debugger:
    session = _Session(place, reason, identifier)
    told = f"{reason or 'stopped at a breakpoint'}, {place}: run `oxiray debug {session.identifier}` on a machine of the cluster to debug it"
    print(told, file=sys.stderr, flush=True)
    return _Debugger(session)


def stop_at(frame: FrameType | None, identifier: str | None = None) -> None:
    """Stops in that frame, which has called."""
    assert frame is not None, "somebody has called this"
    _begin(_place_of(frame), "", identifier).set_trace(frame)


def set_trace(breakpoint_uuid: object = None) -> None:
    """Stops here until somebody debugs this process with `oxiray debug`, and lets it go on.

    A program that is not connected, and a driver whose standard input is a terminal, are debugged where they run.
    `breakpoint()` does the same in workers, unless PYTHONBREAKPOINT says otherwise.

    Args:
        breakpoint_uuid: What `oxiray debug` is told to name this stop by, as text or as bytes; made up where it is None,
            and made longer where another stop has it.
    """
    frame = sys._getframe().f_back
    assert frame is not None, "somebody has called this"
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if not _core.is_connected() or (has_terminal and not _core.context()["is_worker"]):
        pdb.Pdb().set_trace(frame)
        return
    named = breakpoint_uuid.decode(errors="replace") if isinstance(breakpoint_uuid, bytes) else breakpoint_uuid
    stop_at(frame, None if named is None else str(named))


def is_post_mortem() -> bool:
    """Whether what fails waits for a debugger first."""
    return os.environ.get("RAY_DEBUG_POST_MORTEM", "0") == "1"


def waits_for(error: BaseException) -> bool:
    """Whether this error waits for a debugger: one that is no cancellation, and that no debugger raised."""
    return is_post_mortem() and isinstance(error, Exception) and not isinstance(error, bdb.BdbQuit)


def post_mortem(error: BaseException) -> None:
    """Waits where an error was raised until somebody has looked at it with `oxiray debug`."""
    traceback: TracebackType | None = error.__traceback__
    if traceback is None:
        return
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    place = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
    debugger = _begin(place, f"raised {type(error).__name__}")
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
    debugger.leave()


def post_mortem_of_now() -> None:
    """The same with the error that is being handled, for libraries that catch what their functions raise."""
    if (error := sys.exc_info()[1]) is not None:
        post_mortem(error)


def sessions() -> list[dict[str, Any]]:
    """The processes of the cluster that stopped, the first first."""
    import oxiray
    from oxiray.util import list_named_actors

    names = [actor["name"] for actor in list_named_actors(all_namespaces=True) if actor["namespace"] == NAMESPACE]
    found = []
    for name in names:
        try:
            found.append(oxiray.get(oxiray.get_actor(name, namespace=NAMESPACE).about.remote(), timeout=_ANSWER_S))
        except (ValueError, exceptions.RayError):
            continue  # It has gone on meanwhile, or its node does not answer.
    return sorted(found, key=lambda facts: facts["since"])


def attach(identifier: str) -> int:
    """Debugs the process of that session at this terminal; returns the command's status."""
    import oxiray

    try:
        session: Any = oxiray.get_actor(identifier, namespace=NAMESPACE)
        terminal, position = oxiray.get(session.attach.remote()), 0
    except (ValueError, exceptions.RayActorError):
        print("The process has ended or gone on.")
        return 1
    try:
        while True:
            text, position, state = oxiray.get(session.read.remote(terminal, position))
            print(text, end="", flush=True)
            if state == "over":
                print("The process goes on.")
                return 0
            if state == "taken":
                print("\nAnother terminal debugs the process now.")
                return 1
            if state == "typing":
                oxiray.get(session.type.remote(terminal, input() + "\n"))
    except (EOFError, KeyboardInterrupt):
        session.detach.remote(terminal)
        print(f"\nThe process is as it was: `oxiray debug {identifier}` goes on with it, and the command `c` lets it go on.")
        return 0
    except exceptions.RayActorError:
        print("\nThe process has ended.")
        return 1
