"""A minute of chaos, and that what judges it would see what it is there to see."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import documented
import pytest

CHAOS = Path(__file__).parent / "chaos.py"
sys.path.insert(0, str(CHAOS.parent))
from chaos import recovery  # noqa: E402  (it lies beside this file, not in a package)
from diary import UNITS, Held, overlaps, read  # noqa: E402
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
