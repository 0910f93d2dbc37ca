"""Every row of what `init` refuses before it starts or joins anything, and what it makes of the rest."""

from __future__ import annotations

import logging
from typing import Any

import oxiray
import pytest
from oxiray._init_options import STORE_BYTES_MIN, init_options

VARIABLES = ("RAY_ADDRESS", "RAY_NAMESPACE", "RAY_RUNTIME_ENV", "RAY_LOG_TO_DRIVER", "RAY_OVERRIDE_JOB_RUNTIME_ENV")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


REFUSED = [
    ({"color": 1}, RuntimeError, "Unknown keyword argument(s): color"),
    ({"_redis_max_memory": 1}, RuntimeError, "Unknown keyword argument(s): _redis_max_memory"),
    ({"local_mode": True}, RuntimeError, "`local_mode` is no longer supported"),
    ({"storage": "/tmp"}, RuntimeError, "storage"),
    ({"num_cpus": -1}, ValueError, "must be nonnegative"),
    ({"num_cpus": 1.5}, ValueError, "must all be whole numbers"),
    ({"num_cpus": "2"}, TypeError, "num_cpus"),
    ({"num_gpus": -1}, ValueError, "must be nonnegative"),
    ({"num_gpus": 1.5}, ValueError, "must all be whole numbers"),
    ({"num_gpus": "2"}, TypeError, "num_gpus"),
    ({"num_gpus": 1e15}, ValueError, "at most"),
    ({"resources": {"CPU": 1}}, AssertionError, "num_cpus=1"),
    ({"resources": {"GPU": 2}}, AssertionError, "num_gpus=2"),
    ({"resources": {"memory": 1}}, AssertionError, "memory"),
    ({"resources": {"object_store_memory": 1}}, AssertionError, "object_store_memory"),
    ({"resources": {"slot": -1}}, ValueError, "must be nonnegative"),
    ({"resources": {"slot": 1.5}}, ValueError, "must all be whole numbers"),
    ({"resources": {"slot": "1"}}, TypeError, "slot"),
    ({"resources": [1]}, TypeError, "resources"),
    ({"labels": 1}, TypeError, "labels"),
    ({"labels": {"zone": 1}}, TypeError, "zone"),
    ({"labels": {"zone": "a b"}}, ValueError, "a b"),
    ({"labels": {"-zone": "a"}}, ValueError, "-zone"),
    ({"object_store_memory": 1}, ValueError, "the minimum allowed is 78643200"),
    ({"object_store_memory": "1"}, TypeError, "object_store_memory"),
    ({"object_store_memory": float("nan")}, ValueError, "object_store_memory must be a finite number"),
    ({"object_store_memory": float("inf")}, ValueError, "object_store_memory must be a finite number"),
    ({"namespace": 1}, TypeError, "namespace must be None or a string"),
    ({"namespace": ""}, ValueError, "not a valid namespace"),
    ({"address": 1}, TypeError, "address"),
    ({"address": "nowhere"}, ValueError, "Invalid address format"),
    ({"address": ""}, ValueError, "Invalid address format"),
    ({"address": "host:99999"}, ValueError, "Invalid address format"),
    ({"address": "auto", "num_cpus": 1}, ValueError, "num_cpus must not be provided"),
    ({"address": "auto", "num_gpus": 0}, ValueError, "num_gpus must not be provided"),
    ({"address": "127.0.0.1:6379", "resources": {"a": 1}}, ValueError, "resources must not be provided"),
    ({"address": "auto", "labels": {"a": "b"}}, ValueError, "labels must not be provided"),
    ({"address": "auto", "object_store_memory": 10**8}, ValueError, "object_store_memory must not be provided"),
    ({"address": "auto", "_system_config": {"a": 1}}, ValueError, "_system_config must not be provided"),
    ({"address": "auto", "_node_name": "a"}, ValueError, "_node_name must not be provided"),
    ({"runtime_env": 1}, TypeError, "runtime_env"),
    ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "env_vars"),
    ({"logging_level": "loud"}, ValueError, "Unknown level"),
    ({"_system_config": 1}, TypeError, "_system_config"),
    ({"_temp_dir": 1}, TypeError, "_temp_dir"),
    ({"_memory": "x"}, TypeError, "_memory"),
    ({"_memory": -1}, ValueError, "must be nonnegative"),
    ({"dashboard_port": "x"}, TypeError, "dashboard_port"),
    ({"dashboard_port": 70_000}, ValueError, "from 1 to 65535"),
    ({"cgroup_path": "/x"}, ValueError, "resource isolation is not enabled"),
    ({"system_reserved_cpu": 1.0}, ValueError, "resource isolation is not enabled"),
    ({"system_reserved_memory": 1}, ValueError, "resource isolation is not enabled"),
]


