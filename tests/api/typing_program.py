"""A small program whose types `mypy --strict` must understand; run it, and it also works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import oxiray as ray
from oxiray.dag import FunctionNode
from oxiray.exceptions import GetTimeoutError, RayTaskError
from oxiray.util.accelerators import NVIDIA_H100

if TYPE_CHECKING:
    from typing_extensions import assert_type


@ray.remote
def double(x: int) -> int:
    """A decorator without arguments."""
    return 2 * x


@ray.remote(num_cpus=1, max_retries=0, resources={"slot": 0.5})
def name_of(x: int, *, prefix: str = "n") -> str:
    """A decorator with arguments."""
    return f"{prefix}{x}"


@ray.remote
def numbers(count: int) -> Iterator[int]:
    """Results that come one by one."""
    yield from range(count)


@ray.remote(num_cpus=1)
async def letters(text: str) -> AsyncIterator[str]:
    """Those of an async generator."""
    for letter in text:
        yield letter


@ray.remote(num_returns=2)
def pair() -> tuple[int, str]:
    """Two references."""
    return 1, "a"


class CounterObject:
    """What the actor below holds."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int) -> int:
        """Add and return."""
        self.value += amount
        return self.value

    @ray.method(num_returns=1)
    def read(self) -> int:
        """Return."""
        return self.value


# Type checkers other than mypy also understand `@ray.remote` over a class; mypy
# leaves a class its own type under any decorator, so there the call is spelled out.
Counter = ray.remote(CounterObject)
Busy = ray.remote(num_cpus=0, max_concurrency=4)(CounterObject)


def check_types() -> None:
    """What the stubs promise; never called."""
    ref = double.remote(3)
    chained = double.remote(ref)
    text = name_of.remote(1, prefix="m")
    counter = Counter.remote(5)
    if TYPE_CHECKING:
        assert_type(ref, ray.ObjectRef[int])
        assert_type(chained, ray.ObjectRef[int])
        assert_type(text, ray.ObjectRef[str])
        assert_type(numbers.remote(3), ray.ObjectRefGenerator[int])
        assert_type(next(letters.remote("ab")), ray.ObjectRef[str])
        assert_type(ray.get(next(numbers.remote(3))), int)
        assert_type(ray.get(ref), int)
        assert_type(ray.get([text, text]), list[str])
        assert_type(ray.put({"a": 1}), ray.ObjectRef[dict[str, int]])
        assert_type(ray.wait([ref], timeout=1.0), tuple[list[ray.ObjectRef[int]], list[ray.ObjectRef[int]]])
        assert_type(double.options(num_gpus=0.5, accelerator_type=NVIDIA_H100).remote(1), ray.ObjectRef[int])
        assert_type(Counter, ray.ActorClass[CounterObject])
        assert_type(counter, ray.ActorHandle[CounterObject])
        assert_type(counter.add.remote(1), ray.ObjectRef[Any])
        assert_type(Busy.options(name="n", lifetime="detached").remote().read, ray.ActorMethod)
        assert_type(double.bind(1), FunctionNode)
        assert_type(ray.cluster_resources(), dict[str, float])
        assert_type(ray.get_runtime_context().get_accelerator_ids(), dict[str, list[str]])


def main() -> None:
    """Run the program."""
    ray.init(num_cpus=2, resources={"slot": 1})
    assert ray.get(double.remote(double.remote(1))) == 4
    assert ray.get(name_of.remote(7, prefix="p")) == "p7"
    assert [ray.get(number) for number in numbers.remote(3)] == [0, 1, 2]
    assert "".join(ray.get(letter) for letter in letters.remote("ab")) == "ab"
    first, second = pair.remote()
    assert ray.get([first, second]) == [1, "a"]
    counter = Counter.remote(1)
    assert ray.get([counter.add.remote(2), counter.read.remote()]) == [3, 3]
    with_timeout: int = ray.get(ray.put(1), timeout=5)
    assert with_timeout == 1
    try:
        ray.get(double.remote(ray.put("wrong").future().result(timeout=5)))  # type: ignore[call-overload]
    except (GetTimeoutError, RayTaskError) as error:
        raise AssertionError("a doubled string is no error") from error
    ray.shutdown()


if __name__ == "__main__":
    main()
