"""Tests of several nodes run twice: with nodes that join over the socket, and with nodes that join over TLS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ray.cluster_utils import Cluster


@pytest.fixture(scope="module", params=[False, True], ids=["socket", "network"])
def over_network(request: pytest.FixtureRequest) -> Iterator[bool]:
    """How the nodes of every `Cluster` of the module join."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "over_network", request.param)
        # A daemon that a busy machine stops for some seconds is not dead.
        patch.setattr(Cluster, "node_lease_s", 10.0)
        yield request.param
