"""Logs: what programs and their workers print and log, and how it is shown."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGIN = "import logging, os, sys, time\nimport ray\n"
Done = subprocess.CompletedProcess[str]


@functools.cache
def run(text: str, *variables: tuple[str, str]) -> Done:
    """What a program printed that several tests look at; it runs once."""
    folder = Path(os.environ.get("TMPDIR", "/tmp"), f"compat-logs-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    program = folder / "program.py"
    program.write_text(text)
    environment = {**os.environ, "RAY_COLOR_PREFIX": "0", **dict(variables)}
    command = [sys.executable, str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done


def started(text: str, options: str = "") -> str:
    return f"{BEGIN}ray.init(num_cpus=4, include_dashboard=False{options and ', '}{options})\n{text}"


def test_the_import_gives_the_logger_ray_a_handler() -> None:
    done = run(
        BEGIN + "logger = logging.getLogger('ray')\n"
        "handler, = logger.handlers\n"
        "print(logger.level, logger.propagate, logger.getChild('x').getEffectiveLevel(), handler.stream is sys.stderr)\n"
        "print(repr(handler.formatter._fmt))\n"
        "print(logging.getLogger('ray.rllib').level)\n"
    )
    expected = repr("%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s")
    assert done.stdout.splitlines() == ["20 False 20 True", expected, "30"], done.stderr


def test_a_logger_below_ray_logs_at_info() -> None:
    done = run(BEGIN + "logging.getLogger('ray.mine').info('this is said')\n")
    assert re.search(r"\tINFO program\.py:\d+ -- this is said", done.stderr), done.stderr


TALKING = started(
    """
@ray.remote
def speak():
    print('spoken'); print('complained', file=sys.stderr); return os.getpid()

@ray.remote
class Plain:
    def speak(self):
        print('plainly')

@ray.remote
class Shown:
    def __init__(self, index):
        self.index = index
        print('made')
    def __repr__(self):
        return f'Shown(index={self.index})'
    def speak(self):
        print('shown')

@ray.remote
def logs():
    logging.getLogger('ray.mine').info('logged in a task')

@ray.remote
class One:
    def speak(self):
        print('a line of several processes')

pid = ray.get(speak.remote())
plain, shown = Plain.remote(), Shown.remote(7)
ray.get([plain.speak.remote(), shown.speak.remote(), logs.remote()])
ones = [One.remote() for _ in range(4)]
ray.get([one.__ray_ready__.remote() for one in ones])
ray.get([one.speak.remote() for one in ones])

import ctypes, glob
pattern = os.path.join(ray._private.worker.global_worker.node.get_logs_dir_path(), f'worker-*-{pid}.out')
deadline = time.monotonic() + 20
while not (files := glob.glob(pattern)) or 'spoken' not in open(files[0]).read():
    assert time.monotonic() < deadline
# One write each: what workers print comes in between otherwise.
sys.stdout.write(f'found {len(files)}\\n')

@ray.remote(max_retries=0)
def crash():
    ctypes.string_at(0)

try:
    ray.get(crash.remote())
except ray.exceptions.WorkerCrashedError:
    sys.stdout.write('crashed\\n')
