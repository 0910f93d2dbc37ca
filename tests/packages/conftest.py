"""What tests of packages look at: the wheels that `make wheels` made, which `make test-packages` names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clean_debian import is_root


@pytest.fixture(scope="session")
def wheels() -> Path:
    """The folder with the wheels."""
    named = os.environ.get("OXIRAY_TEST_WHEELS")
    if named is None:
        pytest.skip("`make test-packages` makes the wheels that are passed on, and runs this")
    return Path(named)


@pytest.fixture(scope="session")
def as_root() -> None:
    if not is_root():
        pytest.skip("only root can make a clean system, and enter it")
