"""Pools: of actors, and of processes as `multiprocessing` has them."""

import time

import pytest
import ray
from ray.util import ActorPool
from ray.util.multiprocessing import Pool

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Worker:
    def double(self, x):
        return 2 * x

    def slow(self, x):
        time.sleep(x)
        return x

    def fail(self, x):
        raise ValueError("expected")


def test_results_in_order_and_as_they_come():
    pool = ActorPool([Worker.remote(), Worker.remote()])
    assert list(pool.map(lambda actor, x: actor.double.remote(x), range(5))) == [0, 2, 4, 6, 8]
    assert sorted(pool.map_unordered(lambda actor, x: actor.double.remote(x), range(5))) == [0, 2, 4, 6, 8]


def test_map_gives_up_what_was_submitted_before():
    pool = ActorPool([Worker.remote(), Worker.remote()])
    pool.submit(lambda actor, x: actor.double.remote(x), 100)
    assert list(pool.map(lambda actor, x: actor.double.remote(x), [1, 2])) == [2, 4]


def test_map_does_not_wait_for_what_it_gives_up():
    pool = ActorPool([Worker.remote(), Worker.remote()])
    pool.submit(lambda actor, x: actor.slow.remote(x), 30)
    began = time.monotonic()
    results = pool.map(lambda actor, x: actor.double.remote(x), [1])
    assert time.monotonic() - began < 10
    assert pool.has_next()
    del results


def test_what_waits_for_an_actor_is_listed():
    pool = ActorPool([Worker.remote()])
    for n in range(3):
        pool.submit(lambda actor, x: actor.double.remote(x), n)
    assert len(pool._pending_submits) == 2
    assert [pool.get_next() for _ in range(3)] == [0, 2, 4]
    assert not pool.has_next()


def test_an_error_leaves_the_pool_usable():
    pool = ActorPool([Worker.remote()])
    pool.submit(lambda actor, x: actor.fail.remote(x), 1)
    pool.submit(lambda actor, x: actor.double.remote(x), 2)
    with pytest.raises(ValueError):
        pool.get_next()
    assert pool.get_next() == 4


def test_actors_are_pushed_and_popped():
    pool = ActorPool([Worker.remote()])
    assert pool.has_free()
    actor = pool.pop_idle()
    assert actor is not None
    assert pool.pop_idle() is None
    pool.push(actor)
    with pytest.raises(ValueError):
        pool.push(actor)


def _fail_at_one(x):
    if x == 1:
        raise ValueError("one")
    return x


def test_imap_returns_what_was_raised_and_goes_on():
    with Pool(2) as pool:
        results = list(pool.imap(_fail_at_one, range(3)))
        assert (results[0], results[2]) == (0, 2)
        assert isinstance(results[1], Exception)
        assert isinstance(results[1].underlying, ValueError)
        later = list(pool.imap_unordered(_fail_at_one, range(3)))
        assert sorted(result for result in later if not isinstance(result, Exception)) == [0, 2]


def test_map_raises():
    with Pool(2) as pool:
        with pytest.raises(ValueError):
            pool.map(_fail_at_one, range(3))
        assert pool.map(abs, [-1, -2]) == [1, 2]
        assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
        assert pool.apply(abs, (-3,)) == 3
