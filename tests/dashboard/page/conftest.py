"""A cluster with devices and work of every kind, its page, and a browser that looks at it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nvml
import pytest
from boards import CHROMIUM, PROGRAM, Board, Opened
from homes import Home
from watching import wait_until


@pytest.fixture(scope="session")
def playwright() -> Any:
    """The module that drives a browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `make test-dashboard` does it")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not there: `make test-dashboard` installs it")
    if shutil.which("cargo") is None:
        pytest.skip("the library that stands in for NVML is built with cargo, which is not there")
    return api


@pytest.fixture(scope="module")
def browser(playwright: Any) -> Iterator[Any]:
    """A browser without a window. It ends with the module, since no other event loop can run beside it."""
    with playwright.sync_playwright() as made:
        yield made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])


@pytest.fixture(scope="module")
def board(playwright: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A cluster of four GPUs, one of them ill, with work of every kind, and its page.

    It ends with the module, since others start clusters without the variables that make its machine.
    """
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        answers = nvml.Answers(folder, patch, nvml.library())
        patch.setenv("OXIRAY_CUDA_LIBRARY", nvml.library())
        sessions = folder / "s"
        sessions.mkdir()
        home = Home(sessions)
        made = Board(home, answers)
        words = (f"--port={home.port}", "--num-cpus=4", "--num-gpus=4", "--include-dashboard=true", f"--dashboard-port={made.port}")
        started = home.oxiray("start", "--head", *words)
        assert started.returncode == 0, started.stderr
        home.environment["RAY_ADDRESS"] = f"127.0.0.1:{home.port}"
        try:
            wait_until(made.answers_now)
            wait_until(answers.are_listened_to)
            made.say("xid=3:79")
            wait_until(lambda: any(row["state"] == "quarantined" for row in made.rows("devices")))
            program = folder / "program.py"
            program.write_text(PROGRAM)
            submitted = home.oxiray("job", "submit", "--no-wait", "--submission-id=train-1", "--", "python", str(program))
            assert submitted.returncode == 0, submitted.stderr
            # The page's answer has a part of it, and its workers may have printed more than that before.
            wait_until(lambda: "under way" in home.oxiray("job", "logs", "train-1").stdout, 120)
            wait_until(lambda: made.ask("overview")["waiting"] >= 3)
            wait_until(lambda: made.rows("runs"))
            yield made
        finally:
            home.oxiray("stop", "--force")


@pytest.fixture
def opened(browser: Any, board: Board) -> Iterator[Opened]:
    """Opens the page at a place; at the end of the test nothing was said on the console, and nobody else was asked."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def watch(page: Any) -> None:
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("console", lambda told: told.type in ("error", "warning") and wrong.append(f"{told.type}: {told.text}"))
        page.on("request", lambda asked: asked.url.startswith((board.address, "data:", "blob:")) or wrong.append(asked.url))

    def open_at(place: str = "devices", token: str | None = None, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        watch(page)
        key = token or board.ask("keys", {})["key"]
        if token:
            page.goto(board.address)
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Open").click()
            page.get_by_role("navigation", name="Views").wait_for()
            page.goto(f"{board.address}/#/{place}")
        else:
            page.goto(f"{board.address}/#key={key}")
            page.get_by_role("navigation", name="Views").wait_for()
            page.goto(f"{board.address}/#/{place}")
        page.locator("h1").wait_for()
        page.locator(".until time").wait_for()
        return page

    open_at.wrong = wrong  # type: ignore[attr-defined]
    yield open_at
    for context in contexts:
        context.close()
    assert wrong == []
