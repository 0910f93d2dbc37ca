"""A plugin of pytest that writes down how each test went as soon as it is known, so that a suite that is cut off counts too.

`OUTCOMES` names the file: one JSON object in a line, of a test's name and its outcome; a later line replaces an earlier one.
"""

from __future__ import annotations

import json
import os

import pytest


def _write(location: str, name: str, outcome: str) -> None:
    # A package lies elsewhere in each environment, and pytest names tests outside of its root by no file.
    known = f"{location.rpartition('site-packages/')[2]}::{name.partition('::')[2]}"
    # Forked children of a test have the plugin too, and write whole lines.
    with open(os.environ["OUTCOMES"], "a") as file:
        file.write(json.dumps({known: outcome}) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        _write(item.location[0], item.nodeid, "not run")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(report.nodeid, f"{report.nodeid}::(collection)", "failed")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed or report.skipped or report.when == "call":
        _write(report.location[0], report.nodeid, report.outcome)
