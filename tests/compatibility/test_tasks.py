"""Tasks: what a remote function takes, gives and raises."""

from __future__ import annotations

import pytest
import ray

pytestmark = pytest.mark.usefixtures("session")


def test_a_task_returns_its_value() -> None:
    @ray.remote
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert ray.get(add.remote(1)) == 3
    assert ray.get(add.remote(1, b=5)) == 6


def test_a_reference_as_an_argument_arrives_as_its_value() -> None:
    @ray.remote
    def increment(x: int) -> int:
        return x + 1

    assert ray.get(increment.remote(increment.remote(ray.put(1)))) == 3


def test_a_reference_within_a_container_stays_a_reference() -> None:
    @ray.remote
    def kinds(references: list, mapping: dict) -> bool:
        return isinstance(references[0], ray.ObjectRef) and isinstance(mapping["x"], ray.ObjectRef)

    reference = ray.put(1)
    assert ray.get(kinds.remote([reference], {"x": reference}))


def test_several_results_are_several_references() -> None:
    @ray.remote(num_returns=3)
    def three() -> tuple:
        return 0, 1, 2

    references = three.remote()
    assert len(references) == 3
    assert ray.get(references) == [0, 1, 2]


def test_options_override_what_the_decorator_says() -> None:
    @ray.remote(num_returns=3)
    def some() -> tuple:
        return (1, 2)

    assert ray.get(some.options(num_returns=2).remote()) == [1, 2]


def test_a_remote_function_cannot_be_called_directly() -> None:
    @ray.remote
    def f() -> None: ...

    with pytest.raises(TypeError, match="Remote functions cannot be called directly"):
        f()


def test_an_exception_is_raised_as_its_own_class_and_as_a_task_error() -> None:
    class Own(Exception):
        pass

    @ray.remote
    def fail() -> None:
        raise Own("the reason")

    with pytest.raises(Own, match="the reason") as caught:
        ray.get(fail.remote())
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert isinstance(caught.value.cause, Own)
