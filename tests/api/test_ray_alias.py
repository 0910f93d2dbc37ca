"""The name `ray`: the same modules and classes as `oxiray`, honest about what is missing, and never beside Ray."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import oxiray
import oxiray.exceptions
import oxiray.util.accelerators.accelerators
import pytest
import ray
import ray.exceptions
import ray.util.accelerators
from oxiray_ray_alias import guard
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def test_modules_and_classes_are_the_same_objects() -> None:
    assert ray.exceptions is oxiray.exceptions
    assert ray.exceptions.RayTaskError is oxiray.exceptions.RayTaskError
    assert sys.modules["ray.util.accelerators"] is sys.modules["oxiray.util.accelerators"]
    assert importlib.import_module("ray.util.accelerators.accelerators") is oxiray.util.accelerators.accelerators
    assert NodeAffinitySchedulingStrategy is oxiray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    assert ray.remote is oxiray.remote
    assert ray.init is oxiray.init


def test_modules_keep_their_own_name_and_origin() -> None:
    spec = oxiray.exceptions.__spec__
    assert oxiray.exceptions.__name__ == "oxiray.exceptions"
    assert spec is not None
    assert spec.name == "oxiray.exceptions"


def test_pickles_name_oxiray_and_read_both() -> None:
    data = pickle.dumps(ray.exceptions.WorkerCrashedError("x"), protocol=0)
    assert b"oxiray.exceptions" in data
    assert isinstance(pickle.loads(data.replace(b"coxiray.", b"cray.")), oxiray.exceptions.WorkerCrashedError)


def test_versions() -> None:
    assert ray.__version__ == "2.60.0"
    assert len(ray.__commit__) == 40
    assert oxiray.__version__ != ray.__version__


def test_cloudpickle_is_there() -> None:
    from ray import cloudpickle

    assert pickle.loads(cloudpickle.dumps(lambda: 5))() == 5
    assert ray.cloudpickle.dumps is cloudpickle.dumps


@pytest.mark.parametrize("name", ["rllib", "tune", "serve", "llm", "util.spark", "no_such_module"])
def test_missing_modules_say_so(name: str) -> None:
    with pytest.raises(ImportError, match=f"`ray.{name}` .+"):
        importlib.import_module(f"ray.{name}")
    assert importlib.util.find_spec(f"ray.{name}") is None


def test_missing_names_say_so() -> None:
    with pytest.raises(ImportError, match="oxiray ray install"):
        from ray import rllib  # noqa: F401
    with pytest.raises(AttributeError, match="oxiray ray install"):
        ray.rllib  # noqa: B018
    with pytest.raises(AttributeError, match="check the spelling"):
        ray.no_such_name  # noqa: B018
    assert not hasattr(ray, "widgets")


def test_workflow_fails_as_in_ray() -> None:
    with pytest.raises(RuntimeError, match="removed from Ray"):
        importlib.import_module("ray.workflow")


def test_dir_lists_the_api() -> None:
    assert {"init", "remote", "exceptions", "__version__"} <= set(dir(ray))


@pytest.mark.parametrize(
    "path", ["ray/_raylet.so", "ray/_private/worker.py", "ray-2.60.0.dist-info/METADATA", "ray/core/src/ray/raylet/raylet"]
)
def test_it_refuses_beside_ray(tmp_path: Path, path: str) -> None:
    package = tmp_path / "ray"
    package.mkdir()
    guard.refuse_beside_ray(package)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    with pytest.raises(ImportError, match="pip uninstall ray oxiray-ray-alias"):
        guard.refuse_beside_ray(package)


def test_the_import_and_the_command_refuse_beside_ray(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "ray").mkdir(parents=True)
    (site / "ray" / "__init__.py").write_text(Path(str(ray.__file__)).read_text())
    (site / "ray" / "_raylet.so").touch()
    path = [str(site), *sys.path]
    for code in ("import ray", "from oxiray_ray_alias.command import main; sys.exit(main())"):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; {code}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "pip uninstall ray oxiray-ray-alias" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_is_oxirays(monkeypatch: pytest.MonkeyPatch) -> None:
    from oxiray_ray_alias.command import main

    called: list[str] = []
    monkeypatch.setattr("oxiray._cli.main", called.append)
    assert not main()
    assert called == ["ray"]


def test_names_of_the_data_library_import_and_refuse_when_called() -> None:
    from ray.data import Dataset, from_pandas_refs

    with pytest.raises(NotImplementedError, match='from_pandas_refs.*oxiray ray install "data"'):
        from_pandas_refs([])
    assert not isinstance([], Dataset)
    with pytest.raises(ImportError):
        from ray.data import no_such_name  # noqa: F401


def test_oxiray_tells_where_ray_was_installed_over_the_alias(tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("")
    (tmp_path / "ray-2.60.0.dist-info").mkdir()
    program = "import sys; sys.path.insert(0, {0!r}); import oxiray; import oxiray.util"
    for place, lines in ((str(tmp_path), 1), (str(tmp_path / "ray"), 0)):
        done = subprocess.run([sys.executable, "-c", program.format(place)], capture_output=True, text=True, check=True)
        assert done.stderr.count("`import ray` means Ray itself") == lines == len(done.stderr.splitlines()), done.stderr


def test_stubs_are_there_for_the_modules_that_programs_name() -> None:
    folder = Path(str(ray.__file__)).parent
    assert (folder / "actor.pyi").is_file() and (folder / "dag" / "__init__.pyi").is_file()


def test_the_import_loads_nothing_that_takes_long_and_few_programs_need() -> None:
    heavy = ("asyncio", "ssl", "concurrent.futures", "multiprocessing", "http", "email", "numpy")
    program = f"import sys, ray; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder as `python/ray` of a checkout of Ray is, with tests and with a module that is none."""
    for name, text in {
        "tests/conftest.py": "SHARED = 3",
        "train/tests/__init__.py": "",
        "train/tests/helpers.py": "from ray.tests.conftest import SHARED\nNAME = __name__",
        "train/tests/test_it.py": "from . import helpers",
        "actor.py": "raise AssertionError('it goes before nothing of Oxiray')",
        "no_such_module.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(ray, "__path__", [*ray.__path__, str(tmp_path)])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("ray.") and "tests" in name.split(".")]:
        del sys.modules[name]


def test_tests_beside_the_alias_import_each_other(checkout: Path) -> None:
    found = importlib.import_module("ray.train.tests.test_it")
    assert (found.helpers.NAME, found.helpers.SHARED) == ("ray.train.tests.helpers", 3)
    assert importlib.import_module("ray.tests.conftest").__file__ == str(checkout / "tests" / "conftest.py")


@pytest.mark.usefixtures("checkout")
def test_nothing_else_is_found_there() -> None:
    assert importlib.import_module("ray.actor") is oxiray.actor
    for name in ("ray.no_such_module", "ray.tests.no_such_module", "ray.train.tests.no_such_module"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_no_tests_are_found_where_nobody_put_any() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"ray\.tests"):
        importlib.import_module("ray.tests.conftest")
