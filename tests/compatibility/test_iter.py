"""Parallel iterators and groups of actors: `ray.util.iter` and `ray.util.actor_group`, which are deprecated."""

import collections

import pytest
import ray
from ray.util.iter import LocalIterator, ParallelIteratorWorker, from_actors, from_items, from_iterators, from_range

pytestmark = pytest.mark.usefixtures("session")


def test_items_are_dealt_out():
    it = from_items([1, 2, 3, 4])
    assert repr(it) == "ParallelIterator[from_items[int, 4, shards=2]]"
    assert list(it.gather_sync()) == [1, 2, 3, 4]
    assert next(it.gather_sync()) == 1
    assert it.take(3) == [1, 2, 3]


def test_ranges_are_cut():
    it = from_range(4)
    assert repr(it) == "ParallelIterator[from_range[4, shards=2]]"
    assert list(it.gather_sync()) == [0, 2, 1, 3]


def test_iterators_of_iterables_and_functions():
    it = from_iterators([range(2), range(2)])
    assert repr(it) == "ParallelIterator[from_iterators[shards=2]]"
    assert list(it.gather_sync()) == [0, 0, 1, 1]
    assert list(from_iterators([lambda: range(2), lambda: range(2)]).gather_sync()) == [0, 0, 1, 1]


def test_iterators_of_actors():
    @ray.remote(num_cpus=0)
    class Custom(ParallelIteratorWorker):
        def __init__(self, data):
            ParallelIteratorWorker.__init__(self, data, False)

    it = from_actors([Custom.remote([1, 2]), Custom.remote([3, 4])])
    assert repr(it) == "ParallelIterator[from_actors[shards=2]]"
    assert list(it.gather_sync()) == [1, 3, 2, 4]


def test_transformations():
    it = from_items([1, 2, 3, 4]).for_each(lambda x: x * 2).filter(lambda x: x > 2)
    assert repr(it) == "ParallelIterator[from_items[int, 4, shards=2].for_each().filter()]"
    assert sorted(it.gather_sync()) == [4, 6, 8]
    assert list(from_range(4, 1).batch(2).gather_sync()) == [[0, 1], [2, 3]]
    assert list(from_items([[1, 2], [3, 4]], 1).flatten().gather_sync()) == [1, 2, 3, 4]
    assert list(from_items([1, 2], 1).combine(lambda x: [x, x]).gather_sync()) == [1, 1, 2, 2]


def test_gathered_as_they_come():
    assert sorted(from_items([1, 2, 3, 4]).gather_async()) == [1, 2, 3, 4]
    assert sorted(from_range(100).gather_async(batch_ms=5, num_async=2)) == list(range(100))
    with pytest.raises(ValueError):
        list(from_range(2).gather_async(num_async=0))


def test_batches_across_shards():
    assert list(from_iterators([[0, 1], [2, 3]]).batch_across_shards()) == [[0, 2], [1, 3]]


def test_repartitioned():
    it = from_range(12, 2).repartition(3)
    assert it.num_shards() == 3
    assert sorted(it.gather_sync()) == list(range(12))


def test_shards():
    it = from_items([1, 2, 3, 4])
    assert it.num_shards() == 2
    assert [list(shard) for shard in it.shards()] == [[1, 3], [2, 4]]
    assert list(it.get_shard(1)) == [2, 4]
    assert list(it.select_shards([1]).gather_sync()) == [2, 4]
    assert list(it.select_shards([1, 0]).gather_sync()) == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="at least one shard must be selected"):
        it.select_shards([])


def test_times_of_batches_are_not_below_zero():
    it = from_items([1, 2])
    for read in (lambda: it.gather_async(batch_ms=-1), lambda: it.get_shard(0, batch_ms=-1)):
        with pytest.raises(ValueError, match="batch time must be positive"):
            read()


def test_unions():
    it = from_items([1, 2], 1).union(from_items([3, 4], 1))
    assert sorted(it.gather_sync()) == [1, 2, 3, 4]
    first, second = from_items([1, 2], 1).gather_sync(), from_items([3, 4], 1).gather_sync()
    assert sorted(first.union(second)) == [1, 2, 3, 4]


def test_unions_by_weight():
    def read(items):
        return from_items(items, 1).gather_sync()

    assert list(read([1, 2, 3, 4]).union(read([5, 6]), round_robin_weights=[2, 1])) == [1, 2, 5, 3, 4, 6]
    halves = list(read([1, 2, 3]).union(read([4, 5, 6]), round_robin_weights=[0.5, 1]))
    assert sorted(halves) == [1, 2, 3, 4, 5, 6] and [one for one in halves if one > 3] == [4, 5, 6]
    with pytest.raises(ValueError, match="Length of round robin weights must equal number of iterators total"):
        read([1]).union(read([2]), read([3]), round_robin_weights=[1, 2])


def test_local_transformations():
    it = from_range(4, 1).gather_sync().for_each(lambda x: x + 1)
    assert isinstance(it, LocalIterator)
    assert it.take(2) == [1, 2]
    assert list(from_range(6, 1).gather_sync().batch(4)) == [[0, 1, 2, 3], [4, 5]]


def test_local_shuffles_keep_the_items():
    it = from_range(20, 2).local_shuffle(shuffle_buffer_size=5, seed=1)
    assert "local_shuffle(shuffle_buffer_size=5, seed=1)" in repr(it)
    assert sorted(it.gather_sync()) == list(range(20))


def test_the_source_of_an_item():
    counted = collections.Counter(actor for actor, _ in from_range(10, 2).gather_async().zip_with_source_actor())
    assert sorted(counted.values()) == [5, 5]


def test_a_parallel_iterator_is_not_iterated_itself():
    with pytest.raises(TypeError, match="You must use it.gather_sync"):
        list(from_range(2))


def test_items_that_repeat():
    it = from_range(2, 1, repeat=True)
    assert it.take(5) == [0, 1, 0, 1, 0]


class Member:
    def __init__(self, start=0):
        self.value = start

    def add(self, n):
        self.value += n
        return self.value


def test_a_group_of_actors_is_called_together():
    from ray.util.actor_group import ActorGroup

    group = ActorGroup(Member, num_actors=2, num_cpus_per_actor=0, init_args=(10,))
    assert len(group) == 2
    assert ray.get(group.add.remote(1)) == [11, 11]
    assert ray.get(group[0].actor.add.remote(1)) == 12
    assert group.actor_metadata == [None, None]
    group.remove_actors([0])
    assert len(group) == 1
    group.shutdown()
    assert len(group) == 0


def test_a_group_of_no_actors_is_refused():
    from ray.util.actor_group import ActorGroup

    with pytest.raises(ValueError):
        ActorGroup(Member, num_actors=-1)
    with pytest.raises(ValueError):
        ActorGroup(Member, num_actors=1, num_cpus_per_actor=-1)
