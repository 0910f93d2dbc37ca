"""Pages of the documentation in a real browser, light and dark, on a wide window and on a phone: `make docs-pictures`.

What a program can see is compared here; the pictures are for people, in `.build/docs-pictures`.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from boards import CHROMIUM

BUILD = Path(__file__).resolve().parent.parent.parent / ".build"
SITE, PICTURES = BUILD / "site", BUILD / "docs-pictures"
PAGES = ["index.html", "first-steps.html", "guides/devices.html", "reference/api/ray.html", "reference/commands.html", "troubleshooting.html"]
WIDTHS = {"wide": 1280, "phone": 390}
#: The parts of a page that a reader would have to scroll sideways for, beyond those that scroll by themselves.
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter((one) => {
    const box = one.getBoundingClientRect();
    const scrolls = one.closest("pre, .md-typeset__scrollwrap, .md-tabs, .md-sidebar, .md-search, .highlight");
    return box.width > 0 && box.right > innerWidth + 1 && !scrolls && getComputedStyle(one).position !== "fixed";
}).map((one) => one.tagName + "." + one.className)"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *told: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The site that `make docs` built, served."""
    if not (SITE / "index.html").exists():
        pytest.skip("the site is not built: `make docs-pictures` does it")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `make docs-pictures` does it")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not there: `make docs-pictures` installs it")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield made
        made.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_the_window_and_ask_nobody_else(browser: Any, address: str, width: str, colours: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": WIDTHS[width], "height": 900}, color_scheme=colours)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("console", lambda told: told.type in ("error", "warning") and wrong.append(f"{told.type}: {told.text}"))
    page.on("request", lambda asked: asked.url.startswith((address, "data:", "blob:")) or wrong.append(asked.url))
    for name in PAGES:
        page.goto(f"{address}/{name}")
        page.wait_for_load_state("networkidle")
        page.screenshot(path=PICTURES / f"{name.replace('/', '-').removesuffix('.html')}-{width}-{colours}.png")
        wrong += [f"{name} is wider than the window: {one}" for one in page.evaluate(TOO_WIDE)]
    context.close()
    assert wrong == []
