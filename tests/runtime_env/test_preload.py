"""Modules that a template imports once for all its workers, and those that forbid forking."""

from __future__ import annotations

import os
import subprocess
import sys

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


def test_a_process_with_a_device_open_is_not_forked() -> None:
    # No machine is sure to have a device; /dev/full stands for one.
    program = (
        "import re; from oxiray import _families, _preload\n"
        "print(_preload._why_not_forkable())\n"
        "_families.NODE = re.compile('/dev/full'); file = open('/dev/full')\n"
        "print(_preload._why_not_forkable())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert before == "None"
    assert "/dev/full" in after


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
