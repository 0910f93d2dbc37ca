"""A fixture for pytest that Ray's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oxiray import _missing
from oxiray._private.ray_constants import RAY_OVERRIDE_DASHBOARD_URL


@pytest.fixture
def set_override_dashboard_url(monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[None]:
    """Sets the address that the dashboard is said to have, of the fixture's parameter; an empty one sets none."""
    url = getattr(request, "param", "https://external_dashboard_url")
    if url:
        monkeypatch.setenv(RAY_OVERRIDE_DASHBOARD_URL, url)
    yield


__getattr__ = _missing.attributes(__name__)
