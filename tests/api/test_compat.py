"""`python -m oxiray.compat`: which names of Ray a program uses, and whether they are there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from oxiray import compat

FINE = """
import ray
from ray.util.queue import Queue as Line, Empty
import ray.util.state as looking
from ray import cloudpickle

@ray.remote(num_cpus=1)
def f(x):
    return x

ray.init()
print(ray.get(f.remote(1)), ray.exceptions.RayTaskError.as_instanceof_cause, looking.list_tasks())
ray.cloudpickle.dumps(Line)
"""
WORSE = """
import ray as r
from ray import tune
from ray.util import ray_debugpy, no_such_name; ray_debugpy.set_trace()
r.init(proxy_server_url='http://proxy', num_cpus=1)
r.data.range(10)
r.data.range(20)
"""


def statuses(names: list[compat.Name]) -> dict[str, str]:
    return {name.name: name.status for name in names}


def test_a_program_that_will_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "fine.py"
    program.write_text(FINE)
    assert compat.main([str(program)]) == 0
    names, unread = compat.read([str(program)])
    assert unread == []
    assert set(statuses(names).values()) == {"there"}
    assert {"ray.remote", "ray.util.queue.Queue", "ray.util.state.list_tasks", "ray.cloudpickle.dumps"} <= set(statuses(names))
    assert "names of Ray" in capsys.readouterr().out


def test_a_program_that_will_not(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    program = tmp_path / "part" / "worse.py"
    program.write_text(WORSE)
    (tmp_path / "broken.py").write_text("def (")
    command = [sys.executable, "-m", "oxiray.compat", str(tmp_path), "--format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    by_name = {name["name"]: name for name in told["names"]}
    missing = {name for name, told in by_name.items() if told["status"] == "missing"}
    assert {"ray.tune", "ray.util.ray_debugpy", "ray.util.no_such_name"} <= missing
    assert by_name["ray.init(proxy_server_url=)"]["status"] == "partial"
    assert by_name["ray.init"]["status"] == "there"
    assert "oxiray ray install" in by_name["ray.tune"]["advice"]
    assert "check the spelling" in by_name["ray.util.no_such_name"]["advice"]
    assert "ray.data.range" in missing
    assert by_name["ray.data.range"]["uses"] == {str(program): [6, 7]}
    assert [Path(problem.partition(":")[0]).name for problem in told["unread"]] == ["broken.py"]


NEITHER = """
import ray
import ray.data

ray.init(include_dashboard=False)

@ray.remote(num_returns="dynamic")
def f():
    yield 1

f.options(num_returns="dynamic").bind().experimental_compile()
"""


def test_what_is_no_name_of_a_module(tmp_path: Path) -> None:
    program = tmp_path / "neither.py"
    program.write_text(NEITHER)
    names, _ = compat.read([str(program)])
    by_name = {name.name: name for name in names if name.status != "there"}
    assert set(by_name) == {"ray.data", 'num_returns="dynamic"', ".experimental_compile()"}
    assert {name.status for name in by_name.values()} == {"missing"}
    assert by_name['num_returns="dynamic"'].count == 2
    command = [sys.executable, "-m", "oxiray.compat", str(program)]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 1


def test_a_part_that_needs_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = compat.check("ray.train.torch.TorchTrainer")
    assert (found.name, found.status) == ("ray.train.torch", "partial")
    assert "pip install torch" in found.advice


def test_an_installed_package_and_none() -> None:
    names, unread = compat.read(["oxiray_ray_alias"])
    assert unread == []
    assert "ray" in statuses(names)
    assert compat.main(["no_such_package_at_all"]) == 2


SPELLED = """
import os
import subprocess
import ray

ray.init(num_cpus=2, nonsense=3)

@ray.remote(num_cpus=1, colour="red")
def f():
    pass

f.options(num_gpus=1, shape=1).remote()
f.bind(1)
session.options(anything=1).commit()
os.environ["RAY_NOBODY_READS_THIS"] = "1"
os.environ["RAY_DEDUP_LOGS"] = "0"
subprocess.run("ray start --head --nonsense=3", shell=True)
"""
SCRIPT = """
# ray start --in-a-comment
export RAY_ADDRESS=auto
ray start --head --object-manager-port=8076 --wrong
ray up cluster.yaml
ray job submit --working-dir . -- python train.py --of-the-program
ray timeline --filename=a.json
an array starts
"""


def test_options_calls_variables_and_commands_are_seen(tmp_path: Path) -> None:
    program, script = tmp_path / "spelled.py", tmp_path / "go.sh"
    program.write_text(SPELLED)
    script.write_text(SCRIPT)
    names, unread = compat.read([str(tmp_path)])
    assert unread == []
    found = statuses(names)
    assert {name for name, status in found.items() if status == "missing"} == {
        "ray.init(nonsense=)",
        "ray.remote(colour=)",
        "ray.options(shape=)",
        "ray start --nonsense",
        "ray start --wrong",
        "ray up",
    }
    assert found["$RAY_NOBODY_READS_THIS"] == "partial"
    there = {".bind()", "$RAY_DEDUP_LOGS", "$RAY_ADDRESS", "ray start --head", "ray start --object-manager-port"}
    assert there | {"ray job --working-dir", "ray timeline --filename"} <= {name for name in found if found[name] == "there"}
    assert not any("comment" in name or "of-the-program" in name or "anything" in name for name in found)


def test_the_command_shows_a_table_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text(FINE)
    (tmp_path / "worse.py").write_text(WORSE)
    command = [str(Path(sys.executable).parent / "oxiray"), "compat", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    fine, worse = done.stdout.split(f"{tmp_path / 'worse.py'}\n")
    assert fine.startswith(f"{tmp_path / 'fine.py'}\n") and "the others" not in fine
    assert "missing  ray.tune" in worse and "line 3" in worse
    told = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=60)
    assert {name["name"] for name in json.loads(told.stdout)["names"]} >= {"ray.tune", "ray.init"}
