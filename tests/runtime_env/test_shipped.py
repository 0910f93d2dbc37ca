"""Folders and files of a program that travel to its workers, and what is done with them there."""

from __future__ import annotations

import os
import sys
import types
import zipfile

import pytest
import ray
from oxiray import _environment_packages as packages
from oxiray._ignore_rules import Rules
from ray.exceptions import RuntimeEnvSetupError


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "program"
    (made / "deep" / "deeper").mkdir(parents=True)
    (made / "own_module.py").write_text("VALUE = 41\n")
    (made / "data.txt").write_text("hello")
    (made / "deep" / "deeper" / "kept.bin").write_bytes(b"\0" * 10)
    (made / "noise.log").write_text("no")
    (made / "secret.key").write_text("no")
    (made / ".gitignore").write_text("*.log\n")
    return made


@ray.remote
def look():
    import own_module

    here = sorted(os.path.relpath(os.path.join(at, name)) for at, _, names in os.walk(".") for name in names)
    return own_module.VALUE, [name for name in here if "__pycache__" not in name], sys.path[0] == os.getcwd()


KEPT = [".gitignore", "data.txt", "deep/deeper/kept.bin", "own_module.py"]


def test_a_working_directory_of_a_task(shared, folder) -> None:
    asked = {"working_dir": str(folder), "excludes": ["*.key"]}
    assert ray.get(look.options(runtime_env=asked).remote(), timeout=30) == (41, KEPT, True)
    (folder / "own_module.py").write_text("VALUE = 42\n")
    assert ray.get(look.options(runtime_env=asked).remote(), timeout=30)[0] == 42
    with pytest.raises(ModuleNotFoundError):
        ray.get(look.remote(), timeout=30)


def test_a_working_directory_of_a_job_is_inherited(cluster, folder) -> None:
    cluster(runtime_env={"working_dir": folder, "excludes": ["*.key"], "env_vars": {"A": "1"}})

    @ray.remote
    class Parent:
        def children(self):
            own = ray.get(look.options(runtime_env={"env_vars": {"B": "2"}}).remote())
            context = ray.get_runtime_context()
            return own, os.getcwd(), dict(context.runtime_env), context.get_runtime_env_string()

    child, here, environment, text = ray.get(Parent.remote().children.remote(), timeout=30)
    assert child == (41, KEPT, True)
    assert here.endswith(environment["working_dir"].removeprefix("package://"))
    assert environment["env_vars"] == {"A": "1"} and '"A": "1"' in text


def test_zip_files(shared, folder, tmp_path) -> None:
    plain, nested = tmp_path / "plain.zip", tmp_path / "nested.zip"
    for path, prefix in ((plain, ""), (nested, "top/")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{prefix}own_module.py", "VALUE = 5\n")
            archive.writestr(f"{prefix}x/y.txt", "y")
    expected = (5, ["own_module.py", "x/y.txt"], True)
    assert ray.get(look.options(runtime_env={"working_dir": str(plain)}).remote(), timeout=30) == expected
    assert ray.get(look.options(runtime_env={"working_dir": f"file://{nested}"}).remote(), timeout=30) == expected


def test_modules(shared, wheels, tmp_path) -> None:
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("NAME = 'package'\n")
    (tmp_path / "single.py").write_text("NAME = 'single'\n")
    wheel = wheels.make("wheeled", "3.0")
    module = types.ModuleType("single")
    module.__file__ = str(tmp_path / "single.py")

    @ray.remote
    def names():
        import own_package
        import single
        import wheeled

        return own_package.NAME, single.NAME, wheeled.VERSION

    asked = {"py_modules": [str(package), module, wheel]}
    assert ray.get(names.options(runtime_env=asked).remote(), timeout=30) == ("package", "single", "3.0")


def test_the_setup_hook(shared, folder) -> None:
    def hook():
        os.environ["HOOKED"] = "yes"

    def broken():
        raise KeyError("of the hook")

    @ray.remote
    def hooked():
        return os.environ.get("HOOKED")

    @ray.remote
    class Hooked:
        def read(self):
            return os.environ.get("HOOKED")

    assert ray.get(hooked.options(runtime_env={"worker_process_setup_hook": hook}).remote(), timeout=30) == "yes"
    (folder / "hooks.py").write_text("import os\ndef begin():\n    os.environ['HOOKED'] = 'by name'\n")
    named = {"working_dir": str(folder), "worker_process_setup_hook": "hooks.begin"}
    assert ray.get(Hooked.options(runtime_env=named).remote().read.remote(), timeout=30) == "by name"
    for asked, words in ((broken, "of the hook"), ("no_such_module.hook", "no_such_module"), ("bare", "names no module")):
        environment = {"worker_process_setup_hook": asked}
        with pytest.raises(RuntimeEnvSetupError, match=words):
            ray.get(hooked.options(runtime_env=environment).remote(), timeout=30)
        with pytest.raises(RuntimeEnvSetupError, match=words):
            ray.get(Hooked.options(runtime_env=environment).remote().read.remote(), timeout=30)


def test_workers_are_not_shared_between_environments(shared) -> None:
    @ray.remote
    def pid():
        return os.getpid()

    one, two = ({"env_vars": {"WHICH": which}} for which in "12")
    first = ray.get(pid.options(runtime_env=one).remote(), timeout=30)
    assert ray.get(pid.options(runtime_env=two).remote(), timeout=30) != first


def test_what_cannot_be_shipped(shared, tmp_path, monkeypatch) -> None:
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "bad.zip").write_text("not a zip file")
    for asked, words in (
        ({"working_dir": str(tmp_path / "none")}, "no such folder"),
        ({"working_dir": str(tmp_path / "text.txt")}, "neither a folder nor"),
        ({"working_dir": str(tmp_path / "bad.zip")}, "cannot be read as a zip"),
        ({"working_dir": "https://host/a.zip"}, "download it first"),
        ({"working_dir": "package://0123"}, "no such package"),
        ({"py_modules": [str(tmp_path / "none")]}, "no such folder"),
        ({"py_modules": [str(tmp_path / "text.txt")]}, "no folder, .py file"),
    ):
        with pytest.raises(ValueError, match=words):
            look.options(runtime_env=asked).remote()
    monkeypatch.setenv("OXIRAY_PACKAGE_BYTES_MAX", "3")
    with pytest.raises(ValueError, match="text.txt.*excludes|excludes.*text.txt"):
        look.options(runtime_env={"working_dir": str(tmp_path)}).remote()
    with pytest.raises(RuntimeEnvSetupError, match="'pip' or 'uv'"):
        look.options(runtime_env={"image_uri": "something"}).remote()
    with pytest.raises(RuntimeEnvSetupError, match="conda create"):
        look.options(runtime_env={"conda": "no-such-environment"}).remote()


