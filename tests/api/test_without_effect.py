"""Options that are accepted and change nothing: each says so once, by the logger `ray`, and nothing else does."""

from __future__ import annotations

import inspect
import subprocess
import sys

import oxiray
import pytest
from oxiray import _init_options, _option_rules, _without_effect


@pytest.fixture(autouse=True)
def _nobody_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_without_effect, "_told", set())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ray" and record.levelname == "WARNING"]


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(_without_effect.logger, "propagate", True)
    return caplog


GIVEN = {
    "init": {
        "dashboard_host": "0.0.0.0",
        "proxy_server_url": "http://proxy",
        "enable_resource_isolation": True,
        "cgroup_path": "/sys/fs/cgroup",
        "system_reserved_cpu": 1.0,
        "system_reserved_memory": 1,
        "_plasma_directory": "/tmp",
        "_redis_username": "a",
        "_redis_password": "b",
        "_driver_object_store_memory": 1,
        "_metrics_export_port": 8080,
    },
    "remote": {
        "enable_task_events": False,
        "_labels": {"a": "b"},
        "_actor_generator_backpressure_num_objects": 2,
    },
    "method": {"enable_task_events": False, "_labels": {"a": "b"}},
    "add_node": {
        **dict.fromkeys(
            (
                "gcs_server_port", "min_worker_port", "max_worker_port", "node_manager_port", "object_manager_port", "worker_port_list",
                "ray_client_server_port", "metrics_export_port", "dashboard_agent_listen_port", "dashboard_agent_grpc_port",
                "runtime_env_agent_port", "redis_port",
            ),
            1,
        ),
        **dict.fromkeys(
            ("redis_address", "redis_username", "redis_password", "redis_shard_ports", "plasma_directory", "session_dir"), "a"
        ),
        **dict.fromkeys(("dashboard_host", "runtime_env_dir_name", "gcs_address", "tracing_startup_hook"), "a"),
        **dict.fromkeys(("huge_pages", "ray_debugger_external"), True),
        **dict.fromkeys(("log_to_driver", "include_log_monitor", "enable_object_reconstruction"), False),
        "no_monitor": "a",
        "disable_usage_stats": "a",
    },
    "AutoscalingCluster": dict.fromkeys(
        (
            "cluster_name", "provider", "auth", "docker", "head_node_type", "file_mounts", "setup_commands", "initialization_commands",
            "head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands",
            "cluster_synced_files", "file_mounts_sync_continuously", "rsync_exclude", "rsync_filter", "upscaling_speed", "autoscaler_v2",
        ),
        "a",
    ),
    "connect": {"secure": True, "metadata": [], "connection_retries": 1, "ignore_version": True, "_credentials": "a"},
    "JobConfig": {"code_search_path": ["/x"], "_disable_job_level_lineage_reconstruction": True},
}


@pytest.mark.parametrize("function", GIVEN)
def test_each_is_told_of_once(function: str, caplog: pytest.LogCaptureFixture) -> None:
    assert set(GIVEN[function]) == set(_without_effect.OPTIONS[function])
    defaults = {name: values[0] for name, (values, _) in _without_effect.OPTIONS[function].items()}
    _without_effect.tell(function, defaults)
    assert said(caplog) == []
    _without_effect.tell(function, GIVEN[function])
    told = said(caplog)
    for name in GIVEN[function]:
        assert sum(f"{function}({name}=)" in line for line in told) == 1, name
    _without_effect.tell(function, GIVEN[function])
    assert said(caplog) == told


def test_decorators_and_calls_tell(caplog: pytest.LogCaptureFixture) -> None:
    @oxiray.remote(enable_task_events=False)
    class Trainer:
        @oxiray.method(enable_task_events=False)
        def weights(self) -> None: ...

    assert Trainer is not None
    first = said(caplog)
    assert len(first) == 2
    assert all("state API" in line for line in first)
    oxiray.remote(enable_task_events=True, num_cpus=1)(lambda: None)
    oxiray.job_config.JobConfig(code_search_path=["/x"])
    assert len(said(caplog)) == 3


def test_init_and_put_tell_and_go_on() -> None:
    program = (
        "import oxiray as ray\n"
        "ray.init(num_cpus=1, dashboard_host='0.0.0.0', _metrics_export_port=8080,\n"
        "         _system_config={'worker_register_timeout_seconds': 5, 'task_retry_delay_ms': 1},\n"
        "         logging_format='<%(name)s> %(message)s')\n"
        "print(ray.get(ray.put(7, _tensor_transport='auto')))\n"
        "ray.shutdown()\n"
        "ray.init(num_cpus=1, dashboard_host='0.0.0.0')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "7\n"
    lines = [line for line in done.stderr.splitlines() if "Started a local" not in line]
    assert len(lines) == 4, done.stderr
    assert all(line.startswith("<ray> ") for line in lines)
    for part in ("dashboard_host", "`oxiray metrics`", "worker_register_timeout_seconds", "put(_tensor_transport=) has no effect outside of actors"):
        assert sum(part in line for line in lines) == 1, part
    assert "_system_config['task_retry_delay_ms']" not in done.stderr


def test_help_names_every_option() -> None:
    keywords = [name for name in inspect.signature(_init_options.init_options).parameters if name != "hidden"]
    assert [name for name in inspect.signature(oxiray.init).parameters if name != "hidden"] == keywords
    documented = {
        oxiray.init: [*keywords, *_init_options._HIDDEN],
        oxiray.remote: [*_option_rules.TASK_RULES, *_option_rules.ACTOR_RULES],
        oxiray.method: [*_option_rules.METHOD_RULES],
    }
    for function, options in documented.items():
        text = inspect.getdoc(function) or ""
        assert [name for name in options if f"{name}:" not in text and f"{name}," not in text] == [], function


def test_switches_of_the_cluster_act_in_its_driver_too() -> None:
    program = (
        "import pickle, oxiray as ray\n"
        "ray.init(num_cpus=1, _system_config={'record_ref_creation_sites': True,\n"
        "         'allow_out_of_band_object_ref_serialization': False})\n"
        "reference = ray.put(1)\n"
        "print(reference.call_site().startswith('(put object) | <string>'))\n"
        "pickle.dumps(reference)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "True\n", done.stderr
    assert "OufOfBandObjectRefSerializationException" in done.stderr
