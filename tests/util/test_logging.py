"""`LoggingConfig`: how a driver and its workers log."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import ray

PROGRAM = """
import logging, sys
import ray
ray.init(num_cpus=1, logging_config=ray.LoggingConfig(encoding="{encoding}", log_level="INFO",
         additional_log_standard_attrs=["name"]))
ray.init(ignore_reinit_error=True)

@ray.remote
def work():
    logging.getLogger("mine").info("from a task", extra={{"shard": 7}})
    logging.getLogger("mine").debug("not said")

@ray.remote
class Counter:
    async def count(self):
        logging.getLogger("mine").info("from an actor")

logging.getLogger("mine").info("from the driver")
ray.get(work.remote())
counter = Counter.options(name="c").remote()
ray.get(counter.count.remote())
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("mine").exception("failed")
"""


def said_by(encoding: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(encoding=encoding)], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr.splitlines()


def test_json() -> None:
    records = [json.loads(line) for line in said_by("JSON")]
    by_text = {record["message"]: record for record in records}
    of_init = {"Started a local Ray instance.", "Calling ray.init() again after it has already been called."}
    assert set(by_text) == {*of_init, "from the driver", "from a task", "from an actor", "failed"}
    assert {"asctime", "levelname", "filename", "lineno", "process", "name", "job_id", "node_id", "worker_id"} <= set(
        by_text["from the driver"]
    )
    task = by_text["from a task"]
    assert (task["shard"], task["task_name"], task["levelname"]) == (7, "work", "INFO")
    assert len(task["task_id"]) == 48
    assert isinstance(task["timestamp_ns"], int)
    actor = by_text["from an actor"]
    assert (actor["actor_name"], actor["task_name"]) == ("c", "Counter.count")
    assert actor["job_id"] == task["job_id"] == by_text["from the driver"]["job_id"]
    assert "ZeroDivisionError" in by_text["failed"]["exc_text"]


def test_text() -> None:
    lines = said_by("TEXT")
    task = next(line for line in lines if "from a task" in line)
    assert " -- from a task name=mine " in task
    assert "task_name=work" in task
    assert "shard=7" in task
    assert any("ZeroDivisionError: division by zero" in line for line in lines)
    assert not any("not said" in line for line in lines)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="YAML"):
        ray.LoggingConfig(encoding="YAML")
    with pytest.raises(ValueError, match="colour"):
        ray.LoggingConfig(additional_log_standard_attrs=["colour"])
    with pytest.raises(TypeError, match="LoggingConfig"):
        ray.init(logging_config={"encoding": "TEXT"})


def test_to_and_from_a_dictionary() -> None:
    config = ray.LoggingConfig(encoding="JSON", log_level="DEBUG", additional_log_standard_attrs=["name"])
    assert ray.LoggingConfig.from_dict({**config.to_dict(), "later": 1}) == config
