"""Devices that are ill: who is told, who is ended, which are given to nobody, and how they come back."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import commands
import nvml
import pytest
from watching import wait_until

import ray
from ray.cluster_utils import Cluster

GPU = "NVIDIA H100|GPU-{slot}||85899345920|0|||0\n"


@pytest.fixture(scope="module")
def library() -> str:
    """The library that answers as NVML and CUDA do."""
    return nvml.library()


@pytest.fixture
def gpus(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    """A cluster of one machine with four GPUs."""
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_CUDA_LIBRARY", library)
    made = Gpus(nvml.Answers(tmp_path, monkeypatch, library))
    ray.init(num_cpus=4, num_gpus=4)
    wait_until(made.answers.are_listened_to)
    yield made
    ray.shutdown()


class Gpus:
    """What NVIDIA's libraries say of four GPUs."""

    def __init__(self, answers: nvml.Answers) -> None:
        self.answers, self._errors = answers, ""
        self.say()

    def say(self, *lines: str) -> None:
        """Besides the GPUs and the errors that were reported."""
        devices = "".join(GPU.format(slot=slot) for slot in range(4))
        self.answers.write(devices + self._errors + "".join(f"{line}\n" for line in lines))

    def report(self, slot: int, xid: int, *lines: str) -> None:
        """An error of a GPU, and what else is said from then on."""
        self._errors += f"xid={slot}:{xid}\n"
        self.say(*lines)

    def tell(self, slot: int, event: int, *lines: str) -> None:
        """Another event of a GPU, by NVML's number."""
        self._errors += f"event={slot}:{event}\n"
        self.say(*lines)


def status() -> str:
    """What `oxiray status` prints, without since when a device is out of service."""
    told = commands.run("status", f"--address={ray.get_runtime_context().gcs_address}")
    return re.sub(r" since [-0-9]+ [:0-9]+ UTC(?=: )", "", told)


def device(slot: int, text: str | None = None, resource: str = "GPU") -> str:
    """The lines of `oxiray status` on a device."""
    lines = (status() if text is None else text).splitlines()
    # Where there are several nodes, those of each stand below it.
    is_it = re.compile(rf"(    |  ){resource} {slot} ")
    first, found = next((number, match) for number, line in enumerate(lines) if (match := is_it.match(line)))
    own = [lines[first]]
    for line in lines[first + 1 :]:
        if not line.startswith(found[1] + "    "):
            break
        own.append(line)
    return "\n".join(own)


def has_begun(mark: Path) -> bool:
    return mark.exists() and mark.read_text() != ""


@ray.remote(num_gpus=1, num_cpus=0, max_retries=0)
def works(mark: str) -> str:
    """Tells its process and its GPU, and works until it is ended."""
    own = ray.get_gpu_ids()[0]
    Path(mark).write_text(f"{os.getpid()} {own}")
    while not Path(f"{mark}.done").exists():
        time.sleep(0.02)
    return str(own)


