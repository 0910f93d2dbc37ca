"""A head with a dashboard, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard_client import Dashboard, started


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    made = started(tmp_path_factory.mktemp("dashboard"))
    yield made
    made.home.oxiray("stop", "--force")
