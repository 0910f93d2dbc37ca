"""What the constructor of an actor with async methods may lean on."""

from __future__ import annotations

import asyncio

import pytest
import ray
from oxiray._async_context import has_async_methods

pytestmark = pytest.mark.usefixtures("two_cpus")


def test_the_constructor_runs_in_the_loop_of_the_calls() -> None:
    @ray.remote
    class Server:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.opened = self.loop.create_future()
            self.loop.call_later(0.01, self.opened.set_result, "open")

        async def state(self) -> tuple[str, bool]:
            return await self.opened, self.loop is asyncio.get_running_loop()

    assert ray.get(Server.remote().state.remote(), timeout=20) == ("open", True)


def test_a_constructor_that_raises_ends_the_actor() -> None:
    @ray.remote
    class Failing:
        def __init__(self) -> None:
            raise LookupError("no such thing")

        async def state(self) -> None: ...

    with pytest.raises(ray.exceptions.ActorDiedError, match="no such thing"):
        ray.get(Failing.remote().state.remote(), timeout=20)


def test_a_constructor_without_a_loop_has_none() -> None:
    @ray.remote
    class Plain:
        def __init__(self) -> None:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()

        def state(self) -> str:
            return "made"

    assert ray.get(Plain.remote().state.remote(), timeout=20) == "made"


def test_a_constructor_may_be_async() -> None:
    @ray.remote
    class Later:
        async def __init__(self, answer: int) -> None:
            await asyncio.sleep(0)
            if answer < 0:
                raise LookupError("no such answer")
            self.answer = answer

        async def state(self) -> int:
            return self.answer

    assert ray.get(Later.remote(3).state.remote(), timeout=20) == 3
    with pytest.raises(ray.exceptions.ActorDiedError, match="no such answer"):
        ray.get(Later.remote(-1).state.remote(), timeout=20)


def test_calls_run_in_uvloops_loop_where_it_is_installed(tmp_path) -> None:
    (tmp_path / "uvloop.py").write_text(
        "import asyncio\nclass Loop(asyncio.SelectorEventLoop):\n    pass\ndef new_event_loop():\n    return Loop()\n"
    )

    @ray.remote(runtime_env={"env_vars": {"PYTHONPATH": str(tmp_path)}})
    class Server:
        async def loop(self) -> tuple[str, str]:
            kind = type(asyncio.get_running_loop())
            return kind.__module__, kind.__name__

    assert ray.get(Server.remote().loop.remote(), timeout=60) == ("uvloop", "Loop")


def test_an_actor_has_a_loop_for_any_async_method_that_it_has_in_the_end() -> None:
    class Base:
        async def call(self) -> int:
            return 1

    class Inherits(Base):
        pass

    class Overrides(Base):
        def call(self) -> int:
            return 2

    class Static:
        @staticmethod
        async def call() -> int:
            return 3

    class Yields:
        async def items(self):
            yield 4

    class OfTheClass:
        @classmethod
        async def call(cls) -> int:
            return 5

    found = [has_async_methods(cls) for cls in (Base, Inherits, Overrides, Static, Yields, OfTheClass)]
    assert found == [True, True, False, True, True, False], "as Ray's inspection of functions finds"