def test_an_applications_error_is_told_and_not_held_against_the_device(gpus: Gpus, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    task = works.remote(str(mark))
    wait_until(lambda: has_begun(mark))
    pid, slot = map(int, mark.read_text().split())
    gpus.report(slot, 31)
    told: list[str] = []

    def is_told() -> bool:
        told.append(device(slot))
        return "last error: Xid 31 (a memory page fault: an illegal address)" in told[-1]

    wait_until(is_told)
    # What it reported counts for 10 s.
    os.kill(pid, signal.SIGSEGV)
    assert "out of service" not in told[-1]
    with pytest.raises(ray.exceptions.WorkerCrashedError) as raised:
        ray.get(task, timeout=30)
    assert type(raised.value) is ray.exceptions.WorkerCrashedError, "the application is to blame"
    assert f"GPU {slot} reported Xid 31" in str(raised.value) and " s before" in str(raised.value), raised.value
    again = tmp_path / "again"
    (tmp_path / "again.done").touch()
    assert ray.get([works.remote(str(again)) for _ in range(4)], timeout=60)


def test_the_error_of_a_task_says_what_its_device_reported_while_it_ran(gpus: Gpus, tmp_path: Path) -> None:
    @ray.remote(num_gpus=1, num_cpus=0)
    class Holder:
        def slot(self) -> int:
            return int(ray.get_gpu_ids()[0])

        def fail(self, mark: str) -> None:
            Path(mark).touch()
            while not Path(f"{mark}.done").exists():
                time.sleep(0.02)
            raise ValueError("it computes nonsense")

    holder = Holder.remote()
    slot = ray.get(holder.slot.remote(), timeout=30)

    def error_after(mark: Path, report: Callable[[], None]) -> str:
        failing = holder.fail.remote(str(mark))
        wait_until(mark.exists)
        report()
        Path(f"{mark}.done").touch()
        with pytest.raises(ValueError, match="it computes nonsense") as raised:
            ray.get(failing, timeout=30)
        return str(raised.value)

    def report() -> None:
        gpus.report((slot + 1) % 4, 13)
        gpus.report(slot, 31)
        wait_until(lambda: "last error: Xid 31" in device(slot))

    told = error_after(tmp_path / "first", report)
    line = rf"ValueError: it computes nonsense\nOxiray: GPU {slot} \(GPU-{slot}\) reported Xid 31 \(a memory page fault: an illegal address\) "
    assert re.search(line + r"[0-9.]+ s before this error: what ran on it caused that$", told), told
    assert "Xid 13" not in told, "it is another's"
    assert "Xid" not in error_after(tmp_path / "second", lambda: None), "it was before this call"


def test_who_has_a_device_that_is_gone_is_ended_and_runs_again_elsewhere(gpus: Gpus, tmp_path: Path) -> None:
    mark, other = tmp_path / "mark", tmp_path / "other"
    fails = works.remote(str(mark))
    goes_on = works.options(max_retries=1).remote(str(other))
    wait_until(lambda: has_begun(mark) and has_begun(other))
    (_, first), (pid, second) = (map(int, path.read_text().split()) for path in (mark, other))
    gpus.report(first, 79)
    with pytest.raises(ray.exceptions.DeviceFailedError) as raised:
        ray.get(fails, timeout=30)
    text = str(raised.value)
    assert text.startswith("The worker died unexpectedly while executing this task."), text
    assert f"GPU {first}, which it had, failed: Xid 79 (the GPU has fallen off the bus)" in text, text
    wait_until(lambda: "out of service: Xid 79" in device(first))
    # Its one retry is still there after its device failed.
    gpus.report(second, 79)
    wait_until(lambda: other.read_text().split()[:1] not in ([], [str(pid)]))
    moved, third = map(int, other.read_text().split())
    assert third not in (first, second)
    os.kill(moved, signal.SIGKILL)
    wait_until(lambda: other.read_text().split()[:1] not in ([], [str(moved)]))
    Path(f"{other}.done").touch()
    assert int(ray.get(goes_on, timeout=60)) not in (first, second)


def test_a_device_comes_back_when_its_driver_needs_nothing_and_it_has_passed_the_check(gpus: Gpus) -> None:
    gpus.report(2, 95, "recovery=2:1", "cuda=forgets")
    wait_until(lambda: "out of service: its driver needs a reset of the device" in device(2))
    gpus.say("recovery=2:0", "cuda=forgets")
    wait_until(lambda: "it did not pass the check" in device(2))
    assert "words of memory are not what was written to them, the first at byte" in device(2)
    gpus.say("recovery=2:0", "cuda=sound")
    # It is checked again in a minute, or when a person wants it.
    node = ray.get_runtime_context().get_node_id()
    said = commands.run("device", "undrain", f"{node}/2", f"--address={ray.get_runtime_context().gcs_address}")
    assert "GPU 2 of node" in said and "when it has passed a check" in said, said
    wait_until(lambda: "out of service" not in device(2))
    assert "last error: Xid 95 (an uncontained ECC error of memory)" in device(2)


def test_the_driver_decides_over_the_number_of_an_error(gpus: Gpus) -> None:
    gpus.report(1, 95, "recovery=1:0", "cuda=sound")
    wait_until(lambda: "last error: Xid 95" in device(1) and "out of service" not in device(1))
    gpus.say("recovery=3:2", "remap=0:pending")
    wait_until(lambda: "its driver needs a restart of the machine" in device(3))
    wait_until(lambda: "needs a reset when it suits" in device(0))
    assert "out of service" not in device(0)


def test_a_device_whose_links_fail_is_given_to_nobody_along_with_others(gpus: Gpus, tmp_path: Path) -> None:
    gpus.report(1, 74)
    wait_until(lambda: "last error: Xid 74 (an NVLink error)" in device(1))
    several = ray.remote(num_gpus=4, num_cpus=0)(lambda: sorted(ray.get_gpu_ids()))
    assert ray.get(several.remote(), timeout=60) == [0, 1, 2, 3], "the driver needs nothing"
    gpus.say("recovery=1:3", "recovery=3:3")
    drained = "granted only by itself: its driver needs its links to other devices drained"
    wait_until(lambda: f"{drained}, after Xid 74 (an NVLink error)" in device(1))
    wait_until(lambda: drained in device(3))
    assert "after Xid" not in device(3) and "out of service" not in status()
    assert ray.get(several.options(num_gpus=2).remote(), timeout=60) == [0, 2]
    held = [works.remote(str(tmp_path / str(number))) for number in range(4)]
    for number in range(4):
        wait_until(lambda number=number: has_begun(tmp_path / str(number)))
    given = sorted(int((tmp_path / str(number)).read_text().split()[1]) for number in range(4))
    assert given == [0, 1, 2, 3], "each by itself"
    for number in range(4):
        (tmp_path / f"{number}.done").touch()
    ray.get(held, timeout=60)
    waiting = several.remote()
    address = f"--address={ray.get_runtime_context().gcs_address}"
    task = waiting.task_id().hex()
    why = "2 of 4 wholly free, 2 granted only one at a time while the driver has links to other devices drained"
    wait_until(lambda: why in commands.run("explain", task, address))
    gpus.say("recovery=1:0", "recovery=3:0")
    assert ray.get(waiting, timeout=60) == [0, 1, 2, 3]
    assert drained not in status()


def test_the_label_of_the_domain_is_withdrawn_while_a_driver_needs_it_recovered(gpus: Gpus) -> None:
    ray.shutdown()
    fabric = [f"fabric={slot}:9a5c1f00-2b3d-4e5f-8a9b-0c1d2e3f4a5b:3" for slot in range(4)]
    gpus.say(*fabric)
    ray.init(num_cpus=4, num_gpus=4)
    domain = {"ray.io/gpu-domain": "9a5c1f00-2b3d-4e5f-8a9b-0c1d2e3f4a5b.3"}
    (node,) = ray.nodes()
    assert domain.items() <= node["Labels"].items()
    gpus.say(*fabric, "recovery=2:5")
    wait_until(lambda: "its domain of shared memory (IMEX) recovered: the label `ray.io/gpu-domain`" in device(2))
    assert "out of service" not in status() and "ray.io/gpu-domain" not in ray.nodes()[0]["Labels"]
    group = ray.util.placement_group([{"GPU": 1}] * 2, topology_strategy={"ray.io/gpu-domain": "STRICT_PACK"})
    task = ray.remote(num_cpus=1)(lambda: 1).options(label_selector=domain).remote()
    address = f"--address={ray.get_runtime_context().gcs_address}"
    withdrawn = "withdrawn while a driver needs its domain of shared memory (IMEX) recovered: label `ray.io/gpu-domain`"
    for waiting in (group.id.hex(), task.task_id().hex()):
        wait_until(lambda waiting=waiting: withdrawn in commands.run("explain", waiting, address))
    assert ray.get(ray.remote(num_gpus=4)(lambda: 2).remote(), timeout=60) == 2
    gpus.say(*fabric, "recovery=2:0")
    assert group.wait(60) and ray.get(task, timeout=60) == 1
    assert domain.items() <= ray.nodes()[0]["Labels"].items()


def test_more_than_half_of_the_devices_stay_in_service(gpus: Gpus) -> None:
    for slot in (0, 1, 2):
        gpus.report(slot, 95)
        # One after the other, so that it is known which is kept.
        wait_until(lambda slot=slot: "Xid 95" in device(slot))
    wait_until(lambda: "kept in service although Xid 95" in device(2))
    assert "out of service: Xid 95" in device(0) and "out of service: Xid 95" in device(1)
    assert "more than half of the cluster's devices of `GPU` would be out of service" in device(2)
    warning = next(line for line in status().splitlines() if line.startswith("warning: more than half"))
    node = ray.get_runtime_context().get_node_id()
    assert f"these are kept in service: GPU 2 of node {node} (Xid 95" in status().replace("\n", " "), warning
    assert ray.get(ray.remote(num_gpus=2)(lambda: sorted(ray.get_gpu_ids())).remote(), timeout=30) == [2, 3]


def test_what_older_drivers_and_events_tell_is_shown_and_the_device_goes_on(gpus: Gpus) -> None:
    gpus.tell(1, 2, "field=0:31:1", "field=0:4:3", "slowed=3:64")
    wait_until(lambda: "needs a reset when it suits: pages of its memory are to be taken out of use" in device(0))
    assert "3 double-bit errors of its memory since its driver was loaded" in device(0)
    wait_until(lambda: "last error: a double-bit error of its memory" in device(1))
    wait_until(lambda: "slowed down by its hardware: it is too warm" in device(3))
    assert "out of service" not in status()
    gpus.tell(2, 0x2000)
    wait_until(lambda: "out of service: a fatal use of data that an error of its memory had spoilt" in device(2))


@pytest.mark.skipif(
    os.readlink("/proc/self/ns/pid") != "pid:[4026531836]",
    reason="processes are called otherwise here than the library calls them",
)
def test_the_fault_of_another_client_of_an_mps_server_does_not_count_as_the_own(gpus: Gpus, tmp_path: Path) -> None:
    mark, other = tmp_path / "mark", tmp_path / "other"
    half = {"num_gpus": 0.5, "max_retries": 0}
    task, neighbour = works.options(**half).remote(str(mark)), works.options(**half).remote(str(other))
    wait_until(lambda: has_begun(mark) and has_begun(other))
    (pid, slot), (others, _) = (map(int, path.read_text().split()) for path in (mark, other))
    gpus.say(f"mps={slot}:{pid}:1048576,{others}:1048576", f"slowed={slot}:64")
    # What is said of its processes is read after that.
    wait_until(lambda: "slowed down by its hardware" in device(slot))
    gpus.report(slot, 31)
    wait_until(lambda: "last error: Xid 31" in device(slot))
    os.kill(pid, signal.SIGSEGV)
    with pytest.raises(ray.exceptions.DeviceFailedError) as raised:
        ray.get(task, timeout=60)
    assert f"GPU {slot} reported Xid 31" in str(raised.value)
    assert "used through an MPS server" in str(raised.value) and "another one (1 there)" in str(raised.value)
    Path(f"{other}.done").touch()
    assert ray.get(neighbour, timeout=60) == str(slot)


def test_a_node_is_drained_whose_driver_needs_a_restart_of_the_machine(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    ray.shutdown()
    gpus = Gpus(nvml.Answers(tmp_path, monkeypatch, library))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 4})
    request.addfinalizer(cluster.shutdown)
    request.addfinalizer(ray.shutdown)
    member = cluster.add_node(num_cpus=1, num_gpus=4, resources={"member": 1})
    ray.init(address=cluster.address)
    wait_until(gpus.answers.are_listened_to)
    mark = tmp_path / "mark"
    task = works.options(resources={"member": 1}).remote(str(mark))
    wait_until(lambda: has_begun(mark))
    gpus.say("recovery=3:7")
    why = "the driver of its GPU 3 needs a restart of the machine"
    wait_until(lambda: why in status())
    wait_until(lambda: f"their nodes are not being drained: GPU 3 of node {cluster.head_node.node_id}. " in status())
    assert {row["NodeID"]: row["Alive"] for row in ray.nodes()}[member.node_id], "somebody works there"
    Path(f"{mark}.done").touch()
    ray.get(task, timeout=60)
    wait_until(lambda: not {row["NodeID"]: row["Alive"] for row in ray.nodes()}[member.node_id])


