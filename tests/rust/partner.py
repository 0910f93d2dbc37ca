"""What the Rust program calls that the tests run."""

from __future__ import annotations

from typing import Any

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
