"""Programs as files: what a script says, leaves behind, and shares with other scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., Any]
INIT = "import os, sys, time\nimport ray\nray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level='ERROR')\n"


def printed(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_script_without_init_connects_by_its_first_call(run_program: Run) -> None:
    program = """
import ray

@ray.remote
def f():
    return 5

print(ray.is_initialized(), ray.get(f.remote()), ray.is_initialized())
"""
    assert printed(run_program(program)) == ["False", "5", "True"]


def test_classes_and_functions_of_the_main_module_travel(run_program: Run) -> None:
    program = (
        INIT
        + """
class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Point) and self.x == other.x

def helper(point):
    return Point(point.x + STEP)

STEP = 3

@ray.remote
def move(point):
    return helper(point)

print(ray.get(move.remote(Point(1))) == Point(4))
print(ray.get(move.remote(Point(1))).__class__ is Point)
"""
    )
    assert printed(run_program(program)) == ["True", "True"]


def test_a_module_beside_the_script_is_imported_by_tasks(tmp_path: Path) -> None:
    (tmp_path / "beside_the_script.py").write_text("class Value:\n    number = 9\n\ndef get():\n    return Value()\n")
    script = tmp_path / "script.py"
    script.write_text(INIT + "import beside_the_script\nprint(ray.get(ray.remote(beside_the_script.get).remote()).number)\n")
    done = subprocess.run([sys.executable, str(script)], cwd="/", capture_output=True, text=True, timeout=100, check=False)
    assert printed(done) == ["9"]


def test_a_script_read_from_a_pipe_runs() -> None:
    program = INIT + "@ray.remote\ndef f(): return 3\nprint(ray.get(f.remote()))\n"
    done = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, timeout=100, check=False)
    assert printed(done) == ["3"]


def test_a_script_run_as_a_module_runs(tmp_path: Path) -> None:
    (tmp_path / "as_module.py").write_text(INIT + "@ray.remote\ndef f(): return __name__\nprint(ray.get(f.remote()))\n")
    done = subprocess.run(
        [sys.executable, "-m", "as_module"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert printed(done) == ["__main__"]


def test_the_guard_of_the_main_module_keeps_workers_out(run_program: Run) -> None:
    program = """
import ray

@ray.remote
def f():
    return 1

def main():
    print("main")
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    print(ray.get(f.remote()))

if __name__ == "__main__":
    main()
"""
    assert printed(run_program(program)) == ["main", "1"]


def test_an_exception_of_the_script_ends_it_with_status_one(run_program: Run) -> None:
    done = run_program(INIT + "@ray.remote\ndef f(): raise ValueError('of the task')\nray.get(f.remote())\n")
    assert done.returncode == 1
    assert "ValueError: of the task" in done.stderr
    assert "ray.exceptions.RayTaskError(ValueError)" in done.stderr


def test_sys_exit_of_the_script_has_its_status(run_program: Run) -> None:
    assert run_program(INIT + "ray.put(1)\nsys.exit(7)\n").returncode == 7


def test_init_after_shutdown_is_a_new_cluster(run_program: Run) -> None:
    program = (
        INIT
        + """
@ray.remote
def f(): return os.getpid()
first = ray.get(f.remote())
job = ray.get_runtime_context().get_job_id()
ray.shutdown()
print(ray.is_initialized())
ray.init(num_cpus=1, include_dashboard=False, logging_level='ERROR')
print(ray.get(f.remote()) != first, ray.cluster_resources()["CPU"])
"""
    )
    assert printed(run_program(program)) == ["False", "True", "1.0"]


def test_actor_classes_are_used_again_after_a_new_init(run_program: Run) -> None:
    program = (
        INIT
        + """
@ray.remote
class A:
    def f(self): return 4
print(ray.get(A.remote().f.remote()))
ray.shutdown()
ray.init(num_cpus=1, include_dashboard=False, logging_level='ERROR')
print(ray.get(A.remote().f.remote()))
"""
    )
    assert printed(run_program(program)) == ["4", "4"]


def test_atexit_of_the_script_may_still_call(run_program: Run) -> None:
    program = (
        "import atexit\n"
        + INIT
        + """
