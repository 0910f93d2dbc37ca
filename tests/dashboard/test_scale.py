"""The page over much: 100,000 tasks, 1,000 nodes of 8 devices, a million entries of the chronicle.

What is asserted are sizes, counts and memory. How long things take is printed, and kept by `make bench-pages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pasts
import pytest
from boards import CHROMIUM, settled
from looking import Answers, frames_ms, painted_ms, until
from pasts import Shown

pytestmark = pytest.mark.timeout(300)

#: The most bytes of an answer, as it travels.
ANSWER_BYTES_MAX = 300_000
#: The most memory of the page's server, in MiB.
MEMORY_MB_MAX = 160
TASKS, NODES, DEVICES, HELD = 100_000, 1_000, 8, 40_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `make test-dashboard` does it")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not there: `make test-dashboard` installs it")
    with api.sync_playwright() as made:
        yield made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])


@contextmanager
def shown(folder: Path) -> Iterator[Shown]:
    """The page over a history; its server had little memory all the time."""
    made = Shown(folder)
    try:
        yield made
        print(f"the most memory of the page's server: {made.peak_mb():.0f} MiB")
        assert made.peak_mb() <= MEMORY_MB_MAX
    finally:
        ended = made.end()
    assert ended == 0


@contextmanager
def opened(browser: Any, link: str) -> Iterator[tuple[Any, Answers]]:
    """The page in a window of its own; nothing went wrong, and no answer was large."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        answers = Answers(page, link.partition("#")[0])
        page.goto(link)
        page.get_by_role("navigation", name="Views").wait_for()
        print(f"first paint after {painted_ms(page):.0f} ms")
        yield page, answers
        sizes = answers.sizes()
        print({path.rpartition("/")[2]: size for path, size in sizes.items() if size > 20_000})
        assert answers.wrong == []
        assert max(sizes.values()) <= ANSWER_BYTES_MAX, sizes
    finally:
        context.close()


def test_a_history_of_many_tasks_is_read_a_page_at_a_time(browser: Any, tmp_path: Path) -> None:
    folder = pasts.write(tmp_path, tasks=TASKS)
    with shown(folder) as server, opened(browser, server.link) as (page, answers):
        page.goto(f"{server.address}#/tasks")
        table = page.get_by_role("table", name="Tasks")
        table.wait_for()
        rows = table.locator("tbody tr")
        assert rows.count() == 200
        for count in (400, 600):
            page.get_by_role("button", name=f"Show more of {TASKS:,}").click()
            until(page, lambda count=count: rows.count() == count)
        # Counts are exact: none of these lists was cut.
        names = page.get_by_role("region", name="By name")
        assert names.get_by_role("button").count() == len(pasts.NAMES)
        assert f"{TASKS // len(pasts.NAMES):,}" in names.get_by_role("button", name="train").inner_text()
        page.get_by_label("State").select_option("FAILED")
        until(page, lambda: rows.count() == 100)
        page.get_by_label("Search tasks").fill("shard 99999 ")
        until(page, lambda: rows.count() == 1)
        rows.first.click()
        page.get_by_text("shard 99999 is not there").first.wait_for()
        assert all(len(told["rows"]) <= 200 for told in answers.of(lambda url: "/rows/tasks" in url))


def held_of(pictures: list[Any], node: str) -> int:
    """How many holdings of a node the picture shows that has the most of them."""
    assert all(len(picture["nodes"]) == NODES for picture in pictures), "each has a place for every node"
    told = [one["devices"] for picture in pictures for one in picture["nodes"] if one["id"] == node and one["devices"] is not None]
    assert all(len(devices) == DEVICES for devices in told)
    return max((sum(bar[6] for device in devices for bar in device["bars"]) for devices in told), default=0)


def test_every_device_of_a_thousand_nodes_is_in_the_picture(browser: Any, tmp_path: Path) -> None:
    folder = pasts.write(tmp_path, nodes=NODES, devices=DEVICES, held=HELD)
    with shown(folder) as server, opened(browser, server.link) as (page, answers):
        page.goto(f"{server.address}#/devices")
        page.locator(".timeline canvas").wait_for()
        settled(page)
        for act in ("zoom", "scroll"):
            took = frames_ms(page, act)
            print(f"{act}: frames of {took[len(took) // 2]:.0f} ms, the longest {took[-1]:.0f} ms")
        page.goto(f"{server.address}#/devices")
        frame = page.locator(".timeline")
        # All that was recorded is shown where no span is chosen: of each node what it had is there, wherever it stands.
        for number, place in ((NODES - 1, 1e9), (NODES // 2, NODES / 2 * 29), (0, 0)):
            frame.evaluate("(frame, place) => { frame.scrollTop = place; }", place)
            held = lambda number=number: held_of(answers.of(lambda url: "/holdings?" in url), pasts.node_id(number))  # noqa: E731
            until(page, lambda: held() == HELD // NODES)
        folded = frame.evaluate("(frame) => frame.scrollHeight")
        page.locator(".timeline canvas").click(position={"x": 60, "y": 300})
        until(page, lambda: frame.evaluate("(frame) => frame.scrollHeight") > folded + DEVICES * 20)
        page.goto(f"{server.address}#/nodes")
        page.get_by_role("img", name=f"A map of {NODES:,} nodes".replace(",", "")).wait_for()
        page.get_by_role("table", name="Nodes").wait_for()


def test_a_million_entries_take_no_more_memory_than_is_meant_for_them(browser: Any, tmp_path: Path) -> None:
    folder = pasts.write(tmp_path, nodes=1, devices=DEVICES, held=500_000)
    with shown(folder) as server, opened(browser, server.link) as (page, answers):
        page.goto(f"{server.address}#/devices")
        page.locator(".timeline canvas").wait_for()
        # The newest are kept; where they begin is told, and nothing is shown of the time before.
        (told, *_) = until(page, lambda: answers.of(lambda url: "/holdings?" in url))
        assert told["begun_ms"] > pasts.BEGUN_MS
        held = sum(bar[6] for device in told["nodes"][0]["devices"] for bar in device["bars"])
        assert DEVICES * 1_000 <= held <= 100_000
        page.get_by_text("The same as a table").click()
        table = page.get_by_role("table", name="Holdings of devices")
        table.wait_for()
        assert table.locator("tbody tr").count() == 200
