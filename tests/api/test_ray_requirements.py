"""The name `ray` beside a package that requires `ray`: whose it is, in every order of installation, by pip and by uv.

Ray and the package are small made-up wheels, so that nothing needs a network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import oxiray
import pytest
from official_wheels import official_wheel
from oxiray import __version__ as own_version
from oxiray._libraries import local_wheel
from wheels import Wheels

ALIAS = next((Path(oxiray.__file__).parent / "_native").glob("oxiray_ray_alias-*.whl"))
#: What Ray itself is known by.
RAY = {"ray/__init__.py": "IS_RAY_ITSELF = True\n", "ray/_raylet.so": "native"}
OWN_RAY = f"2.60.0+oxiray.{own_version}"


@dataclass
class Site:
    """An environment that `installer` fills, in which `import oxiray` is the Oxiray that is tested."""

    installer: str
    python: str
    wheels: Wheels
    modules: Path

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
        return subprocess.run(words, capture_output=True, text=True, check=False, env=kept | {"PYTHONPATH": str(self.modules)})

    def _install(self, order: str, *words: str) -> str:
        if self.installer == "pip":
            command = [sys.executable, "-m", "pip", f"--python={self.python}", "--disable-pip-version-check", order]
        else:
            command = [str(Path(sys.executable).parent / "uv"), "pip", order, f"--python={self.python}"]
        done = self._run(*command, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def install(self, *words: str) -> None:
        self._install("install", *(["--no-cache-dir", "--no-compile"] if self.installer == "pip" else ["--no-cache"]), *self.wheels.offline, *words)

    def uninstall(self, *names: str) -> None:
        self._install("uninstall", *(["--yes"] if self.installer == "pip" else []), *names)

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        return self._run(self.python, "-c", program)

    def doctor(self) -> dict[str, Any]:
        """What `oxiray doctor` says on the name."""
        told = json.loads(self._run(self.python, "-m", "oxiray._cli", "doctor", "--json").stdout)
        return next(one for one in told["checks"] if one["check"] == "import ray")

    def is_oxiray(self) -> bool:
        done = self.run("import oxiray, ray; print(ray.remote is oxiray.remote)")
        return done.stdout.strip() == "True" and not done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    made = Wheels(tmp_path_factory.mktemp("index") / "wheels")
    for name in ("click", "psutil", "colorama", "cloudpickle"):
        made.make(name, "8.0")
    # Its files are those that are tested, beside the environment.
    made.make("oxiray", own_version, files={"of_oxiray.py": ""})
    made.make("ray", "2.60.0", files=RAY)
    made.make("trainer", "1.0", requires="ray>=2.41")
    return made


@pytest.fixture(params=["pip", "uv"])
def site(request: pytest.FixtureRequest, tmp_path: Path, wheels: Wheels) -> Site:
    folder, modules = tmp_path / "environment", tmp_path / "modules"
    venv.create(folder)
    modules.mkdir()
    for module in (oxiray, cloudpickle):
        package = Path(module.__file__).parent
        (modules / package.name).symlink_to(package)
    return Site(request.param, str(folder / "bin" / "python"), wheels, modules)


def test_ray_that_is_installed_over_the_alias_is_told_and_the_advice_helps(site: Site, tmp_path: Path) -> None:
    site.install(str(ALIAS))
    assert site.is_oxiray() and site.doctor()["is_ok"]
    site.install("trainer")
    assert site.run("import ray; print(ray.IS_RAY_ITSELF)").stdout == "True\n"
    assert "`import ray` means Ray itself here" in site.run("import oxiray").stderr
    told = site.doctor()
    assert not told["is_ok"] and "is not Oxiray, although its alias is installed" in told["found"]
    assert "`pip uninstall ray oxiray-ray-alias`" in told["advice"] and "`oxiray ray install`" in told["advice"]
    # As the advice says; what `oxiray ray install` makes is installed from its file.
    site.uninstall("ray", "oxiray-ray-alias")
    site.install(str(local_wheel.made(local_wheel.Recipe(official_wheel(tmp_path)), tmp_path / "out")), "trainer")
    assert site.is_oxiray() and site.doctor()["is_ok"]


def test_the_alias_refuses_over_ray_and_the_doctor_says_why(site: Site) -> None:
    site.install("trainer")
    told = site.doctor()
    assert not told["is_ok"] and "is not Oxiray: " in told["found"]
    site.install(str(ALIAS))
    refused = site.run("import ray")
    assert refused.returncode == 1 and "Ray itself is installed in the place where Oxiray's `ray` alias lies" in refused.stderr
    told = site.doctor()
    assert not told["is_ok"] and "fails: Oxiray's alias was installed over Ray itself" in told["found"]
    assert "`pip uninstall ray oxiray-ray-alias`" in told["advice"]


def test_the_alias_stays_where_the_requirement_is_set_aside(site: Site, tmp_path: Path) -> None:
    site.install(str(ALIAS))
    if site.installer == "pip":
        site.install("--no-deps", "trainer")
    else:
        overrides = tmp_path / "overrides.txt"
        overrides.write_text("ray ; sys_platform == 'never'\n")
        site.install(f"--override={overrides}", "trainer")
    assert site.run("import trainer; print(trainer.VERSION)").stdout == "1.0\n"
    assert site.is_oxiray() and site.doctor()["is_ok"]


def test_a_constraint_keeps_the_distribution_that_satisfies_the_requirement(site: Site, tmp_path: Path) -> None:
    # A newer Ray is in the index, which an upgrade would take.
    index = Wheels(tmp_path / "index")
    index.make("ray", "2.61.0", files=RAY)
    local_wheel.made(local_wheel.Recipe(official_wheel(tmp_path)), index.folder)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(f"ray=={OWN_RAY}\n")
    for words in (["trainer"], ["--upgrade", "trainer"]):
        site.install("--find-links", str(index.folder), f"--constraint={constraints}", *words)
        assert site.is_oxiray()
        assert "the distribution of `oxiray ray install`" in site.doctor()["found"]
    assert site.run("import importlib.metadata as m; print(m.version('ray'))").stdout.strip() == OWN_RAY
