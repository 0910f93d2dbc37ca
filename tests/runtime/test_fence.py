"""A worker cannot open a device that it was not granted, where the kernel can refuse it.

The machine is a recorded one with two NVIDIA GPUs whose device nodes have the numbers of `/dev/full` and `/dev/zero`: they
can be opened wherever nothing refuses it, and nobody needs a GPU.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from fenced import HELD, NOBODY, NUMBERS, fences, held, reachable_interpreter, recorded
from nvml import Answers, library
from ray.cluster_utils import Cluster
from watching import wait_until

#: What a process may try in order to open a node.
WAYS = ["by its name", "by a symbolic link", "by a node of its number", "by /proc/self/fd", "after setsid", "a child of a child"]


def mechanism() -> str:
    """The strongest that works for this user."""
    words = {"cgroup v2": "cgroup", "cgroup v1": "cgroup1", "Landlock": "landlock"}
    working = [tier for name, tier in words.items() if fences().get(name, {}).get("works")]
    if not working:
        pytest.skip(f"the kernel refuses nobody any node here: {fences()}")
    return working[0]


def opened(path: str) -> str:
    """What comes of opening a node: `ok`, or the name of the error."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def in_child(path: str, before: str = "", depth: int = 1) -> str:
    """The same, tried by a new process, or by one of its own."""
    code = f"""
import errno, os, subprocess, sys
{before}
if {depth} > 1:
    sys.exit(subprocess.run([sys.executable, "-c", {_OPENING!r}, {path!r}]).returncode)
{_OPENING}
"""
    printed = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    return printed.stdout.strip()


_OPENING = """
import errno, os, sys
try:
    os.close(os.open(sys.argv[1], os.O_RDWR)); print("ok")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def tried(path: str, folder: str) -> dict[str, str]:
    """What comes of each way to open a node."""
    own = tempfile.mkdtemp(dir=folder)
    link, second = f"{own}/link", f"{own}/second"
    os.symlink(path, link)
    try:
        os.mknod(second, stat.S_IFCHR | 0o666, os.stat(path).st_rdev)
        by_number = opened(second)
    except OSError as error:
        by_number = errno.errorcode[error.errno or 0]
    found = os.open(path, os.O_PATH)
    results = [opened(path), opened(link), by_number, opened(f"/proc/self/fd/{found}")]
    results += [in_child(path, "os.setsid() if os.getpid() != os.getsid(0) else None"), in_child(path, depth=2)]
    os.close(found)
    return dict(zip(WAYS, results, strict=True))


@ray.remote
def look(host: str, folder: str) -> dict[str, Any]:
    """What a worker finds: its GPUs, the variables, and what comes of opening each node."""
    return {
        "ids": [int(one) for one in ray.get_gpu_ids()],
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "order": os.environ.get("CUDA_DEVICE_ORDER"),
        "tried": [tried(f"{host}/dev/nvidia{minor}", folder) for minor in range(2)],
    }


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Starts a cluster on the recorded machine, in that mode."""
    if os.geteuid() != 0:
        pytest.skip("device nodes are made by root only")
    ray.shutdown()

    def start(isolation: str, **options: Any) -> Path:
        host = recorded(tmp_path)
        monkeypatch.setenv("OXIRAY_HOST_ROOT", str(host))
        ray.init(num_cpus=4, device_isolation=isolation, **options)
        return host

    yield start
    ray.shutdown()


def state(address: str) -> dict[str, Any]:
    """What `oxiray status` says."""
    from oxiray import _cli

    command = [_cli.native_binary(), "status", "--json", "--address", address]
    printed: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return printed


def tiers(address: str) -> list[dict[str, Any]]:
    """What it says of those who hold devices."""
    return [holder["isolation"] for device in state(address)["devices"] for holder in device["holders"]]


