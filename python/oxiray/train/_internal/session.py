"""The session of Ray Train's first version, for libraries that ask whether they run in one."""

from __future__ import annotations


def get_session() -> None:
    """None, as in Ray outside of that version's workers and of Ray Tune's trials: here there are none of either."""
    return None
