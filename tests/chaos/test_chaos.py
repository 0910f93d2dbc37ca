"""A minute of chaos, and that what judges it would see what it is there to see."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import documented
import pytest

CHAOS = Path(__file__).parent / "chaos.py"
sys.path.insert(0, str(CHAOS.parent))
import watch  # noqa: E402  (it lies beside this file, not in a package)
from chaos import recovery  # noqa: E402
from daemons import Cluster  # noqa: E402
from diary import UNITS, Held, overlaps, read  # noqa: E402
from hostile import DEEDS, Hostiles, Kind, deeds_in, lacking  # noqa: E402
from load import check_order, mixed  # noqa: E402
from ticket import Ledger, Wrong, lines_of  # noqa: E402


@pytest.mark.timeout(600)
def test_a_minute_of_chaos() -> None:
    command = [sys.executable, str(CHAOS), "--seconds", "60", "--seed", "1", "--json"]
    environment = documented.clean_environment(Path("/tmp"), {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=590, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-4000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["pieces ended in all"] > 5
    assert lacking(figures["the hostile"]) == []
    assert figures["turns of daemons' loops"] > 1000 and figures["99.9 % of one daemon's (ms)"] is not None
    print(done.stdout)


def held(device: str, units: int, began: int, ended: int) -> Held:
    return Held(device, units, began, ended, "somebody")


def test_two_holders_of_one_device_are_seen() -> None:
    (told,) = overlaps([held("h1/0", UNITS, 10, 20), held("h1/0", 1, 19, 30), held("h2/0", UNITS, 10, 30)])
    assert told.startswith(f"{UNITS + 1}/{UNITS} of device h1/0 held at 19 ns")


def test_shares_and_those_that_follow_each_other_are_no_overlap() -> None:
    half = UNITS // 2
    holds = [held("h/0", UNITS, 10, 20), held("h/0", half, 20, 30), held("h/0", half, 21, 22), held("h/1", UNITS, 5, 25)]
    assert overlaps(holds) == []


def test_diaries_tell_what_was_held_retried_and_rebuilt(tmp_path: Path) -> None:
    # One that was killed while it held a device, one that did its work, and one that had to do the same again.
    (tmp_path / "1-1").write_text("10 began a \n11 held a 2500 h/0 h/1\n12 alive a \n13 alive")
    (tmp_path / "2-1").write_text("20 began a \n21 held a 2500 h/0\n25 done a \n26 released a \n30 began b \n31 done b \n")
    (tmp_path / "3-1").write_text("40 began b \n41 made actor \n50 made actor \n")
    found = read(tmp_path)
    assert [(one.device, one.began_ns, one.ended_ns) for one in sorted(found.held, key=lambda one: one.began_ns)] == [
        ("h/0", 11, 12), ("h/1", 11, 12), ("h/0", 21, 26),
    ]  # fmt: skip
    assert found.begun == {"a": 2, "b": 2}
    assert +found.again == {"b": 1}
    assert found.made == {"actor": 2}


@pytest.mark.parametrize(
    ("before", "rule"),
    [
        ([-1, 0, 1, 2], "strict"),
        ([-1, 0, -1, 2], "strict"),  # another life
        ([-1, 2, 1, 2], "again"),  # 1 and 2 ran, and their answers were lost
        ([-1, 2, 2, 2], "again"),  # so were those of the second time
        ([-1, 2, -1, 2], "again"),
        ([-1, 2, 0, 1], "wrong"),  # 2 ran before 1
        ([-1, 3, 1, 1], "wrong"),
    ],
)
def test_calls_out_of_order_are_seen(before: list[int], rule: str) -> None:
    found = [(0, one, mixed(index)) for index, one in enumerate(before)]
    values = list(range(len(before)))
    for may_run_again in (False, True):
        if rule == "strict" or (rule == "again" and may_run_again):
            check_order(found, values, may_run_again)
        else:
            with pytest.raises(Wrong, match="ran after call"):
                check_order(found, values, may_run_again)


def test_recovery_is_until_the_last_of_what_was_under_way() -> None:
    times = recovery([10.0, 100.0, 200.0], [(5.0, 12.0), (9.0, 14.0), (11.0, 50.0), (99.0, 101.0)])
    assert times["longest"] == 4.0
    assert recovery([10.0], []) == {}


def test_a_ledger_whose_driver_was_killed_can_be_read(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger").write("begin", piece="one")
    with (tmp_path / "ledger").open("a") as ledger:
        ledger.write('{"what": "en')
    assert [line["piece"] for line in lines_of(tmp_path / "ledger")] == ["one"]


NO_HEAD = "error: the cluster at 127.0.0.1:1 cannot be joined: nothing answers there\n"


@pytest.mark.parametrize(
    ("host", "status", "last_words", "is_legal"),
    [
        (1, 1, NO_HEAD, True),
        (0, 1, NO_HEAD, False),  # a head joins nobody
        (1, 101, "thread 'main' panicked at crates/node/src/core/leases.rs:235:51:", False),
        (1, 101, NO_HEAD, False),
        (1, 1, NO_HEAD + "error: the journal cannot be written\n", False),
        (1, 0, "", False),
        (1, -signal.SIGKILL, "", False),
        (1, -signal.SIGSEGV, NO_HEAD, False),
        (0, -signal.SIGABRT, "", False),
    ],
)
def test_a_daemon_that_ends_by_itself_is_seen(host: int, status: int, last_words: str, is_legal: bool) -> None:
    assert (watch.verdict(host, status, last_words) is None) is is_legal


def cluster_of(folder: Path, commands: dict[int, str]) -> Cluster:
    """Processes in the place of daemons."""
    cluster = Cluster(folder, 0, heads_die=True)
    for host, command in commands.items():
        with (folder / f"daemon-{host}.log").open("wb") as log:
            cluster.daemons[host] = subprocess.Popen(["sh", "-c", command], stdout=log, stderr=log)
    return cluster


def test_ends_of_daemons_are_told_from_kills_and_each_once(tmp_path: Path) -> None:
    commands = {
        0: "echo panicked >&2; exit 101", 1: f"echo '{NO_HEAD.strip()}'; exit 1", 2: "sleep 60", 3: "sleep 60",
    }  # fmt: skip
    cluster = cluster_of(tmp_path, commands)
    watched = watch.Watch(cluster)
    try:
        for host in (0, 1):
            cluster.daemons[host].wait()
        for host in (2, 3):
            cluster.daemons[host].kill()
            cluster.daemons[host].wait()
        killed = {cluster.daemons[2].pid}
        for now in (1.0, 2.0):
            watched.look(now, killed)
        assert cluster.turned_away(killed) == [1, 3]
    finally:
        cluster.kill_all()
    assert watched.turned_away == 1
    first, second = watched.faults
    assert "host 0 ended with 101" in first and "panicked" in first
    assert "host 3 was killed by SIGKILL" in second


def test_a_daemon_that_grows_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(tmp_path, {0: "exec 3</dev/null; exec sleep 60"})
    watched = watch.Watch(cluster)
    try:
        watched.look(1.0, set())
        assert watched.looks == 1 and watched.grown_too_large() == []
        memory, descriptors = watched.most[0]
        assert memory > 0 and descriptors >= 3
        monkeypatch.setattr(watch, "RESIDENT_BYTES_MAX", memory - 1)
        monkeypatch.setattr(watch, "DESCRIPTORS_MAX", descriptors - 1)
        told = watched.grown_too_large()
    finally:
        cluster.kill_all()
    assert ["bytes of memory" in told[0], "descriptors" in told[1]] == [True, True]


def test_panics_are_found_in_logs(tmp_path: Path) -> None:
    (tmp_path / "h0").mkdir()
    (tmp_path / "h0" / "daemon.log.1").write_bytes(b"fine\n\xffthread 'network' panicked at crates/x.rs:1:2:\nfine\n")
    (tmp_path / "ledger").write_text("panicked at the disco\n")
    (told,) = watch.panics(tmp_path)
    assert "crates/x.rs" in told


def test_turns_are_summed_over_processes(tmp_path: Path) -> None:
    def line(process: int, count: int, within: float, longest: float, over: int) -> str:
        return (
            f"12.345 turns of the loop of process {process}: {count}, 99.9 % within {within:.3f} ms, "
            f"the longest {longest:.3f} ms; longer than 1 ms: {over}, 5 ms: 0\n"
        )

    for host, text in {
        "h0": line(7, 1000, 3, 30, 4) + "else\n" + line(7, 2000, 2, 30, 5) + line(8, 10, 40, 40, 1),
        "h1": line(7, 3000, 1, 2, 6),
    }.items():
        (tmp_path / host).mkdir()
        (tmp_path / host / "daemon.log").write_text(text)
    assert watch.turns(tmp_path) == {
        "turns of daemons' loops": 5010,
        "turns longer than": {"1 ms": 12},
        "99.9 % of all are within": "5 ms",
        "99.9 % of one daemon's (ms)": 2.0,
        "the longest turn (ms)": 40.0,
    }


def test_who_means_harm_is_renewed_counted_and_missed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 0, heads_die=True)
    report = tmp_path / "hostile-member.jsonl"

    def words(_: Cluster) -> list[str]:
        return ["sh", "-c", f"echo '{{\"joins\": 1}}' >> {report}; echo it is broken; exit 3", "sh"]

    hostiles = Hostiles(cluster, 1, [Kind("member", words)])
    for _ in range(3):
        hostiles.renew(time.monotonic())
        cluster.hostiles["member"][1].wait()
    hostiles.end()
    assert len(hostiles.faults) == 3 and "member ended with 3: it is broken" in hostiles.faults[0]
    with report.open("a") as out:
        out.write('{"joins": 1')
    assert deeds_in(report) == {"joins": 3}
    lacks = lacking(hostiles.deeds())
    assert len(lacks) == sum(map(len, DEEDS.values())) - 1 and not any("had no joins" in lack for lack in lacks)
    everything = {name: dict.fromkeys(deeds, 1) for name, deeds in DEEDS.items()}
    assert lacking(everything) == []
    everything["stranger"]["let in"] = 1
    assert lacking(everything) == ["no stranger is let in: 1 were"]
