"""Where a program is told that its cluster's dashboard is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import oxiray
import pytest
from oxiray._private.conftest_utils import set_override_dashboard_url

__all__ = ["set_override_dashboard_url"]


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    yield lambda: oxiray.init("local", num_cpus=1, log_to_driver=False)
    oxiray.shutdown()


@pytest.mark.parametrize(
    ("set_override_dashboard_url", "shown"),
    [("https://one.example/ray", "one.example/ray"), ("two.example:8265", "two.example:8265")],
    indirect=["set_override_dashboard_url"],
)
@pytest.mark.usefixtures("set_override_dashboard_url")
def test_a_dashboard_is_said_to_be_where_the_user_says(start: Callable[..., Any], shown: str) -> None:
    assert start().dashboard_url == shown


def test_a_dashboard_is_said_to_be_nowhere_where_nobody_says_anything(start: Callable[..., Any]) -> None:
    assert start().dashboard_url == ""
