"""`inspect_serializability`: which part of a value keeps it from travelling."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from ray.util import inspect_serializability
from ray.util.check_serialize import FailureTuple

LOCK = threading.Lock()


class Holder:
    def __init__(self, lock: Any) -> None:
        self.number = 1
        self.inner = {"guard": lock}


def inspect(value: Any, **options: Any) -> tuple[bool, set[FailureTuple], str]:
    printed = io.StringIO()
    answer, found = inspect_serializability(value, print_file=printed, **options)
    return answer, found, printed.getvalue()


@pytest.mark.parametrize("value", [1, [1, "a"], Holder, Holder(None), lambda: 1])
def test_what_travels(value: Any) -> None:
    answer, found, printed = inspect(value, name="mine")
    assert (answer, found) == (True, set())
    assert "mine" in printed and "can be" in printed


def test_a_part_of_a_part_is_named() -> None:
    holder = Holder(LOCK)
    answer, found, printed = inspect(holder, name="holder")
    [failure] = found
    assert not answer
    assert failure.obj is LOCK and failure.parent is holder.inner
    assert failure.path == ("holder", "inner", "'guard'")
    assert "holder -> inner" in printed and "locks" in printed
    assert "holder -> inner" in repr(failure)


def test_closures_and_globals_are_searched() -> None:
    lock = threading.Lock()

    def closes_over() -> Any:
        return lock

    def reads_global() -> Any:
        return LOCK

    reads_global.__module__ = "__main__"
    [failure] = inspect(closes_over, name="f")[1]
    assert failure.obj is lock and failure.path == ("f", "lock") and failure.parent is closes_over
    [failure] = inspect(reads_global, name="f")[1]
    assert failure.obj is LOCK and failure.path == ("f", "LOCK")


def test_every_failing_part_is_found() -> None:
    assert {failure.path for failure in inspect([LOCK, 1, LOCK])[1]} == {("[0]",), ("[2]",)}


def test_the_search_goes_as_deep_as_asked() -> None:
    holder = Holder(LOCK)
    [failure] = inspect(holder, depth=0)[1]
    assert failure.obj is holder and failure.path == () and failure.parent is None
    [failure] = inspect(holder, depth=1)[1]
    assert failure.obj is holder.inner
    itself: list[Any] = [LOCK]
    itself.append(itself)
    assert not inspect(itself)[0]


def test_without_a_file_it_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect_serializability(LOCK)[0] is False
    assert "lock" in capsys.readouterr().out
