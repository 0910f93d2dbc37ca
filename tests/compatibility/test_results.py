"""Results of calls: several of them, and those of generators."""

import numpy as np
import pytest
import ray

pytestmark = pytest.mark.usefixtures("session")


def test_what_was_yielded_before_an_error_stays():
    @ray.remote(num_returns=3)
    def generate():
        yield 1
        raise ValueError("after one")

    first, *others = generate.remote()
    assert ray.get(first) == 1
    for reference in others:
        with pytest.raises(ValueError, match="after one"):
            ray.get(reference)


def test_what_a_method_yielded_before_an_error_stays():
    @ray.remote
    class A:
        @ray.method(num_returns=2)
        def generate(self):
            yield np.zeros(10**6)
            raise ValueError("after one")

    first, second = A.remote().generate.remote()
    assert ray.get(first).shape == (10**6,)
    with pytest.raises(ValueError):
        ray.get(second)


def test_a_generator_that_yields_too_few():
    @ray.remote(num_returns=2)
    def generate():
        yield 1

    first, second = generate.remote()
    assert ray.get(first) == 1
    with pytest.raises(ValueError, match="Task returned 1 objects, but num_returns=2"):
        ray.get(second)


def test_a_generator_that_yields_too_many():
    @ray.remote(num_returns=2)
    def generate():
        yield from range(5)

    assert ray.get(generate.remote()) == [0, 1]


def test_dynamic_results_are_one_reference():
    @ray.remote(num_returns="dynamic")
    def generate(count):
        for index in range(count):
            yield index * np.ones(10)

    reference = generate.remote(3)
    assert isinstance(reference, ray.ObjectRef)
    generator = ray.get(reference)
    assert len(generator) == 3
    assert [ray.get(item)[0] for item in generator] == [0, 1, 2]
    assert isinstance(generator, ray._raylet.DynamicObjectRefGenerator)


def test_dynamic_results_asked_for_by_the_call():
    @ray.remote
    def generate():
        yield 1
        yield 2

    generator = ray.get(generate.options(num_returns="dynamic").remote())
    assert ray.get(list(generator)) == [1, 2]


def test_dynamic_results_before_an_error_stay():
    @ray.remote(num_returns="dynamic")
    def generate():
        yield 1
        raise ValueError("after one")

    generator = ray.get(generate.remote())
    first, last = list(generator)
    assert ray.get(first) == 1
    with pytest.raises(ValueError, match="after one"):
        ray.get(last)


def test_dynamic_results_as_an_argument():
    @ray.remote(num_returns="dynamic")
    def generate():
        yield from range(4)

    @ray.remote
    def total(generator):
        return sum(ray.get(list(generator)))

    assert ray.get(total.remote(generate.remote())) == 6


def test_dynamic_results_of_a_method():
    @ray.remote
    class A:
        def generate(self, count):
            yield from range(count)

    reference = A.remote().generate.options(num_returns="dynamic").remote(3)
    assert ray.get(list(ray.get(reference))) == [0, 1, 2]


def test_dynamic_results_of_a_function_that_does_not_yield_are_refused():
    with pytest.raises(ValueError, match="can only be used with generator"):

        @ray.remote(num_returns="dynamic")
        def plain():
            return 1

        plain.remote()


def test_a_plain_method_of_an_async_actor_hands_out_references():
    @ray.remote
    class Async:
        async def wait(self):
            pass

        def make(self):
            return ray.put("inner")

    reference = ray.get(Async.remote().make.remote())
    assert isinstance(reference, ray.ObjectRef)
    assert ray.get(reference) == "inner"


def test_an_async_method_awaits_what_it_awaits_itself():
    @ray.remote
    class Async:
        async def make(self):
            return ray.put("inner")

        async def value(self, references):
            return await references[0]

    actor = Async.remote()
    reference = ray.get(actor.make.remote())
    assert isinstance(reference, ray.ObjectRef)
    assert ray.get(actor.value.remote([reference])) == "inner"


def test_no_results():
    @ray.remote(num_returns=0)
    def nothing():
        pass

    assert nothing.remote() is None


def test_several_results():
    @ray.remote(num_returns=3)
    def three():
        return 1, 2, 3

    references = three.remote()
    assert len(references) == 3
    assert ray.get(references) == [1, 2, 3]
