"""`oxiray stack`: the stacks of a machine's workers, with a stand-in for py-spy that says which process it was asked about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ray

COMMAND = str(Path(sys.executable).parent / "oxiray")


def stack(address: str, path: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    words = [sys.executable, COMMAND, "stack", f"--address={address}"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_stack_of_each_worker_is_printed(tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\necho "asked to $1 $2 $3"\n')
    program.chmod(0o755)
    ray.shutdown()
    context = ray.init(num_cpus=1)

    @ray.remote
    class Worker:
        def pid(self) -> int:
            return os.getpid()

    worker = Worker.remote()
    pid = ray.get(worker.pid.remote())
    done = stack(context.address_info["address"], f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert f"asked to dump --pid {pid}\n" in done.stdout, done.stderr
    assert done.returncode == 0
    missing = stack(context.address_info["address"], str(tmp_path / "nothing"))
    assert (missing.returncode, "pip install py-spy" in missing.stderr) == (1, True)
    ray.shutdown()
