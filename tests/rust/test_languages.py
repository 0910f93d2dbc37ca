"""Python calls a Rust program's functions and actors, and the reverse; two drivers share an actor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import homes
import numpy
import pytest
import ray
from oxiray import rust

#: How long an answer may take on a machine that is busy with other things, in seconds.
LIMIT = 120.0


@pytest.fixture(scope="module")
def program(languages: Path) -> Iterator[rust.Program]:
    ray.shutdown()
    ray.init(num_cpus=2)
    yield rust.program(languages)
    ray.shutdown()


def test_python_calls_a_rust_function(program: rust.Program) -> None:
    add = program.function("add")
    assert ray.get([add.remote(1, 2), program.function("languages::add").remote(20, 22)], timeout=LIMIT) == [3, 42]
    # References are waited for where it runs, and those inside of a list arrive as such.
    parts = [add.remote(n, n) for n in range(5)]
    assert ray.get(add.remote(parts[1], parts[2]), timeout=LIMIT) == 6
    assert ray.get(program.function("total").remote(parts), timeout=LIMIT) == 20


def test_values_arrive_and_come_back_as_they_went(program: rust.Program) -> None:
    array = numpy.arange(60_000, dtype="f8").reshape(200, 300)
    sent: list[Any] = [None, True, -(2**63), 0.5, "naïve", b"\0\xff" * 500, [1, 2], {"a": 1.5}, array]
    came = ray.get(program.function("everything").remote(sent), timeout=LIMIT)
    assert came[:8] == sent[:8]
    assert came[8].dtype == array.dtype and (came[8] == array).all()
    point = {"x": 1.0, "y": 2.0, "name": None}
    assert ray.get(program.function("mirrored").remote(point), timeout=LIMIT) == {"x": 2.0, "y": 1.0, "name": None}


def test_a_kept_array_is_read_in_place(program: rust.Program) -> None:
    kept = rust.put(numpy.ones((1000, 1000)))
    assert ray.get(program.function("sum").remote(kept), timeout=LIMIT) == 1e6
    assert not ray.get(kept).flags.owndata


def test_errors_cross_with_message_and_origin(program: rust.Program) -> None:
    with pytest.raises(ray.exceptions.CrossLanguageError, match="no luck") as raised:
        ray.get(program.function("refuse").remote("no luck"), timeout=LIMIT)
    assert isinstance(raised.value, ray.exceptions.RayTaskError)
    assert raised.value.function_name == "refuse"
    with pytest.raises(ray.exceptions.CrossLanguageError, match=r"panic: it broke down[^$]*languages\.rs"):
        ray.get(program.function("break_down").remote(), timeout=LIMIT)
    with pytest.raises(ray.exceptions.CrossLanguageError, match="argument `a`.*no i64"):
        ray.get(program.function("add").remote("one", 2), timeout=LIMIT)
    with pytest.raises(ray.exceptions.CrossLanguageError, match="3 arguments came, and the function takes 2"):
        ray.get(program.function("add").remote(1, 2, 3), timeout=LIMIT)
    with pytest.raises(ray.exceptions.CrossLanguageError, match="no remote function or actor `subtract`.*languages::add"):
        ray.get(program.function("subtract").remote(1, 2), timeout=LIMIT)
    with pytest.raises(TypeError, match="set is none of these"):
        program.function("refuse").remote({1, 2})
    with pytest.raises(ValueError, match="no program that can be run"):
        rust.program("/nowhere/at/all")


def test_what_fails_in_rust_is_retried_where_that_is_asked_for(program: rust.Program) -> None:
    tally, climbed = program.actor("Tally").remote(0), program.function("climbed")
    retried = climbed.options(retry_exceptions=True, max_retries=2)
    assert ray.get(retried.remote(tally, 3), timeout=LIMIT) == 3
    with pytest.raises(ray.exceptions.CrossLanguageError, match="6 is not 9"):
        ray.get(retried.remote(tally, 9), timeout=LIMIT)
    with pytest.raises(ray.exceptions.CrossLanguageError, match="7 is not 9"):
        ray.get(climbed.remote(tally, 9), timeout=LIMIT)
    in_place = tally.climb.options(retry_exceptions=True, max_task_retries=1)
    assert ray.get(in_place.remote(9), timeout=LIMIT) == 9
    with pytest.raises(ray.exceptions.CrossLanguageError, match="11 is not 20"):
        ray.get(in_place.remote(20), timeout=LIMIT)
    for failing in (climbed, tally.climb):
        with pytest.raises(ValueError, match="names ValueError.*retry_exceptions=True"):
            failing.options(retry_exceptions=[ValueError]).remote(tally, 1)


def test_a_folder_goes_with_a_rust_function(program: rust.Program, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("shipped")
    words = program.function("words")
    there = words.options(runtime_env={"working_dir": str(tmp_path)})
    assert ray.get(there.remote("words.txt"), timeout=LIMIT) == "shipped"
    with pytest.raises(ray.exceptions.CrossLanguageError):
        ray.get(words.remote("words.txt"), timeout=LIMIT)
    with pytest.raises(ValueError, match="'pip'.*takes.*working_dir"):
        words.options(runtime_env={"pip": ["pyparsing"]}).remote("words.txt")


def test_python_makes_a_rust_actor(program: rust.Program) -> None:
    tally = program.actor("Tally").options(name="tally").remote(10)
    assert [ray.get(tally.add.remote(n), timeout=LIMIT) for n in (1, 2)] == [11, 13]
    assert ray.get(ray.get_actor("tally").add.remote(1), timeout=LIMIT) == 14
    ray.kill(tally)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(tally.add.remote(1), timeout=LIMIT)
    refused = program.actor("Tally").remote(-1)
    with pytest.raises(ray.exceptions.RayError, match="starts at 0 or above"):
        ray.get(refused.add.remote(1), timeout=LIMIT)


def test_rust_yields_and_has_several_results(program: rust.Program) -> None:
    squares = program.function("squares").options(num_returns="streaming")
    assert [ray.get(item, timeout=LIMIT) for item in squares.remote(4)] == [0, 1, 4, 9]
    # What comes too late is an error in its place, after what came before.
    items = squares.remote(65_537)
    first = [next(items) for _ in range(65_536)]
    assert ray.get(first[-1], timeout=LIMIT) == 65_535**2
    with pytest.raises(ray.exceptions.CrossLanguageError, match="65536 squared is too large"):
        ray.get(next(items), timeout=LIMIT)
    with pytest.raises(StopIteration):
        next(items)
    quotient, rest = program.function("divided").options(num_returns=2).remote(7, 2)
    assert ray.get([quotient, rest], timeout=LIMIT) == [3, 1]
    assert ray.get(program.function("divided").remote(7, 2), timeout=LIMIT) == [3, 1]
    tally = program.actor("Tally").remote(0)
    steps = tally.steps.options(num_returns="streaming").remote(5, 3)
    assert [ray.get(item, timeout=LIMIT) for item in steps] == [b"5", b"10", b"15"]
    assert ray.get(tally.both.options(num_returns=2).remote(), timeout=LIMIT) == [15, True]
    for wrong, told in [
        (program.function("squares").remote(3), 'num_returns="streaming"'),
        (program.function("divided").options(num_returns=3).remote(7, 2)[0], "3 results were asked for.*a list of 2"),
        (next(program.function("add").options(num_returns="streaming").remote(1, 2)), "returns one value"),
    ]:
        with pytest.raises(ray.exceptions.CrossLanguageError, match=told):
            ray.get(wrong, timeout=LIMIT)


@ray.remote
class Adder:
    """An actor of Python's that Rust is handed."""

    def __init__(self) -> None:
        self._sum = 100

    def add(self, number: int) -> int:
        """One more."""
        self._sum += number
        return self._sum

    @ray.method(num_returns=2)
    def both(self) -> tuple[int, str]:
        """Two results."""
        return self._sum, "of python"


