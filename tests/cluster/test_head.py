"""A head that is killed and started again: what was acknowledged is there, and what cannot be kept is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from homes import Home, free_port
from watching import alive, wait_until


class Head(Home):
    """A folder for one cluster, and its head."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.starting = ["start", "--head", f"--port={self.port}", "--num-cpus=4"]

    def start(self, *more: str) -> str:
        started = self.oxiray(*self.starting, *more)
        assert started.returncode == 0, started
        return started.stdout

    def refused(self, *more: str) -> str:
        started = self.oxiray(*self.starting, *more)
        assert started.returncode != 0, started
        return started.stderr

    def session(self) -> Path:
        [session] = self.folder.glob("oxiray-*/session_*")
        return session

    def description(self) -> dict[str, object]:
        return json.loads((self.session() / "session.json").read_text())

    def kill(self) -> int:
        pid = self.description()["pid"]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid))
        return pid


@pytest.fixture
def head() -> Iterator[Head]:
    ray.shutdown()
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    made = Head(folder)
    try:
        yield made
    finally:
        made.oxiray("stop", "--force")
        shutil.rmtree(folder, ignore_errors=True)


def test_a_killed_head_goes_on_where_it_was(head: Head) -> None:
    head.start()
    head.program("for i in range(100): kv._internal_kv_put(f'key{i}', f'value{i}'.encode())")
    before, token = head.description(), (head.session() / "join-token").read_text()
    head.kill()
    said = head.start()
    assert head.oxiray("status").returncode == 0
    assert f"goes on as the cluster of {head.session()}, which was killed: 100 kept values" in said
    after = head.description()
    assert {key: after[key] for key in ("address", "token")} == {key: before[key] for key in ("address", "token")}
    assert (head.session() / "join-token").read_text() == token
    head.program("assert all(kv._internal_kv_get(f'key{i}') == f'value{i}'.encode() for i in range(100))")


def test_fresh_begins_anew_and_stop_leaves_nothing(head: Head) -> None:
    head.start()
    head.program("kv._internal_kv_put('a', b'1')")
    head.kill()
    assert "goes on" not in head.start("--fresh")
    head.program("assert kv._internal_kv_get('a') is None; kv._internal_kv_put('a', b'2')")
    pid = head.kill()
    wait_until(lambda: not alive(pid))
    assert "Forgot what a killed head had written down." in head.oxiray("stop").stdout
    assert not list(head.folder.glob("oxiray-*/session_*"))
    head.start()
    head.program("assert kv._internal_kv_get('a') is None")
    assert head.oxiray("stop").returncode == 0
    assert not list(head.folder.glob("oxiray-*/session_*"))


def test_devices_that_were_out_of_service_are_so_after_a_restart(head: Head) -> None:
    machine = Path(__file__).parents[1] / "fixtures" / "hosts" / "amd-mi300x8"
    copy = head.folder / "machine"
    shutil.copytree(machine, copy)
    counted = copy / "sys" / "bus" / "pci" / "devices" / "0000:22:00.0" / "ras" / "umc_err_count"
    counted.parent.mkdir()
    counted.write_text("ue: 2\nce: 0\n")
    head.environment["OXIRAY_HOST_ROOT"] = str(copy)
    head.start()

    def reasons() -> list[str]:
        state = json.loads(head.oxiray("status", "--json").stdout)
        return [device["reason"] or "" for device in state["devices"]]

    def order(action: str, device: int, *more: str) -> None:
        node = json.loads(head.oxiray("status", "--json").stdout)["nodes"][0]["node_id"]
        told = head.oxiray("device", action, f"{node}/{device}", *more)
        assert told.returncode == 0, told

    wait_until(lambda: "(umc 2)" in reasons()[1])
    order("undrain", 1, "--force")
    order("drain", 0, "--reason", "its fan")
    wait_until(lambda: reasons()[:2] == ["it was drained by hand: its fan", ""])
    head.kill()
    head.start()
    assert reasons()[0] == "it was drained by hand: its fan"
    counted.write_text("ue: 3\nce: 0\n")
    wait_until(lambda: "(umc 3)" in reasons()[1], 40)
    order("undrain", 0, "--force")
    wait_until(lambda: reasons()[0] == "")
    head.kill()
    head.start()
    wait_until(lambda: "(umc 3)" in reasons()[1])
    assert reasons()[0] == "", "what is in service again is not remembered"


def test_other_clusters_do_not_sweep_a_killed_head_away(head: Head) -> None:
    head.start()
    head.program("kv._internal_kv_put('a', b'1')")
    head.kill()
    other = head.oxiray("start", "--head", f"--port={free_port()}", "--num-cpus=1")
    assert other.returncode == 0 and "goes on" not in other.stdout, other
    assert "goes on" in head.start()


