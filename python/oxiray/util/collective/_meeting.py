"""Where the members of a group find each other: a named actor, which has the group's declaration and rank 0's address.

Invariants:
1. Whoever asks for what is not there yet is answered when it is; nobody asks again and again.
2. An address that nobody answers at any more is told with the next question, which waits for another one.
3. It ends with its last handle: that of the driver which declared the group, or of members that have not met all others.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import oxiray
from oxiray.exceptions import RayActorError

#: How many actors of a name may end one after the other.
_TRIES = 10
#: An address: a host and a port.
Address = tuple[str, int]


def name_of(group_name: str) -> str:
    """The name of a group's meeting actor, in the namespace of its job. Ray's has the same."""
    return f"info_{group_name}"


class Meeting:
    """Of one group: who is to be in it, where that was declared, and where rank 0 is."""

    def __init__(self) -> None:
        self._declared: tuple[list[Any], int, list[int], str, int] | None = None
        self._address: Address | None = None
        self._changed = asyncio.Event()

    async def set_info(self, ids: list[Any], world_size: int, ranks: list[int], backend: str, timeout_ms: int) -> bool:
        """Declares the group. False where it was before."""
        if self._declared is not None:
            return False
        self._declared = (ids, world_size, ranks, backend, timeout_ms)
        return True

    async def get_info(self) -> tuple[list[Any], int, list[int], str, int] | None:
        """What was declared: the actors' ids, how many they are, their ranks, the backend, its limit in milliseconds."""
        return self._declared

    async def open(self, address: Address) -> None:
        """Rank 0 is there."""
        self._address = address
        self._changed.set()
        self._changed = asyncio.Event()

    async def address(self, gone: Address | None) -> Address:
        """Where rank 0 is; the next place where nobody answers at `gone`."""
        while self._address is None or self._address == gone:
            await self._changed.wait()
        return self._address


def ask(group_name: str, method: str, *arguments: Any, timeout: float | None = None) -> tuple[Any, Any]:
    """What the meeting actor of a group answers, and the actor: it is made where there is none, and is there as long as
    somebody has it. Raises `GetTimeoutError` past `timeout` seconds."""
    for _ in range(_TRIES):
        place = oxiray.remote(Meeting).options(name=name_of(group_name), get_if_exists=True, num_cpus=0).remote()
        # One that has just lost its last handle is ending, and the next has its name.
        with contextlib.suppress(RayActorError):
            return place, oxiray.get(getattr(place, method).remote(*arguments), timeout=timeout)
    raise RuntimeError(f"the actor `{name_of(group_name)}`, where the members of a collective group meet, ends again and again")


def existing(group_name: str) -> Any:
    """The same, where there is one; else None."""
    try:
        return oxiray.get_actor(name_of(group_name))
    except ValueError:
        return None


def end(group_name: str) -> None:
    """The group is over, and another may have its name."""
    found = existing(group_name)
    if found is not None:
        oxiray.kill(found)
