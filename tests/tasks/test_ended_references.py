"""References of a connection that has ended, beside others."""

from __future__ import annotations

import pytest
import ray


def test_wait_returns_what_is_known_beside_references_of_an_ended_connection() -> None:
    ray.shutdown()
    ray.init(num_cpus=1)
    old = [ray.put(1), ray.put(2)]
    ray.shutdown()
    ray.init(num_cpus=1)
    try:
        known = ray.put(3)
        for given in ([known, old[0]], [old[0], known]):
            assert ray.wait(given) == ([known], [old[0]])
        assert ray.wait([old[0], known, old[1]], num_returns=2, timeout=0.1) == ([known], old)
        with pytest.raises(ValueError, match="owner is unknown"):
            ray.wait(old, timeout=0.1)
        with pytest.raises(ValueError, match="owner is unknown"):
            ray.wait([known, old[0]], num_returns=2)
    finally:
        ray.shutdown()
