"""A worker that tries every way to open a device which it was not granted, in each mode, as root and as a plain user."""

from __future__ import annotations

import os

import adversary
import fenced
import pytest


@pytest.mark.parametrize("user", adversary.USERS)
@pytest.mark.parametrize("mode", adversary.MODES)
def test_no_way_leads_to_a_device_that_is_fenced_off(mode: str, user: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes device nodes and becomes another user")
    works = fenced.fences()
    names = ["cgroup v2", "cgroup v1", "Landlock"] if user == "root" else ["Landlock"]
    is_fenced = any(works.get(name, {}).get("works") for name in names)
    found = adversary.tried(mode, user)
    if mode == "require" and not is_fenced:
        assert "no kernel fence here" in found["refused"]
        return
    ways = {way: found[way] for way in adversary.HELD}
    if mode in ("fence", "require") and is_fenced:
        assert [way for way, outcome in ways.items() if outcome == "opened"] == [], ways
        assert ways["by_name"] in ("EPERM", "EACCES")
    else:
        # Nothing is refused that the kernel does not refuse a plain user anyway.
        assert ways["by_name"] == ways["symbolic_link"] == ways["grandchild"] == ways["in_thread"] == "opened", ways
    assert found["passed"] == "opened", "no fence takes back a descriptor"
