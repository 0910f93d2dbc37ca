"""Runtime environments: variables, folders and hooks of tasks, actors and jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@ray.remote
class Reader:
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def child(self, name: str) -> str | None:
        return ray.get(variable.remote(name))


def env(**variables: str) -> dict:
    return {"env_vars": variables}


def test_a_task_has_its_variables() -> None:
    assert ray.get(variable.options(runtime_env=env(COMPAT_ENV="x")).remote("COMPAT_ENV")) == "x"


def test_other_tasks_do_not_have_them() -> None:
    ray.get(variable.options(runtime_env=env(COMPAT_ONLY="x")).remote("COMPAT_ONLY"))
    assert ray.get(variable.remote("COMPAT_ONLY")) is None


def test_an_actor_has_its_variables() -> None:
    reader = Reader.options(runtime_env=env(COMPAT_ACTOR="y")).remote()
    assert ray.get(reader.variable.remote("COMPAT_ACTOR")) == "y"


def test_children_inherit_the_environment() -> None:
    reader = Reader.options(runtime_env=env(COMPAT_CHILD="z")).remote()
    assert ray.get(reader.child.remote("COMPAT_CHILD")) == "z"


def test_a_variable_may_refer_to_another() -> None:
    options = env(COMPAT_PATH="${HOME}:more")
    assert ray.get(variable.options(runtime_env=options).remote("COMPAT_PATH")) == f"{os.environ['HOME']}:more"


def test_the_driver_keeps_its_variables() -> None:
    ray.get(variable.options(runtime_env=env(COMPAT_DRIVER="x")).remote("COMPAT_DRIVER"))
    assert "COMPAT_DRIVER" not in os.environ


def test_a_runtime_env_object_is_as_good_as_a_dictionary() -> None:
    options = RuntimeEnv(env_vars={"COMPAT_OBJECT": "o"})
    assert ray.get(variable.options(runtime_env=options).remote("COMPAT_OBJECT")) == "o"


def test_a_runtime_env_object_is_a_dictionary() -> None:
    options = RuntimeEnv(env_vars={"A": "1"}, working_dir="s3://bucket/archive.zip")
    assert options["env_vars"] == {"A": "1"} and options["working_dir"] == "s3://bucket/archive.zip"
    assert options.to_dict()["env_vars"] == {"A": "1"}


def test_variables_are_texts() -> None:
    with pytest.raises(TypeError):
        RuntimeEnv(env_vars={"A": 1})


def test_pip_and_conda_exclude_each_other() -> None:
    with pytest.raises(ValueError):
        RuntimeEnv(pip=["a"], conda={"dependencies": ["b"]})


def test_a_config_has_a_timeout() -> None:
    assert RuntimeEnvConfig(setup_timeout_seconds=10)["setup_timeout_seconds"] == 10
    with pytest.raises((TypeError, ValueError)):
        RuntimeEnvConfig(setup_timeout_seconds=0)


def test_tasks_of_one_environment_share_a_worker() -> None:
    @ray.remote(runtime_env=env(COMPAT_SHARE="x"))
    def pid() -> int:
        return os.getpid()

    assert len({ray.get(pid.remote()) for _ in range(5)}) <= 2


def test_tasks_of_different_environments_share_no_worker() -> None:
    @ray.remote
    def pid() -> int:
        return os.getpid()

    one = ray.get(pid.options(runtime_env=env(COMPAT_DIFFERENT="1")).remote())
    other = ray.get(pid.options(runtime_env=env(COMPAT_DIFFERENT="2")).remote())
    assert one != other


def test_workers_of_several_environments_are_found_again() -> None:
    @ray.remote
    def pid() -> int:
        return os.getpid()

    one, other = (pid.options(runtime_env=env(COMPAT_AGAIN=name)) for name in "ab")
    ray.get([one.remote(), other.remote(), pid.remote()])
    first, second = ray.get(one.remote()), ray.get(other.remote())
    assert (ray.get(one.remote()), ray.get(other.remote())) == (first, second)


def test_an_environment_that_cannot_be_made_fails_the_task() -> None:
    @ray.remote(max_retries=0, runtime_env={"working_dir": "file:///no/such/archive.zip"})
    def f() -> None: ...

    with pytest.raises((ray.exceptions.RuntimeEnvSetupError, ValueError)):
        ray.get(f.remote(), timeout=60)


JOB = """
import os
import ray

