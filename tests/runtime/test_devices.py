"""Devices: who gets which, what a process sees, when they come back."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import ray
from watching import wait_until


@ray.remote(num_gpus=1)
def visible():
    return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids(), os.getpid()


@ray.remote(num_cpus=0)
class Holder:
    def ids(self):
        return ray.get_runtime_context().get_accelerator_ids()["GPU"], os.environ.get("CUDA_VISIBLE_DEVICES")

    def pid(self):
        return os.getpid()


@pytest.mark.parametrize(
    ("asked", "slots"),
    [
        ([0.5, 0.5, 0.5], ["0", "0", "1"]),
        ([0.3, 0.3, 0.3, 0.3], ["0", "0", "0", "1"]),
        ([0.5, 0.7, 0.3, 0.5], ["0", "1", "1", "0"]),
        ([0.5, 1, 0.5, 1], ["0", "1", "0", "2"]),
        ([0.6, 0.6, 0.6, 0.4, 0.2], ["0", "1", "2", "0", "1"]),
        ([0.4, 2, 0.6], ["0", "1,2", "0"]),
    ],
)
def test_shares_are_packed_as_in_ray(cluster, asked, slots) -> None:
    cluster(num_gpus=3)
    holders = []
    for share in asked:
        holder = Holder.options(num_gpus=share).remote()
        ids, variable = ray.get(holder.ids.remote(), timeout=20)
        holders.append((holder, ",".join(ids)))
        assert variable == ",".join(ids)
    assert [ids for _, ids in holders] == slots


def test_a_gpu_task_gets_a_fresh_process_every_time(cluster) -> None:
    cluster(num_gpus=1)
    results = [ray.get(visible.remote()) for _ in range(4)]
    assert {(variable, tuple(ids)) for variable, ids, _ in results} == {("0", (0,))}
    assert len({pid for _, _, pid in results}) == 4


def test_the_rule_holds_for_options_and_other_families(cluster) -> None:
    cluster(num_gpus=1, resources={"TPU": 1})
    pid = ray.remote(lambda: os.getpid())
    assert len({ray.get(pid.options(num_gpus=1).remote()) for _ in range(3)}) == 3
    assert len({ray.get(pid.options(resources={"TPU": 1}).remote()) for _ in range(3)}) == 3


def test_max_calls_zero_reuses_the_process(cluster, tmp_path) -> None:
    cluster(num_gpus=1)

    @ray.remote(num_gpus=1, max_calls=0)
    def reused():
        wait_until((tmp_path / "all").exists)
        return os.getpid()

    # All are asked for before the first ends: a process that has nothing to do for a moment is given back.
    asked = [reused.remote() for _ in range(4)]
    (tmp_path / "all").touch()
    assert len(set(ray.get(asked))) == 1


def test_without_a_device_the_variable_is_left_alone(cluster, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    cluster(num_gpus=2)
    plain = ray.remote(lambda: (os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids()))
    assert ray.get(plain.remote()) == ("3,5", [])
    assert ray.get(plain.options(num_gpus=1).remote()) == ("3", ["3"])
    assert sorted(ray.get(plain.options(num_gpus=2).remote())[1]) == ["3", "5"]


def test_asking_for_more_than_the_variable_lists_is_refused(cluster, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES"):
        cluster(num_gpus=3)
    assert not ray.is_initialized()


def test_opting_out_of_the_variable(cluster, monkeypatch) -> None:
    monkeypatch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")
    cluster(num_gpus=1)
    variable, ids, _ = ray.get(visible.remote())
    assert variable is None and ids == [0]


def test_the_variable_is_there_before_any_user_code(cluster, tmp_path) -> None:
    (tmp_path / "looks_early.py").write_text("import os\nSEEN = os.environ.get('CUDA_VISIBLE_DEVICES')\n")
    sys.path.insert(0, str(tmp_path))
    try:
        cluster(num_gpus=2)

        @ray.remote(num_gpus=1)
        def early():
            import looks_early

            return looks_early.SEEN

        assert ray.get([early.remote() for _ in range(4)])[0] in ("0", "1")
    finally:
        sys.path.remove(str(tmp_path))


def test_a_driver_has_no_devices(cluster) -> None:
    cluster(num_gpus=1)
    assert ray.get_gpu_ids() == []
    ids = ray.get_runtime_context().get_accelerator_ids()
    assert len(ids) == 9 and not any(ids.values())


def test_available_resources(cluster) -> None:
    cluster(num_gpus=2)
    assert ray.cluster_resources()["GPU"] == 2.0
    holder = Holder.options(num_gpus=0.5).remote()
    ray.get(holder.ids.remote())
    assert ray.available_resources()["GPU"] == 1.5
    whole = Holder.options(num_gpus=1).remote()
    ray.get(whole.ids.remote())
    ray.kill(holder)
    ray.kill(whole)
    wait_until(lambda: ray.available_resources().get("GPU") == 2.0)


def test_an_actor_holds_its_device_until_it_is_dead(cluster) -> None:
    cluster(num_gpus=1)
    first = Holder.options(num_gpus=1).remote()
    pid = ray.get(first.pid.remote())
    waiting = visible.remote()
    assert ray.wait([waiting], timeout=0.2) == ([], [waiting])
    ray.kill(first)
    assert ray.get(waiting, timeout=20)[1] == [0]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_blocked_task_lends_its_cpu_but_not_its_device(cluster) -> None:
    cluster(num_cpus=1, num_gpus=1)

    @ray.remote(num_gpus=1)
    def outer():
        inner = ray.remote(lambda: "ran")
        assert ray.get(inner.remote(), timeout=20) == "ran"
        with pytest.raises(ray.exceptions.GetTimeoutError):
            ray.get(visible.remote(), timeout=0.3)
        return ray.get_gpu_ids()

    assert ray.get(outer.remote(), timeout=60) == [0]


def test_a_child_that_outlives_its_task_is_ended_before_the_device_is_given_on(cluster) -> None:
    cluster(num_gpus=1)

    @ray.remote(num_gpus=1)
    def leave_a_child():
        command = [sys.executable, "-c", "import time; time.sleep(1000)"]
        return subprocess.Popen(command, start_new_session=True).pid

    @ray.remote(num_gpus=1)
    def look(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return "gone"
        return "alive"

    child = ray.get(leave_a_child.remote(), timeout=20)
    assert ray.get(look.remote(child), timeout=20) == "gone"


def test_four_quarters_run_at_once(cluster, tmp_path) -> None:
    cluster(num_cpus=4, num_gpus=1)

    @ray.remote(num_gpus=0.25)
    def meet(me):
        (tmp_path / str(me)).touch()
        until = time.monotonic() + 20
        while len(list(tmp_path.iterdir())) < 4 and time.monotonic() < until:
            time.sleep(0.005)
        return len(list(tmp_path.iterdir())), ray.get_gpu_ids()

    assert ray.get([meet.remote(i) for i in range(4)], timeout=40) == [(4, [0])] * 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_gpus": 3}, ["GPU", "3", "2"]),
        ({"num_cpus": 64}, ["CPU", "64"]),
        ({"resources": {"NPU": 1}}, ["NPU"]),
        ({"resources": {"special": 1}}, ["special"]),
        ({"accelerator_type": "V100", "num_gpus": 1}, ["V100"]),
    ],
)
def test_what_can_never_run_says_why(cluster, options, words) -> None:
    cluster(num_gpus=2)
    with pytest.raises(ray.exceptions.TaskUnschedulableError) as caught:
        ray.get(ray.remote(lambda: 1).options(**options).remote(), timeout=60)
    assert all(word in str(caught.value) for word in words), caught.value
    with pytest.raises(ray.exceptions.ActorUnschedulableError) as caught_actor:
        ray.get(Holder.options(**{"num_cpus": 1, **options}).remote().pid.remote(), timeout=60)
    assert all(word in str(caught_actor.value) for word in words), caught_actor.value


def test_busy_is_not_infeasible(cluster) -> None:
    cluster(num_gpus=1)
    holder = Holder.options(num_gpus=1).remote()
    ray.get(holder.pid.remote())
    waiting = visible.remote()
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(waiting, timeout=1.2)
    ray.kill(holder)
    assert ray.get(waiting, timeout=20)[1] == [0]


def test_accelerator_type_on_a_recorded_machine(cluster, monkeypatch) -> None:
    hosts = os.path.join(os.path.dirname(__file__), "..", "fixtures", "hosts")
    monkeypatch.setenv("OXIRAY_HOST_ROOT", os.path.abspath(os.path.join(hosts, "nvidia-h100x8")))
    cluster()
    assert ray.cluster_resources()["GPU"] == 8.0
    assert ray.cluster_resources()["accelerator_type:H100"] == 1.0
    typed = visible.options(accelerator_type="H100")
    assert ray.get(typed.remote(), timeout=20)[1] == [0]


def test_what_runs_at_exit_runs_before_the_device_is_given_on(cluster, tmp_path) -> None:
    cluster(num_gpus=1)
    mark = tmp_path / "left"

    @ray.remote(num_gpus=1)
    def leave_late():
        import atexit

        atexit.register(lambda: (time.sleep(0.3), mark.touch()))

    @ray.remote(num_gpus=1)
    def look():
        return mark.exists()

    first = leave_late.remote()
    second = look.remote()
    ray.get(first, timeout=20)
    assert ray.get(second, timeout=20)
