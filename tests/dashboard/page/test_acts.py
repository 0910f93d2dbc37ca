"""What people do on the page: look at bars, walk by keys, stop jobs; and what programs may not do to it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from boards import HOSTILE, Board, Opened, settled
from watching import wait_until

pytestmark = pytest.mark.timeout(300)


def place(page: Any) -> str:
    """Where the page is within itself."""
    return str(page.evaluate("location.hash"))


def find_bar(page: Any, words: str) -> tuple[float, float]:
    """Where a bar is that says this: the pointer goes over the rows, just left of now."""
    canvas = page.locator(".timeline canvas")
    canvas.wait_for()
    found: list[tuple[float, float]] = []

    def is_found() -> bool:
        box = canvas.bounding_box()
        for part in (0.955, 0.94, 0.9):
            for down in range(30, int(box["height"]), 6):
                x = box["x"] + 176 + (box["width"] - 176) * part
                page.mouse.move(x, box["y"] + down)
                tip = page.locator(".tip")
                if tip.count() and words in (tip.text_content() or ""):
                    found.append((x, box["y"] + down))
                    return True
        return False

    # The canvas is there before its bars are.
    wait_until(is_found)
    return found[-1]


def test_a_click_on_a_bar_shows_its_task(opened: Opened, board: Board) -> None:
    page = opened("devices?span=60000")
    x, y = find_bar(page, "train")
    page.mouse.click(x, y)
    sheet = page.get_by_role("complementary", name="Held device")
    sheet.get_by_role("heading", name="train").wait_for()
    assert "100 %" in sheet.inner_text()
    sheet.get_by_role("link", name="train").first.click()
    task = page.get_by_role("complementary", name="Task")
    task.get_by_text("running").first.wait_for()
    page.keyboard.press("Escape")
    task.wait_for(state="detached")


def test_shares_of_one_device_are_bars_above_each_other(opened: Opened) -> None:
    page = opened("devices?span=60000")
    _, first = find_bar(page, "Rollout, 50 %")
    page.locator("summary").click()
    table = page.get_by_role("table", name="Holdings of devices")
    table.get_by_role("row", name="Rollout").nth(1).wait_for()
    assert table.get_by_role("row", name="50 %").count() >= 2 and first > 0


def is_red(page: Any, x: float, y: float) -> bool:
    """Whether the timeline is red just below a place, while the pointer is elsewhere."""
    page.mouse.move(0, 0)
    page.wait_for_timeout(100)
    box = page.locator(".timeline canvas").bounding_box()
    red, green, blue, _ = page.evaluate(
        "([x, y]) => { const canvas = document.querySelector('.timeline canvas'); const scale = canvas.width / canvas.clientWidth;"
        # Of a copy: Chromium warns of a canvas that is read again and again.
        " const pixel = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });"
        " const copy = pixel.getContext('2d', { willReadFrequently: true }); copy.drawImage(canvas, -x * scale, -y * scale);"
        " return Array.from(copy.getImageData(0, 0, 1, 1).data); }",
        [x - box["x"], y - box["y"] + 7],
    )
    return bool(red > 120 and red > 2 * green and red > 2 * blue)


def test_a_device_that_is_ill_is_red_with_its_reason(opened: Opened, board: Board) -> None:
    page = opened("devices?span=60000")
    # The page may still grow while the bar is looked for, and the bar be elsewhere then.
    wait_until(lambda: is_red(page, *find_bar(page, "out of service")))
    x, y = find_bar(page, "out of service")
    page.mouse.click(x, y)
    sheet = page.get_by_role("complementary", name="Held device")
    sheet.get_by_text("79").first.wait_for()
    assert page.locator(".figures-line", has_text="1 out of service").count() == 1


def test_names_of_programs_stay_text(opened: Opened) -> None:
    page = opened("tasks")
    page.get_by_text(HOSTILE).first.wait_for()
    page.get_by_role("row", name=HOSTILE).first.click()
    page.get_by_role("complementary", name="Task").get_by_role("heading", name=HOSTILE).wait_for()
    assert page.evaluate("window.harmed") is None
    assert page.locator("#page script, #page img").count() == 0


def test_an_error_is_shown_with_its_traceback(opened: Opened) -> None:
    page = opened("tasks?state=FAILED")
    page.get_by_role("row", name="load").first.click()
    page.locator("pre.bad-log", has_text="shard 3 is not there").wait_for()


def test_the_stop_button_stops_and_delete_deletes(opened: Opened, board: Board) -> None:
    home = board.home
    submitted = home.oxiray("job", "submit", "--no-wait", "--submission-id=to-stop", "--", "echo begun; sleep 3600")
    assert submitted.returncode == 0, submitted.stderr
    page = opened("jobs?pick=to-stop")
    page.locator("pre.log", has_text="begun").wait_for()
    page.get_by_role("button", name="Stop").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert {row["key"]: row["state"] for row in board.rows("jobs")}["to-stop"] == "RUNNING"
    page.get_by_role("button", name="Stop").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    wait_until(lambda: {row["key"]: row["state"] for row in board.rows("jobs")}["to-stop"] == "STOPPED")
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    wait_until(lambda: "to-stop" not in {row["key"] for row in board.rows("jobs")})
    page.get_by_role("complementary", name="Job").wait_for(state="detached")


#: An actor and a task that are ended by hand.
VICTIMS = """
import time, ray
ray.init("auto", namespace="victims", logging_level="ERROR")