def test_cgroup_a_grant_opens_its_own_device_and_no_other(machine: Callable[..., Path], tmp_path: Path) -> None:
    if mechanism() == "landlock":
        pytest.skip(f"no cgroup refuses nodes here: {fences()}")
    host = machine("fence")
    both = ray.get([look.options(num_gpus=1).remote(str(host), str(tmp_path)) for _ in range(2)])
    for found in both:
        own = found["ids"][0]
        print(f"GPU {own} granted:", json.dumps(found["tried"], indent=1))
        assert set(found["tried"][own].values()) == {"ok"}, "its own device opens in every way"
        assert set(found["tried"][1 - own].values()) == {"EPERM"}, "another's opens in none"
        assert (found["visible"], found["order"]) == ("0", "PCI_BUS_ID"), "CUDA counts what can be opened"
    whole = ray.get(look.options(num_gpus=2).remote(str(host), str(tmp_path)))
    assert (whole["ids"], whole["visible"]) == ([0, 1], "0,1")
    assert {outcome for way in whole["tried"] for outcome in way.values()} == {"ok"}
    none = ray.get(look.remote(str(host), str(tmp_path)))
    assert {outcome for way in none["tried"] for outcome in way.values()} == {"ok"}, "as without Oxiray"


@ray.remote
def detected(host: str) -> tuple[list[int], dict[str, Any]]:
    """The GPUs of a worker, and what is detected within it."""
    from oxiray import _cli

    command = [_cli.native_binary(), "hardware", "--json"]
    printed = subprocess.run(command, env=os.environ | {"OXIRAY_HOST_ROOT": host}, capture_output=True, text=True, check=True)
    return [int(one) for one in ray.get_gpu_ids()], json.loads(printed.stdout)


def test_cgroup_what_it_refuses_is_not_detected_as_in_a_slurm_step(machine: Callable[..., Path]) -> None:
    if mechanism() == "landlock":
        pytest.skip(f"no cgroup refuses nodes here: {fences()}")
    host = machine("fence")
    for ids, detection in ray.get([detected.options(num_gpus=1).remote(str(host)) for _ in range(2)]):
        [family] = detection["accelerators"]
        [device] = family["devices"]
        assert (family["count"], device["index"], device["uuid"]) == (1, 0, f"GPU-{ids[0]}")
        other = 1 - ids[0]
        why = f"the control group of this process refuses it `/dev/nvidia{other}`"
        assert detection["ruled_out"] == [{"what": f"NVIDIA GPU {other}", "why": why}]
    _, none = ray.get(detected.remote(str(host)))
    assert [device["index"] for device in none["accelerators"][0]["devices"]] == [0, 1]


def test_cgroup_a_placement_group_shares_its_devices(machine: Callable[..., Path], tmp_path: Path) -> None:
    if mechanism() == "landlock":
        pytest.skip(f"no cgroup refuses nodes here: {fences()}")
    host = machine("fence")
    group = ray.util.placement_group([{"GPU": 1}, {"GPU": 1}])
    ray.get(group.ready())
    within = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    places = [within(group, placement_group_bundle_index=index) for index in range(2)]
    runs = [look.options(num_cpus=0, num_gpus=1, scheduling_strategy=place) for place in places]
    for found in ray.get([run.remote(str(host), str(tmp_path)) for run in runs]):
        assert {outcome for way in found["tried"] for outcome in way.values()} == {"ok"}
        assert found["visible"] == str(found["ids"][0]), "the realm is all devices of the machine"