def test_handles_of_actors_cross(program: rust.Program) -> None:
    add_with = program.function("add_with")
    adder = Adder.remote()
    assert ray.get(add_with.remote(adder, 1), timeout=LIMIT) == 101
    assert ray.get(adder.both.remote(), timeout=LIMIT) == [101, "of python"]
    # Made in Rust, held by nobody but this handle once the function has returned.
    tally, total = ray.get(program.function("tally_of").remote([1, 2, 3]), timeout=LIMIT)
    assert isinstance(tally, ray.actor.ActorHandle) and total == 6
    assert ray.get(tally.add.remote(4), timeout=LIMIT) == 10
    assert ray.get(program.function("double_of").remote(tally), timeout=LIMIT) == 20
    assert ray.get(add_with.remote(tally, 1), timeout=LIMIT) == 21
    # Part of a value that is kept.
    kept = rust.put([adder])
    handed = ray.get(kept, timeout=LIMIT)[0]
    assert handed == adder and ray.get(handed.both.remote(), timeout=LIMIT) == [101, "of python"]


def test_a_plain_value_of_pythons_is_refused_in_words(program: rust.Program) -> None:
    with pytest.raises(ray.exceptions.CrossLanguageError, match="written by Python for Python"):
        ray.get(program.function("add").remote(ray.put(1), 2), timeout=LIMIT)


