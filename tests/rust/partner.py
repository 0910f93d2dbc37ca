"""What the Rust program calls that the tests run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import ray


def joined(*values: Any) -> str:
    """The values and what they are."""
    return " ".join(f"{type(value).__name__}={value}" for value in values)


@ray.remote
def scaled(array: Any, by: float) -> Any:
    """An array times a number."""
    return array * by


def moved(point: dict[str, Any], by: int) -> dict[str, Any]:
    """A point elsewhere."""
    return {**point, "x": point["x"] + by}


def raises(why: str) -> None:
    """Fails."""
    raise KeyError(why)


def rows(count: int, width: int) -> Iterator[Any]:
    """Arrays, one by one."""
    for number in range(count):
        yield numpy.full(width, float(number))


def parted(numbers: list[int]) -> tuple[int, list[int]]:
    """The first, and the others."""
    return numbers[0], numbers[1:]


def breaks_off() -> Iterator[int]:
    """Yields once."""
    yield 1
    raise ValueError("no more")


def adds(tally: Any, number: int) -> int:
    """Has an actor of Rust's add."""
    return ray.get(tally.add.remote(number))


def climbs(tally: Any, top: int) -> int:
    """Has an actor of Rust's add one, which is enough only at the top."""
    number = ray.get(tally.add.remote(1))
    if number < top:
        raise ValueError(f"{number} is not {top}")
    return int(number)


def makes_basket(content: str) -> Any:
    """A handle of an actor of Python's."""
    return ray.remote(Basket).remote([content])


class Basket:
    """Holds texts."""

    def __init__(self, first: list[str]) -> None:
        self._content = list(first)

    def put(self, one: str) -> None:
        """One more."""
        self._content.append(one)

    def content(self) -> list[str]:
        """All of them."""
        return self._content

    def one_by_one(self) -> Iterator[str]:
        """Each of them."""
        yield from self._content