ray.init(num_cpus=2, include_dashboard=False, runtime_env={environment!r})

@ray.remote
def facts():
    import sys
    found = [os.environ.get("COMPAT_JOB"), os.environ.get("COMPAT_TASK"), os.getcwd()]
    try:
        import compat_module
        found.append(compat_module.VALUE)
    except ImportError:
        found.append(None)
    try:
        found.append(open("data.txt").read())
    except OSError:
        found.append(None)
    return found

print(ray.get(facts.remote()))
print(ray.get(facts.options(runtime_env={{"env_vars": {{"COMPAT_TASK": "t"}}}}).remote()))
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_job_has_variables_that_its_tasks_add_to(run_program: Run) -> None:
    done = run_program(JOB.format(environment=env(COMPAT_JOB="j")))
    first, second = [eval(line) for line in done.stdout.splitlines()[-2:]]
    assert first[:2] == ["j", None] and second[:2] == ["j", "t"], done.stderr


def test_a_working_directory_is_copied_to_the_workers(run_program: Run, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "data.txt").write_text("some data")
    (folder / "compat_module.py").write_text("VALUE = 42")
    done = run_program(JOB.format(environment={"working_dir": str(folder)}))
    facts = eval(done.stdout.splitlines()[-1])
    assert facts[2] != str(folder) and facts[3:] == [42, "some data"], done.stderr


def test_excluded_files_stay_where_they_are(run_program: Run, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "data.txt").write_text("some data")
    (folder / "compat_module.py").write_text("VALUE = 42")
    done = run_program(JOB.format(environment={"working_dir": str(folder), "excludes": ["data.txt"]}))
    assert eval(done.stdout.splitlines()[-1])[3:] == [42, None], done.stderr


def test_modules_of_the_programs_own_are_imported(run_program: Run, tmp_path: Path) -> None:
    package = tmp_path / "place" / "compat_module"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("VALUE = 43")
    done = run_program(JOB.format(environment={"py_modules": [str(package)]}))
    assert eval(done.stdout.splitlines()[-1])[3] == 43, done.stderr


HOOK = """
import os
import ray

def hook():
    os.environ["COMPAT_HOOK"] = "ran"

ray.init(num_cpus=1, include_dashboard=False, runtime_env={"worker_process_setup_hook": hook})
print(ray.get(ray.remote(lambda: os.environ.get("COMPAT_HOOK")).remote()))
"""


def test_a_hook_runs_when_a_worker_starts(run_program: Run) -> None:
    done = run_program(HOOK)
    assert done.stdout.splitlines()[-1] == "ran", done.stderr


def test_an_unknown_field_is_left_aside_or_refused(run_program: Run) -> None:
    done = run_program("import ray\nfrom ray.runtime_env import RuntimeEnv\nprint(dict(RuntimeEnv(env_vars={'A': '1'})))\n")
    assert "'env_vars': {'A': '1'}" in done.stdout, done.stderr


def test_workers_run_the_drivers_interpreter() -> None:
    assert ray.get(ray.remote(lambda: __import__("sys").version_info[:3]).remote()) == sys.version_info[:3]


def test_tasks_import_what_the_driver_can_import(run_program: Run, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 5\n")
    done = run_program(
        "import ray, beside\nray.init(num_cpus=1, include_dashboard=False)\n"
        "@ray.remote\ndef f():\n    import beside\n    return beside.VALUE\nprint(ray.get(f.remote()))\n"
    )
    assert done.stdout.splitlines()[-1] == "5", done.stderr