def test_actors_and_groups_are_there_again(head: Head) -> None:
    head.start()
    head.program("""
lasting = Counter.options(name="lasting", lifetime="detached", max_restarts=1).remote(10)
ending = Counter.options(name="ending", lifetime="detached").remote(0)
group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}], name="group", lifetime="detached")
assert ray.get([lasting.next.remote(), ending.next.remote(), group.ready()])[:2] == [11, 1]
""")
    head.kill()
    assert "2 actors, 1 placement group" in head.start()
    head.program("""
assert ray.get(ray.get_actor("lasting").next.remote(), timeout=60) == 11  # Made anew, from its arguments.
try:
    ray.get_actor("ending")
except ValueError:
    pass
else:
    raise AssertionError("it had no restarts left")
group = ray.util.get_placement_group("group")
ray.get(group.ready(), timeout=60)
assert ray.util.placement_group_table(group)["state"] == "CREATED"
assert ray.available_resources()["CPU"] < 2
""")


def test_nothing_that_the_killed_head_had_started_lives_on(head: Head) -> None:
    head.start()
    text = "counter = Counter.options(name='c', lifetime='detached', max_restarts=-1).remote(0)\n"
    pids = json.loads(head.program(text + "print(ray.get([counter.pid.remote(), counter.start.remote()]))"))
    assert all(alive(pid) for pid in pids)
    head.kill()
    head.start()
    assert not any(alive(pid) for pid in pids)


def test_a_changed_journal_is_refused_and_left_as_it_is(head: Head) -> None:
    head.start()
    head.program("for i in range(10): kv._internal_kv_put(f'key{i}', b'value')")
    head.kill()
    journal = head.session() / "journal"
    whole = journal.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    journal.write_bytes(changed)
    said = head.refused()
    assert str(journal) in said and "disk is at fault" in said and "--fresh" in said, said
    assert journal.read_bytes() == changed
    journal.write_bytes(whole[:4] + b"\x09\0\0\0" + whole[8:])
    said = head.refused()
    assert "has version 9" in said and "knows 1 and older" in said, said
    # A record that was being written when the machine lost its power.
    journal.write_bytes(whole + whole[-20:][:3])
    said = head.start()
    assert "the last 3 bytes of the journal were dropped" in said
    head.program("assert all(kv._internal_kv_get(f'key{i}') == b'value' for i in range(10))")


@pytest.fixture
def small_disk(head: Head) -> Iterator[Head]:
    if os.geteuid() != 0 or subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(head.folder)], capture_output=True, check=False
    ).returncode:
        pytest.skip("a disk of its own is mounted, which only root may: run this test as root")
    try:
        yield head
    finally:
        head.oxiray("stop", "--force")
        subprocess.run(["umount", "--lazy", str(head.folder)], check=False)


def test_a_full_disk_refuses_what_is_new_and_work_goes_on(small_disk: Head) -> None:
    small_disk.start()
    acknowledged = small_disk.program("""
@ray.remote
def work(x):
    return x + 1
counter = Counter.remote(0)
assert ray.get([work.remote(1), counter.next.remote()]) == [2, 1]
acknowledged = []
try:
    for i in range(100):
        kv._internal_kv_put(f"key{i}", bytes([i]) * 200_000)
        acknowledged.append(i)
except Exception as error:
    text = str(error)
    assert "journal" in text and "No space left" in text and "free some space" in text, text
else:
    raise AssertionError("the disk is not that large")
assert 5 < len(acknowledged) < 40
assert all(kv._internal_kv_get(f"key{i}") == bytes([i]) * 200_000 for i in acknowledged)
assert kv._internal_kv_get(f"key{len(acknowledged)}") is None
assert ray.get([work.remote(5), counter.next.remote()]) == [6, 2]
print(len(acknowledged))
""")
    small_disk.kill()
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk.folder)], check=True)
    assert "goes on" in small_disk.start()
    again = small_disk.program("""
there = [i for i in range(100) if kv._internal_kv_get(f"key{i}") is not None]
assert all(kv._internal_kv_get(f"key{i}") == bytes([i]) * 200_000 for i in there)
kv._internal_kv_put("more", b"1")
print(len(there), there[-1] + 1)
""")
    assert again.split() == acknowledged.split() * 2


def test_a_folder_that_cannot_be_written_to_is_refused(small_disk: Head) -> None:
    small_disk.start()
    small_disk.program("kv._internal_kv_put('a', b'1')")
    small_disk.kill()
    wait_until(
        lambda: not subprocess.run(
            ["mount", "-o", "remount,ro", str(small_disk.folder)], capture_output=True, check=False
        ).returncode
    )
    said = small_disk.refused()
    assert "Read-only file system" in said, said
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk.folder)], check=True)
    assert "1 kept value" in small_disk.start()