time.sleep(2)
sys.stdout.write(f'pid {pid}\\n')
""",
    "logging_format='<%(levelname)s> %(message)s'",
)


def test_init_says_that_a_local_instance_was_started() -> None:
    assert "<INFO> Started a local Ray instance." in run(TALKING).stderr


def test_what_a_task_prints_is_shown_with_its_name_and_process() -> None:
    done = run(TALKING)
    pid = re.search(r"^pid (\d+)$", done.stdout, re.MULTILINE)[1]
    assert f"(speak pid={pid}) spoken" in done.stdout
    assert f"(speak pid={pid}) complained" in done.stderr


def test_an_actor_names_its_output_by_its_class() -> None:
    assert re.search(r"^\(Plain pid=\d+\) plainly$", run(TALKING).stdout, re.MULTILINE)


def test_the_repr_of_an_actor_names_its_output() -> None:
    assert re.search(r"^\(Shown\(index=7\) pid=\d+\) shown$", run(TALKING).stdout, re.MULTILINE)


def test_the_class_names_the_output_of_a_constructor() -> None:
    assert re.search(r"^\(Shown pid=\d+\) made$", run(TALKING).stdout, re.MULTILINE)


def test_the_logger_ray_of_a_worker_shows_the_message_alone() -> None:
    assert re.search(r"^\(logs pid=\d+\) logged in a task$", run(TALKING).stderr, re.MULTILINE)


def test_a_line_of_several_processes_is_shown_once() -> None:
    shown = run(TALKING).stdout
    assert shown.count("a line of several processes") == 2, shown
    hint = "[repeated 3x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication"
    assert hint in shown


def test_deduplication_can_be_disabled() -> None:
    assert run(TALKING, ("RAY_DEDUP_LOGS", "0")).stdout.count("a line of several processes") == 4


def test_lines_can_be_excepted_from_deduplication() -> None:
    changed = (("RAY_DEDUP_LOGS_ALLOW_REGEX", "several"), ("RAY_DEDUP_LOGS_SKIP_REGEX", "plainly"))
    assert run(TALKING, *changed).stdout.count("a line of several processes") == 4


def test_lines_can_be_left_out() -> None:
    changed = (("RAY_DEDUP_LOGS_ALLOW_REGEX", "several"), ("RAY_DEDUP_LOGS_SKIP_REGEX", "plainly"))
    assert "plainly" not in run(TALKING, *changed).stdout


def test_a_crash_shows_the_stack_of_python() -> None:
    done = run(TALKING)
    assert "crashed" in done.stdout
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_workers_write_files_of_their_output() -> None:
    assert "found 1" in run(TALKING).stdout


SILENT = started("@ray.remote\ndef speak():\n    print('spoken')\nray.get(speak.remote())\n", "log_to_driver=False, logging_level='ERROR'")


def test_init_says_nothing_below_its_logging_level() -> None:
    assert "Started a local Ray instance" not in run(SILENT).stderr


def test_nothing_is_shown_with_log_to_driver_false() -> None:
    assert "spoken" not in run(SILENT).stdout + run(SILENT).stderr


def test_init_says_nothing_where_logging_is_not_configured() -> None:
    assert "Started a local Ray instance" not in run(started("", "configure_logging=False")).stderr


LOGGING = """
@ray.remote
class Worker:
    def work(self):
        logging.getLogger('any').warning('from a method', extra={'key': 1})
        print('printed')

@ray.remote
def task():
    logging.info('from a task')

logging.info('from the driver')
worker = Worker.remote()
ray.get([worker.work.remote(), task.remote()])
"""
JSON = started(LOGGING, "logging_config=ray.LoggingConfig(encoding='JSON', additional_log_standard_attrs=['name'])")


def records(text: str) -> dict[str, dict[str, Any]]:
    return {record["message"]: record for record in map(json.loads, filter(None, text.splitlines()))}


def test_structured_logs_are_json_line_by_line() -> None:
    assert {"from the driver", "from a task", "from a method"} <= set(records(run(JSON).stderr))


def test_structured_logs_say_who_logged() -> None:
    method = records(run(JSON).stderr)["from a method"]
    assert (method["key"], method["levelname"], method["task_name"]) == (1, "WARNING", "Worker.work")
    assert {"asctime", "filename", "lineno", "job_id", "worker_id", "node_id", "actor_id", "task_id", "timestamp_ns"} <= set(method)


def test_structured_logs_name_the_function_with_its_module_and_class() -> None:
    found = records(run(JSON).stderr)
    assert found["from a method"]["task_func_name"] == "program.Worker.work"
    assert found["from a task"]["task_func_name"] == "program.task"
    assert "task_func_name" not in found["from the driver"]


def test_structured_logs_have_the_attributes_that_are_asked_for() -> None:
    assert records(run(JSON).stderr)["from a method"]["name"] == "any"


def test_the_lines_of_init_are_structured_too() -> None:
    assert "Started a local Ray instance." in records(run(JSON).stderr)


def test_structured_logs_leave_printed_lines_as_they_are() -> None:
    assert run(JSON).stdout.splitlines() == ["printed"]


TEXT = started(LOGGING, "logging_config=ray.LoggingConfig(encoding='TEXT', log_level='WARNING')")


def test_structured_logs_can_be_text() -> None:
    line = next(line for line in run(TEXT).stderr.splitlines() if "from a method" in line)
    assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+\tWARNING program\.py:\d+ -- from a method key=1 ", line), line
    assert "task_name=Worker.work" in line


def test_structured_logs_have_a_level() -> None:
    assert "from a task" not in run(TEXT).stderr


def test_a_variable_asks_for_structured_logs() -> None:
    assert "from a task" in records(run(started(LOGGING), ("RAY_LOGGING_CONFIG_ENCODING", "JSON")).stderr)


def test_an_unknown_encoding_is_a_value_error() -> None:
    done = run(BEGIN + "try:\n    ray.LoggingConfig(encoding='XML')\nexcept ValueError:\n    print('refused')\n")
    assert done.stdout == "refused\n"


def test_a_second_init_that_is_ignored_is_logged(run_program: Callable[..., Done]) -> None:
    program = """
