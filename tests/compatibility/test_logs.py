"""Logs: what programs and their workers print and log, and how it is shown."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

Run = Callable[..., "subprocess.CompletedProcess[str]"]
BEGIN = "import logging, os, sys, time\nimport ray\n"
START = BEGIN + "ray.init(num_cpus=4, include_dashboard=False{options})\n"


def started(text: str, options: str = "") -> str:
    return START.format(options=f", {options}" if options else "") + text


def test_the_import_gives_the_logger_ray_a_handler(run_program: Run) -> None:
    done = run_program(
        BEGIN + "logger = logging.getLogger('ray')\n"
        "handler, = logger.handlers\n"
        "print(logger.level, logger.propagate, logger.getChild('x').getEffectiveLevel(), handler.stream is sys.stderr)\n"
        "print(repr(handler.formatter._fmt))\n"
        "print(logging.getLogger('ray.rllib').level)\n"
    )
    expected = repr("%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s")
    assert done.stdout.splitlines() == ["20 False 20 True", expected, "30"], done.stderr


def test_a_logger_below_ray_logs_at_info(run_program: Run) -> None:
    done = run_program(BEGIN + "logging.getLogger('ray.mine').info('this is said')\n")
    assert re.search(r"\tINFO program\.py:\d+ -- this is said", done.stderr), done.stderr


def test_init_says_that_a_local_instance_was_started(run_program: Run) -> None:
    done = run_program(started("", "logging_format='<%(levelname)s> %(message)s'"))
    assert "<INFO> Started a local Ray instance." in done.stderr


def test_init_says_nothing_below_its_logging_level(run_program: Run) -> None:
    assert "Started a local Ray instance" not in run_program(started("", "logging_level='ERROR'")).stderr


def test_init_says_nothing_where_logging_is_not_configured(run_program: Run) -> None:
    assert "Started a local Ray instance" not in run_program(started("", "configure_logging=False")).stderr


def test_what_a_task_prints_is_shown_with_its_name_and_process(run_program: Run) -> None:
    done = run_program(
        started(
            "@ray.remote\ndef speak():\n    print('spoken'); print('complained', file=sys.stderr); return os.getpid()\n"
            "print('pid', ray.get(speak.remote()))\n"
        ),
        RAY_COLOR_PREFIX="0",
    )
    pid = re.search(r"^pid (\d+)$", done.stdout, re.MULTILINE)[1]
    assert f"(speak pid={pid}) spoken" in done.stdout
    assert f"(speak pid={pid}) complained" in done.stderr


def test_nothing_is_shown_with_log_to_driver_false(run_program: Run) -> None:
    done = run_program(
        started("@ray.remote\ndef speak():\n    print('spoken')\nray.get(speak.remote())\n", "log_to_driver=False")
    )
    assert "spoken" not in done.stdout + done.stderr


def test_an_actor_names_its_output_by_its_class(run_program: Run) -> None:
    done = run_program(
        started(
            "@ray.remote\nclass Speaker:\n    def speak(self):\n        print('spoken')\n"
            "speaker = Speaker.remote()\nray.get(speaker.speak.remote())\n"
        ),
        RAY_COLOR_PREFIX="0",
    )
    assert re.search(r"^\(Speaker pid=\d+\) spoken$", done.stdout, re.MULTILINE), done.stdout


def test_the_repr_of_an_actor_names_its_output(run_program: Run) -> None:
    done = run_program(
        started(
            "@ray.remote\nclass Speaker:\n    def __init__(self, index):\n        self.index = index\n        print('made')\n"
            "    def __repr__(self):\n        return f'Speaker(index={self.index})'\n"
            "    def speak(self):\n        print('spoken')\n"
            "speaker = Speaker.remote(7)\nray.get(speaker.speak.remote())\n"
        ),
        RAY_COLOR_PREFIX="0",
    )
    assert re.search(r"^\(Speaker\(index=7\) pid=\d+\) spoken$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^\(Speaker pid=\d+\) made$", done.stdout, re.MULTILINE), done.stdout


REPEATING = (
    "@ray.remote\nclass One:\n    def speak(self):\n        print('a line of several processes')\n"
    "ones = [One.remote() for _ in range(4)]\nray.get([one.__ray_ready__.remote() for one in ones])\n"
    "ray.get([one.speak.remote() for one in ones])\n"
)


def test_a_line_of_several_processes_is_shown_once(run_program: Run) -> None:
    done = run_program(started(REPEATING), RAY_COLOR_PREFIX="0")
    assert done.stdout.count("a line of several processes") == 2, done.stdout
    hint = "[repeated 3x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication"
    assert hint in done.stdout


def test_deduplication_can_be_disabled(run_program: Run) -> None:
    done = run_program(started(REPEATING), RAY_DEDUP_LOGS="0")
    assert done.stdout.count("a line of several processes") == 4


def test_lines_can_be_excepted_from_deduplication(run_program: Run) -> None:
    done = run_program(started(REPEATING), RAY_DEDUP_LOGS_ALLOW_REGEX="several")
    assert done.stdout.count("a line of several processes") == 4


def test_lines_can_be_left_out(run_program: Run) -> None:
    done = run_program(started(REPEATING), RAY_DEDUP_LOGS_SKIP_REGEX="of several")
    assert "a line of several processes" not in done.stdout


LOGGING = (
    "@ray.remote\nclass Worker:\n    def work(self):\n        logging.getLogger('any').warning('from a method', extra={'key': 1})\n"
    "@ray.remote\ndef task():\n    logging.info('from a task')\n"
    "logging.info('from the driver')\n"
    "worker = Worker.remote()\nray.get([worker.work.remote(), task.remote()])\n"
)


def records(text: str) -> dict[str, dict[str, Any]]:
    return {record["message"]: record for record in map(json.loads, filter(None, text.splitlines()))}


def test_structured_logs_are_json_line_by_line(run_program: Run) -> None:
    done = run_program(started(LOGGING, "logging_config=ray.LoggingConfig(encoding='JSON')"))
    by_message = records(done.stderr)
    assert {"from the driver", "from a task", "from a method", "Started a local Ray instance."} <= set(by_message)
    method = by_message["from a method"]
    assert (method["key"], method["levelname"], method["task_name"]) == (1, "WARNING", "Worker.work")
    assert {"asctime", "filename", "lineno", "job_id", "worker_id", "node_id", "actor_id", "task_id", "timestamp_ns"} <= set(method)


def test_structured_logs_can_be_text(run_program: Run) -> None:
    done = run_program(started(LOGGING, "logging_config=ray.LoggingConfig(encoding='TEXT')"))
    line = next(line for line in done.stderr.splitlines() if "from a method" in line)
    assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+\tWARNING program\.py:\d+ -- from a method key=1 ", line), line
    assert "task_name=Worker.work" in line


def test_a_variable_asks_for_structured_logs(run_program: Run) -> None:
    done = run_program(started(LOGGING), RAY_LOGGING_CONFIG_ENCODING="JSON")
    assert "from a task" in records(done.stderr)


def test_structured_logs_leave_printed_lines_as_they_are(run_program: Run) -> None:
    text = "@ray.remote\ndef speak():\n    print('spoken')\nray.get(speak.remote())\n"
    done = run_program(started(text, "logging_config=ray.LoggingConfig(encoding='JSON')"))
    assert done.stdout.splitlines() == ["spoken"], done.stdout


def test_structured_logs_have_a_level(run_program: Run) -> None:
    done = run_program(started(LOGGING, "logging_config=ray.LoggingConfig(encoding='JSON', log_level='WARNING')"))
    assert "from a method" in done.stderr
    assert "from a task" not in done.stderr


def test_a_crash_shows_the_stack_of_python(run_program: Run) -> None:
    done = run_program(
        started(
            "import ctypes\n@ray.remote(max_retries=0)\ndef crash():\n    ctypes.string_at(0)\n"
            "try:\n    ray.get(crash.remote())\nexcept ray.exceptions.WorkerCrashedError:\n    print('crashed')\n"
            "time.sleep(2)\n"
        )
    )
    assert "crashed" in done.stdout
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_workers_write_files_of_their_output(run_program: Run) -> None:
    done = run_program(
        started(
            "import glob\n@ray.remote\ndef speak():\n    print('spoken'); return os.getpid()\n"
            "pid = ray.get(speak.remote())\n"
            "pattern = os.path.join(ray._private.worker.global_worker.node.get_logs_dir_path(), f'worker-*-{pid}.out')\n"
            "deadline = time.monotonic() + 10\n"
            "while not (files := glob.glob(pattern)) or 'spoken' not in open(files[0]).read():\n"
            "    assert time.monotonic() < deadline\n"
            "print('found', len(files))\n"
        )
    )
    assert "found 1" in done.stdout, done.stderr
