"""What an `ObjectRef` tells of itself, and how its value is awaited."""

from __future__ import annotations

import asyncio
import threading

import pytest
import ray

pytestmark = pytest.mark.usefixtures("two_cpus")


@ray.remote
def identity(value):
    return value


@ray.remote
def fail():
    raise ValueError("no")


def test_names_and_numbers() -> None:
    reference = identity.remote(1)
    assert len(reference.binary()) == ray.ObjectRef.size() == 28
    assert ray.ObjectRef(reference.binary()) == reference and ray.get(ray.ObjectRef(reference.binary())) == 1
    assert reference.binary().startswith(reference.task_id().binary())
    assert reference.job_id().hex() == ray.get_runtime_context().get_job_id()
    assert reference.owner_address() and isinstance(reference.call_site(), str)
    assert not reference.is_nil() and ray.ObjectRef.nil().is_nil() and ray.ObjectRef.nil() != reference
    assert ray.ObjectRef.from_random() != ray.ObjectRef.from_random()
    assert ray.ObjectRef[int] and hash(reference) == hash(ray.ObjectRef(reference.binary()))
    with pytest.raises(ValueError, match="28"):
        ray.ObjectRef(b"short")


def test_futures_give_values_and_errors() -> None:
    assert identity.remote(3).future().result(timeout=20) == 3
    with pytest.raises(ValueError, match="no"):
        fail.remote().future().result(timeout=20)


def test_references_are_awaited_in_any_loop() -> None:
    async def program() -> list[int]:
        first = await identity.remote(1)
        rest = await asyncio.gather(*[identity.remote(number) for number in range(2, 5)])
        wrapped = await asyncio.wait_for(identity.remote(5).as_future(), 20)
        with pytest.raises(ValueError, match="no"):
            await fail.remote()
        return [first, *rest, wrapped]

    assert asyncio.run(program()) == asyncio.run(program()) == [1, 2, 3, 4, 5]
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(asyncio.run(program()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == [[1, 2, 3, 4, 5]] * 3


def test_put_refuses_what_ray_refuses() -> None:
    with pytest.raises(ValueError, match="_owner"):
        ray.put(1, _owner=object())
    with pytest.raises(TypeError):
        ray.put(ray.put(1))
