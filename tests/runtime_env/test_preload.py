"""Modules that a template imports once for all its workers, and those that forbid forking."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from ray.exceptions import RuntimeEnvSetupError
from watching import wait_until


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that notes which process imported it, and with which variables."""

    def write(name: str, body: str = "") -> None:
        (tmp_path / f"{name}.py").write_text(f"import os\nPID, SAW = os.getpid(), os.environ.get('SEEN')\n{body}")

    monkeypatch.syspath_prepend(str(tmp_path))
    return write


@ray.remote(num_gpus=0.5)
def where(name):
    import importlib

    found = importlib.import_module(name)
    return os.getpid(), found.PID, found.SAW, os.environ.get("CUDA_VISIBLE_DEVICES")


def test_a_module_is_imported_once_for_all_workers(cluster, module) -> None:
    module("light")
    cluster(num_gpus=1)
    preloaded = where.options(runtime_env={"preload": ["light"], "env_vars": {"SEEN": "yes"}})
    found = ray.get([preloaded.remote("light") for _ in range(4)], timeout=60)
    assert len({own for own, *_ in found}) == 4, "each is a fresh process"
    assert len({imported for _, imported, *_ in found}) == 1, "the template imported it"
    assert all(own != imported for own, imported, *_ in found)
    assert {(saw, devices) for *_, saw, devices in found} == {("yes", "0")}
    own, imported, *_ = ray.get(where.remote("light"), timeout=30)
    assert own == imported, "an environment without it has nothing of it"


def test_a_module_that_starts_a_thread_is_imported_by_each_worker(cluster, module, capfd) -> None:
    module("threaded", "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n")
    cluster(num_gpus=1)
    preloaded = where.options(runtime_env={"preload": ["threaded"], "env_vars": {"SEEN": "yes"}})
    for own, imported, saw, devices in ray.get([preloaded.remote("threaded") for _ in range(3)], timeout=60):
        assert (own, saw, devices) == (imported, "yes", "0")
    said: list[str] = []
    wait_until(lambda: said.append("".join(capfd.readouterr())) or "no effect" in "".join(said))
    assert "start 1 thread" in "".join(said)


def test_jemallocs_thread_does_not_keep_a_module_from_being_preloaded(cluster, module) -> None:
    # pyarrow starts it when it is imported; here a thread of that name stands for it.
    module(
        "allocating",
        "import threading\nfrom pathlib import Path\nnamed, held = threading.Event(), threading.Event()\n"
        "def idle():\n"
        "    Path(f'/proc/self/task/{threading.get_native_id()}/comm').write_text('jemalloc_bg_thd')\n"
        "    named.set()\n    held.wait()\n"
        "threading.Thread(target=idle, daemon=True).start()\nnamed.wait()\n",
    )
    cluster(num_gpus=1)
    preloaded = where.options(runtime_env={"preload": ["allocating"]})
    found = ray.get([preloaded.remote("allocating") for _ in range(3)], timeout=60)
    assert len({imported for _, imported, *_ in found}) == 1, "the template imported it"
    assert all(own != imported for own, imported, *_ in found)


def test_a_process_with_a_device_open_is_not_forked(tmp_path) -> None:
    # No machine is sure to have a device; /dev/full stands for one.
    (tmp_path / "modest.py").write_text("")
    (tmp_path / "greedy.py").write_text("node = open('/dev/full')\n")
    program = (
        "import json, os, re, sys; from oxiray import _families, _preload\n"
        "_families.NODE = re.compile('/dev/full')\n"
        "def started_over(descriptor, text, reason): print(reason); sys.exit()\n"
        "_preload._start_over = started_over\n"
        "if 'early' in sys.argv: import greedy\n"
        "os.environ[_preload.VARIABLE] = json.dumps({'modules': sys.argv[1].split(','), 'path': [], 'session': ''})\n"
        "print(repr(_preload.in_template(0)))\n"
    )

    def said(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.strip()

    assert said("modest") == "''"
    reason = "a process that uses a device cannot be forked. Each worker imports them itself"
    assert said("modest,greedy,modest") == f"preload of modest, greedy, modest has no effect: importing greedy opens /dev/full, and {reason}"
    assert f"{sys.executable} opens /dev/full when it starts, and {reason}" in said("modest", "early")


def test_a_template_that_has_a_device_open_is_told_of_and_replaced(tmp_path, monkeypatch, capfd) -> None:
    # A machine whose GPU 0 is /dev/full, which any process can open.
    host = tmp_path / "host"
    shutil.copytree(Path(__file__).resolve().parent.parent / "fixtures" / "hosts" / "nvidia-h100x8", host)
    description = json.loads((host / "host.json").read_text())
    description["nodes"]["/dev/nvidia0"] = "1:7"
    (host / "host.json").write_text(json.dumps(description))
    (tmp_path / "sitecustomize.py").write_text("node = open('/dev/full')\n")
    monkeypatch.setenv("OXIRAY_HOST_ROOT", str(host))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ray.shutdown()
    ray.init(num_cpus=2)
    said: list[str] = []

    @ray.remote
    def parent() -> int:
        return os.getppid()

    def is_told(words: str) -> bool:
        said.append(capfd.readouterr().err)
        return words in "".join(said)

    try:
        parents = {ray.get(parent.options(num_gpus=gpus).remote(), timeout=60) for gpus in (0, 1, 1)}
        # Every interpreter opens it here.
        wait_until(lambda: is_told("so had the one before"))
        assert len(parents) == 1, "nothing is forked from the first, where the next one may be better"
        text = "".join(said)
        assert "has GPU 0 open (/dev/full)" in text and text.count("so had the one before") == 1, text
    finally:
        ray.shutdown()


def test_a_module_that_cannot_be_imported_fails_the_tasks(cluster, module) -> None:
    module("broken", "raise ValueError('at import')\n")
    cluster(num_gpus=1)
    for name, words in (("broken", "at import"), ("not_there_at_all", "not_there_at_all")):
        with pytest.raises(RuntimeEnvSetupError, match=words):
            ray.get(where.options(runtime_env={"preload": [name]}).remote(name), timeout=60)


def test_numeric_libraries_get_the_threads_that_are_granted(cluster) -> None:
    pytest.importorskip("numpy")
    cluster(num_cpus=3)

    @ray.remote(num_cpus=3)
    def threads():
        import numpy

        numpy.ones((400, 400)) @ numpy.ones((400, 400))
        return os.environ["OMP_NUM_THREADS"], len(os.listdir("/proc/self/task"))

    granted, running = ray.get(threads.options(runtime_env={"preload": ["numpy"]}).remote(), timeout=60)
    plain, running_plain = ray.get(threads.remote(), timeout=60)
    # The template imported numpy with one thread; that must not stay.
    assert granted == plain == "3"
    assert running >= running_plain