@pytest.fixture
def frozen() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not killed until it is thawed: `cgroup.procs` of a frozen group."""
    freezer = Path(f"/sys/fs/cgroup/freezer/oxiray-test-{os.getpid()}")
    try:
        freezer.mkdir()
    except OSError as error:
        pytest.skip(f"no process can be frozen here (cgroup v1 freezer): {error}")
    process = subprocess.Popen(["sleep", "600"])
    (freezer / "cgroup.procs").write_text(str(process.pid))
    (freezer / "freezer.state").write_text("FROZEN")
    yield process
    (freezer / "freezer.state").write_text("THAWED")
    process.kill()
    process.wait()
    freezer.rmdir()


def quarantined(address: str) -> list[str]:
    """Why devices are out of service, as `oxiray status` says."""
    from oxiray import _cli

    command = [_cli.native_binary(), "status", "--json", "--address", address]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    return [device["reason"] for device in json.loads(printed.stdout)["devices"] if device["reason"]]


def test_cgroup_with_somebody_in_it_keeps_the_device_back(
    tmp_path: Path, frozen: subprocess.Popen[bytes]
) -> None:
    if mechanism() != "cgroup":
        pytest.skip(f"no program of a cgroup v2 refuses nodes here: {fences()}")
    host = recorded(tmp_path)
    ray.shutdown()
    head = {"num_cpus": 2, "num_gpus": 1, "device_isolation": "fence", "env_vars": {"OXIRAY_HOST_ROOT": str(host)}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address)

    @ray.remote(num_gpus=1)
    def own_group() -> str:
        found = next(line for line in open("/proc/self/cgroup") if line.startswith("0::"))
        mounts = [line.split(" - ") for line in open("/proc/self/mountinfo")]
        place = next(before.split()[4] for before, after in mounts if after.startswith("cgroup2 "))
        return place + found.strip().removeprefix("0::")

    @ray.remote(num_gpus=1)
    class Holder:
        def group(self) -> str:
            return own_group._function()

    try:
        holder = Holder.remote()
        group = Path(ray.get(holder.group.remote()))
        (group / "cgroup.procs").write_text(str(frozen.pid))
        waiting = own_group.remote()
        ray.kill(holder)
        wait_until(lambda: quarantined(cluster.address))
        (reason,) = quarantined(cluster.address)
        assert f"process {frozen.pid} is still in the control group of worker process" in reason
        assert ray.wait([waiting], timeout=0.5)[0] == [], "it is handed to nobody"
        Path(f"/sys/fs/cgroup/freezer/oxiray-test-{os.getpid()}/freezer.state").write_text("THAWED")
        assert frozen.wait(timeout=20) != 0, "who is in such a group is killed"
        assert Path(ray.get(waiting, timeout=20)) != group
        assert quarantined(cluster.address) == []
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_tiers_are_what_is_in_force(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes are made by root only")
    works = mechanism()
    host = recorded(tmp_path)
    ray.shutdown()
    head = {"num_cpus": 2, "num_gpus": 2, "device_isolation": "fence", "env_vars": {"OXIRAY_HOST_ROOT": str(host)}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address)

    @ray.remote(num_gpus=0.5)
    class Holder:
        def look(self) -> dict[str, str]:
            return tried(f"{host}/dev/nvidia1", str(tmp_path))

    try:
        fenced = Holder.remote()
        assert set(ray.get(fenced.look.remote()).values()) <= {"EPERM", "EACCES"}
        own = {"resource": "GPU", "slots": [0]}
        assert tiers(cluster.address) == [{"tier": works, "reason": "", "realm": [own]}]
        kept = state(cluster.address)["nodes"][0]["isolation"]
        assert (kept["asked"], kept["in_force"], kept["reason"]) == ("fence", works, "")
        assert kept["means"][0] == works, "the strongest comes first"
        # What chooses devices by itself is left alone, and nobody is told otherwise.
        name = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
        free = Holder.options(runtime_env={"env_vars": {name: "1"}}).remote()
        assert ray.get(free.look.remote())[WAYS[0]] == "ok"
        told = tiers(cluster.address)[-1]
        assert told["tier"] == "watched" and name in told["reason"]
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_tiers_variables_alone_refuse_nothing(machine: Callable[..., Path], tmp_path: Path) -> None:
    host = machine("variable")
    found = ray.get(look.options(num_gpus=1).remote(str(host), str(tmp_path)))
    assert {outcome for way in found["tried"] for outcome in way.values()} == {"ok"}
    assert found["visible"] == str(found["ids"][0]) and found["order"] is None


def test_tiers_require_refuses_what_cannot_be_fenced(machine: Callable[..., Path], tmp_path: Path) -> None:
    if mechanism() == "landlock":
        pytest.skip(f"no cgroup refuses nodes here: {fences()}")
    host = machine("require")
    found = ray.get(look.options(num_gpus=1).remote(str(host), str(tmp_path)))
    own = found["ids"][0]
    assert set(found["tried"][own].values()) == {"ok"} and set(found["tried"][1 - own].values()) == {"EPERM"}
    none = ray.get(look.remote(str(host), str(tmp_path)))
    assert {outcome for way in none["tried"] for outcome in way.values()} == {"EPERM"}, "no device without a grant"
    chosen = {"env_vars": {"CUDA_VISIBLE_DEVICES": "0"}}
    refused = look.options(num_gpus=1, runtime_env=chosen).remote(str(host), str(tmp_path))
    with pytest.raises(ray.exceptions.DeviceIsolationError, match="CUDA_VISIBLE_DEVICES in its environment chooses devices"):
        ray.get(refused)

    @ray.remote(num_gpus=1, runtime_env=chosen)
    class Holder:
        def ping(self) -> None: ...

    with pytest.raises(ray.exceptions.DeviceIsolationError, match="is to be fenced on node"):
        ray.get(Holder.remote().ping.remote())
    # Nothing is held by what was refused.
    wait_until(lambda: ray.available_resources().get("GPU") == 2.0)


def test_tiers_require_ends_who_has_another_device_open_all_the_same(machine: Callable[..., Path], tmp_path: Path) -> None:
    mechanism()
    host = machine("watch")
    door = str(tmp_path / "door")

    @ray.remote(num_gpus=1, max_retries=2)
    def is_passed(mode: str) -> int:
        with socket.socket(socket.AF_UNIX) as to_driver:
            to_driver.connect(door)
            to_driver.sendall(f"{mode} {ray.get_gpu_ids()[0]}\n".encode())
            _, (node,), *_ = socket.recv_fds(to_driver, 1, 1)
            # A fence takes back no descriptor: this one stays open until the driver says more, or nobody does.
            to_driver.recv(1)
            return os.fstat(node).st_rdev

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(door)
        listening.listen()

        def passes_to(task: Any) -> socket.socket:
            client, _ = listening.accept()
            own = int(client.recv(100).split()[1])
            node = os.open(host / "dev" / f"nvidia{1 - own}", os.O_RDWR)
            socket.send_fds(client, [b"-"], [node])
            os.close(node)
            return client

        spared = is_passed.options(device_isolation="fence").remote("fence")
        with passes_to(spared) as client:
            client.sendall(b"-")
        assert os.major(ray.get(spared, timeout=30)) == 1
        ended = is_passed.options(device_isolation="require").remote("require")
        with passes_to(ended), pytest.raises(ray.exceptions.DeviceViolationError) as raised:
            ray.get(ended, timeout=60)
    assert 'ends what does (device_isolation="require")' in str(raised.value), raised.value


def test_what_cuda_makes_at_its_first_call_is_made_before_a_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fences().get("Landlock", {}).get("works") or os.path.exists("/dev/nvidia-uvm"):
        pytest.skip("there is no Landlock, or nothing to be made")
    Answers(tmp_path, monkeypatch, library()).write("NVIDIA H100|GPU-0||85899345920|0|||0\n")
    monkeypatch.delenv("OXIRAY_HOST_ROOT")
    own = tmp_path / "bin"
    own.mkdir()
    stand_in = own / "nvidia-modprobe"
    stand_in.write_text(f"#!/bin/sh\necho $@ >> {tmp_path}/asked\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    ray.shutdown()
    context = ray.init(num_cpus=1, device_isolation="fence")
    try:
        assert (tmp_path / "asked").read_text() == "-u -c 0\n", "once"
        log = (Path(context["session_dir"]) / "logs" / "daemon.log").read_text()
        assert "/dev/nvidia-uvm is missing: `nvidia-modprobe -u -c 0` was run" in log, log
    finally:
        ray.shutdown()


def test_request_is_fenced_where_its_node_only_watches(machine: Callable[..., Path], tmp_path: Path) -> None:
    works = mechanism()
    host = machine("watch")
    refusal = "EACCES" if works == "landlock" else "EPERM"
    for wanted in (look.options(num_gpus=1, device_isolation="fence"), look.options(num_gpus=1, runtime_env={"device_isolation": "require"})):
        found = ray.get(wanted.remote(str(host), str(tmp_path)))
        own = found["ids"][0]
        assert set(found["tried"][own].values()) == {"ok"} and found["visible"] == "0"
        assert refusal in found["tried"][1 - own].values() and "ok" not in found["tried"][1 - own].values()
    bare = ray.get(look.options(device_isolation="require").remote(str(host), str(tmp_path)))
    assert "ok" not in {outcome for way in bare["tried"] for outcome in way.values()}, "no device without a grant"
    # Nobody else is kept from anything, not in the processes that served those either.
    for others in (look.options(num_gpus=1), look):
        found = ray.get([others.remote(str(host), str(tmp_path)) for _ in range(4)])
        assert {outcome for one in found for way in one["tried"] for outcome in way.values()} == {"ok"}


def test_request_of_an_actor_is_shown_with_its_tier(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes are made by root only")
    works = mechanism()
    host = recorded(tmp_path)
    ray.shutdown()
    head = {"num_cpus": 2, "num_gpus": 2, "device_isolation": "watch", "env_vars": {"OXIRAY_HOST_ROOT": str(host)}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address)

    @ray.remote(num_gpus=1, device_isolation="fence")
    class Fenced:
        def look(self) -> str:
            return opened(f"{host}/dev/nvidia{1 - int(ray.get_gpu_ids()[0])}")

        def tiers(self) -> list[str]:
            return [device["isolation"] for device in ray.get_runtime_context().get_devices()]

    try:
        fenced, watched = Fenced.remote(), Fenced.options(device_isolation="watch").remote()
        assert ray.get(fenced.look.remote()) in ("EPERM", "EACCES") and ray.get(watched.look.remote()) == "ok"
        assert ray.get([fenced.tiers.remote(), watched.tiers.remote()]) == [[works], ["watched"]]
        assert sorted(told["tier"] for told in tiers(cluster.address)) == sorted([works, "watched"])
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_request_for_less_than_its_node_does_is_refused(machine: Callable[..., Path], tmp_path: Path) -> None:
    mechanism()
    host = machine("fence")
    with pytest.raises(ray.exceptions.DeviceIsolationError, match="asks for device_isolation=.watch., and node .* stricter"):
        ray.get(look.options(num_gpus=1, device_isolation="watch").remote(str(host), str(tmp_path)))
    # Nothing is held by what was refused.
    wait_until(lambda: ray.available_resources().get("GPU") == 2.0)


def test_request_that_cannot_be_fenced_hears_why_and_what_to_do() -> None:
    ray.shutdown()
    ray.init(num_cpus=2, num_gpus=1)  # in name only

    @ray.remote(num_gpus=1)
    def run() -> list[str]:
        return [device["isolation"] for device in ray.get_runtime_context().get_devices()]

    try:
        ways = "not known which device nodes GPU 0 has.*root.*CAP_BPF.*Landlock.*device_isolation=.fence."
        with pytest.raises(ray.exceptions.DeviceIsolationError, match=ways):
            ray.get(run.options(device_isolation="require").remote())
        assert ray.get(run.options(device_isolation="fence").remote()) == ["variable"], "it runs all the same"
    finally:
        ray.shutdown()


def test_request_is_inherited_from_a_job_and_by_children(machine: Callable[..., Path], tmp_path: Path) -> None:
    mechanism()
    host = machine("variable", runtime_env={"device_isolation": "fence"})

    @ray.remote(num_gpus=1)
    def outer() -> dict[str, Any]:
        return ray.get(look.options(num_gpus=1).remote(str(host), str(tmp_path)))

    for found in (ray.get(look.options(num_gpus=1).remote(str(host), str(tmp_path))), ray.get(outer.remote())):
        assert "ok" not in found["tried"][1 - found["ids"][0]].values()
    free = ray.get(look.options(num_gpus=1, device_isolation="variable").remote(str(host), str(tmp_path)))
    assert {outcome for way in free["tried"] for outcome in way.values()} == {"ok"}


def test_stray_descriptors_are_closed_before_user_code(
    machine: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mechanism()
    host = machine("fence")
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "opens.py").write_text(f"import os\nkept = [os.open('{host}/dev/nvidia' + one, os.O_RDONLY) for one in '01']\n")

    @ray.remote(num_gpus=1, runtime_env={"preload": ["opens"], "env_vars": {"PYTHONPATH": str(folder)}})
    def kept() -> tuple[int, list[bool], int]:
        import opens

        def is_open(descriptor: int) -> bool:
            return os.path.exists(f"/proc/self/fd/{descriptor}") or os.path.islink(f"/proc/self/fd/{descriptor}")

        open_devices = [os.fstat(one).st_rdev for one in map(int, os.listdir("/proc/self/fd")) if is_open(one)]
        return int(ray.get_gpu_ids()[0]), [os.makedev(*number) in open_devices for number in NUMBERS], len(opens.kept)

    own, is_kept, opened_by_template = ray.get(kept.remote())
    assert opened_by_template == 2 and is_kept[own] and not is_kept[1 - own], "what another was granted is closed"
    ray.shutdown()
    assert f"host/dev/nvidia{1 - own} was closed" in capfd.readouterr().err


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user reaches. pytest's own are for whoever ran it first here by this user's name."""
    with tempfile.TemporaryDirectory(prefix="oxiray-fence-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("who", HELD)
def test_landlock_fences_where_there_are_no_cgroups(open_folder: Path, who: str) -> None:
    is_root = os.geteuid() == 0
    if not is_root and who != "nobody":
        pytest.skip("only root mounts control groups read-only")
    landlock = fences().get("Landlock", {})
    if not landlock.get("works"):
        pytest.skip(f"this kernel refuses nobody anything by Landlock: {landlock}")
    interpreter, found_by = reachable_interpreter()
    become = functools.partial(held, who) if is_root else list
    if subprocess.run(become(["sh", "-c", f"exec {interpreter} -c ''"]), capture_output=True).returncode != 0:
        pytest.skip(f"{who} cannot run {interpreter}")
    host = recorded(open_folder, with_nodes=False)
    own = open_folder / "own"
    own.mkdir()
    if is_root:
        for path in (own, *(host / "dev").iterdir()):
            os.chown(path, NOBODY, NOBODY)
    variables = os.environ | found_by | {"OXIRAY_HOST_ROOT": str(host), "RAY_TMPDIR": str(own), "HOME": str(own)}
    command = become([interpreter, "-c", _HELD])
    printed = subprocess.run(command, env=variables, cwd=own, capture_output=True, text=True, timeout=120)
    assert printed.returncode == 0, printed.stderr
    found = json.loads(printed.stdout.splitlines()[-1])
    assert found["own"] == "ok" and found["other"] == "EACCES"
    assert found["child"] == "EACCES" and found["renamed"] and found["visible"] == "0"


#: CAP_DAC_READ_SEARCH, CAP_NET_ADMIN and CAP_BPF, by their bits.
_CAPABILITIES = {"dac_read_search": 1 << 2, "net_admin": 1 << 12, "bpf": 1 << 39}


def test_workers_have_none_of_the_capabilities_that_make_fences(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for above in (tmp_path, *tmp_path.parents[:3]):
        above.chmod(above.stat().st_mode | 0o055)
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    handed_on = ",".join(f"+{name}" for name in _CAPABILITIES)
    # As a systemd unit with `AmbientCapabilities=` starts it.
    user = held("nobody", [f"--inh-caps={handed_on}", f"--ambient-caps={handed_on}", sys.executable, "-c"])
    if subprocess.run([*user, ""], capture_output=True).returncode != 0:
        pytest.skip("there are no such capabilities to be handed on here")
    variables = os.environ | {"RAY_TMPDIR": str(own), "HOME": str(own)}
    printed = subprocess.run([*user, _CAPABLE], env=variables, cwd=own, capture_output=True, text=True, timeout=120)
    assert printed.returncode == 0, printed.stderr
    found = json.loads(printed.stdout.splitlines()[-1])
    everything = sum(_CAPABILITIES.values())
    assert found["driver"] & everything == everything == found["daemon"] & everything
    # What has nothing to do with fences was meant for the program, and is handed on.
    for who in ("worker", "child"):
        assert found[who] & everything == _CAPABILITIES["dac_read_search"], who


_CAPABLE = """
import json, os, subprocess, ray

def effective(pid):
    return int(next(line for line in open(f"/proc/{pid}/status") if line.startswith("CapEff:")).split()[1], 16)

def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

ray.init(num_cpus=1)

@ray.remote
def look(driver):
    # Workers are forked by a template that the daemon started.
    child = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    return {
        "driver": effective(driver), "worker": effective("self"), "daemon": effective(parent_of(os.getppid())),
        "child": int(next(line for line in child.splitlines() if line.startswith("CapEff:")).split()[1], 16),
    }

print(json.dumps(ray.get(look.remote(os.getpid()))))
"""


_HELD = """
import json, os, subprocess, sys
import ray
ray.init(num_cpus=2, device_isolation="require")
host = os.environ["OXIRAY_HOST_ROOT"]

@ray.remote(num_gpus=1)
def look():
    def opened(path):
        try:
            os.close(os.open(path, os.O_RDWR))
        except OSError as error:
            import errno
            return errno.errorcode[error.errno]
        return "ok"
    own = int(ray.get_gpu_ids()[0])
    other = f"{host}/dev/nvidia{1 - own}"
    code = "import sys, os; os.setsid() if os.getsid(0) != os.getpid() else None; open(sys.argv[1], 'r+')"
    child = subprocess.run([sys.executable, "-c", code, other], capture_output=True, text=True)
    # What has nothing to do with devices works as before.
    os.makedirs("a/b", exist_ok=True)
    open("a/file", "w").write("x")
    os.rename("a/file", "a/b/file")
    return {
        "own": opened(f"{host}/dev/nvidia{own}"), "other": opened(other),
        "child": "EACCES" if "PermissionError" in child.stderr else child.stderr,
        "renamed": open("a/b/file").read() == "x", "visible": os.environ["CUDA_VISIBLE_DEVICES"],
    }

print(json.dumps(ray.get(look.remote())))
"""


def test_tiers_require_does_not_start_where_nothing_fences(tmp_path: Path) -> None:
    """AMD's library fails where Landlock refuses a node, and there is no cgroup."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    from oxiray import _cli

    hosts = Path(__file__).parents[1] / "fixtures" / "hosts"
    variables = os.environ | {"OXIRAY_HOST_ROOT": str(hosts / "amd-mi300x8"), "RAY_TMPDIR": str(tmp_path)}
    start = [_cli.native_binary(), "start", "--head", "--port=0", "--device-isolation=require"]
    refused = subprocess.run(held("read-only cgroups", start), env=variables, cwd="/", capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert "no kernel fence is possible here" in refused.stderr and "Landlock" in refused.stderr


def test_tiers_an_unknown_isolation_is_refused() -> None:
    ray.shutdown()
    with pytest.raises(Exception, match="`watchful`; it is to be one of `variable`, `watch`, `fence`, `require`"):
        ray.init(device_isolation="watchful")