@ray.remote
def f(): return "late"
atexit.register(lambda: print(ray.get(f.remote())))
print("end")
"""
    )
    assert printed(run_program(program)) == ["end", "late"]


def test_a_thread_may_be_the_first_to_call(run_program: Run) -> None:
    program = (
        "import threading\n"
        + INIT
        + """
@ray.remote
def f(): return 6
thread = threading.Thread(target=lambda: print(ray.get(f.remote())))
thread.start()
thread.join()
"""
    )
    assert printed(run_program(program)) == ["6"]


def test_asyncio_run_is_the_whole_script(run_program: Run) -> None:
    program = (
        "import asyncio\n"
        + INIT
        + """
@ray.remote
class A:
    async def f(self, x):
        await asyncio.sleep(0)
        return x

async def main():
    a = A.remote()
    print(await a.f.remote(1))
    print(*await asyncio.gather(*[a.f.remote(x) for x in range(3)]))
    async for reference in stream.remote():
        print(await reference)

@ray.remote
def stream():
    yield "streamed"

asyncio.run(main())
"""
    )
    assert printed(run_program(program)) == ["1", "0", "1", "2", "streamed"]


def test_what_tasks_print_reaches_the_script(run_program: Run) -> None:
    program = """
import ray, time, sys
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")

@ray.remote
def f():
    print("to stdout")
    print("to stderr", file=sys.stderr)

ray.get(f.remote())
time.sleep(1)
"""
    done = run_program(program)
    assert "to stdout" in done.stdout + done.stderr
    assert "to stderr" in done.stderr + done.stdout


def test_scripts_share_a_named_actor(start: Start, run_program: Run) -> None:
    address = start(num_cpus=2, namespace="scripts")["address"]
    program = f"""
import ray
ray.init(address={address!r}, namespace="scripts", logging_level="ERROR")

@ray.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.value = 0

    def add(self):
        self.value += 1
        return self.value

counter = Counter.options(name="counter", get_if_exists=True, lifetime="detached").remote()
print(ray.get(counter.add.remote()))
"""
    assert [printed(run_program(program)) for _ in range(3)] == [["1"], ["2"], ["3"]]
    ray.kill(ray.get_actor("counter"))


def test_scripts_without_a_namespace_are_apart(start: Start, run_program: Run) -> None:
    address = start(num_cpus=2)["address"]
    program = f"""
import ray
ray.init(address={address!r}, logging_level="ERROR")

@ray.remote(num_cpus=0)
class A:
    def f(self): pass

A.options(name="same", lifetime="detached").remote()
print("namespace", len(ray.get_runtime_context().namespace))
"""
    for _ in range(2):
        assert "namespace 36" in " ".join(printed(run_program(program)))
    found = [one for one in ray.util.list_named_actors(all_namespaces=True) if one["name"] == "same"]
    assert len(found) == 2


def test_each_script_is_a_job_of_its_own(start: Start, run_program: Run) -> None:
    address = start(num_cpus=2)["address"]
    program = (
        f"import ray\nray.init(address={address!r}, logging_level='ERROR')\nprint(ray.get_runtime_context().get_job_id())\n"
    )
    jobs = [printed(run_program(program))[0] for _ in range(2)]
    assert len({*jobs, ray.get_runtime_context().get_job_id()}) == 3


def test_objects_of_a_detached_actor_outlive_the_script(start: Start, run_program: Run) -> None:
    address = start(num_cpus=2, namespace="scripts")["address"]
    program = f"""
import numpy, ray
ray.init(address={address!r}, namespace="scripts", logging_level="ERROR")

@ray.remote(num_cpus=0)
class Keeper:
    def __init__(self):
        self.kept = ray.put(numpy.arange(200000))

    def get(self):
        return [self.kept]

