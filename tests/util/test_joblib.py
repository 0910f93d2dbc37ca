"""Joblib's loops on the backend `ray`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import joblib
import pytest
from ray.util.joblib import register_ray


def fail_on_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number


def test_a_loop_runs_in_other_processes(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=2)
    register_ray()
    with joblib.parallel_config("ray"):
        squares = joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(number, 2) for number in range(20))
        pids = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(8)))
        assert joblib.effective_n_jobs(-1) == 2
    assert squares == [number**2 for number in range(20)]
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_an_error_ends_the_loop_and_the_next_one_runs(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=2)
    register_ray()
    with joblib.parallel_config("ray"):
        with pytest.raises(ValueError, match="three"):
            joblib.Parallel(n_jobs=2)(joblib.delayed(fail_on_three)(number) for number in range(8))
        with joblib.Parallel(n_jobs=2) as loop:
            with pytest.raises(ValueError, match="three"):
                loop(joblib.delayed(fail_on_three)(number) for number in range(8))
            assert loop(joblib.delayed(fail_on_three)(number) for number in range(3)) == [0, 1, 2]
        with pytest.raises(ValueError, match="no meaning"):
            joblib.Parallel(n_jobs=0)(joblib.delayed(pow)(1, 1) for _ in range(2))


def test_options_of_the_actors(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=2, resources={"slot": 2})
    register_ray()
    with joblib.parallel_config("ray", ray_remote_args={"resources": {"slot": 1}}):
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-number) for number in range(5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["generator", "generator_unordered"])
def test_results_come_one_by_one(cluster: Callable[..., Any], kind: str) -> None:
    cluster(num_cpus=2)
    register_ray()
    with joblib.parallel_config("ray"):
        loop = joblib.Parallel(n_jobs=2, return_as=kind)
        results = loop(joblib.delayed(fail_on_three)(number) for number in (0, 1, 2, 4, 5))
        assert next(results) in (0, 1, 2, 4, 5)
        assert len(list(results)) == 4
        with pytest.raises(ValueError, match="three"):
            list(loop(joblib.delayed(fail_on_three)(number) for number in range(8)))
        # Left half read: the rest ends with it, and the next loop runs.
        unread = loop(joblib.delayed(pow)(number, 2) for number in range(50))
        next(unread)
        del unread
        assert sorted(loop(joblib.delayed(pow)(number, 2) for number in range(4))) == [0, 1, 4, 9]
