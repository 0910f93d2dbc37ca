"""Answers, errors and names that are too large for one message: their asker hears of it, and nobody else notices."""

from __future__ import annotations

import pytest
import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_list, _internal_kv_put

RESULTS = 3000
# As many as would make a message of more than it may have, if each result were sent its own.
ERROR_BYTES = 60_000


pytestmark = pytest.mark.usefixtures("two_cpus", "nobody_else_notices")


@pytest.fixture
def nobody_else_notices(two_cpus):
    yield
    assert len(ray.nodes()) == 1
    assert ray.get(ray.remote(lambda: 7).remote()) == 7


def fail():
    raise ValueError("x" * ERROR_BYTES)


def test_the_error_of_a_task_with_many_results_is_each_of_them():
    results = ray.remote(num_returns=RESULTS, max_retries=0)(fail).remote()
    for result in (results[0], results[RESULTS // 2], results[-1]):
        with pytest.raises(ValueError, match="xxx"):
            ray.get(result)


def test_an_actor_survives_the_error_of_a_method_with_many_results():
    @ray.remote
    class Actor:
        def fail(self):
            fail()

        def ping(self):
            return "pong"

    actor = Actor.remote()
    results = actor.fail.options(num_returns=RESULTS).remote()
    with pytest.raises(ValueError, match="xxx"):
        ray.get(results[-1])
    assert ray.get(actor.ping.remote()) == "pong"


def test_a_list_of_keys_that_is_too_long_is_refused():
    keys = [f"{number:05}".encode() + b"k" * 65_000 for number in range(2_100)]
    for key in keys:
        _internal_kv_put(key, b"")
    with pytest.raises(Exception, match="at most 127"):
        _internal_kv_list(b"")
    assert _internal_kv_list(b"00007") == [keys[7]]
    for key in keys:
        _internal_kv_del(key)


def test_a_name_that_is_too_long_is_refused():
    @ray.remote
    class Actor:
        pass

    name = "n" * 2_000
    with pytest.raises(ValueError, match="1024"):
        ray.get_actor(name)
    with pytest.raises(ValueError, match="1024"):
        Actor.options(name=name).remote()
    with pytest.raises(ValueError, match="1024"):
        ray.util.placement_group([{"CPU": 1}], name=name)