def test_an_environment_of_conda_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = tmp_path / "mine" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\nOF_CONDA=mine exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)

    @ray.remote
    def whose() -> str | None:
        return os.environ.get("OF_CONDA")

    assert ray.get(whose.options(runtime_env={"conda": str(tmp_path / "mine")}).remote()) == "mine"
    monkeypatch.setenv("CONDA_ENVS_PATH", str(tmp_path))
    assert ray.get(whose.options(runtime_env={"conda": "mine"}).remote()) == "mine"


def test_a_package_that_would_leave_its_folder_is_refused(place, tmp_path) -> None:
    for name in ("../outside.txt", "/absolute.txt", "a/../../b.txt"):
        path = tmp_path / "evil.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, "x")
        with pytest.raises(ValueError, match="outside of its folder"):
            packages.ship_archive(path)
        with pytest.raises(ValueError, match="outside of its folder"):
            packages.unpack(path, tmp_path / "target", strips_folder=False)
        assert not (tmp_path / "target").exists()


def test_a_link_back_up_ends_and_links_are_followed(place, folder, tmp_path) -> None:
    (folder / "loop").symlink_to(folder)
    (folder / "linked.txt").symlink_to(folder / "data.txt")
    packages.unpack(packages.zip_of(packages.ship_folder(folder, ["*.key"])), tmp_path / "target", strips_folder=False)
    found = sorted(str(path.relative_to(tmp_path / "target")) for path in (tmp_path / "target").rglob("*") if path.is_file())
    assert found == sorted([*KEPT, "linked.txt"])


@pytest.mark.parametrize(
    ("lines", "ignored", "kept"),
    [
        (["*.log"], ["a.log", "x/y.log"], ["a.txt", "log"]),
        (["/a"], ["a"], ["x/a"]),
        (["a/b"], ["a/b"], ["x/a/b"]),
        (["build/"], ["build|", "x/build|"], ["build", "x/builds|"]),
        (["**/c"], ["c", "a/b/c"], ["cc"]),
        (["a/**"], ["a/b", "a/b/c"], ["a", "b/a"]),
        (["a/**/b"], ["a/b", "a/x/y/b"], ["b"]),
        (["*.log", "!keep.log"], ["x.log"], ["keep.log"]),
        (["file?.txt"], ["file1.txt"], ["file12.txt", "file/.txt"]),
        (["[a-c].txt", "[!0-9]z"], ["b.txt", "az"], ["d.txt", "1z"]),
        (["# comment", "", "\\#real"], ["#real"], ["# comment"]),
        (["trailing  "], ["trailing"], ["trailing  "]),
    ],
    ids=lambda value: str(value),
)
def test_ignoring_as_git_does(lines, ignored, kept) -> None:
    rules = Rules(lines)
    for path in ignored:
        assert rules.verdict(path.rstrip("|"), path.endswith("|")), path
    for path in kept:
        assert not rules.verdict(path.rstrip("|"), path.endswith("|")), path


def test_variables_are_made_of_others(cluster, monkeypatch) -> None:
    """Of the job's, whatever their names; of those that were there before; and of nothing where one is not set."""
    monkeypatch.setenv("WAS_THERE", "before")
    cluster(runtime_env={"env_vars": {"ZONE": "job"}})

    @ray.remote
    def read(*names):
        return [os.environ[name] for name in names]

    asked = {"A": "${ZONE}/a", "B": "${WAS_THERE}:${NOT_SET}baz", "WAS_THERE": "new:${WAS_THERE}"}
    for _ in range(2):
        found = ray.get(read.options(runtime_env={"env_vars": asked}).remote(*asked), timeout=60)
        assert found == ["job/a", "before:baz", "new:before"]