import ray
ray.init(num_cpus=1, include_dashboard=False)
ray.init(ignore_reinit_error=True)
"""
    assert "Calling ray.init() again after it has already been called." in run_program(program).stderr


def test_questions_about_tasks_in_a_driver_are_warned_of(run_program: Callable[..., Done]) -> None:
    program = """
import ray
ray.init(num_cpus=1, include_dashboard=False)
print(ray.get_runtime_context().get_task_id())
"""
    done = run_program(program)
    assert done.stdout.strip().endswith("None")
    assert "This method is only available when the process is a worker." in done.stderr


def test_an_actor_that_fails_in_its_constructor_says_so_although_nobody_calls_it(run_program: Callable[..., Done]) -> None:
    program = """
import os
import time
import ray
told = open(__file__ + ".told", "w+")
os.dup2(told.fileno(), 2)
ray.init(num_cpus=1, include_dashboard=False)

@ray.remote
class Server:
    def __init__(self):
        raise KeyError("no such port")

server = Server.remote()
until = time.monotonic() + 30
while "KeyError: 'no such port'" not in open(__file__ + ".told").read() and time.monotonic() < until:
    time.sleep(0.05)
print(open(__file__ + ".told").read())
"""
    # What Ray's colours say is not part of it.
    done = re.sub(r"\x1b\[\d*m", "", run_program(program).stdout)
    said = "Exception raised in creation task: The actor died because of an error raised in its creation task, ray::Server.__init__()"
    assert said in done
    assert "KeyError: 'no such port'" in done


def test_a_class_whose_attribute_is_hidden_is_warned_of(run_program: Callable[..., Done]) -> None:
    program = """
import ray

@ray.remote
class Hides:
    def remote(self):
        return 1
"""
    assert "Creating an actor from class Hides overwrites attribute remote of that class" in run_program(program).stderr


BLOCKING = """
@ray.remote(num_cpus=0)
class {name}:
    async def beside(self): ...
    def block(self, references):
        return [ray.get(references[0]) for _ in range(2)]

actor = {name}.remote()
print(ray.get(actor.block.remote([ray.put(1)])))
time.sleep(2)
"""


def test_a_get_that_blocks_an_async_actor_is_warned_of_once() -> None:
    done = run(started(BLOCKING.format(name="Async")))
    shown = done.stdout + done.stderr
    assert "[1, 1]" in shown
    assert shown.count("Using blocking ray.get inside async actor. This blocks the event loop.") == 1


def test_a_get_in_a_plain_actor_is_not_warned_of() -> None:
    done = run(started(BLOCKING.format(name="Plain").replace("async def", "def")))
    assert "Using blocking" not in done.stdout + done.stderr
