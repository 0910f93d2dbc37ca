"""Programs with runtime environments: variables, folders, modules, hooks, and who overrides whom."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RuntimeEnvSetupError
from ray.runtime_env import RuntimeEnv

Start = Callable[..., Any]
shared = pytest.mark.usefixtures("session")
#: Ray makes a virtual environment before it finds that a package is missing.
slow = pytest.mark.timeout(300)


@ray.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@ray.remote
def read(path: str) -> str:
    return Path(path).read_text()


@shared
def test_variables_of_a_task_by_options() -> None:
    assert ray.get(variable.options(runtime_env={"env_vars": {"MINE": "1"}}).remote("MINE")) == "1"
    assert ray.get(variable.remote("MINE")) is None


@shared
def test_variables_of_the_decorator_and_of_the_call() -> None:
    @ray.remote(runtime_env={"env_vars": {"A": "decorator", "B": "decorator"}})
    def both() -> tuple[str | None, str | None]:
        return os.environ.get("A"), os.environ.get("B")

    assert ray.get(both.remote()) == ("decorator", "decorator")
    assert ray.get(both.options(runtime_env={"env_vars": {"A": "call"}}).remote()) == ("call", None)


@shared
def test_variables_of_an_actor_reach_its_children() -> None:
    @ray.remote(num_cpus=0)
    class Parent:
        def read(self, name: str) -> str | None:
            return ray.get(variable.remote(name))

    parent = Parent.options(runtime_env={"env_vars": {"PARENT": "yes"}}).remote()
    assert ray.get(parent.read.remote("PARENT")) == "yes"


@shared
def test_a_child_overrides_one_variable_and_keeps_the_others() -> None:
    @ray.remote
    def child() -> tuple[str | None, str | None]:
        return os.environ.get("ONE"), os.environ.get("TWO")

    @ray.remote(runtime_env={"env_vars": {"ONE": "parent", "TWO": "parent"}})
    def parent() -> tuple[str | None, str | None]:
        return ray.get(child.options(runtime_env={"env_vars": {"ONE": "child"}}).remote())

    assert ray.get(parent.remote()) == ("child", "parent")


@shared
def test_the_path_can_be_put_in_front() -> None:
    environment = {"env_vars": {"PATH": "/my/folder:${PATH}"}}
    path = ray.get(variable.options(runtime_env=environment).remote("PATH"))
    assert path.startswith("/my/folder:")
    assert len(path) > len("/my/folder:")


@shared
@pytest.mark.parametrize(
    "environment",
    [
        {"env_vars": {"A": 1}},
        {"env_vars": {1: "A"}},
        {"env_vars": "A=1"},
        {"pip": 5},
        {"pip": ["x"], "uv": ["y"]},
        {"working_dir": 5},
        {"py_modules": "text"},
        {"py_modules": [5]},
        {"excludes": "text"},
        {"config": {"setup_timeout_seconds": -5}},
        {"conda": 5},
    ],
    ids=str,
)
def test_this_environment_is_refused(environment: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        ray.get(variable.options(runtime_env=environment).remote("A"))


@pytest.mark.parametrize("working_dir", ["/no/such/folder", "relative/that/is/not/there"])
def test_a_folder_that_is_not_there_is_refused(start: Start, working_dir: str) -> None:
    with pytest.raises(ValueError):
        start(runtime_env={"working_dir": working_dir})


def test_files_of_the_working_directory_are_read_by_relative_paths(start: Start, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "data.txt").write_text("content")
    (tmp_path / "empty").mkdir()
    start(runtime_env={"working_dir": str(tmp_path)})
    assert ray.get(read.remote("folder/data.txt")) == "content"


def test_modules_of_the_working_directory_are_imported(start: Start, tmp_path: Path) -> None:
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "__init__.py").write_text("from .inner import VALUE\n")
    (tmp_path / "package_of_mine" / "inner.py").write_text("VALUE = 17\n")
    start(runtime_env={"working_dir": str(tmp_path)})

    @ray.remote
    def value() -> int:
        import package_of_mine

        return package_of_mine.VALUE

    assert ray.get(value.remote()) == 17


def test_the_working_directory_is_a_copy(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("before")
    start(runtime_env={"working_dir": str(tmp_path)})
    assert ray.get(read.remote("data.txt")) == "before"
    (tmp_path / "data.txt").write_text("after")
    assert ray.get(read.remote("data.txt")) == "before"

    @ray.remote
    def here() -> str:
        return os.getcwd()

    assert Path(ray.get(here.remote())).resolve() != tmp_path.resolve()


def test_gitignore_and_rayignore_leave_files_out(start: Start, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / ".rayignore").write_text("secret/\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("")
    (tmp_path / "run.log").write_text("")
    (tmp_path / "kept.txt").write_text("")
    start(runtime_env={"working_dir": str(tmp_path)})

    @ray.remote
    def there() -> list[bool]:
        return [os.path.exists(name) for name in ("kept.txt", "run.log", "secret/key")]

    assert ray.get(there.remote()) == [True, False, False]


def test_excludes_are_patterns_of_gitignore(start: Start, tmp_path: Path) -> None:
    for name in ("a.bin", "b.txt", "sub/c.bin", "sub/d.txt", "data/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    start(runtime_env={"working_dir": str(tmp_path), "excludes": ["*.bin", "/data/"]})

    @ray.remote
    def there() -> list[bool]:
        return [os.path.exists(name) for name in ("a.bin", "b.txt", "sub/c.bin", "sub/d.txt", "data/e.txt")]

    assert ray.get(there.remote()) == [False, True, False, True, False]


def test_an_archive_is_a_working_directory(start: Start, tmp_path: Path) -> None:
    archive = tmp_path / "work.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("inside.txt", "zipped")
    start(runtime_env={"working_dir": str(archive)})
    assert ray.get(read.remote("inside.txt")) == "zipped"


def test_a_module_object_is_shipped(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_mine").mkdir()
    (tmp_path / "module_of_mine" / "__init__.py").write_text("VALUE = 23\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import module_of_mine

    start(runtime_env={"py_modules": [module_of_mine]})

    @ray.remote
    def value() -> tuple[int, str]:
        import module_of_mine

        return module_of_mine.VALUE, module_of_mine.__file__

    number, file = ray.get(value.remote())
    assert number == 23
    assert not file.startswith(str(tmp_path))


def test_several_modules_are_shipped(start: Start, tmp_path: Path) -> None:
    for name in ("first_module", "second_module"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"NAME = '{name}'\n")
    start(runtime_env={"py_modules": [str(tmp_path / "first_module"), str(tmp_path / "second_module")]})

    @ray.remote
    def names() -> list[str]:
        import first_module
        import second_module

        return [first_module.NAME, second_module.NAME]

    assert ray.get(names.remote()) == ["first_module", "second_module"]


def test_variables_of_the_job_and_of_the_task_are_both_there(start: Start) -> None:
    start(runtime_env={"env_vars": {"JOB": "job", "BOTH": "job"}})

    @ray.remote
    def read_all() -> list[str | None]:
        return [os.environ.get(name) for name in ("JOB", "BOTH", "TASK")]

    environment = {"env_vars": {"BOTH": "task", "TASK": "task"}}
    assert ray.get(read_all.options(runtime_env=environment).remote()) == ["job", "task", "task"]
    assert ray.get(read_all.remote()) == ["job", "job", None]


def test_a_hook_by_name_runs_in_each_worker(start: Start, tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text("import os\n\ndef setup():\n    os.environ['HOOKED'] = 'by name'\n")
    start(runtime_env={"working_dir": str(tmp_path), "worker_process_setup_hook": "hooks.setup"})
    assert ray.get(variable.remote("HOOKED")) == "by name"


def test_a_hook_runs_in_actors_too(start: Start) -> None:
    def setup() -> None:
        os.environ["HOOKED"] = "function"

    start(runtime_env={"worker_process_setup_hook": setup})

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.seen = os.environ.get("HOOKED")

        def get(self) -> str | None:
            return self.seen

    assert ray.get(Actor.remote().get.remote()) == "function"


def test_a_hook_that_fails_fails_the_task(start: Start) -> None:
    def setup() -> None:
        raise RuntimeError("the hook is broken")

    start(runtime_env={"worker_process_setup_hook": setup})
    with pytest.raises(ray.exceptions.RayError):
        ray.get(variable.remote("A"), timeout=60)


@slow
@shared
def test_a_package_that_does_not_exist_is_a_setup_error() -> None:
    environment = {"pip": ["/no/such/package.whl"]}
    with pytest.raises(RuntimeEnvSetupError, match=r"\[Node [0-9.]+\] "):
        ray.get(variable.options(runtime_env=environment).remote("A"), timeout=250)


@slow
@shared
def test_an_actor_whose_environment_fails_says_so() -> None:
    @ray.remote(runtime_env={"pip": ["/no/such/package.whl"]})
    class Actor:
        def get(self) -> None: ...

    with pytest.raises(RuntimeEnvSetupError):
        ray.get(Actor.remote().get.remote(), timeout=250)


@slow
@shared
def test_a_failed_environment_leaves_the_others_working() -> None:
    with pytest.raises(RuntimeEnvSetupError):
        ray.get(variable.options(runtime_env={"pip": ["/no/such/other.whl"]}).remote("A"), timeout=250)
    assert ray.get(variable.options(runtime_env={"env_vars": {"A": "1"}}).remote("A")) == "1"


@shared
def test_the_environment_object_has_its_fields() -> None:
    environment = RuntimeEnv(env_vars={"A": "1"}, config={"eager_install": False})
    assert environment["env_vars"] == {"A": "1"}
    assert environment.env_vars() == {"A": "1"}
    assert environment.to_dict()["env_vars"] == {"A": "1"}
    environment["env_vars"] = {"B": "2"}
    assert ray.get(variable.options(runtime_env=environment).remote("B")) == "2"


@shared
def test_an_environment_is_written_and_read() -> None:
    environment = RuntimeEnv(env_vars={"A": "1"})
    assert RuntimeEnv.deserialize(environment.serialize()).env_vars() == {"A": "1"}


@shared
def test_the_context_of_a_task_has_its_environment() -> None:
    @ray.remote(runtime_env={"env_vars": {"A": "1"}})
    def own() -> dict[str, Any]:
        return dict(ray.get_runtime_context().runtime_env)

    assert ray.get(own.remote())["env_vars"] == {"A": "1"}


@shared
def test_actors_of_different_environments_live_side_by_side() -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        def get(self) -> str | None:
            return os.environ.get("SIDE")

    actors = [Actor.options(runtime_env={"env_vars": {"SIDE": str(index)}}).remote() for index in range(3)]
    assert ray.get([actor.get.remote() for actor in actors]) == ["0", "1", "2"]


def test_the_environment_of_a_job_is_printed_by_its_context(start: Start) -> None:
    start(runtime_env={"env_vars": {"JOB": "1"}})
    assert ray.get_runtime_context().runtime_env["env_vars"] == {"JOB": "1"}


def test_a_variable_of_the_environment_gives_the_job_its_own(run_program: Callable[..., Any]) -> None:
    program = """
import os, ray
ray.init(num_cpus=1, include_dashboard=False, runtime_env={"env_vars": {"A": "program"}})

@ray.remote
def read():
    return os.environ["A"]

print(ray.get(read.remote()), os.environ.get("A"))
"""
    done = run_program(program)
    assert done.stdout.split() == ["program", "None"], done.stderr


def test_python_threads_are_limited_by_the_processors_of_a_task(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    start(num_cpus=4)
    assert ray.get(variable.options(num_cpus=2).remote("OMP_NUM_THREADS")) == "2"
    assert ray.get(variable.options(num_cpus=1).remote("OMP_NUM_THREADS")) == "1"
