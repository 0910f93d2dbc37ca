"""The suites of the package `fugue_test`, which every engine of fugue is to pass, for the engine `ray`."""

from __future__ import annotations

import fugue.test as ft
import fugue_ray.tester  # noqa: F401  (registers the backend)
from fugue_test.builtin_suite import BuiltInTests
from fugue_test.execution_suite import ExecutionEngineTests


@ft.fugue_test_suite("ray", mark_test=True)
class TestEngineOnRay(ExecutionEngineTests.Tests):
    pass


@ft.fugue_test_suite("ray", mark_test=True)
class TestWorkflowsOnRay(BuiltInTests.Tests):
    pass
