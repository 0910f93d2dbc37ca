"""How large the data of these tests is."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--megabytes", type=int, default=8, help="size of the file that Modin reads (default 8)")
