"""Slices of TPUs: how many workers a topology is, and how a group finds slices that are whole and nobody else's.

The first host of each slice offers one `TPU-<type>-head`, such as `TPU-v4-16-head`: whoever has it has the slice. So a
group first reserves as many of those as it needs slices, and then places its workers by the slices' names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from oxiray import _api
from oxiray.util.placement_group import PlacementGroup, placement_group, placement_group_table

#: Labels of a host of a slice, as detection gives them.
NAME, HOST, TOPOLOGY = "ray.io/tpu-slice-name", "ray.io/tpu-worker-id", "ray.io/tpu-topology"
_VERSIONS = ("v2", "v3", "v4", "v5p", "v5litepod", "v6e", "v7x")
#: Versions whose chips have one core; those of the others have two, and types are named by cores.
_SINGLE_CORE = ("v5litepod", "v6e")
_CHIPS_PER_HOST = 4
#: With up to so many chips, slices of the versions with one core are one host.
_CHIPS_OF_ONE_HOST = 8


@dataclass(frozen=True)
class Slice:
    """A kind of slice: its topology, such as `2x2x2`, and the version of its chips, such as `v4`."""

    topology: str
    version: str

    @classmethod
    def of(cls, topology: str, accelerator_type: str) -> Slice:
        """The kind that users name. Raises `ValueError` for what is none."""
        lower = accelerator_type.lower()
        version = lower.removeprefix("tpu-") if lower.startswith("tpu-") else f"v{lower[3:]}" if lower.startswith("tpu") else lower
        if version not in _VERSIONS:
            known = ", ".join(f"TPU-{one.upper()}" for one in _VERSIONS)
            raise ValueError(f"ScalingConfig(use_tpu=True, accelerator_type={accelerator_type!r}) must be one of {known}")
        sides = topology.strip().lower().split("x")
        if not all(side.isdigit() and int(side) > 0 for side in sides):
            raise ValueError(
                f"ScalingConfig(topology={topology!r}) must be numbers of chips along each side of a slice, as in '2x2x2' or '4x4'"
            )
        return cls("x".join(sides), version)

    @property
    def chips(self) -> int:
        """How many chips it has."""
        return math.prod(int(side) for side in self.topology.split("x"))

    @property
    def chips_per_host(self) -> int:
        """How many chips each of its hosts has."""
        is_one_host = self.version in _SINGLE_CORE and self.chips <= _CHIPS_OF_ONE_HOST
        return self.chips if is_one_host else _CHIPS_PER_HOST

    @property
    def resource(self) -> str:
        """What every host of its kind offers, as for `accelerator_type`."""
        return f"accelerator_type:TPU-{self.version.upper()}"

    @property
    def head(self) -> str:
        """What its first host offers, once."""
        return f"TPU-{self.version}-{self.chips * (1 if self.version in _SINGLE_CORE else 2)}-head"

    def workers(self, chips_each: float) -> int:
        """How many workers with so many chips it is. Raises `ValueError` where that leaves a rest."""
        if not float(chips_each).is_integer() or self.chips % int(chips_each):
            raise ValueError(
                f"ScalingConfig(resources_per_worker) gives a worker {chips_each:g} TPU, which do not divide the {self.chips} "
                f"of a slice of topology {self.topology}: leave TPU out for a worker on each host"
            )
        return self.chips // int(chips_each)

    def reserve(self, count: int) -> PlacementGroup:
        """Asks for so many of the cluster's slices of this kind."""
        selectors = [{TOPOLOGY: self.topology} for _ in range(count)]
        return placement_group([{self.head: 1} for _ in range(count)], "PACK", bundle_label_selector=selectors)


def names(reserved: PlacementGroup) -> list[str]:
    """The names of slices that were reserved, sorted."""
    hosts = set(placement_group_table(reserved)["bundles_to_node_id"].values())
    return sorted(node["labels"][NAME] for node in _api.describe_nodes() if node["node_id"] in hosts)


def hosts_in_order() -> dict[str, tuple[str, int]]:
    """For each machine of a slice, what it is sorted by: the slice, and which of its hosts it is."""
    labels: dict[str, dict[str, Any]] = {node["node_id"]: node.get("labels") or {} for node in _api.describe_nodes()}
    return {node: (of[NAME], int(of.get(HOST, 0))) for node, of in labels.items() if NAME in of}
