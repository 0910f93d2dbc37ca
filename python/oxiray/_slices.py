"""Slices of TPUs: how many workers a topology is, and how a group finds slices that are whole and nobody else's.

The first host of each slice offers one `TPU-<type>-head`, such as `TPU-v4-16-head`: whoever has it has the slice. So
training and `ray.util.tpu` first reserve as many of those as they need slices, all or none, and then place their workers by the
slices' names.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from oxiray import _api
from oxiray.util.placement_group import PlacementGroup, placement_group, placement_group_table

#: Labels of a host of a slice, as detection gives them.
NAME, HOST, TOPOLOGY, POD = "ray.io/tpu-slice-name", "ray.io/tpu-worker-id", "ray.io/tpu-topology", "ray.io/tpu-pod-type"
#: The versions of chips, and the number of sides that their slices have.
_SIDES = {"v2": 2, "v3": 2, "v4": 3, "v5p": 3, "v5litepod": 2, "v6e": 2, "v7x": 3}
#: Versions whose chips have one core; those of the others have two, and types are named by cores.
_SINGLE_CORE = ("v5litepod", "v6e")
_CHIPS_PER_HOST = 4
#: Where the first of several slices listens for the others, unless the variable MEGASCALE_PORT says otherwise.
MEGASCALE_PORT = "8081"
#: With up to so many chips, slices of the versions with one core are one host.
_CHIPS_OF_ONE_HOST = 8


def version_of(accelerator_type: str) -> str:
    """The version of chips that users name, as `TPU-V6E`, `TPU7x` or `v6e`. Raises `ValueError` for what is none."""
    lower = accelerator_type.strip().lower()
    version = lower.removeprefix("tpu-") if lower.startswith("tpu-") else f"v{lower[3:]}" if lower.startswith("tpu") else lower
    if version not in _SIDES:
        known = ", ".join(f"TPU-{one.upper()}" for one in _SIDES)
        raise ValueError(f"Invalid accelerator_type: {accelerator_type}. It must be one of {known}")
    return version


def cores_per_chip(version: str) -> int:
    """How many cores each chip of this version has."""
    return 1 if version in _SINGLE_CORE else 2


@dataclass(frozen=True)
class Slice:
    """A kind of slice: its topology, such as `2x2x2`, and the version of its chips, such as `v4`."""

    topology: str
    version: str

    @classmethod
    def of(cls, topology: str, accelerator_type: str) -> Slice:
        """The kind that users name. Raises `ValueError` for what is none."""
        version = version_of(accelerator_type)
        sides = topology.strip().lower().split("x")
        if not all(side.isdigit() and int(side) > 0 for side in sides):
            raise ValueError(
                f"Invalid accelerator topology: {topology!r}. It must be numbers of chips along each side of a slice, as in '2x2x2' or "
                "'4x4'"
            )
        if len(sides) != _SIDES[version]:
            raise ValueError(
                f"Invalid accelerator topology: '{topology}' for accelerator version: '{version}'. Slices of {version} have "
                f"{_SIDES[version]} sides, as in '{'x'.join('4' * _SIDES[version])}'"
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
    def pod_type(self) -> str:
        """What clouds call it: its version, and the number of its cores."""
        return f"{self.version}-{self.chips * cores_per_chip(self.version)}"

    @property
    def resource(self) -> str:
        """What every host of its kind offers, as for `accelerator_type`."""
        return f"accelerator_type:TPU-{self.version.upper()}"

    @property
    def head(self) -> str:
        """What its first host offers, once."""
        return f"TPU-{self.pod_type}-head"

    def workers(self, chips_each: float) -> int:
        """How many workers with so many chips it is. Raises `ValueError` where that leaves a rest."""
        if not float(chips_each).is_integer() or self.chips % int(chips_each):
            raise ValueError(
                f"ScalingConfig(resources_per_worker) gives a worker {chips_each:g} TPU, which do not divide the {self.chips} "
                f"of a slice of topology {self.topology}: leave TPU out for a worker on each host"
            )
        return self.chips // int(chips_each)

    def reserve(self, count: int, besides: Collection[str] = ()) -> PlacementGroup:
        """Asks for so many of the cluster's slices of this kind, other than those named."""
        selector = {TOPOLOGY: self.topology} | ({NAME: f"!in({','.join(besides)})"} if besides else {})
        return placement_group([{self.head: 1} for _ in range(count)], "PACK", bundle_label_selector=[selector] * count)


def names(reserved: PlacementGroup) -> list[str]:
    """The names of slices that were reserved, sorted. Raises `RuntimeError` where a first host does not say which slice it is of."""
    hosts = set(placement_group_table(reserved)["bundles_to_node_id"].values())
    found = {node["node_id"]: node.get("labels", {}).get(NAME) for node in _api.describe_nodes() if node["node_id"] in hosts}
    named = sorted(name for name in found.values() if name)
    if len(named) < len(hosts):
        unnamed = ", ".join(sorted(str(host) for host in hosts if not found.get(host)))
        raise RuntimeError(
            f"Failed to retrieve TPU slice name after reserving head placement group. These nodes have no label {NAME}: {unnamed}. "
            f"Start them with TPU_NAME set, or with --labels={NAME}=…"
        )
    return named


def hosts_in_order() -> dict[str, tuple[str, int]]:
    """For each machine of a slice, what it is sorted by: the slice, and which of its hosts it is."""
    labels: dict[str, dict[str, Any]] = {node["node_id"]: node.get("labels") or {} for node in _api.describe_nodes()}
    return {node: (of[NAME], int(of.get(HOST, 0))) for node, of in labels.items() if NAME in of}
