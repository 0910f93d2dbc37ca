"""`breakpoint()` in tasks and actors, what failed with RAY_DEBUG_POST_MORTEM=1, and `oxiray debug`."""

from __future__ import annotations

import bdb
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import ray
from oxiray import _debugger
from watching import wait_until

_PROGRAM = "import sys; sys.argv[0] = 'oxiray'; from oxiray._cli import main; main()"

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote
def stops(number: int) -> int:
    more = number + 1
    breakpoint()
    twice = more * 2
    return twice


def called(inner: int) -> int:
    return inner + 100


@ray.remote
def calls(number: int) -> int:
    breakpoint()
    first = called(number)
    return called(first)


@ray.remote
def fails(number: int) -> float:
    divisor = number - number
    return number / divisor


@ray.remote
class Counter:
    def __init__(self) -> None:
        self.count = 7

    def stops(self) -> int:
        from ray.util import pdb

        pdb.set_trace()
        return self.count

    async def stops_in_a_loop(self) -> int:
        breakpoint()
        return self.count


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, "debug", *words, "--address", ray.get_runtime_context().gcs_address]


def debug(*words: str, typed: str = "") -> tuple[int, str]:
    """Status and output of a terminal at which these lines are typed."""
    done = subprocess.run(command(*words), input=typed, capture_output=True, text=True, timeout=110, check=False)
    return done.returncode, done.stdout + done.stderr


def waiting() -> list[dict[str, Any]]:
    return [one for one in json.loads(debug("--json")[1]) if one["state"] == "waits"]


def stopped() -> dict[str, Any]:
    """The one process that has stopped."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = waiting()
        return len(found) == 1

    wait_until(is_there)
    return found[0]


def test_a_task_is_looked_into_changed_and_let_go_on() -> None:
    result = stops.remote(3)
    told = stopped()
    assert (told["name"], told["reason"], told["attached"]) == ("stops", "", False)
    assert told["task_id"] == result.task_id().hex() and told["node_id"] == ray.get_runtime_context().get_node_id()
    assert told["place"].startswith(__file__)
    listed = debug()[1]
    assert told["session"] in listed and f"pid {told['pid']}" in listed and "at a breakpoint" in listed
    status, shown = debug(told["session"], typed="p number, more\n!more = 50\n")
    assert status == 0 and "-> twice = more * 2" in shown and "(3, 4)" in shown
    # Whoever left comes back to what it was.
    assert "The process is as it was" in shown and not ray.wait([result], timeout=0)[0]
    status, shown = debug(told["session"][:6], typed="p more\nn\nc\n")
    assert status == 0 and "50" in shown and "-> return twice" in shown and shown.endswith("The process goes on.\n")
    assert ray.get(result, timeout=60) == 100
    wait_until(lambda: "No process has stopped." in debug()[1])


def test_a_stop_has_the_name_that_it_was_given() -> None:
    @ray.remote
    def named() -> int:
        from ray.util import pdb

        pdb.set_trace(breakpoint_uuid=b"mine")
        return 3

    result = named.remote()
    assert stopped()["session"] == "mine"
    # The name is taken: a second stop is found by what its task prints.
    second = _debugger._Session("here", "", "mine")
    assert second.identifier.startswith("mine-")
    second.end()
    assert debug("mine", typed="c\n")[0] == 0
    assert ray.get(result, timeout=60) == 3


def test_actors_stop_with_rays_names_and_in_their_loops() -> None:
    counter = Counter.remote()
    for call in (counter.stops, counter.stops_in_a_loop):
        result = call.remote()
        told = stopped()
        assert told["actor_id"] == counter._actor_id.hex()
        assert "-> return self.count" in debug(told["session"], typed="!self.count = 9\nc\n")[1]
        assert ray.get(result, timeout=60) == 9


def test_breakpoints_that_are_set_there_stop_it_again() -> None:
    result = calls.remote(1)
    told = stopped()
    typed = "b called\nc\np 'inner', inner\nc\np 'inner', inner\ncl 1\nc\n"
    status, shown = debug(told["session"], typed=typed)
    assert status == 0 and "('inner', 1)" in shown and "('inner', 101)" in shown, shown
    assert ray.get(result, timeout=60) == 201


def test_one_that_is_ended_by_the_debugger_fails() -> None:
    result = stops.options(max_retries=0).remote(1)
    debug(stopped()["session"], typed="q\n")
    with pytest.raises(bdb.BdbQuit):
        ray.get(result, timeout=60)


def test_what_failed_waits_where_it_failed() -> None:
    result = fails.options(runtime_env={"env_vars": {"RAY_DEBUG_POST_MORTEM": "1"}}).remote(3)
    told = stopped()
    assert told["reason"] == "raised ZeroDivisionError"
    status, shown = debug(told["session"], typed="p number, divisor\nc\n")
    assert status == 0 and "-> return number / divisor" in shown and "(3, 0)" in shown
    with pytest.raises(ZeroDivisionError):
        ray.get(result, timeout=60)
    # Without it nothing waits.
    with pytest.raises(ZeroDivisionError):
        ray.get(fails.remote(3), timeout=60)


def test_one_terminal_takes_it_from_another_and_the_process_may_be_killed() -> None:
    result = stops.options(max_retries=0).remote(1)
    told = stopped()
    pipe = subprocess.PIPE
    with subprocess.Popen(command(told["session"]), stdin=pipe, stdout=pipe, text=True) as first:
        assert first.stdout is not None and "test_debugger.py" in first.stdout.readline()
        with subprocess.Popen(command(told["session"]), stdin=pipe, stdout=pipe, text=True) as second:
            assert second.stdout is not None and "test_debugger.py" in second.stdout.readline()
            # What the first types goes nowhere.
            assert "Another terminal" in first.communicate("c\n", timeout=60)[0] and first.returncode == 1
            assert not ray.wait([result], timeout=0)[0]
            os.kill(told["pid"], signal.SIGKILL)
            assert "The process has ended." in second.communicate("p 1\n", timeout=60)[0] and second.returncode == 1
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(result, timeout=60)
    wait_until(lambda: json.loads(debug("--json")[1]) == [])


def test_a_session_that_is_not_there_is_told_of() -> None:
    status, told = debug("ffffffff")
    assert status == 1 and "ffffffff: no process waits there; `oxiray debug` lists those that there are" in told


def test_a_program_that_is_not_connected_is_debugged_where_it_runs() -> None:
    program = "from ray.util import pdb\nnumber = 7\npdb.set_trace()\nprint('goes on')\n"
    done = subprocess.run(
        [sys.executable, "-c", program], input="p number * 6\nc\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert "42" in done.stdout and done.stdout.endswith("goes on\n"), done


def test_pythons_own_variable_decides() -> None:
    environment = {"env_vars": {"PYTHONBREAKPOINT": "0"}}
    assert ray.get(stops.options(runtime_env=environment).remote(3), timeout=60) == 8
