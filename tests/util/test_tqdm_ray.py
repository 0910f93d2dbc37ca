"""Progress bars that print lines."""

from __future__ import annotations

import pytest
from ray.experimental import tqdm_ray


def test_it_prints_where_it_is_and_where_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    bar = tqdm_ray.tqdm(total=3, desc="rows", unit="row", position=0, flush_interval_s=0)
    bar.update(2)
    bar.set_description("lines")
    bar.update()
    bar.close()
    bar.close()
    assert capsys.readouterr().err.splitlines() == ["rows: 2/3 row", "lines: 3/3 row"]


def test_it_is_quiet_between_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(tqdm_ray.tqdm(range(4), flush_interval_s=3600)) == [0, 1, 2, 3]
    assert capsys.readouterr().err.splitlines() == ["4/4 it"]


def test_without_an_iterable_it_cannot_be_iterated() -> None:
    with pytest.raises(ValueError, match="update"):
        next(iter(tqdm_ray.tqdm(total=3)))
