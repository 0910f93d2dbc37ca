"""The program that `benches/train.py` runs on Oxiray, on Ray, and under torchrun: two workers, DDP over Gloo on the CPU.

Prints one line, `RESULT {...}`: seconds from the begin of the process (`STARTED` says when that was) and from `fit()`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy
import torch

#: Set by whoever starts this: the moment, and a mark that every process of the run inherits.
STARTED, MARK = "OXB_STARTED", "OXB_MARK"
WORKERS = 2
_PAGE = os.sysconf("SC_PAGESIZE")


def loop(wrap, report, steps: int = 20) -> float:
    """The training loop of all three; returns when its first step was done."""
    torch.manual_seed(1)
    model = wrap(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0.0
    for _ in range(steps):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first = first or time.time()
    report({"loss": loss.item()})
    return first


def under_torchrun() -> None:
    """One rank of torchrun's."""
    entered = time.time()
    torch.distributed.init_process_group("gloo")
    first = loop(torch.nn.parallel.DistributedDataParallel, lambda metrics: None)
    started = float(os.environ[STARTED])
    if torch.distributed.get_rank() == 0:
        print("RESULT", json.dumps({"entered_s": entered - started, "process_to_step_s": first - started}), flush=True)
    torch.distributed.destroy_process_group()


def frames(pid: int) -> numpy.ndarray:
    """The page frames that a process has in memory; only root is told their numbers."""
    parts = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pages:
        for line in maps:
            begin, _, end = line.split(None, 1)[0].partition("-")
            if line.rstrip().endswith("[vsyscall]"):
                continue
            pages.seek(int(begin, 16) // _PAGE * 8)
            parts.append(numpy.frombuffer(pages.read((int(end, 16) - int(begin, 16)) // _PAGE * 8), dtype=numpy.uint64))
    entries = numpy.concatenate(parts) if parts else numpy.empty(0, dtype=numpy.uint64)
    present = entries[(entries >> numpy.uint64(63)) == 1] & numpy.uint64((1 << 55) - 1)
    return numpy.unique(present[present != 0])


def memory_mb(workers: list[int], driver: int) -> float:
    """What this run's other processes have in memory that neither its workers nor its driver have too, in MB."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    others, ours = numpy.empty(0, dtype=numpy.uint64), numpy.empty(0, dtype=numpy.uint64)
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if mark not in (folder / "environ").read_bytes():
                continue
            found = frames(int(folder.name))
        except OSError:
            continue  # it ended, or is the kernel's
        if int(folder.name) in (*workers, driver):
            ours = numpy.union1d(ours, found)
        else:
            others = numpy.union1d(others, found)
    assert len(ours), "page frames are told to root only"
    return len(numpy.setdiff1d(others, ours)) * _PAGE / 1e6


def train_once(config: dict) -> tuple:
    """One rank of `fit`."""
    entered = time.time()
    from ray import train
    from ray.train.torch import prepare_model

    rank = train.get_context().get_world_rank()
    first = loop(prepare_model, train.report)
    (Path(config["folder"]) / f"pid-{rank}").write_text(str(os.getpid()))
    times = []
    for _ in range(config.get("reports", 0)):
        begun = time.perf_counter()
        train.report({"loss": 1.0})
        times.append(time.perf_counter() - begun)
    used = 0.0
    if config.get("memory") and rank == 0:
        workers = [int((Path(config["folder"]) / f"pid-{one}").read_text()) for one in range(WORKERS)]
        used = memory_mb(workers, config["driver"])
    died = Path(config["folder"]) / "died"
    if config.get("dies"):
        if not died.exists():
            train.report({"loss": 2.0})
            if rank == 1:
                died.write_text(str(time.time()))
                os._exit(1)
            time.sleep(1000)
        return entered - float(died.read_text()), first - float(died.read_text())
    return entered, first, times, used


def on_ray() -> None:
    """The driver, on Ray or on Oxiray under its name."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    folder = tempfile.mkdtemp()
    options = {} if "oxiray" in ray.init.__module__ else {"include_dashboard": False}
    ray.init(num_cpus=4, log_to_driver=False, **options)

    def fit(name: str, failures: int = 0, **config):
        begun = time.time()
        result = TorchTrainer(
            train_once,
            train_loop_config={"folder": folder, "driver": os.getpid(), **config},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=RunConfig(name=name, storage_path=folder, failure_config=FailureConfig(max_failures=failures)),
        ).fit()
        return begun, time.time(), result.return_value

    is_ours = not options
    cold, cold_end, (_, cold_first, _, _) = fit("cold")
    warm, warm_end, (_, warm_first, _, _) = fit("warm")
    _, _, (_, _, times, used) = fit("reports", reports=400 if is_ours else 5, memory=True)
    steady = sorted(times[2:])
    _, _, (entered_again, stepped_again) = fit("dies", failures=1, dies=True)
    found = {
        "process_to_step_s": cold_first - float(os.environ[STARTED]),
        "cold_s": cold_first - cold, "cold_fit_s": cold_end - cold,
        "warm_s": warm_first - warm, "warm_fit_s": warm_end - warm,
        "report_s": steady[len(steady) // 2], "entered_again_s": entered_again, "recovery_s": stepped_again, "memory_mb": used,
    }  # fmt: skip
    print("RESULT", json.dumps(found), flush=True)


if __name__ == "__main__":
    under_torchrun() if sys.argv[1:] == ["torchrun"] else on_ray()
