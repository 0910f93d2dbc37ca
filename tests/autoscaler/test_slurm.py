"""Clusters that grow and shrink by jobs of Slurm, with a real controller and two real nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from growing import Growing
from nvml import Answers, library
from slurm import GPUS, Slurm, running
from watching import processes_of, wait_until

#: Two actors with a GPU each; what they print is compared with what Slurm granted.
TWO_ACTORS = """
import json, os
import ray
ray.init(address="auto", log_to_driver=False)

@ray.remote(num_gpus=1)
class Holder:
    def what(self):
        return os.environ["SLURM_JOB_ID"], os.environ["CUDA_VISIBLE_DEVICES"]

holders = [Holder.remote() for _ in range(2)]
print(json.dumps(ray.get([holder.what.remote() for holder in holders])))
"""

ONE_TASK = """
import os, sys
import ray
ray.init(address="auto", log_to_driver=False)
where = ray.remote(num_gpus=1)(lambda: os.environ["SLURMD_NODENAME"])
reference = where.remote()
print(reference.task_id().hex(), flush=True)
print(ray.get(reference), flush=True)
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not the test's own: a unix socket's path has room for 107 characters."""
    made = Path(tempfile.mkdtemp(prefix="oxi-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def mark() -> str:
    """A variable that every process of the cluster has."""
    return f"TEST_MARK={uuid.uuid4().hex}"


@pytest.fixture
def growing(slurm: Slurm, folder: Path, mark: str) -> Iterator[Callable[..., Growing]]:
    """Starts a cluster that grows by jobs. Their nodes have a place of their own, as on machines of their own."""
    started: list[Growing] = []
    (folder / "nodes").mkdir()

    def start(*groups: dict[str, Any], setup: str = "", **more: Any) -> Growing:
        variables = {**slurm.environment, mark.partition("=")[0]: mark.partition("=")[2]}
        here = f"export OXIRAY_TMPDIR={folder}/nodes\n{setup}"
        jobs = {"interval_s": 0.2, "setup": here, "options": [f"--output={folder}/%j.out"]}
        cluster = Growing(folder, list(groups), slurm=jobs, **variables, **more)
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.oxiray("stop")
    slurm.run("scancel", "--quiet", *slurm.jobs())
    wait_until(slurm.is_idle)


def group(**more: Any) -> dict[str, Any]:
    return {"name": "gpu", "max": 2, "idle_timeout_s": 0.5, "slurm": {"gres": "gpu:1"}} | more


def told_of(cluster: Growing) -> dict[str, Any]:
    """What `oxiray status` has of the group, once there is an autoscaler."""
    groups: list[dict[str, Any]] = (cluster.status()["autoscaler"] or {}).get("groups", [])
    return groups[0] if groups else {"counts": {}, "set_aside": None}


def granted(slurm: Slurm, job: str) -> str:
    """The devices that Slurm granted a job."""
    told = slurm.run("scontrol", "show", "job", "--details", job).stdout
    found = re.search(r"GRES=gpu[^(]*\(IDX:([\d,-]+)\)", told)
    assert found, told
    return found[1]


def test_jobs_come_for_what_waits_with_the_devices_that_slurm_granted_and_go_when_idle(
    slurm: Slurm, growing: Callable[..., Growing], folder: Path, mark: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        Answers(folder, patch, library()).write(
            "driver=550.54.15\n"
            + "".join(f"NVIDIA H100 80GB HBM3|GPU-{n}|00000000:0{n}:00.0|85520809984|0||||\n" for n in range(4, 4 + GPUS))
        )
        names = ("OXIRAY_HOST_ROOT", "OXIRAY_NVML_LIBRARY", "OXIRAY_NVML_FIXTURE")
        setup = "\n".join(f"export {name}={os.environ[name]}" for name in names)
    cluster = growing(group(idle_timeout_s=15), setup=setup)
    assert slurm.jobs() == []
    held = json.loads(cluster.program(TWO_ACTORS))
    jobs = slurm.jobs()
    assert sorted(job for job, _ in held) == sorted(jobs) and len(set(jobs)) == 2, cluster.log()
    assert {job: devices for job, devices in held} == {job: granted(slurm, job) for job in jobs}
    cluster.until(lambda: cluster.nodes() == [] and slurm.jobs() == [], "both jobs are gone after their idle time")
    assert "is set aside" not in cluster.log()
    # The head's own processes have the mark, too.
    wait_until(lambda: not [pid for pid in processes_of(mark) if is_of_job(pid)])


def is_of_job(pid: int) -> bool:
    try:
        return b"SLURM_JOB_ID=" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_a_job_that_is_cancelled_by_another_is_replaced_at_once(slurm: Slurm, growing: Callable[..., Growing]) -> None:
    cluster = growing(group(min=1, max=1))
    cluster.until(lambda: len(cluster.nodes()) == 1, "the minimum is there")
    [before] = slurm.jobs()
    slurm.run("scancel", before)
    cluster.until(lambda: slurm.jobs() not in ([], [before]) and len(cluster.nodes()) == 1, "another one came")
    assert "is set aside" not in cluster.log()


def test_a_job_that_is_queued_is_told_of_with_slurms_reason_and_given_up_when_nobody_waits(
    slurm: Slurm, growing: Callable[..., Growing]
) -> None:
    others = slurm.begin("srun", "--nodes=2", "--ntasks-per-node=1", f"--gres=gpu:{GPUS}", "sleep", "600")
    wait_until(lambda: len(slurm.jobs()) == 1)
    [busy] = slurm.jobs()
    cluster = growing(group())
    with cluster.begin(ONE_TASK) as program:
        assert program.stdout is not None
        task = program.stdout.readline().strip()
        cluster.until(lambda: "queued (Resources)" in told_of(cluster)["counts"], "it is queued, and the reason known")
        assert "gpu {CPU: 1, GPU: 1}, 0 to 2: 1 queued (Resources)" in cluster.oxiray("status").stdout
        explained = cluster.oxiray("explain", task).stdout
        assert "is to bring a machine of group `gpu` (1 queued (Resources))" in explained, explained
        program.kill()
    cluster.until(lambda: slurm.jobs() == [busy], "nobody waits for it any more")
    with cluster.begin(ONE_TASK) as program:
        cluster.until(lambda: len(slurm.jobs()) == 2, "it is wanted again")
        slurm.run("scancel", busy)
        others.communicate()
        assert program.stdout is not None
        assert program.stdout.read().splitlines()[-1] in ("n1", "n2")
        assert program.wait() == 0


def test_an_autoscaler_that_was_killed_leaves_its_jobs_to_the_next(slurm: Slurm, growing: Callable[..., Growing]) -> None:
    cluster = growing(group())
    cluster.program("import ray; ray.init(address='auto'); ray.autoscaler.sdk.request_resources(bundles=[{'GPU': 1}])")
    cluster.until(lambda: len(cluster.nodes()) == 1, "a job came")
    before = slurm.jobs()
    killed = cluster.autoscaler()
    os.kill(killed, signal.SIGKILL)
    cluster.program("import ray; ray.init(address='auto'); ray.autoscaler.sdk.request_resources(bundles=[{'GPU': 1}] * 2)")
    cluster.until(lambda: len(cluster.nodes()) == 2, "another autoscaler brought another job")
    assert set(before) < set(slurm.jobs()) and cluster.autoscaler() != killed
    cluster.program("import ray; ray.init(address='auto'); ray.autoscaler.sdk.request_resources(bundles=[])")
    cluster.until(lambda: slurm.jobs() == [] and cluster.nodes() == [], "it ends the jobs of the last one")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"partition": "nowhere"}, r"`sbatch --job-name=.* exited with status 1: .*[Ii]nvalid partition"),
        ({"program": "/no/such/oxiray"}, r"job \d+ ended by itself \(FAILED, NonZeroExitCode: .*No such file"),
    ],
    ids=["refused", "does not start"],
)
def test_a_group_that_brings_no_node_is_set_aside_with_the_reason(
    slurm: Slurm, growing: Callable[..., Growing], settings: dict[str, str], why: str
) -> None:
    cluster = growing(group(min=1, slurm={"gres": "gpu:1"} | settings))
    cluster.until(lambda: re.search(why, told_of(cluster)["set_aside"] or "", re.DOTALL), "the reason is told")
    cluster.until(lambda: re.search(r"set aside for 4 s", cluster.log()), "and for longer the next time")


def test_no_job_is_left_when_the_cluster_is_stopped(
    slurm: Slurm, growing: Callable[..., Growing], mark: str
) -> None:
    # The third has no room.
    cluster = growing(group(min=3, max=3, slurm={"gres": "gpu:2"}))
    cluster.until(lambda: len(cluster.nodes()) == 2, "two are there")
    cluster.until(lambda: len(slurm.jobs()) == 3, "one is queued")
    token = next(cluster.folder.glob("oxiray-*/session_*/join-token")).read_text().strip()
    running, kept = slurm.folder.glob("spool-n?/job*/slurm_script"), slurm.folder.glob("state/hash.*/job.*/script")
    scripts = [path for path in [*running, *kept] if token in path.read_text()]
    assert len(scripts) == 5, f"three that Slurm keeps, and two that run: {scripts}\n{cluster.log()}"
    assert [path for path in scripts if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)] == []
    holding = [process for process in Path("/proc").glob("[0-9]*") if has(process, token)]
    assert holding == [], "no argument and no variable of a process has the token"
    stopped = cluster.oxiray("stop")
    assert stopped.returncode == 0, stopped.stderr
    wait_until(lambda: slurm.jobs() == [] and processes_of(mark) == [])


def has(process: Path, text: str) -> bool:
    try:
        return any(text.encode() in (process / name).read_bytes() for name in ("cmdline", "environ"))
    except OSError:
        return False
