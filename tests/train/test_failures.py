"""Workers that raise, die or hang, drivers that die, groups that grow: training ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import fsspec
import networks
import pytest
import ray
from ray import train
from ray.cluster_utils import Cluster
from ray.train import Checkpoint, ScalingConfig, WorkerGroupError
from ray.train.torch import TorchTrainer
from watching import alive, wait_until

STEPS = 6


class Noting(train.UserCallback):
    """Notes which ranks failed, and how."""

    def __init__(self) -> None:
        self.failures: list[dict[int, Exception]] = []

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        self.failures.append(worker_exceptions)


def once(folder: Path, rank: int, number: int, act: Any) -> Any:
    """A disturbance of one rank before one step, of the first attempt that comes there."""
    mark = folder / f"disturbed-{rank}-{number}"

    def disturb(own: int, step: int) -> None:
        if (own, step) == (rank, number) and not mark.exists():
            mark.touch()
            act()

    return disturb


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_ranks_leave_no_trace_in_the_weights(fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may tell of others' errors a while before it tells of the death that they are from.
    monkeypatch.setattr("oxiray.train._failing._OTHERS_S", 5.0)
    workers = 4
    chance = random.Random(workers)
    chosen = [(chance.randrange(workers), step) for step in sorted(chance.sample(range(STEPS), 3))]
    acts = [once(tmp_path, rank, step, kill_itself) for rank, step in chosen]

    def disturb(rank: int, step: int) -> None:
        for act in acts:
            act(rank, step)

    noting = Noting()
    config = {"steps": STEPS, "disturb": disturb}
    result = fit(networks.train_with_checkpoints, workers, trainer=TorchTrainer, config=config, failures=3, callbacks=[noting])
    assert networks.differ(result.return_value, networks.alone(STEPS)) < 1e-6
    assert [row["step"] for row in result.history] == list(range(STEPS)), "each step is there once"
    # The rank that was killed is the cause that is told first, though others failed with it.
    assert [next(iter(failures)) for failures in noting.failures] == [rank for rank, _ in chosen]
    assert all("ended in the middle" in str(next(iter(failures.values()))) for failures in noting.failures)


@pytest.mark.timeout(400)
def test_any_rank_may_be_killed_at_any_step(fit, tmp_path: Path) -> None:
    """Each rank before each step, one kill in each attempt."""
    marks = tmp_path / "marks"
    marks.mkdir()
    kills = [(rank, step) for step in range(STEPS) for rank in range(2)]
    seen: dict[str, int] = {}

    def disturb(rank: int, step: int) -> None:
        if not seen:
            seen["kills"] = len(list(marks.iterdir()))
            train.collective.barrier()
        if seen["kills"] < len(kills) and kills[seen["kills"]] == (rank, step):
            (marks / f"{rank}-{step}").touch()
            kill_itself()

    config = {"steps": STEPS, "disturb": disturb}
    result = fit(networks.train_with_checkpoints, trainer=TorchTrainer, config=config, failures=len(kills))
    assert len(list(marks.iterdir())) == len(kills)
    assert networks.differ(result.return_value, networks.alone(STEPS)) < 1e-6
    assert [row["step"] for row in result.history] == list(range(STEPS))


@pytest.mark.parametrize("behind", ["folder", "filesystem"])
def test_a_checkpoint_that_a_rank_died_in_is_not_there(fit, tmp_path: Path, behind: str) -> None:
    def die(own: Checkpoint, name: str) -> Checkpoint:
        # Behind a filesystem, the other rank's files stay where they are: it has no staging.
        run = Path(train.get_context().get_storage().path)
        wait_until(lambda: any((run / place / "first-0").exists() for place in (name, f".{name}.partial/0")))
        os.kill(os.getpid(), signal.SIGKILL)
        return own

    def function() -> list[Any]:
        rank = train.get_context().get_world_rank()
        begun = train.get_checkpoint()
        first = 1
        if begun is not None:
            with begun.as_directory() as folder:
                assert {"rank-0", "rank-1"} <= set(os.listdir(folder))
                first = int((Path(folder) / "rank-0").read_text()) + 1
        begins = [first]
        for step in range(first, 4):
            own = tmp_path / f"own-{rank}-{step}"
            own.mkdir(exist_ok=True)
            (own / f"rank-{rank}").write_text(str(step))
            (own / f"first-{rank}").unlink(missing_ok=True)
            if begun is None:
                (own / f"first-{rank}").touch()
            options = {"checkpoint_upload_fn": die} if begun is None and (rank, step) == (1, 2) else {}
            train.report({"step": step}, Checkpoint.from_directory(own), f"checkpoint_{step}", **options)
        return begins

    storage = {"storage_filesystem": fsspec.filesystem("file", auto_mkdir=True)} if behind == "filesystem" else {}
    result = fit(function, failures=1, **storage)
    assert result.return_value == [2], "the last one that was whole"
    assert [row["step"] for row in result.history] == [1, 2, 3]
    assert [Path(one.path).name for one, _ in result.best_checkpoints] == ["checkpoint_1", "checkpoint_2", "checkpoint_3"]
    files = {path.name: sorted(os.listdir(path)) for path in Path(result.path).iterdir() if path.is_dir()}
    whole = [".manifest.json", "rank-0", "rank-1"]
    assert files == {"checkpoint_1": sorted(["first-0", "first-1", *whole]), "checkpoint_2": whole, "checkpoint_3": whole}


def test_an_exception_ends_training_with_all_that_is_known(fit) -> None:
    def function() -> None:
        train.report({"step": 1})
        if train.get_context().get_world_rank() == 1:
            raise KeyError("no such feature")
        train.report({"step": 2})

    with pytest.raises(WorkerGroupError, match="no such feature") as caught:
        fit(function)
    assert list(caught.value.worker_failures) == [1]
    assert isinstance(caught.value.worker_failures[1], KeyError)
    assert "[Rank 1 Error Snippet]" in str(caught.value)
    assert 'raise KeyError("no such feature")' in str(caught.value), "the line that raised is shown"


@pytest.mark.usefixtures("all_are_waited_for")
def test_equal_failures_are_told_together(fit) -> None:
    def function() -> None:
        raise ValueError("everywhere")

    with pytest.raises(WorkerGroupError, match=r"everywhere") as caught:
        fit(function, 3)
    assert sorted(caught.value.worker_failures) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["sleeps", "stopped"])
def test_a_hung_rank_is_found_and_replaced(fit, tmp_path: Path, kind: str) -> None:
    act = (lambda: time.sleep(1000)) if kind == "sleeps" else (lambda: os.kill(os.getpid(), signal.SIGSTOP))
    noting = Noting()
    config = {"steps": STEPS, "disturb": once(tmp_path, 1, 3, act)}
    result = fit(
        networks.train_with_checkpoints, trainer=TorchTrainer, config=config, failures=1, hang=20.0, callbacks=[noting]
    )
    assert networks.differ(result.return_value, networks.alone(STEPS)) < 1e-6
    (failures,) = noting.failures
    assert 1 in failures
    if kind == "stopped":
        assert list(failures) == [1], "the one that does not answer is to blame"
        assert "did not answer" in str(failures[1])
    else:
        assert "time.sleep(1000)" in str(failures[1]), "the line where it hangs is shown"


def test_a_rank_that_others_wait_for_is_to_blame(fit) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 2:
            time.sleep(1000)
        train.report({})

    with pytest.raises(WorkerGroupError, match="the others wait for it in report 1") as caught:
        fit(function, 3, hang=20.0)
    assert list(caught.value.worker_failures) == [2]


def test_a_rank_that_returns_early_ends_the_waiting(fit) -> None:
    def function() -> None:
        train.report({})
        if train.get_context().get_world_rank() == 0:
            train.report({})

    with pytest.raises(WorkerGroupError, match="rank 1 returned after 1 reports"):
        fit(function)


def test_nothing_is_left_of_a_group_that_failed(fit, tmp_path: Path) -> None:
    def function() -> None:
        (tmp_path / f"pid-{os.getpid()}").touch()
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        (tmp_path / f"pid-{child.pid}").touch()
        train.collective.barrier()
        if train.get_context().get_world_rank() == 0:
            kill_itself()
        time.sleep(1000)

    with pytest.raises(WorkerGroupError):
        fit(function)
    pids = [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]
    assert len(pids) == 4
    wait_until(lambda: not any(alive(pid) for pid in pids))
    wait_until(lambda: ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"])


def test_a_failure_without_a_checkpoint_begins_anew(fit, tmp_path: Path) -> None:
    def function() -> int:
        begun = len(list(tmp_path.glob("attempt-*")))
        train.collective.barrier()
        (tmp_path / f"attempt-{begun}").touch()
        train.report({"attempt": begun})
        train.collective.barrier()
        if begun < 2:
            raise RuntimeError("again")
        return begun

    result = fit(function, failures=2)
    assert result.return_value == 2
    assert [row["attempt"] for row in result.history] == [2]


def test_a_killed_driver_leaves_a_run_that_goes_on(fit, tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import networks, ray
        from ray import train
        from ray.train.torch import TorchTrainer
        ray.init(address="local", num_cpus=2)
        class Killing(train.UserCallback):
            def after_report(self, run_context, metrics, checkpoint):
                if metrics[0]["step"] == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
        TorchTrainer(
            networks.train_with_checkpoints, train_loop_config={{"steps": {STEPS}}},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="run", storage_path={str(tmp_path / "runs")!r}, callbacks=[Killing()]),
        ).fit()
        """
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    seen = []

    class First(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            seen.append(metrics[0]["step"])

    result = fit(networks.train_with_checkpoints, trainer=TorchTrainer, config={"steps": STEPS}, callbacks=[First()])
    assert seen == [3, 4, 5], "it went on after the last report that returned"
    assert [row["step"] for row in result.history] == list(range(STEPS))
    assert networks.differ(result.return_value, networks.alone(STEPS)) < 1e-6


def test_an_interrupted_fit_ends_its_workers(fit, tmp_path: Path) -> None:
    class Interrupting(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            pids.extend(one["pid"] for one in metrics)
            raise KeyboardInterrupt

    def function() -> None:
        train.report({"pid": os.getpid()})
        time.sleep(1000)

    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        fit(function, callbacks=[Interrupting()])
    wait_until(lambda: not any(alive(pid) for pid in pids))


def test_an_elastic_group_takes_what_there_is_and_grows(
    fit, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take a while to give a place to what fits.
    monkeypatch.setattr("oxiray.train._controller._FITS_S", 10.0)
    # `fit` has connected to the machine that the tests share.
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    request.addfinalizer(cluster.shutdown)
    request.addfinalizer(ray.shutdown)
    ray.init(address=cluster.address)
    sizes = []

    class Growing(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            sizes.append(len(metrics))
            if len(sizes) == 2:
                cluster.add_node(num_cpus=2)

    def function() -> int:
        size = train.get_context().get_world_size()
        begun = train.get_checkpoint()
        step = int(Path(begun.path, "step").read_text()) if begun else 0
        last = step + 2
        while size < 4 or step < last:
            step += 1
            own = tmp_path / "own"
            if train.get_context().get_world_rank() == 0:
                own.mkdir(exist_ok=True)
                (own / "step").write_text(str(step))
            kept = Checkpoint.from_directory(own) if train.get_context().get_world_rank() == 0 else None
            train.report({"step": step}, checkpoint=kept)
            time.sleep(0.05)
        return size

    scaling = ScalingConfig(num_workers=(1, 4), elastic_resize_monitor_interval_s=0.3)
    result = fit(function, scaling=scaling, callbacks=[Growing()])
    assert result.return_value == 4
    assert sizes[0] == 2 and sizes[-1] == 4
    steps = [row["step"] for row in result.history]
    assert steps == list(range(1, len(steps) + 1)), "nothing was lost and nothing done twice"


def test_calls_under_way_end_without_a_word(fit, capfd) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            time.sleep(0.2)
            raise ValueError("one is enough")
        train.report({})

    with pytest.raises(WorkerGroupError, match="one is enough"):
        fit(function, 3)
    with pytest.raises(WorkerGroupError, match="is here"):
        fit(lambda: time.sleep(1000), 2, hang=0.5)
    assert "Unhandled error" not in capfd.readouterr().err