@ray.remote(num_cpus=0.1)
class Victim:
    def ready(self):
        return True

@ray.remote(num_cpus=0.1)
def endless():
    time.sleep(3600)

victim = Victim.options(name="victim", max_restarts=9).remote()
ray.get(victim.ready.remote())
task = endless.remote()
try:
    ray.get(task)
except ray.exceptions.TaskCancelledError:
    pass
time.sleep(3600)
"""


def confirmed(page: Any, label: str) -> None:
    """Presses a button of the sheet, and the one that asks once more."""
    page.get_by_role("button", name=label, exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()


def test_tasks_actors_and_devices_are_ended_and_drained_by_buttons(opened: Opened, board: Board, tmp_path: Path) -> None:
    program = tmp_path / "victims.py"
    program.write_text(VICTIMS)
    submitted = board.home.oxiray("job", "submit", "--no-wait", "--submission-id=victims", "--", "python", str(program))
    assert submitted.returncode == 0, submitted.stderr
    wait_until(lambda: [row for row in board.rows("tasks?name=endless") if row["state"] == "RUNNING"])
    (task,) = board.rows("tasks?name=endless")
    (actor,) = (row for row in board.rows("actors") if row["name"] == "victim")
    page = opened(f"tasks?pick=task:{task['key']}")
    page.get_by_role("button", name="Cancel", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert board.rows("tasks?name=endless")[0]["state"] == "RUNNING"
    confirmed(page, "Cancel")
    page.get_by_text("Its owner cancels it.").wait_for()
    wait_until(lambda: board.rows("tasks?name=endless")[0]["state"] == "FAILED")
    page.evaluate(f"location.hash = '#/actors?pick=actor:{actor['key']}'")
    confirmed(page, "Kill")
    wait_until(lambda: next(row for row in board.rows("actors") if row["key"] == actor["key"])["state"] == "DEAD")
    page.get_by_role("complementary", name="Actor").get_by_text("killed by hand").first.wait_for()
    [free, *_] = (row for row in board.rows("devices") if row["state"] == "free")
    page.evaluate(f"location.hash = '#/devices?pick=device:{free['key']}'")
    confirmed(page, "Drain")
    state = lambda: next(row for row in board.rows("devices") if row["key"] == free["key"])["state"]  # noqa: E731
    wait_until(lambda: state() == "quarantined")
    confirmed(page, "Put back")
    page.get_by_text("It is put back when it has passed a check.").wait_for()
    # Whether it passes depends on the program that checks, which is not of the page.
    node, _, slot = free["key"].split("/")
    forced = board.home.oxiray("device", "undrain", "--force", f"{node}/{slot}")
    assert forced.returncode == 0, forced.stderr
    wait_until(lambda: state() == "free")
    page.evaluate(f"location.hash = '#/nodes?pick=node:{free['node_id']}'")
    page.get_by_role("button", name="Drain", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("spinbutton").fill("5")
    page.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
    page.get_by_role("dialog").get_by_role("alert").get_by_text("head").wait_for()
    # The browser itself notes an answer that refuses.
    opened.wrong[:] = [text for text in opened.wrong if "409" not in text]  # type: ignore[attr-defined]


def test_a_bar_has_what_may_be_done_to_who_holds_the_device(opened: Opened, board: Board) -> None:
    page = opened("devices?span=60000")
    page.mouse.click(*find_bar(page, "Rollout, 50 %"))
    sheet = page.get_by_role("complementary", name="Held device")
    for label in ("Kill", "Drain device", "Stacks now"):
        button = sheet.get_by_role("button", name=label, exact=True).first
        button.wait_for()
        assert button.is_enabled()
    page = opened("actors?pick=actor:" + next(row["key"] for row in board.rows("actors") if row["name"] == "rollout-0"), token=board.token("http-token-read"))
    button = page.get_by_role("button", name="Kill", exact=True).first
    button.wait_for()
    assert button.is_disabled() and button.get_attribute("title") == "This key only reads"


def test_a_key_that_reads_stops_nothing(opened: Opened, board: Board) -> None:
    page = opened("jobs?pick=train-1", token=board.token("http-token-read"))
    page.locator(".until time").wait_for()
    button = page.get_by_role("button", name="Stop").first
    button.wait_for()
    assert button.is_disabled()


def test_everything_is_reached_by_keys(opened: Opened) -> None:
    page = opened("devices?span=60000")
    settled(page)
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.locator(".timeline canvas").focus()
    page.keyboard.press("ArrowDown")
    told = page.locator(".timeline [role=status]")
    wait_until(lambda: "GPU" in (told.text_content() or ""))
    for _ in range(12):
        if "train" in (told.text_content() or "") or "Rollout" in (told.text_content() or ""):
            break
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_role("complementary").get_by_role("button", name="Close").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("complementary").wait_for(state="detached")
    page.keyboard.press("+")
    for key, heading in (("t", "Tasks"), ("n", "Nodes"), ("j", "Jobs")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.locator("h1", has_text=heading).wait_for()
    settled(page)
    page.keyboard.press("/")
    page.keyboard.type("train-1")
    assert page.evaluate("document.activeElement.type") == "search"
    wait_until(lambda: "search=train-1" in place(page))
    page.keyboard.press("Tab")
    for _ in range(20):
        if page.evaluate("document.activeElement.tagName") == "TR":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("complementary", name="Job").wait_for()


def test_zooming_dragging_and_following(opened: Opened) -> None:
    page = opened("devices?span=60000")
    settled(page)
    box = page.locator(".timeline canvas").bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.move(*middle)
    page.mouse.wheel(0, -240)
    wait_until(lambda: "span=" in place(page) and "span=60000" not in place(page))
    page.mouse.down()
    page.mouse.move(middle[0] + 120, middle[1], steps=5)
    page.mouse.up()
    wait_until(lambda: "from=" in place(page) and "to=" in place(page))
    page.get_by_role("button", name="Follow").click()
    wait_until(lambda: "from=" not in place(page))
    page.evaluate("location.hash = '#/devices?from=1000&to=61000'")
    page.get_by_role("button", name="Follow", exact=True).wait_for()
    # Wherever the focus is, but where one types.
    page.locator("h1").focus()
    page.keyboard.press("f")
    page.get_by_role("button", name="Following").wait_for()
    assert "from=" not in place(page)


def test_events_are_narrowed_by_time(opened: Opened, board: Board) -> None:
    [ill] = [row for row in board.rows("events") if row["event"] == "device_out_of_service" and "79" in row["text"]]
    page = opened(f"events?kind=device&from={ill['at_ms']}&to={ill['at_ms']}")
    page.get_by_role("table", name="Events").get_by_text("device out of service").wait_for()
    # Moments are to the second: the second of the event, and the one before.
    field = "(ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19)"
    second, before = (page.evaluate(field, ms) for ms in (ill["at_ms"], ill["at_ms"] - 1_000))
    assert page.get_by_label("Since").input_value() == second
    page.get_by_label("Since").fill(before)
    page.get_by_label("Until").fill(before)
    page.get_by_text("No event is like this").wait_for()
    page.get_by_label("Until").fill(second)
    page.get_by_role("table", name="Events").get_by_text("device out of service").wait_for()
    page.get_by_label("Since").fill("")
    wait_until(lambda: "from=" not in place(page) and "to=" in place(page))
    assert board.ask(f"rows/events?from={ill['at_ms']}&to={ill['at_ms']}&level=error")["rows"] != []
    assert all(row["at_ms"] > ill["at_ms"] for row in board.ask(f"rows/events?from={ill['at_ms'] + 1}")["rows"])


def test_what_machines_and_processes_measure_is_shown(opened: Opened, board: Board) -> None:
    page = opened("nodes")
    table = page.get_by_role("table", name="Nodes")
    for title in ("CPU held", "CPU in use", "Memory in use", "Disk", "Network in, out", "Version"):
        table.get_by_role("columnheader", name=title).wait_for()
    table.get_by_text(board.ask("overview")["version"], exact=True).wait_for()
    table.get_by_role("img", name="in use").first.wait_for()
    table.get_by_role("row").nth(1).click()
    sheet = page.get_by_role("complementary", name="Node")
    for title in ("CPU", "Memory", "Disk", "Network"):
        sheet.locator("figcaption", has_text=title).first.wait_for()
    sheet.locator("figure", has_text="Memory").get_by_text("in use").wait_for()
    wait_until(lambda: any("memory" in row for row in board.rows("workers")))
    [worker, *_] = (row for row in board.rows("workers") if "memory" in row)
    page.evaluate(f"location.hash = '#/processes?pick=process:{worker['key']}'")
    sheet = page.get_by_role("complementary", name="Process")
    for fact in ("Memory", "Open files"):
        sheet.locator("dt", has_text=fact).wait_for()


def test_jobs_have_how_far_their_tasks_are(opened: Opened, board: Board) -> None:
    page = opened("jobs")
    row = page.get_by_role("row", name="train-1")
    row.get_by_role("img", name="finished").wait_for()
    [job] = [one for one in board.rows("jobs") if one["submission"] == "train-1"]
    [counts] = [one for one in board.ask("names/jobs")["rows"] if one["job_id"] == job["job_id"]]
    assert counts["states"]["FAILED"] == 1 and counts["states"]["RUNNING"] == 1
    assert counts["total"] == sum(one["total"] for one in board.ask(f"names/tasks?job_id={job['job_id']}")["rows"])


def test_nodes_that_are_silent_are_always_in_sight(opened: Opened, board: Board) -> None:
    page = opened("jobs")
    assert page.locator(".until .silent").count() == 0
    told = board.ask("overview") | {"may_write": True}
    told["nodes"]["silent"] = 2
    line = json.dumps({"seq": 1, "now_ms": int(time.time() * 1_000), "until_ms": int(time.time() * 1_000), "changed": [], "overview": told})
    page.route("**/ox/v1/live*", lambda route: route.fulfill(body=line + "\n", content_type="application/x-ndjson"))
    page.reload()
    page.locator(".until").get_by_text("2 nodes silent").click()
    page.locator("h1", has_text="Nodes").wait_for()
    page.get_by_text("No node is like this").wait_for()


def test_the_page_comes_back_with_its_server(opened: Opened, board: Board) -> None:
    page = opened("nodes", token=board.token())
    settled(page)
    # It is noted within the page: whoever looks from outside may come when it is over.
    page.evaluate(
        "() => { const note = () => { window.wasAlone ||= document.body.textContent.includes('reconnecting'); };"
        " new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true }); }"
    )
    board.kill()
    wait_until(lambda: page.evaluate("window.wasAlone === true"))
    page.get_by_text("reconnecting").wait_for(state="detached")
    page.locator(".until time").wait_for()
    # The browser itself says that nobody answered meanwhile.
    opened.wrong[:] = [text for text in opened.wrong if "Failed to load resource" not in text]  # type: ignore[attr-defined]


def test_a_key_opens_the_page_once(opened: Opened, board: Board, browser: Any) -> None:
    key = board.ask("keys", {})["key"]
    context = browser.new_context()
    first = context.new_page()
    first.goto(f"{board.address}/#key={key}")
    first.get_by_role("navigation", name="Views").wait_for()
    assert key not in first.url
    other = browser.new_context()
    second = other.new_page()
    second.goto(f"{board.address}/#key={key}")
    second.get_by_role("alert").get_by_text("used before").wait_for()
    context.close()
    other.close()


def test_a_process_has_its_log_from_its_end_on(opened: Opened, board: Board) -> None:
    actor = next(row for row in board.rows("actors") if row["name"] == "rollout-0")
    wait_until(lambda: "move 19999" in board.ask(f"logs?actor_id={actor['key']}")["text"])
    worker = next(row for row in board.rows("workers") if row["pid"] == actor["pid"])
    for place in (f"actors?pick=actor:{actor['key']}", f"processes?pick=process:{worker['key']}"):
        page = opened(place)
        box = page.get_by_role("region", name="Standard output")
        box.get_by_text("move 19999").wait_for()
        assert "move 10\n" not in box.inner_text()
        for _ in range(20):
            if "move 10\n" in box.inner_text():
                break
            before = len(box.inner_text())
            box.evaluate("box => { box.scrollTop = 0; box.dispatchEvent(new Event('scroll')); }")
            page.wait_for_function("([box, before]) => box.innerText.length > before", arg=[box.element_handle(), before])
        assert "move 10\n" in box.inner_text()
        page.get_by_label("Stream").select_option("err")
        page.get_by_role("region", name="Standard error").get_by_text("resigns").wait_for()


def process_of(board: Board, name: str) -> str:
    """The worker of an actor."""
    actor = next(row for row in board.rows("actors") if row["name"] == name)
    return str(next(row["key"] for row in board.rows("workers") if row["pid"] == actor["pid"]))


def test_a_process_is_profiled_and_its_graph_is_walked_by_keys(opened: Opened, board: Board) -> None:
    page = opened("processes?pick=process:" + process_of(board, "rollout-0"))
    page.get_by_role("button", name="Stacks now").click()
    page.get_by_role("region", name="Stacks").get_by_text("Thread MainThread").wait_for()
    page.get_by_role("button", name="Wall 5 s").click()
    page.get_by_role("progressbar", name="How long it was observed").wait_for()
    graph = page.get_by_role("tree")
    graph.wait_for()
    told = page.locator(".flame-told")
    whole = told.inner_text()
    assert whole.startswith("all: ") and whole.endswith("100.0 %")
    graph.get_by_role("treeitem", name="all: ").focus()
    page.keyboard.press("ArrowDown")
    wait_until(lambda: told.inner_text().startswith("MainThread: "))
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Reset").wait_for()
    # Escape zooms out first, and closes the sheet after that.
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Reset").wait_for(state="detached")
    item = graph.get_by_role("treeitem", name="MainThread: ")
    item.click()
    page.get_by_role("button", name="Reset").click()
    page.locator(".profile summary").click()
    page.get_by_role("table", name="Functions").get_by_role("row").nth(1).wait_for()
    for word, end in (("SVG", ".svg"), ("speedscope", ".speedscope.json"), ("Folded stacks", ".folded.txt")):
        with page.expect_download() as saved:
            page.get_by_role("button", name=word).click()
        assert saved.value.suggested_filename.startswith("profile-wall-") and saved.value.suggested_filename.endswith(end)
        assert saved.value.path().stat().st_size > 0


def test_a_key_that_reads_profiles_nothing(opened: Opened, board: Board) -> None:
    page = opened("processes?pick=process:" + process_of(board, "rollout-0"), token=board.token("http-token-read"))
    button = page.get_by_role("button", name="CPU 5 s")
    button.wait_for()
    assert button.is_disabled() and button.get_attribute("title") == "This key only reads"
