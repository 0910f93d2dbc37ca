"""What Ray's libraries take time for, measured with whatever `import ray` means: one JSON object after `RESULT `.

Each figure is of a second run: what is imported and started once is left out, and stands in the times of the cases of
tests/libraries.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
import requests
from ray import serve, tune

CPUS = 4
ROWS = 100_000
BLOCKS = 8
REQUESTS = 300
URL = "http://127.0.0.1:8000"


def seconds(does: Callable[[], Any]) -> float:
    """How long it takes the second time."""
    does()
    began = time.perf_counter()
    does()
    return time.perf_counter() - began


def rows() -> Any:
    """Rows in so many blocks, ready in the store."""
    import ray.data

    made = ray.data.range(ROWS, override_num_blocks=BLOCKS)
    return made.map_batches(lambda batch: {"key": batch["id"] % 100, "value": (batch["id"] * 7919) % ROWS}).materialize()


def climbing(config: dict[str, Any]) -> None:
    for step in range(5):
        tune.report({"score": config["rate"] * step})


def experiment() -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = {"rate": tune.grid_search([1, 2, 3, 4, 5, 6, 7, 8])}
        config = tune.RunConfig(storage_path=folder, name="run", verbose=0)
        results = tune.Tuner(climbing, param_space=space, run_config=config).fit()
        assert len(results) == 8 and results.num_errors == 0


@serve.deployment
class Echo:
    async def __call__(self, request: Any) -> str:
        return "here"


@contextlib.contextmanager
def served() -> Iterator[Any]:
    handle = serve.run(Echo.bind(), route_prefix="/")
    try:
        yield handle
    finally:
        serve.shutdown()


def serving() -> dict[str, float]:
    """Median of requests one at a time over HTTP, on one connection, and of calls of a handle."""
    with served() as handle, requests.Session() as session:
        http, calls = [], []
        for _ in range(REQUESTS):
            began = time.perf_counter()
            assert session.get(URL, timeout=60).text == "here"
            http.append(time.perf_counter() - began)
        for _ in range(REQUESTS):
            began = time.perf_counter()
            assert handle.remote(None).result(timeout_s=60) == "here"
            calls.append(time.perf_counter() - began)
        # What comes first finds routes and connections that are not there yet.
        return {"http_s": statistics.median(http[REQUESTS // 3 :]), "handle_s": statistics.median(calls[REQUESTS // 3 :])}


def main() -> None:
    ray.init(num_cpus=CPUS, log_to_driver=False, include_dashboard=False)
    made = rows()
    found = {
        "groupby_s": seconds(lambda: made.groupby("key").sum("value").take_all()),
        "sort_s": seconds(lambda: made.sort("value").take(1)),
        "tune_s": seconds(experiment),
        **serving(),
    }
    ray.shutdown()
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