keeper = Keeper.options(name="keeper", lifetime="detached").remote()
ray.get(keeper.get.remote())
"""
    printed(run_program(program))
    keeper = ray.get_actor("keeper")
    assert int(ray.get(ray.get(keeper.get.remote())[0])[-1]) == 199_999
    ray.kill(keeper)


def test_tasks_of_a_script_end_with_it(start: Start, run_program: Run, tmp_path: Path, eventually: Any) -> None:
    address = start(num_cpus=2)["address"]
    program = f"""
import os, time, ray
ray.init(address={address!r}, logging_level="ERROR")

@ray.remote
def forever(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)

forever.remote({str(tmp_path / "pid")!r})
while not os.path.exists({str(tmp_path / "pid")!r}) or not open({str(tmp_path / "pid")!r}).read():
    time.sleep(0.01)
"""
    printed(run_program(program))
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_detached_group_outlives_the_script(start: Start, run_program: Run) -> None:
    address = start(num_cpus=2, namespace="scripts")["address"]
    program = f"""
import ray
ray.init(address={address!r}, namespace="scripts", logging_level="ERROR")
group = ray.util.placement_group([{{"CPU": 1}}], name="kept", lifetime={{lifetime}})
print(group.wait(30))
"""
    assert printed(run_program(program.replace("{lifetime}", "'detached'"))) == ["True"]
    group = ray.util.get_placement_group("kept")
    assert ray.util.placement_group_table(group)["state"] == "CREATED"
    ray.util.remove_placement_group(group)


def test_a_driver_in_a_child_process_joins_the_cluster(start: Start) -> None:
    address = start(num_cpus=2)["address"]
    program = f"import ray; ray.init(address={address!r}, logging_level='ERROR'); print(ray.get(ray.put('child')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert printed(done) == ["child"]


def test_a_subprocess_of_a_task_joins_by_the_variable(start: Start) -> None:
    address = start(num_cpus=2)["address"]

    @ray.remote
    def child() -> str:
        program = "import ray; ray.init(logging_level='ERROR'); print(ray.get(ray.put('grandchild')))"
        variables = {**os.environ, "RAY_ADDRESS": address}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100, check=False).stdout

    assert ray.get(child.remote()).strip() == "grandchild"


def test_init_twice_with_reinit_errors_ignored_keeps_the_first(start: Start) -> None:
    first = start(num_cpus=2)["address"]
    assert ray.init(ignore_reinit_error=True)["address"] == first
    with pytest.raises(RuntimeError, match="Maybe you called ray.init twice by accident"):
        ray.init()


def test_the_context_is_printed_and_has_the_versions(start: Start) -> None:
    context = start(num_cpus=1)
    assert context.python_version.count(".") == 2
    assert context.ray_version == "2.60.0"
    assert "address" in context
    assert context.get("node_id") == ray.get_runtime_context().get_node_id()


def test_the_job_configuration_gives_metadata_and_namespace(start: Start) -> None:
    from ray.job_config import JobConfig

    configuration = JobConfig(ray_namespace="configured", metadata={"team": "a"})
    configuration.set_metadata("more", "b")
    start(job_config=configuration)
    assert ray.get_runtime_context().namespace == "configured"


def test_a_resource_given_as_text_is_refused(start: Start) -> None:
    with pytest.raises((ValueError, TypeError, AssertionError)):
        start(resources={"part": "two"})


@pytest.mark.parametrize("count", [0, 1, 8])
def test_any_number_of_processors_is_taken(start: Start, count: int) -> None:
    start(num_cpus=count)
    assert ray.cluster_resources().get("CPU", 0) == count
    assert ray.get(ray.put(1)) == 1


def test_the_timeline_of_a_program_is_a_file(start: Start, tmp_path: Path) -> None:
    import json

    start(num_cpus=1)

    @ray.remote
    def traced() -> None: ...

    ray.get(traced.remote())
    ray.timeline(filename=str(tmp_path / "trace.json"))
    assert isinstance(json.loads((tmp_path / "trace.json").read_text()), list)
