"""Each view of the page, light and dark, wide and narrow: it is drawn, nothing goes wrong, and everybody can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from boards import HOSTILE, Board, Opened, pictures, settled

pytestmark = pytest.mark.timeout(600)

AXE = Path(__file__).with_name("axe.min.js").read_text()
#: Each view with its heading, and what must be seen there.
VIEWS = {
    "devices": ("Devices", "evaluate"),
    "waiting": ("Waiting", "evaluate"),
    "jobs": ("Jobs", "train-1"),
    "tasks": ("Tasks", "load"),
    "actors": ("Actors", "Rollout"),
    "groups": ("Placement groups", "evaluation"),
    "nodes": ("Nodes", "Address"),
    "objects": ("Objects", "Store of the head's machine"),
    "processes": ("Processes", "driver"),
    "train": ("Training", "falls"),
    "events": ("Events", "device out of service"),
}

#: Where more is to be seen than where the view opens.
PLACES = {"devices": "devices?span=45000"}


def findings(page: Any) -> list[str]:
    """What axe finds that matters, with where."""
    page.evaluate(AXE)
    told = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')[:300]}"
        for one in told["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:4]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_is_drawn_and_can_be_read_by_everybody(opened: Opened, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    page = opened(viewport=size, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    found: dict[str, list[str]] = {}
    for view, (heading, seen) in VIEWS.items():
        page.evaluate(f"location.hash = '#/{PLACES.get(view, view)}'")
        page.locator("h1", has_text=heading).wait_for()
        settled(page)
        page.get_by_text(seen).first.wait_for(state="attached")
        folder = pictures()
        if folder:
            page.wait_for_timeout(1_200)
            page.screenshot(path=folder / f"{view}-{scheme}-{width}.png")
        if problems := findings(page):
            found[view] = problems
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    assert found == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sheets_can_be_read_by_everybody(opened: Opened, scheme: str) -> None:
    page = opened("jobs?pick=train-1", color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page.locator("pre.log", has_text="all is under way").wait_for()
    assert findings(page) == []
    folder = pictures()
    if folder:
        page.screenshot(path=folder / f"job-{scheme}-1280.png")
    page.evaluate("location.hash = '#/waiting'")
    page.get_by_role("row", name="evaluate").first.click()
    page.get_by_text("What each node says").wait_for()
    assert findings(page) == []
    page.evaluate("location.hash = '#/nodes'")
    page.get_by_role("table", name="Nodes").get_by_role("row").nth(1).click()
    page.get_by_role("button", name="Drain", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("spinbutton").wait_for()
    assert findings(page) == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_a_flame_graph_can_be_read_by_everybody(opened: Opened, board: Board, scheme: str, width: int) -> None:
    [actor] = (row for row in board.rows("actors") if row["name"] == "rollout-1")
    size = {"width": width, "height": 800}
    page = opened(f"actors?pick=actor:{actor['key']}", viewport=size, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    hostile = json.dumps({
        "title": "CPU time over 5 s, 100 samples a second", "unit": "us", "total": 5_000_000, "taken": 1, "processes": [
            {"pid": 7, "name": "f", "ip": "10.0.0.1", "note": "a note", "stacks": [
                {"name": "MainThread", "weight": weight, "frames": [{"function": name, "file": "/a.py", "line": 1}]}
                for name, weight in ((HOSTILE, 3_000_000), ("count_up", 1_500_000), ("rest", 500_000))]}]})  # fmt: skip
    page.route("**/ox/v1/profile?*", lambda route: route.fulfill(body=hostile, content_type="application/json"))
    page.get_by_role("button", name="CPU 5 s").click()
    page.get_by_role("treeitem", name=HOSTILE).wait_for()
    page.locator(".profile summary").click()
    page.get_by_role("table", name="Functions").get_by_text(HOSTILE).wait_for()
    assert page.evaluate("window.harmed") is None and page.locator("#page script, #page img").count() == 0
    if folder := pictures():
        page.get_by_role("tree").scroll_into_view_if_needed()
        page.screenshot(path=folder / f"flame-{scheme}-{width}.png")
    assert findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.unroute("**/ox/v1/profile?*")
    said = "another profile of it is being taken: ask again when that is over"
    page.route("**/ox/v1/profile?*", lambda route: route.fulfill(status=200, json={"total": 0, "taken": 2, "unit": "us", "title": "", "processes": [
        {"pid": 7, "note": said, "stacks": []}]}))  # fmt: skip
    page.get_by_role("button", name="Wall 5 s").click()
    page.get_by_text(said).wait_for()


def test_the_page_says_what_it_may_not_load(opened: Opened) -> None:
    page = opened()
    policy = page.evaluate("fetch('/').then((answer) => answer.headers.get('content-security-policy'))")
    for rule in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"):
        assert rule in policy


def test_the_switch_between_light_and_dark_is_remembered(opened: Opened) -> None:
    page = opened(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name="Switch to dark").click()
    assert page.evaluate(ground) != before
    page.reload()
    page.locator("h1").wait_for()
    assert page.evaluate(ground) != before
