"""The distribution `ray` that Oxiray makes on a user's machine: what is in it, and that pip and uv are content with it.

The official wheel is a small made-up one, so that nothing needs a network.
"""

from __future__ import annotations

import base64
import email
import hashlib
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from official_wheels import FILES, official_wheel
from oxiray import __version__ as own_version
from oxiray._libraries import command, contents, local_wheel, official
from wheels import Wheels

VERSION = f"2.60.0+oxiray.{own_version}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return official_wheel(tmp_path)


def made(source: Path, folder: Path, *libraries: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(local_wheel.made(local_wheel.Recipe(source, libraries), folder))


def metadata_of(wheel: zipfile.ZipFile) -> email.message.Message:
    return email.message_from_bytes(wheel.read(f"ray-{VERSION}.dist-info/METADATA"))


def test_a_library_brings_its_files_and_nothing_of_rays_core(source: Path, tmp_path: Path) -> None:
    with made(source, tmp_path / "out", "data") as wheel:
        taken = {name.removeprefix("oxiray_libraries/") for name in wheel.namelist() if name.startswith("oxiray_libraries/ray/")}
        common = {f"ray/_common/{name}.py" for name in ("constants", "retry", "test_utils")}
        assert taken == {*common, "ray/data/__init__.py", "ray/data/deep/inner.py"}
        assert wheel.read("oxiray_libraries/ray/data/__init__.py").decode() == FILES["ray/data/__init__.py"]
        assert b"Oxiray under Ray's name" in wheel.read("ray/__init__.py")
        notice = wheel.read(f"ray-{VERSION}.dist-info/licenses/NOTICE").decode()
        assert hashlib.sha256(source.read_bytes()).hexdigest() in notice and "The 5 files" in notice
        assert "Apache License" in wheel.read(f"ray-{VERSION}.dist-info/licenses/LICENSE").decode()


def test_without_libraries_it_is_the_name_alone(source: Path, tmp_path: Path) -> None:
    with made(source, tmp_path / "out") as wheel:
        assert not [name for name in wheel.namelist() if name.startswith("oxiray_libraries")]
        required = metadata_of(wheel).get_all("Requires-Dist") or []
        assert [one for one in required if "extra ==" not in one] == [f"oxiray=={own_version}"]


def test_libraries_that_lean_on_others_bring_them(source: Path, tmp_path: Path) -> None:
    assert contents.closed(["rllib"]) == ("data", "rllib", "train", "tune")
    with made(source, tmp_path / "out", "tune") as wheel:
        assert "oxiray_libraries/ray/train/_internal/session.py" in wheel.namelist()
        assert "oxiray_libraries/ray/train/__init__.py" not in wheel.namelist()


def test_parts_of_the_llm_library_come_with_it_alone(source: Path, tmp_path: Path) -> None:
    parts = {"data/llm.py", "llm/__init__.py", "serve/llm/__init__.py"}
    for libraries, expected in (("data", "serve"), set()), (("llm",), parts):
        with made(source, tmp_path / libraries[0], *libraries) as wheel:
            taken = {name.removeprefix("oxiray_libraries/ray/") for name in wheel.namelist() if "llm" in name}
            assert taken == expected
            assert "oxiray_libraries/ray/data/__init__.py" in wheel.namelist()


def test_commands_of_a_library_come_with_it(source: Path, tmp_path: Path) -> None:
    for library, has_command in (("data", False), ("serve", True)):
        with made(source, tmp_path / library, library) as wheel:
            entry_points = wheel.read(f"ray-{VERSION}.dist-info/entry_points.txt").decode()
        assert "ray = oxiray_ray_alias.command:main\n" in entry_points
        assert ("serve = ray.serve.scripts:cli\n" in entry_points) is has_command


def test_extras_are_the_official_ones_with_the_bounds_that_libraries_need(source: Path, tmp_path: Path) -> None:
    with made(source, tmp_path / "out", "data") as wheel:
        metadata = metadata_of(wheel)
    assert metadata["Version"] == VERSION
    assert set(metadata.get_all("Provides-Extra") or []) == {"dask", "data", "default", "tune"}
    required = metadata.get_all("Requires-Dist") or []
    assert {"click>=7.0", "psutil", 'pandas<3; extra == "data"', 'fsspec; python_version >= "3.8" and extra == "tune"'} <= set(required)


def test_the_record_is_right_and_the_bytes_are_always_the_same(source: Path, tmp_path: Path) -> None:
    one, other = (local_wheel.made(local_wheel.Recipe(source, ("data",)), tmp_path / name) for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as wheel:
        rows = [row.split(",") for row in wheel.read(f"ray-{VERSION}.dist-info/RECORD").decode().splitlines()]
        assert {row[0] for row in rows} == set(wheel.namelist())
        for name, digest, size in rows[:-1]:
            data = wheel.read(name)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert int(size) == len(data)


def test_a_version_that_was_not_tried_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    older = official_wheel(tmp_path, "2.55.0")
    with pytest.raises(official.Refused, match="2.55.0.*--untested"):
        local_wheel.made(local_wheel.Recipe(older), tmp_path / "out")
    path = local_wheel.made(local_wheel.Recipe(older, untested=True), tmp_path / "out")
    assert path.name.startswith("ray-2.55.0+oxiray.")


def test_a_dependent_that_pins_another_version_may_be_told_that_one(source: Path, tmp_path: Path) -> None:
    path = local_wheel.made(local_wheel.Recipe(source, claimed="2.56.0"), tmp_path / "out")
    assert path.name == f"ray-2.56.0+oxiray.{own_version}-py3-none-any.whl"


def test_the_command_takes_a_file_only_with_a_known_hash(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command.main(["wheel", "-o", str(out), "--from", str(source), "data"]) == 1
    assert "SHA-256" in capsys.readouterr().err
    assert command.main(["wheel", "-o", str(out), "--from", str(source), "--untested", "data"]) == 0
    assert Path(capsys.readouterr().out.strip()).parent == out
    assert command.main(["wheel", "-o", str(out), "--from", str(source), "--untested", "spark"]) == 1
    assert "'spark' is no library" in capsys.readouterr().err


def test_installing_beside_the_alias_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The environment of the tests has it.
    assert command.main(["install", "--from", str(source), "--untested"]) == 1
    assert "`pip uninstall oxiray-ray-alias` first" in capsys.readouterr().err


@pytest.fixture(scope="module")
def dependents(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """What the environments are made of: Oxiray's place holder, what the libraries need, and who depends on Ray."""
    wheels = Wheels(tmp_path_factory.mktemp("index") / "wheels")
    for name in ("click", "psutil", "colorama", "fsspec", "cloudpickle"):
        wheels.make(name, "8.0")
    wheels.make("pandas", "2.3.0")
    wheels.make("pandas", "3.1.0")
    wheels.make("oxiray", own_version)
    wheels.make("trainer", "1.0", requires="ray[data,default]>=2.41")
    wheels.make("aiohttp", "3.15.0")
    return wheels


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_dependents_are_content_and_it_goes_by_its_name(installer: str, dependents: Wheels, tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=installer == "pip")
    python = str(folder / "bin" / "python")
    if installer == "pip":
        install, rest = [python, "-m", "pip", "install", "--no-cache-dir"], [python, "-m", "pip"]
    else:
        uv = str(Path(sys.executable).parent / "uv")
        install, rest = [uv, "pip", "install", f"--python={python}", "--no-cache"], [uv, "pip"]
    wheel = local_wheel.made(local_wheel.Recipe(official_wheel(tmp_path), ("data",)), tmp_path / "out")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}

    def run(*words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run(*install, *dependents.offline, str(wheel), "trainer")
    version = "import importlib.metadata as m; print(m.version('ray'), m.version('pandas'))"
    assert run(python, "-c", version).split() == [VERSION, "2.3.0"]
    where = [] if installer == "pip" else [f"--python={python}"]
    run(*rest, "check", *where)
    run(*rest, "uninstall", *where, *(["--yes"] if installer == "pip" else []), "ray")
    left = [path for path in folder.rglob("*") if path.name in ("ray", "oxiray_libraries", "oxiray_ray_alias")]
    assert left == []


def run_with(libraries: tuple[str, ...], tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program where the distribution is installed, as far as imports are concerned."""
    site = tmp_path / "site"
    with zipfile.ZipFile(local_wheel.made(local_wheel.Recipe(official_wheel(tmp_path), libraries), tmp_path / "out")) as wheel:
        wheel.extractall(site)
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_libraries_are_loaded_under_their_names_and_oxirays_modules_go_first(tmp_path: Path) -> None:
    program = """
import pickle, ray, ray.data, ray.data.deep.inner
import oxiray._private.worker
assert ray._private.worker is oxiray._private.worker
assert ray.data.NAME == "ray.data" and ray.data.TIMES == 3
assert ray.data.deep.inner.Row.__module__ == "ray.data.deep.inner"
assert pickle.loads(pickle.dumps(ray.data.deep.inner.Row)) is ray.data.deep.inner.Row
from ray._common.constants import HEAD_NODE_RESOURCE_NAME, ONLY_THERE
assert (HEAD_NODE_RESOURCE_NAME, ONLY_THERE) == ("node:__internal_head__", 7)
import ray.train
assert ray.train.__name__ == "oxiray.train"
from ray._common.usage import usage_lib
assert not usage_lib.usage_stats_enabled()
"""
    done = run_with(("data",), tmp_path, program)
    assert done.returncode == 0, done.stderr


def test_helpers_for_tests_and_examples_come_with_a_library(tmp_path: Path) -> None:
    program = """
from ray.serve._private.test_utils import PrometheusTimeseries, SignalActor
import ray.tune.examples.one, oxiray._common.test_utils
assert SignalActor is oxiray._common.test_utils.SignalActor, "Oxiray's own goes first"
assert PrometheusTimeseries.__name__ == "PrometheusTimeseries"
"""
    done = run_with(("serve", "tune"), tmp_path, program)
    assert done.returncode == 0, done.stderr


def test_trainers_of_rays_stem_from_oxirays(tmp_path: Path) -> None:
    program = """
from oxiray.train.data_parallel_trainer import DataParallelTrainer
from ray.train import RunConfig, ScalingConfig
from ray.train.xgboost import XGBoostTrainer
from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils
assert issubclass(XGBoostTrainer, DataParallelTrainer)
ask = lambda: get_train_fn_utils().is_distributed()
for workers in (0, 1):
    result = XGBoostTrainer(ask, scaling_config=ScalingConfig(num_workers=workers), run_config=RunConfig(storage_path=FOLDER)).fit()
    assert result.return_value is bool(workers)
"""
    done = run_with(("train",), tmp_path, program.replace("FOLDER", repr(str(tmp_path / "runs"))))
    assert done.returncode == 0, done.stderr


def test_what_is_a_librarys_own_is_forked_where_that_was_imported(tmp_path: Path) -> None:
    program = """
import os, sys, ray
seen = lambda: (os.getppid(), "ray.data" in sys.modules)
theirs, own = (ray.remote(type(seen)(seen.__code__, {"os": os, "sys": sys}, name)) for name in ("theirs", "own"))
theirs._function.__module__ = "ray.data.deep.inner"

class Theirs:
    seen = lambda self: ("ray.data" in sys.modules, ray.get(own.remote(), timeout=60)[1], ray.get_runtime_context().runtime_env)
Theirs.__module__ = "ray.data.deep.inner"
class Derived(Theirs):
    pass
Derived.__module__ = "__main__"

ray.init(num_cpus=4)
(template, has_it), (other, has_it_too), (plain, has_nothing) = ray.get([theirs.remote(), theirs.options(num_cpus=2).remote(), own.remote()], timeout=60)
assert (template, has_it, has_it_too) == (other, True, True), "one template imported it for both"
assert plain != template and not has_nothing, "what is not the library's is not kept waiting for it"
assert ray.get(ray.remote(Derived).remote().seen.remote(), timeout=60) == (True, False, {}), "nor is what it calls"
ray.shutdown()

ray.init(num_cpus=4, runtime_env={"preload": []})
assert ray.get(theirs.remote(), timeout=60)[1] is False, "nothing is imported where the job says so"
"""
    done = run_with(("data",), tmp_path, program)
    assert done.returncode == 0, done.stderr


def test_what_is_not_installed_says_how_it_is(tmp_path: Path) -> None:
    for statement in ("import ray.tune", "from ray import tune"):
        done = run_with(("data",), tmp_path, statement)
        assert "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr
        assert 'oxiray ray install "tune"' in done.stderr
    done = run_with(("data",), tmp_path, "from ray.data.llm import build_processor")
    assert 'ModuleNotFoundError: `ray.data.llm` is a library' in done.stderr and 'oxiray ray install "llm"' in done.stderr
    (other := tmp_path / "llm").mkdir()
    done = run_with(("llm",), other, "import ray\nfrom ray.data.llm import NAME\nassert NAME == ray.llm.NAME == 'ray.llm'")
    assert done.returncode == 0, done.stderr
    (other := tmp_path / "other").mkdir()
    done = run_with((), other, "from ray.data import range; range(3)")
    assert 'oxiray ray install "data"' in done.stderr


def test_a_module_that_an_installed_library_lacks_is_not_said_to_be_installable(tmp_path: Path) -> None:
    done = run_with(("data",), tmp_path, "import ray.data.integration")
    assert "ModuleNotFoundError: `ray.data.integration` is not among the modules of `ray.data`" in done.stderr
    assert "oxiray ray install" not in done.stderr


def test_compat_knows_what_is_installed(tmp_path: Path) -> None:
    names = ["ray.data.NAME", "ray.data.deep.inner.Row", "ray.data.nothing", "ray.tune.report", "ray.remote"]
    program = f"from oxiray import compat\nfor name in {names}: print(compat.check(name).status)"
    assert run_with(("data",), tmp_path, program).stdout.split() == ["there", "there", "missing", "missing", "there"]


def test_the_distribution_is_not_taken_for_ray_itself(tmp_path: Path) -> None:
    from oxiray_ray_alias import guard

    package = tmp_path / "ray"
    package.mkdir()
    (tmp_path / f"ray-{VERSION}.dist-info").mkdir()
    guard.refuse_beside_ray(package)
    (tmp_path / "ray-2.61.0.dist-info").mkdir()
    with pytest.raises(ImportError, match="oxiray ray install"):
        guard.refuse_beside_ray(package)
