"""Modin on its Ray engine: read_csv, groupby, merge and more on a generated file; results equal pandas'.

Usage: modin_frames.py [--megabytes N]   (default 8)
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import modin.config
import numpy
import pandas

modin.config.Engine.put("ray")

import modin.pandas  # noqa: E402  reads the engine when it is imported

KEYS = 100
CHUNK_ROWS = 200_000


def write_csv(path: Path, size: int) -> None:
    """Writes rows of numbers and words until the file has `size` bytes."""
    generator = numpy.random.default_rng(7)
    first = True
    while first or path.stat().st_size < size:
        frame = pandas.DataFrame(
            {
                "key": generator.integers(0, KEYS, CHUNK_ROWS),
                "amount": generator.random(CHUNK_ROWS).round(6),
                "count": generator.integers(0, 1000, CHUNK_ROWS),
                "word": generator.choice(["one", "two", "three"], CHUNK_ROWS),
            }
        )
        frame.to_csv(path, mode="w" if first else "a", header=first, index=False)
        first = False


def names(library: Any) -> Any:
    """A small table to merge with."""
    return library.DataFrame({"key": range(0, KEYS, 2), "name": [f"name {key}" for key in range(0, KEYS, 2)]})


STEPS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("groupby", lambda library, frame: frame.groupby("key").agg({"amount": "sum", "count": "mean"})),
    ("merge", lambda library, frame: frame.merge(names(library), on="key")),
    ("filter", lambda library, frame: frame[frame["amount"] > 0.99].reset_index(drop=True)),
    ("count values", lambda library, frame: frame["word"].value_counts()),
    ("apply", lambda library, frame: frame["count"].apply(lambda count: count % 7)),
    ("describe", lambda library, frame: frame[["amount", "count"]].describe()),
]


def assert_equal(ours: Any, theirs: Any) -> None:
    """Raises where the Modin object does not hold what the pandas object holds."""
    ours = ours._to_pandas()
    kind = "frame" if isinstance(theirs, pandas.DataFrame) else "series"
    getattr(pandas.testing, f"assert_{kind}_equal")(ours, theirs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=8)
    megabytes = parser.parse_args().megabytes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        write_csv(path, megabytes << 20)
        frames = {}
        for library in (pandas, modin.pandas):
            began = time.monotonic()
            frames[library] = library.read_csv(path)
            print(f"{library.__name__}: read_csv of {path.stat().st_size / 1e6:.0f} MB, {time.monotonic() - began:.2f} s")
        assert_equal(frames[modin.pandas], frames[pandas])
        for name, step in STEPS:
            began = time.monotonic()
            theirs = step(pandas, frames[pandas])
            middle = time.monotonic()
            assert_equal(step(modin.pandas, frames[modin.pandas]), theirs)
            print(f"{name}: pandas {middle - began:.2f} s, Modin with reading back {time.monotonic() - middle:.2f} s")
    print("equal")


if __name__ == "__main__":
    main()