@pytest.mark.parametrize(("given", "kind", "part"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_refused_before_anything_starts(given: dict[str, Any], kind: type[Exception], part: str) -> None:
    with pytest.raises(kind) as caught:
        oxiray.init(**given)
    assert part in str(caught.value)
    assert not oxiray.is_initialized()


def test_defaults() -> None:
    options = init_options()
    assert (options.address, options.num_cpus, options.num_gpus, options.resources) == (None, None, None, {})
    assert (options.log_to_driver, options.namespace, options.runtime_env) == (True, None, None)
    assert options.logging_level == logging.INFO
    assert not options.must_attach


def test_given_is_kept() -> None:
    options = init_options(
        "local",
        num_cpus=2.0,  # type: ignore[arg-type]
        num_gpus=1,
        resources={"slot": 3},
        labels={"zone": "a"},
        object_store_memory=STORE_BYTES_MIN,
        logging_level="warning",
        _node_name="here",
        _memory=10**9,
        _temp_dir="/tmp/x",
        _redis_password="unused",
    )
    assert (options.num_cpus, options.num_gpus, options.resources) == (2, 1, {"slot": 3.0})
    assert (options.labels, options.object_store_memory) == ({"zone": "a"}, STORE_BYTES_MIN)
    assert (options.logging_level, options.node_name, options.memory) == (logging.WARNING, "here", 10**9)
    assert (options.temp_dir, options.must_attach) == ("/tmp/x", False)


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert init_options().address == "10.0.0.1:6379"
    assert init_options("local", num_cpus=1).address == "local"
    with pytest.raises(ValueError, match="RAY_ADDRESS"):
        init_options(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(ValueError, match="RAY_ADDRESS"):
        init_options()


def test_the_namespace_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_NAMESPACE", "there")
    assert init_options().namespace == "there"
    assert init_options(namespace="here").namespace == "here"


@pytest.mark.parametrize(("text", "expected"), [("0", False), ("false", False), ("1", True), ("True", True)])
def test_showing_logs_may_be_switched_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: bool
) -> None:
    monkeypatch.setenv("RAY_LOG_TO_DRIVER", text)
    assert init_options().log_to_driver is expected
    assert init_options(log_to_driver=not expected).log_to_driver is not expected


def test_a_wrong_switch_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_LOG_TO_DRIVER", "maybe")
    with pytest.raises(ValueError, match="RAY_LOG_TO_DRIVER"):
        init_options()


def test_the_environment_of_a_submitted_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV", '{"env_vars": {"A": "1", "B": "2"}}')
    assert init_options().runtime_env == {"env_vars": {"A": "1", "B": "2"}}
    assert init_options(runtime_env={"env_vars": {"C": "3"}}).runtime_env == {
        "env_vars": {"A": "1", "B": "2", "C": "3"}
    }
    with pytest.raises(ValueError, match=r"env_vars\['A'\]"):
        init_options(runtime_env={"env_vars": {"A": "9"}})
    monkeypatch.setenv("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    assert init_options(runtime_env={"env_vars": {"A": "9"}}).runtime_env == {"env_vars": {"A": "9", "B": "2"}}


@pytest.mark.parametrize(("text", "kind"), [("{", ValueError), ("1", TypeError), ('{"env_vars": 1}', TypeError)])
def test_a_wrong_environment_of_a_submitted_job(
    monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception]
) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV", text)
    with pytest.raises(kind, match="RAY_RUNTIME_ENV"):
        init_options()


def test_the_address_of_a_client_is_that_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert init_options("ray://10.0.0.1:6379").address == "10.0.0.1:6379"
    assert init_options("ray://head").address == "head:10001"
    monkeypatch.setenv("RAY_ADDRESS", "ray://10.0.0.2:6379")
    assert init_options("auto").address == init_options().address == "10.0.0.2:6379"
    assert init_options("local").address == "local"
