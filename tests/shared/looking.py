"""How a browser fares with a page: what it loads, and how long its frames take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: How many frames are drawn for a measurement.
FRAMES = 60
#: Does something before each frame, and tells how long each took in milliseconds, from one to the next.
_DRIVEN = """([frames, act]) => new Promise((resolve) => {
    const frame = document.querySelector(".timeline");
    const box = frame.getBoundingClientRect();
    const wheel = (by) => frame.querySelector("canvas").dispatchEvent(new WheelEvent("wheel",
        {deltaY: by, clientX: box.left + box.width * 0.7, clientY: box.top + box.height / 2, bubbles: true, cancelable: true}));
    const acts = {
        zoom: (number) => wheel(number < frames / 2 ? -30 : 30),
        scroll: () => { frame.scrollTop += 60; },
    };
    const took = [];
    let last = null;
    const step = (now) => {
        if (last !== null) took.push(now - last);
        last = now;
        if (took.length >= frames) return resolve(took);
        acts[act](took.length);
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
})"""
#: When something was first painted, once it was.
_PAINTED = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null"""


def painted_ms(page: Any) -> float:
    """When something was first painted, in milliseconds since the page was asked for."""
    return float(until(page, lambda: page.evaluate(_PAINTED)))


def until(page: Any, holds: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """What this returns once it is true. The page's rules keep playwright from waiting for an expression by itself."""
    end = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come to hold in time"
        page.wait_for_timeout(10)
    return found


def frames_ms(page: Any, act: str) -> list[float]:
    """How long frames took while the timeline was zoomed or scrolled, the shortest first."""
    return sorted(page.evaluate(_DRIVEN, [FRAMES, act]))


class Answers:
    """What a page asked for: each path with the bytes that its answer had on the wire; and what went wrong."""

    def __init__(self, page: Any, address: str) -> None:
        self.wrong: list[str] = []
        self._asked: list[Any] = []
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", lambda told: told.type in ("error", "warning") and self.wrong.append(f"{told.type}: {told.text}"))
        page.on("request", lambda asked: asked.url.startswith((address, "data:", "blob:")) or self.wrong.append(asked.url))
        page.on("requestfinished", lambda asked: self._asked.append(asked))

    def sizes(self) -> dict[str, int]:
        """The largest answer of each path."""
        found: dict[str, int] = {}
        for asked in self._asked:
            path = asked.url.partition("?")[0]
            found[path] = max(found.get(path, 0), asked.sizes()["responseBodySize"])
        return found

    def of(self, has: Callable[[str], bool]) -> list[Any]:
        """The answers to what was asked for at such addresses, as JSON."""
        return [asked.response().json() for asked in self._asked if has(asked.url) and asked.response().status == 200]