def test_rust_calls_python(languages: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "OXIRAY_TMPDIR": str(tmp_path),
        "OXIRAY_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parent),
    }
    done = subprocess.run(
        [languages, "python"], env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "joined: int=1 str=two float=3.5 bool=True NoneType=None",
        "scaled: [2, 2] [10.0, 20.0, 30.0, 40.0]",
        'moved: Point { x: 6.0, y: 2.0, name: Some("corner") }',
        "unread: true",
        "raised: KeyError: 'no luck' in raises (python)",
        "traced: true",
        'basket: ["apple", "pear"]',
        "rows: [0.0, 100000.0, 200000.0]",
        'yielded: ["apple", "pear"]',
        "parted: 1 [2, 3]",
        "broke off: after Some(1), ValueError: no more",
        "added there: 7",
        "climbed there: 10",
        'made there: ["plum"]',
    ]


#: Adds ten to an actor of Rust's, once for each line that it reads.
DRIVER = """
import sys
import ray
ray.init(address="auto", namespace="shared", log_to_driver=False)
tally = ray.get_actor("tally")
print("python:", ray.get(tally.add.remote(10)), flush=True)
for line in sys.stdin:
    print("python:", ray.get(tally.add.remote(10)), flush=True)
"""

#: The same with an actor of Python's, which it makes where it is not there yet.
LEDGER = """
import sys
import ray
ray.init(address="auto", namespace="shared", log_to_driver=False)

@ray.remote
class Ledger:
    def __init__(self):
        self.sum = 0

    def add(self, number):
        self.sum += number
        return self.sum

ledger = Ledger.options(name="ledger", lifetime="detached", get_if_exists=True).remote()
print("python:", ray.get(ledger.add.remote(10)), flush=True)
for line in sys.stdin:
    print("python:", ray.get(ledger.add.remote(10)), flush=True)
"""


class Driver:
    """A program on the cluster that acts once for each line it is given."""

    def __init__(self, home: homes.Home, *command: str | Path) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=home.environment, stdin=pipe, stdout=pipe, text=True)

    def says(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def act(self) -> str:
        """Has it act once more; what it says of that."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.says()

    def kill(self) -> None:
        """Kills it, as nothing can be prepared for."""
        self._process.kill()
        self._process.wait()


class Drivers:
    """Programs of both languages on one cluster of their own."""

    def __init__(self, folder: Path) -> None:
        self._home = homes.Home(folder)
        self._begun: list[Driver] = []

    def __enter__(self) -> Drivers:
        started = self._home.oxiray("start", "--head", "--num-cpus=2", f"--port={self._home.port}")
        assert started.returncode == 0, started.stderr
        return self

    def begin(self, *command: str | Path) -> Driver:
        """One more."""
        self._begun.append(Driver(self._home, *command))
        return self._begun[-1]

    def __exit__(self, *_: object) -> None:
        for driver in self._begun:
            driver.kill()
        assert self._home.oxiray("stop").returncode == 0


def test_two_drivers_share_an_actor_of_rusts_and_outlive_each_other(languages: Path, tmp_path: Path) -> None:
    with Drivers(tmp_path) as drivers:
        in_rust = drivers.begin(languages, "share")
        assert in_rust.says() == "rust: 1"
        in_python = drivers.begin(sys.executable, "-c", DRIVER)
        assert in_python.says() == "python: 11"
        assert in_rust.act() == "rust: 12"
        in_rust.kill()
        assert in_python.act() == "python: 22"
        again = drivers.begin(languages, "share")
        assert again.says() == "rust: 23"
        in_python.kill()
        assert again.act() == "rust: 24"


def test_two_drivers_share_an_actor_of_pythons_and_outlive_each_other(languages: Path, tmp_path: Path) -> None:
    with Drivers(tmp_path) as drivers:
        in_python = drivers.begin(sys.executable, "-c", LEDGER)
        assert in_python.says() == "python: 10"
        in_rust = drivers.begin(languages, "join")
        assert in_rust.says() == "rust: 11"
        in_python.kill()
        assert in_rust.act() == "rust: 12"
        again = drivers.begin(sys.executable, "-c", LEDGER)
        assert again.says() == "python: 22"
        in_rust.kill()
        assert again.act() == "python: 32"
