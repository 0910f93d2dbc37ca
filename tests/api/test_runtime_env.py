"""Runtime environments: what they accept, how they inherit, and what Oxiray refuses to pretend."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from oxiray._private.runtime_env.plugin_schema_manager import RuntimeEnvPluginSchemaManager
from oxiray.runtime_env import RuntimeEnv, RuntimeEnvConfig, checked, conflicts, merge, unsupported_fields


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"env_vars": 1}, TypeError),
        ({"env_vars": {"A": 1}}, TypeError),
        ({"env_vars": {1: "A"}}, TypeError),
        ({"env_vars": {"": "a"}}, ValueError),
        ({"env_vars": {"A=B": "a"}}, ValueError),
        ({"env_vars": {"A": "\0"}}, ValueError),
        ({"working_dir": 1}, TypeError),
        ({"py_modules": "a"}, TypeError),
        ({"py_executable": 1}, TypeError),
        ({"excludes": [1]}, TypeError),
        ({"pip": 1}, TypeError),
        ({"uv": 1}, TypeError),
        ({"conda": ["a"]}, TypeError),
        ({"container": "a"}, TypeError),
        ({"image_uri": 1}, TypeError),
        ({"java_jars": [1]}, TypeError),
        ({"worker_process_setup_hook": 1}, TypeError),
        ({"config": 1}, TypeError),
        ({"config": {"setup_timeout_seconds": 0}}, ValueError),
        ({"config": {"setup_timeout_seconds": "1"}}, TypeError),
        ({"config": {"eager_install": 1}}, TypeError),
        ({"config": {"log_files": "a"}}, TypeError),
        ({"pip": ["a"], "uv": ["b"]}, ValueError),
        ({"pip": ["a"], "conda": "b"}, ValueError),
        ({"container": {"image": "a"}, "image_uri": "b"}, ValueError),
    ],
    ids=str,
)
def test_refused(fields: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        RuntimeEnv(**fields)
    with pytest.raises(kind):
        checked(fields)


def test_it_is_a_dictionary_of_what_was_given() -> None:
    env = RuntimeEnv(env_vars={"A": "1"}, working_dir=Path("/x"), pip=None, some_plugin={"a": 1})
    assert env == {"env_vars": {"A": "1"}, "working_dir": "/x", "some_plugin": {"a": 1}}
    assert env.env_vars() == {"A": "1"}
    assert pickle.loads(pickle.dumps(env)) == env
    assert type(pickle.loads(pickle.dumps(env))) is RuntimeEnv
    assert checked(env) is env
    assert checked(None) is None
    with pytest.raises(TypeError):
        env["env_vars"] = {"A": 2}
    env.set("env_vars", {"A": "2"})
    assert env.to_dict()["env_vars"] == {"A": "2"}


def test_its_configuration_has_defaults() -> None:
    assert RuntimeEnvConfig() == {"setup_timeout_seconds": 600, "eager_install": True, "log_files": []}
    env = RuntimeEnv(config={"setup_timeout_seconds": -1})
    assert env["config"] == RuntimeEnvConfig(setup_timeout_seconds=-1)


def test_a_child_inherits_and_overrides() -> None:
    parent = {"env_vars": {"A": "1", "B": "2"}, "working_dir": "/a"}
    child = {"env_vars": {"B": "3"}, "working_dir": "/b"}
    assert merge(parent, child) == {"env_vars": {"A": "1", "B": "3"}, "working_dir": "/b"}
    assert merge(parent, None) == parent
    assert merge(None, child) == child
    assert merge(None, None) == {}
    assert parent["env_vars"] == {"A": "1", "B": "2"}


def test_conflicts_are_what_both_say_differently() -> None:
    first = {"env_vars": {"A": "1", "B": "2"}, "pip": ["a"], "name": "x"}
    second = {"env_vars": {"A": "1", "B": "3"}, "pip": ["b"], "name": "x"}
    assert conflicts(first, second) == ["env_vars['B']", "pip"]


def test_fields_oxiray_does_not_provide_are_named() -> None:
    assert unsupported_fields({"env_vars": {"A": "1"}, "config": {}, "some_plugin": 1, "excludes": []}) == []
    assert unsupported_fields({"working_dir": "/x", "conda": {"dependencies": ["a"]}, "mpi": {"args": []}}) == ["mpi"]
    assert unsupported_fields(None) == []


def test_a_field_has_to_meet_its_schema(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # An environment that was made before it was wanted has it not.
    jsonschema = pytest.importorskip("jsonschema")
    folder = tmp_path / "schemas"
    folder.mkdir()
    of_a_plugin = {"title": "shelf", "type": "object", "required": ["height"], "properties": {"height": {"type": "integer"}}}
    (folder / "shelf.json").write_text(json.dumps(of_a_plugin))
    (folder / "broken.json").write_text("{")
    (folder / "nameless.json").write_text("{}")
    alone = tmp_path / "work.json"
    alone.write_text(json.dumps({"title": "env_vars", "maxProperties": 1}))
    monkeypatch.setenv("RAY_RUNTIME_ENV_PLUGIN_SCHEMAS", f"{folder},{alone}")
    RuntimeEnvPluginSchemaManager.clear()
    try:
        environment = RuntimeEnv(shelf={"height": 3}, env_vars={"A": "1"})
        assert set(RuntimeEnvPluginSchemaManager.schemas) == {"shelf", "env_vars"}
        told = capsys.readouterr().err
        assert "broken.json of a runtime environment is skipped" in told and "it has no `title`" in told
        with pytest.raises(jsonschema.ValidationError, match="'tall' is not of type 'integer'"):
            environment["shelf"] = {"height": "tall"}
        with pytest.raises(jsonschema.ValidationError, match="height"):
            RuntimeEnv(shelf={})
        with pytest.raises(jsonschema.ValidationError):
            RuntimeEnv(env_vars={"A": "1", "B": "2"})
        assert environment["shelf"] == {"height": 3}
        monkeypatch.delenv("RAY_RUNTIME_ENV_PLUGIN_SCHEMAS")
        RuntimeEnvPluginSchemaManager.clear()
        assert RuntimeEnv(shelf={})["shelf"] == {}
    finally:
        RuntimeEnvPluginSchemaManager.clear()


def test_an_environment_says_what_it_names() -> None:
    named = RuntimeEnv(working_dir="s3://b/x.zip", py_modules=["s3://b/y.zip"], conda="science", mine={"a": 1})
    assert (named.working_dir_uri(), named.py_modules_uris()) == ("s3://b/x.zip", ["s3://b/y.zip"])
    assert (named.conda_env_name(), named.conda_config()) == ("science", None)
    assert named.plugins() == [("mine", {"a": 1})]
    listed = RuntimeEnv(conda={"dependencies": ["numpy"]})
    assert listed.conda_env_name() is None
    assert json.loads(listed.conda_config() or "")["dependencies"] == ["numpy"]
    assert (listed.working_dir_uri(), listed.py_modules_uris(), listed.plugins()) == (None, [], [])