def test_a_person_drains_a_device_has_it_checked_and_puts_it_back(gpus: Gpus, tmp_path: Path) -> None:
    address = f"--address={ray.get_runtime_context().gcs_address}"
    node = ray.get_runtime_context().get_node_id()
    mark = tmp_path / "mark"
    task = works.remote(str(mark))
    wait_until(lambda: has_begun(mark))
    slot = int(mark.read_text().split()[1])
    drained = commands.run("device", "drain", f"{node[:12]}/{slot}", "--reason", "its fan", address)
    assert f"GPU {slot} of node {node} is given to nobody any more; who has it keeps it" in drained, drained
    wait_until(lambda: "out of service: it was drained by hand: its fan" in device(slot))
    whole = commands.run("status", address)
    since = re.search(r"out of service since ([-0-9]+ [:0-9]+) UTC: it was drained by hand: its fan", whole)
    assert since, whole
    begun = datetime.fromisoformat(since[1]).replace(tzinfo=timezone.utc)
    assert timedelta(0) <= datetime.now(timezone.utc) - begun < timedelta(minutes=2), whole
    rows = json.loads(commands.run("status", "--json", address))["devices"]
    told = {row["slot"]: row["since_ms"] for row in rows if row["since_ms"] is not None}
    assert list(told) == [slot] and told[slot] // 1000 == int(begun.timestamp()), rows
    Path(f"{mark}.done").touch()
    assert ray.get(task, timeout=30) == str(slot)
    (tmp_path / "rest.done").touch()
    rest = ray.get([works.remote(str(tmp_path / "rest")) for _ in range(6)], timeout=60)
    assert str(slot) not in rest
    gpus.say("cuda=sound")
    commands.run("device", "undrain", f"{node}/GPU-{slot}", address)
    wait_until(lambda: "out of service" not in device(slot))
    commands.run("device", "check", f"{node}/GPU:{slot}", address)
    wait_until(lambda: "out of service" not in device(slot))
    refused = commands.run("device", "undrain", f"{node}/{slot}", address, check=False)
    assert "is in service: there is nothing to undo" in refused, refused
    for wrong, why in [
        (f"{node}/4", "that node has no device `4`: it has GPU:0 to GPU:3"),
        (f"{node}/GPU-", "may mean several devices"),
        ("nowhere/0", "no living node is `nowhere`"),
        ("0", "names no device of a node: give NODE/DEVICE"),
    ]:
        assert why in commands.run("device", "drain", wrong, address, check=False), wrong
    held = tmp_path / "held"
    task = works.remote(str(held))
    wait_until(lambda: has_begun(held))
    slot = int(held.read_text().split()[1])
    refused = commands.run("device", "check", f"{node}/{slot}", address, check=False)
    assert "is in use, and the check would be in the way" in refused, refused
    Path(f"{held}.done").touch()
    ray.get(task, timeout=30)


