"""What tests of programs take from Ray: actors that tests wait for, and waits with a deadline. For compatibility."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from oxiray import _api, _missing


@_api.remote(num_cpus=0)
class SignalActor:
    """An event: calls of `wait()` return once `send()` was called."""

    def __init__(self) -> None:
        self.ready_event = asyncio.Event()
        self.num_waiters = 0

    async def send(self, clear: bool = False) -> None:
        """Sets the event, and with `clear` takes it back at once."""
        self.ready_event.set()
        if clear:
            self.ready_event.clear()

    async def wait(self, should_wait: bool = True) -> None:
        """Returns once the event is set; at once where that is not wanted."""
        if should_wait:
            self.num_waiters += 1
            await self.ready_event.wait()
            self.num_waiters -= 1

    async def cur_num_waiters(self) -> int:
        """How many calls of `wait()` have not returned."""
        return self.num_waiters


@_api.remote(num_cpus=0)
class Semaphore:
    """A counter with places that are taken and given back."""

    def __init__(self, value: int = 1) -> None:
        self._semaphore = asyncio.Semaphore(value=value)

    async def acquire(self) -> None:
        """Takes a place, waiting for one."""
        await self._semaphore.acquire()

    async def release(self) -> None:
        """Gives a place back."""
        self._semaphore.release()

    async def locked(self) -> bool:
        """Whether no place is free."""
        return self._semaphore.locked()


def wait_for_condition(
    condition_predictor: Callable[..., bool],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Asks `condition_predictor(**kwargs)` again and again until it says yes.

    `timeout` is in seconds. Raises `RuntimeError` past it, with what the last question raised; with `raise_exceptions`,
    raises that at once.
    """
    started = time.monotonic()
    last = ""
    while time.monotonic() - started <= timeout:
        try:
            if condition_predictor(**kwargs):
                return
            last = ""
        except Exception:
            if raise_exceptions:
                raise
            last = traceback.format_exc()
        time.sleep(retry_interval_ms / 1000)
    raise RuntimeError(_not_met(timeout, last))


async def async_wait_for_condition(
    condition_predictor: Callable[..., Awaitable[bool] | bool],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    **kwargs: Any,
) -> None:
    """As `wait_for_condition`, in an event loop; the condition may be async."""
    started = time.monotonic()
    last = ""
    while time.monotonic() - started <= timeout:
        try:
            answer = condition_predictor(**kwargs)
            if await answer if isinstance(answer, Awaitable) else answer:
                return
            last = ""
        except Exception:
            last = traceback.format_exc()
        await asyncio.sleep(retry_interval_ms / 1000)
    raise RuntimeError(_not_met(timeout, last))


def _not_met(timeout: float, last: str) -> str:
    text = f"The condition wasn't met before the timeout expired: {timeout} s"
    return f"{text}. The last question raised:\n{last}" if last else text


def run_string_as_driver(
    driver_script: str, env: dict[str, str] | None = None, encode: str = "utf-8", timeout: float | None = 300
) -> str:
    """Runs a program in a process of its own, and returns what it printed.

    `env` is all of its environment; this process's by default. Raises `subprocess.CalledProcessError` where it fails,
    `subprocess.TimeoutExpired` past `timeout` seconds.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding=encode) as script:
        script.write(driver_script)
        script.flush()
        ran = subprocess.run(
            [sys.executable, script.name],
            env=os.environ if env is None else env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    printed = ran.stdout.decode(encode, "replace")
    if ran.returncode:
        print(printed)
        raise subprocess.CalledProcessError(ran.returncode, ran.args, output=printed)
    return printed


class FakeTimer:
    """A clock that goes on when it is told to."""

    def __init__(self, start_time: float | None = None) -> None:
        self.reset(start_time)

    def reset(self, start_time: float | None = None) -> None:
        """Sets the clock; to now by default."""
        self._now = time.time() if start_time is None else start_time

    def time(self) -> float:
        """What the clock shows, in seconds."""
        return self._now

    def advance(self, by: float) -> None:
        """Has `by` seconds go by."""
        self._now += by

    def realistic_sleep(self, amt: float) -> None:
        """Has a little more than `amt` seconds go by, as real sleeps take."""
        self._now += amt + 0.001


def is_named_tuple(cls: type) -> bool:
    """Whether `cls` is a named tuple's class."""
    return issubclass(cls, tuple) and all(isinstance(name, str) for name in getattr(cls, "_fields", [None]))


__all__ = [
    "FakeTimer",
    "Semaphore",
    "SignalActor",
    "async_wait_for_condition",
    "is_named_tuple",
    "run_string_as_driver",
    "wait_for_condition",
]

__getattr__ = _missing.attributes(__name__)
