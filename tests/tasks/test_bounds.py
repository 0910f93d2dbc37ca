"""Programs that never stop making new functions and new options: they run on, and what they made before still runs."""

from __future__ import annotations

import pytest
import ray

pytestmark = pytest.mark.usefixtures("cluster")


def numbered(number: int):
    def function() -> int:
        return number

    function.__qualname__ = function.__name__ = f"function_{number}"
    return ray.remote(function)


def test_thousands_of_functions_each_called_and_the_first_again() -> None:
    first = [numbered(number) for number in range(3)]
    assert ray.get([function.remote() for function in first]) == [0, 1, 2]
    for start in range(0, 2400, 300):
        numbers = range(start, start + 300)
        assert ray.get([numbered(number).remote() for number in numbers], timeout=60) == list(numbers)
    assert ray.get([function.remote() for function in first], timeout=20) == [0, 1, 2]


def test_many_functions_that_wait_in_one_queue_keep_their_code() -> None:
    numbers = range(1500)
    assert ray.get([numbered(number).remote() for number in numbers], timeout=60) == list(numbers)


def test_ever_new_options_of_one_function() -> None:
    base = numbered(7)
    for number in range(300):
        special = base.options(num_cpus=1 + number / 10_000, name=f"call {number}")
        assert ray.get(special.remote(), timeout=20) == 7
    assert ray.get([base.options(num_cpus=n / 1000).remote() for n in range(1, 301)], timeout=60) == [7] * 300