def test_a_person_puts_all_devices_back_at_once(gpus: Gpus) -> None:
    address = f"--address={ray.get_runtime_context().gcs_address}"
    node = ray.get_runtime_context().get_node_id()
    gpus.say("cuda=sound")
    assert "No device is out of service" in commands.run("device", "undrain", "--all", address)
    for arguments in ([], [node]):
        for slot in (1, 3):
            commands.run("device", "drain", f"{node}/{slot}", address)
        wait_until(lambda: "out of service" in device(1) and "out of service" in device(3))
        said = commands.run("device", "undrain", "--all", *arguments, address).splitlines()
        assert said == [f"GPU {slot} of node {node} is put back into service when it has passed a check: see `oxiray status`." for slot in (1, 3)]
        wait_until(lambda: "out of service" not in status())
    refused = commands.run("device", "undrain", f"{node}/1", "--all", address, check=False)
    assert "names one device" in refused, refused
    assert "required" in commands.run("device", "undrain", address, check=False)


def test_what_is_to_be_known_of_devices_of_other_machines_is_shown(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    ray.shutdown()
    gpus = Gpus(nvml.Answers(tmp_path, monkeypatch, library))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    request.addfinalizer(cluster.shutdown)
    request.addfinalizer(ray.shutdown)
    member = cluster.add_node(num_cpus=1, num_gpus=4)
    ray.init(address=cluster.address)
    wait_until(gpus.answers.are_listened_to)
    gpus.report(1, 48)
    seen = "] out of service: Xid 48 (a double-bit ECC error)"
    wait_until(lambda: seen in re.sub(" +", " ", device(1)))
    above = status().partition("    GPU 1 (GPU-1) [")[0]
    assert re.findall(r"  on node (\w+)", above)[-1:] == [member.node_id], above
    commands.run("device", "undrain", f"{member.node_id}/1", "--force", f"--address={cluster.address}")
    wait_until(lambda: "out of service" not in device(1))
    assert "put back into service by hand" in device(1)


def test_an_error_of_an_instance_concerns_that_one_alone_unless_it_is_one_of_the_whole_gpu(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.shutdown()
    answers = nvml.Answers(tmp_path, monkeypatch, library)
    gpus = "".join(GPU.format(slot=slot) for slot in range(2))
    cut = [(gpu, part) for gpu in range(2) for part in (7, 8, 9)]
    parts = "".join(f"mig={gpu}:{part}:0:MIG-{gpu}{part}:1g.10gb:10737418240\n" for gpu, part in cut)
    answers.write(gpus + parts)
    ray.init(num_cpus=4)
    wait_until(answers.are_listened_to)
    one = {"resources": {"mig-1g.10gb": 1}, "num_cpus": 0, "max_retries": 0}
    marks = [tmp_path / str(number) for number in range(3)]

    @ray.remote
    def holds(mark: str) -> None:
        Path(mark).write_text(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}")
        while not Path(f"{mark}.done").exists():
            time.sleep(0.02)

    tasks = [holds.options(**one).remote(str(mark)) for mark in marks]
    wait_until(lambda: all(has_begun(mark) for mark in marks))
    who = {mark.read_text().split()[1]: (task, mark) for task, mark in zip(tasks, marks, strict=True)}
    assert sorted(who) == ["MIG-07", "MIG-08", "MIG-09"]

    def part(slot: int) -> str:
        return device(slot, resource="mig-1g.10gb")

    answers.write(gpus + parts + "xid=0:31:8:0\n")
    wait_until(lambda: "last error: Xid 31" in part(1))
    assert "last error" not in part(0) and "last error" not in part(2)
    for instance in ("MIG-07", "MIG-08"):
        os.kill(int(who[instance][1].read_text().split()[0]), signal.SIGSEGV)
    blamed, other = (who[instance][0] for instance in ("MIG-08", "MIG-07"))
    with pytest.raises(ray.exceptions.WorkerCrashedError, match="reported Xid 31"):
        ray.get(blamed, timeout=30)
    with pytest.raises(ray.exceptions.WorkerCrashedError) as raised:
        ray.get(other, timeout=30)
    assert "Xid" not in str(raised.value)
    answers.write(gpus + parts + "xid=0:31:8:0\nxid=0:119:9:0\n")
    wait_until(lambda: all("out of service: Xid 119" in part(slot) for slot in (0, 1, 2)))
    assert not any("out of service" in part(slot) for slot in (3, 4, 5)), "they are of another GPU"
    Path(f"{who['MIG-09'][1]}.done").touch()
    ray.get(who["MIG-09"][0], timeout=30)


def meets(folder: str, bad: list[int], error: str | None = None) -> int:
    """Waits until all four GPUs have one of these, and fails on those that are bad."""
    own = int(ray.get_gpu_ids()[0])
    Path(folder, str(own)).touch()
    while len(list(Path(folder).iterdir())) < 4:
        time.sleep(0.02)
    if own in bad and error is not None:
        raise RuntimeError(error)
    if own in bad:
        os.kill(os.getpid(), signal.SIGSEGV)
    return own


@ray.remote(num_gpus=1, num_cpus=0, max_retries=0)
def first(folder: str, bad: list[int]) -> int:
    return meets(folder, bad)


@ray.remote(num_gpus=1, num_cpus=0, max_retries=0)
def second(folder: str, bad: list[int]) -> int:
    return meets(folder, bad)


@ray.remote(num_gpus=1, num_cpus=0, max_retries=0)
def third(folder: str, bad: list[int]) -> int:
    return meets(folder, bad, "CUDA error: an illegal memory access was encountered")


def are_healthy() -> bool:
    """Whether it is known of all GPUs that they are well: others are never suspected."""
    told = commands.run("status", f"--address={ray.get_runtime_context().gcs_address}", "--json")
    return all(row["health"] == "healthy" for row in json.loads(told)["devices"])


def run_on_all(folder: Path, bad: list[int]) -> None:
    """One of each function on each GPU, one function after the other."""
    for function in (first, second, third):
        meeting = folder / f"{len(list(folder.iterdir()))}"
        meeting.mkdir()
        tasks = [function.remote(str(meeting), bad) for _ in range(4)]
        failed = 0
        for task in tasks:
            try:
                ray.get(task, timeout=60)
            except ray.exceptions.RayError:
                failed += 1
        assert failed == len(bad)


def test_a_device_on_which_functions_fail_that_succeed_elsewhere_is_checked(gpus: Gpus, tmp_path: Path) -> None:
    healthy = [f"recovery={slot}:0" for slot in range(4)]
    gpus.say(*healthy, "cuda=sound")
    wait_until(are_healthy)
    (tmp_path / "meetings").mkdir()
    run_on_all(tmp_path / "meetings", [2])
    passed = "it passed a check after functions failed on it that succeeded on other devices: "
    wait_until(lambda: passed in device(2))
    assert "out of service" not in device(2)
    shown = device(2)
    assert all(f"{name}` (" in shown for name in ("first", "second", "third")), shown
    assert "SIGSEGV" in shown and "CUDA error: an illegal memory access was encountered" in shown, shown
    assert not any("functions failed" in device(slot) for slot in (0, 1, 3))
    gpus.say(*healthy, "cuda=forgets")
    run_on_all(tmp_path / "meetings", [2])
    wait_until(lambda: "out of service: it did not pass the check" in device(2))
    assert "after functions failed on it that succeeded on other devices" in device(2)


def test_functions_that_fail_everywhere_are_noted_and_the_devices_go_on(gpus: Gpus, tmp_path: Path) -> None:
    gpus.say(*[f"recovery={slot}:0" for slot in range(4)], "cuda=forgets")
    wait_until(are_healthy)
    (tmp_path / "meetings").mkdir()
    run_on_all(tmp_path / "meetings", [0, 1, 2, 3])
    noted = "functions failed on it, not all of which succeeded on other devices: "
    wait_until(lambda: all(noted in device(slot) for slot in range(4)))
    assert "out of service" not in status()


def test_rules_for_xids_are_checked_when_a_node_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_XIDS_FATAL", "48,all")
    with pytest.raises(Exception, match="OXIRAY_XIDS_FATAL is `48,all`, of which `all` is no Xid"):
        ray.init(num_cpus=1)
