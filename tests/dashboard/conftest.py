"""A head with a dashboard, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard_client import Dashboard, started


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    # What no node can ever run waits for as long as tests may take.
    made = started(tmp_path_factory.mktemp("dashboard"), OXIRAY_INFEASIBLE_WAIT_S="3600")
    yield made
    made.home.oxiray("stop", "--force")
