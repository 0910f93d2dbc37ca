"""A run that is preempted: its workers are told, save what they have, and go on from there when there is room again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray import train
from ray.train import Checkpoint, ScalingConfig
from watching import wait_until

STEPS = 6


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_PREEMPTION", "on")
    monkeypatch.setenv("OXIRAY_PREEMPTION_GRACE_S", "20")
    ray.init(num_cpus=8, num_gpus=2)
    yield
    ray.shutdown()


@ray.remote(num_gpus=2, num_cpus=0, priority=5)
def urgent() -> float:
    return time.time()


@pytest.mark.usefixtures("_two_gpus")
def test_a_run_makes_room_for_what_is_more_urgent_and_goes_on_from_its_checkpoint(fit, tmp_path: Path) -> None:
    def function() -> list[int]:
        begun = train.get_checkpoint()
        step = int(Path(begun.path, "step").read_text()) if begun else 0
        rank, done = train.get_context().get_world_rank(), []
        while step < STEPS:
            step += 1
            done.append(step)
            own = tmp_path / f"own-{rank}"
            own.mkdir(exist_ok=True)
            (own / "step").write_text(str(step))
            if begun is None and step == STEPS // 2:
                # Half of the run is left when it is told.
                (tmp_path / "half").touch()
                deadline = time.monotonic() + 60
                # A rank that is told later than another is missing from the first answer.
                while (info := train.get_preemption_info()) is None or info.preempted_ranks != [0, 1]:
                    assert time.monotonic() < deadline, info
                    time.sleep(0.02)
                assert info.deadline_ms > time.time() * 1000
                train.report({"step": step}, checkpoint=Checkpoint.from_directory(own))
                threading.Event().wait()
            train.report({"step": step}, checkpoint=Checkpoint.from_directory(own))
        return done

    served: list[float] = []

    def ask() -> None:
        wait_until((tmp_path / "half").exists, timeout=120)
        served.append(ray.get(urgent.remote(), timeout=120))

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    result = fit(function, scaling=ScalingConfig(num_workers=2, use_gpu=True, preemptible=True))
    asks.join()
    assert served, "the urgent task was served"
    assert result.return_value == list(range(STEPS // 2 + 1, STEPS + 1)), "nothing was lost and nothing done twice"
    assert [row["step"] for row in result.history] == list(range(1, STEPS + 1))


def test_options_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="preemptible='yes'"):
        ScalingConfig(preemptible="yes")
    with pytest.raises(ValueError, match="from -1000 to 1000"):
        ScalingConfig(priority=2000)
