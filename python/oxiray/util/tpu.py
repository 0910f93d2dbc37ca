"""Slices of Google TPUs: what there is of them, and placement groups that take whole ones.

The names, arguments, errors and numbers are those of Ray 2.60's `ray.util.tpu`. Topologies are numbers of chips along each side
of a slice, such as `4x4`; versions of chips are `v2`, `v3`, `v4`, `v5p`, `v5litepod`, `v6e` and `v7x`, and types `TPU-V6E`. A chip
is one unit of the resource `TPU`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import warnings
from collections import defaultdict
from typing import Any

from oxiray import _api, _cli, _core, _session, _slices
from oxiray._core import ObjectRef
from oxiray._private.state import available_resources_per_node
from oxiray._slices import Slice
from oxiray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from oxiray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

DEFAULT_MEGASCALE_PORT = _slices.MEGASCALE_PORT
#: How long slices may take to be free, in seconds.
DEFAULT_TPU_HEAD_RESERVATION_TIMEOUT_S = 100.0
_PROFILER_PORT = 9999
logger = logging.getLogger(__name__)


def get_tpu_version_from_type(accelerator_type: str) -> str:
    """The version of chips that a type names: `v6e` of `TPU-V6E`. Raises `ValueError` for what is none."""
    return _slices.version_of(accelerator_type)


def get_current_pod_name() -> str | None:
    """The name of the slice that this machine is a host of; None where it is of none."""
    return _here()[0].get(_slices.NAME) or None


def get_current_pod_worker_count() -> int | None:
    """How many hosts the slice has that this machine is one of; None where it is of none."""
    labels, chips = _here()
    version, _, cores = labels.get(_slices.POD, "").partition("-")
    if not cores or not chips:
        return None
    return math.ceil(int(cores) / (chips * _slices.cores_per_chip(version)))


def get_num_tpu_chips_on_node() -> int:
    """How many TPU chips this machine has."""
    return _here()[1]


def _here() -> tuple[dict[str, str], int]:
    """Labels and TPU chips of this machine: as its node offers them, or as they are detected where there is none."""
    if _core.is_connected():
        own = _core.context()["node_id"]
        node = next(node for node in _api.describe_nodes() if node["node_id"] == own)
        return node.get("labels", {}), int(node["resources"].get("TPU", 0))
    command = [str(_cli.native_binary()), "hardware", "--json"]
    detected = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["accelerators"]
    of_tpu = next((one for one in detected if one["family"]["resource"] == "TPU"), None)
    return (of_tpu["labels"], of_tpu["count"]) if of_tpu is not None else ({}, 0)


def get_tpu_num_slices_for_workers(
    topology: str,
    accelerator_type: str,
    num_workers: int,
    resources_per_worker: dict[str, float] | None = None,
    tpu_resource_per_chip: int | None = None,
) -> int:
    """How many slices so many workers are on; 1 where the topology or the type is none."""
    try:
        each, _ = get_tpu_worker_resources(
            topology, accelerator_type, resources_per_worker, tpu_resource_per_chip=tpu_resource_per_chip
        )
    except (ValueError, AttributeError):
        return 1
    return max(1, math.ceil(num_workers / each))


def get_tpu_worker_resources(
    topology: str,
    accelerator_type: str,
    resources_per_worker: dict[str, float] | None = None,
    num_slices: int = 1,
    chips_per_vm: int | None = None,
    tpu_resource_per_chip: int | None = None,
) -> tuple[int, dict[str, float]]:
    """How many workers so many slices are, and the resources of each: a CPU and all chips of a host, unless others are given.

    Raises `ValueError` where the chips of a worker do not divide those of a slice.
    """
    _check_units(tpu_resource_per_chip)
    kind = Slice.of(topology, accelerator_type)
    if num_slices < 1:
        raise ValueError(f"num_slices must be positive. It is {num_slices}")
    resources = {"CPU": 1, "TPU": _chips_per_host(kind, chips_per_vm), **(resources_per_worker or {})}
    each, chips = resources["TPU"], kind.chips * num_slices
    if each <= 0:
        raise ValueError(f"TPU resources must be positive. Of a worker they are {each}")
    if chips % each:
        raise ValueError(f"Total TPU resources ({chips}) not divisible by TPUs requested per worker ({each}). {_whole_hosts(kind)}")
    if kind.chips % each:
        raise ValueError(
            f"The requested resources per worker ({each} TPU devices) do not divide evenly into the TPU devices available per slice "
            f"({kind.chips}). {_whole_hosts(kind)}"
        )
    return int(chips // each), resources


def _whole_hosts(kind: Slice) -> str:
    return f"Leave TPU out for a worker on each host, which has {kind.chips_per_host} chips in a slice of topology {kind.topology}"


def _chips_per_host(kind: Slice, given: int | None) -> int:
    if given is not None and given <= 0:
        raise ValueError(f"chips_per_vm must be positive. It is {given}; a host of such a slice has {kind.chips_per_host} chips")
    return kind.chips_per_host if given is None else given


def _check_units(tpu_resource_per_chip: int | None) -> None:
    if tpu_resource_per_chip not in (None, 1):
        raise ValueError(
            f"tpu_resource_per_chip={tpu_resource_per_chip!r} is not supported: a chip is one unit of the resource TPU, whatever the "
            "number of its cores. Leave it out"
        )


def get_tpu_coordinator_env_vars(
    coordinator_address: str, num_slices: int, slice_id: int, coordinator_port: str = DEFAULT_MEGASCALE_PORT
) -> dict[str, str]:
    """The environment variables by which processes on several slices find each other."""
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": coordinator_address,
        "MEGASCALE_PORT": coordinator_port,
        "MEGASCALE_NUM_SLICES": str(num_slices),
        "MEGASCALE_SLICE_ID": str(slice_id),
    }


def get_tpu_slice_name_from_node(node: dict[str, Any]) -> str | None:
    """The name of the slice that a machine, as `ray.nodes()` has it, is a host of; None where it is of none."""
    name: str | None = (node.get("Labels") or {}).get(_slices.NAME)
    return name


def get_tpu_nodes_for_slice(slice_name: str, nodes: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The living machines of a slice, of those given or of the cluster's; none where no cluster is connected to."""
    if nodes is None:
        nodes = _api.nodes() if _session.is_initialized() else []
    return [node for node in nodes if node.get("Alive") and get_tpu_slice_name_from_node(node) == slice_name]


def get_num_tpu_slices(topology: str, accelerator_type: str, tpu_resource_per_chip: int | None = None) -> int:
    """How many slices of this kind the cluster has of which all hosts are alive, idle or not."""
    return len(_whole_slices(topology, accelerator_type, tpu_resource_per_chip))


def get_num_ready_tpu_slices(topology: str, accelerator_type: str, tpu_resource_per_chip: int | None = None) -> int:
    """How many slices of this kind the cluster has of which all hosts are alive and all chips free."""
    whole = _whole_slices(topology, accelerator_type, tpu_resource_per_chip)
    free = available_resources_per_node() if whole else {}
    return sum(
        all(free.get(node["NodeID"], {}).get("TPU", 0) >= node["Resources"]["TPU"] for node in hosts) for hosts in whole.values()
    )


def _whole_slices(topology: str, accelerator_type: str, units: int | None) -> dict[str, list[dict[str, Any]]]:
    """The living hosts of each slice of this kind that has all of its chips; a slice of one host goes by its node."""
    _check_units(units)
    if not _session.is_initialized():
        return {}
    try:
        kind = Slice.of(topology, accelerator_type)
    except ValueError as error:
        logger.warning("There is no slice of this kind. %s", error)
        return {}
    found = defaultdict(list)
    for node in _api.nodes():
        labels, chips = node["Labels"], node["Resources"].get("TPU", 0)
        name = node["NodeID"] if chips >= kind.chips else labels.get(_slices.NAME)
        is_of_kind = labels.get(_slices.POD) == kind.pod_type and labels.get(_slices.TOPOLOGY, kind.topology) == kind.topology
        if node["Alive"] and is_of_kind and name and chips:
            found[name].append(node)
    return {name: hosts for name, hosts in found.items() if _is_whole(kind, hosts)}


def _is_whole(kind: Slice, hosts: list[dict[str, Any]]) -> bool:
    has_first = len(hosts) == 1 or any(host["Labels"].get(_slices.HOST) == "0" for host in hosts)
    return has_first and sum(host["Resources"]["TPU"] for host in hosts) == kind.chips


class SlicePlacementGroup:
    """Whole slices of one kind, reserved: a placement group with a bundle for each of their hosts.

    The constructor waits until as many slices are nobody else's, all or none, and raises `TimeoutError` after
    `head_reservation_timeout_s` seconds (None waits as long as it takes). It raises `ValueError` for a topology or a version that
    is none, and for resources or selectors that do not fit, and `RuntimeError` where a host does not say which slice it is of.
    Slices of one host are not waited for: their bundles go to any machine that has the chips. `resources_per_bundle`, `strategy`,
    `name` and `lifetime` are the group's; `bundle_label_selector` has a selector for each bundle, and one with
    `ray.io/tpu-slice-name` says which slice it is; with `pg_per_slice` each slice is a group of its own, named
    `<name>_slice_<index>`.
    """

    def __init__(
        self,
        topology: str,
        accelerator_version: str,
        resources_per_bundle: dict[str, float] | None = None,
        strategy: str = "SPREAD",
        name: str = "",
        lifetime: str | None = None,
        num_slices: int = 1,
        chips_per_vm: int | None = None,
        head_reservation_timeout_s: float | None = DEFAULT_TPU_HEAD_RESERVATION_TIMEOUT_S,
        bundle_label_selector: list[dict[str, str]] | None = None,
        pg_per_slice: bool = False,
        tpu_resource_per_chip: int | None = None,
    ) -> None:
        self._kind = Slice.of(topology, accelerator_version)
        self._num_slices = num_slices
        self._num_bundles, self._bundle_resources = get_tpu_worker_resources(
            topology, accelerator_version, resources_per_bundle, num_slices, chips_per_vm, tpu_resource_per_chip
        )
        self._chips_per_host = _chips_per_host(self._kind, chips_per_vm)
        self._pg_per_slice = pg_per_slice
        self._groups: list[PlacementGroup] = []
        self._heads: PlacementGroup | None = None
        self._reserved: set[int] = set()
        if bundle_label_selector and len(bundle_label_selector) != self._num_bundles:
            raise ValueError(
                f"bundle_label_selector length ({len(bundle_label_selector)}) must match the number of bundles ({self._num_bundles}). "
                f"There is one for each {self._bundle_resources['TPU']} chips of the {num_slices} slices"
            )
        self._selectors = [dict(selector) for selector in bundle_label_selector or [{}] * self._num_bundles]
        try:
            if self._kind.chips > self._chips_per_host:
                self._reserve(head_reservation_timeout_s)
            self._place(strategy, name, lifetime)
        except BaseException:
            self.shutdown()
            raise

    def _bundles_of(self, index: int) -> slice:
        each = self._num_bundles // self._num_slices
        return slice(index * each, (index + 1) * each)

    def _reserve(self, timeout_s: float | None) -> None:
        """Finds a slice for all that are not named, and has every selector say its name."""
        selectors_of = [self._selectors[self._bundles_of(index)] for index in range(self._num_slices)]
        names = [next((one[_slices.NAME] for one in of if _slices.NAME in one), None) for of in selectors_of]
        self._reserved = {index for index, name in enumerate(names) if name is None}
        if self._reserved:
            self._heads = self._kind.reserve(len(self._reserved), {name for name in names if name is not None})
            if not self._heads.wait(timeout_s):
                raise TimeoutError(
                    f"Failed to reserve TPU head for slice with shape: {self._kind.pod_type} after {timeout_s} seconds. "
                    f"{len(self._reserved)} slices of topology {self._kind.topology} were asked for, and of those in the cluster "
                    f"{get_num_ready_tpu_slices(self._kind.topology, self._kind.version)} have all of their hosts and chips free; "
                    "`oxiray explain` tells what is missing"
                )
            found = iter(_slices.names(self._heads))
            names = [next(found) if name is None else name for name in names]
        for selectors, name in zip(selectors_of, names, strict=True):
            for selector in selectors:
                selector[_slices.NAME] = name

    def _place(self, strategy: str, name: str, lifetime: str | None) -> None:
        whole = [(name, slice(None))]
        by_slice = [(f"{name}_slice_{index}" if name else "", self._bundles_of(index)) for index in range(self._num_slices)]
        for group_name, part in by_slice if self._pg_per_slice else whole:
            selectors = self._selectors[part]
            bundles = [dict(self._bundle_resources) for _ in selectors]
            self._groups.append(
                placement_group(bundles, strategy, group_name, lifetime, bundle_label_selector=selectors)
            )

    @property
    def slice_placement_group(self) -> PlacementGroup | None:
        """The placement group; None after `shutdown`. Raises `ValueError` where each slice has its own."""
        if self._pg_per_slice:
            raise ValueError("pg_per_slice=True, use `slice_placement_groups` instead.")
        return self._groups[0] if self._groups else None

    placement_group = slice_placement_group

    @property
    def slice_placement_groups(self) -> list[PlacementGroup]:
        """The placement groups of the slices; none after `shutdown`. Raises `ValueError` where all slices have one."""
        if not self._pg_per_slice:
            raise ValueError("pg_per_slice=False, use `slice_placement_group` instead.")
        return self._groups

    @property
    def topology(self) -> str:
        """The topology of each slice."""
        return self._kind.topology

    @property
    def accelerator_version(self) -> str:
        """The version of the chips."""
        return self._kind.version

    @property
    def num_slices(self) -> int:
        """How many slices there are."""
        return self._num_slices

    @property
    def num_hosts(self) -> int:
        """How many hosts all slices have."""
        return max(1, self._kind.chips // self._chips_per_host) * self._num_slices

    @property
    def num_bundles(self) -> int:
        """How many bundles all slices have."""
        return self._num_bundles

    @property
    def chips_per_host(self) -> int:
        """How many chips each host has."""
        return self._chips_per_host

    @property
    def devices_per_host(self) -> int:
        """How much of the resource TPU each host has: its chips."""
        return self._chips_per_host

    @property
    def tpu_resource_per_chip(self) -> int:
        """How much of the resource TPU a chip is: 1."""
        return 1

    @property
    def bundle_resources(self) -> dict[str, float]:
        """The resources of each bundle."""
        return self._bundle_resources

    @property
    def bundle_label_selector(self) -> list[dict[str, str]]:
        """The selector of each bundle, with the name of its slice."""
        return self._selectors

    @property
    def head_placement_groups(self) -> list[PlacementGroup]:
        """What holds the slices until their bundles are placed: one group for all of them, or none."""
        return [self._heads] if self._heads is not None else []

    def release_head_pgs(self, slice_index: int | None = None) -> None:
        """Gives up what holds the slices, once their bundles are placed: those hold the chips. It may be called again.

        One group holds all slices, so with a `slice_index` it is removed when each of them was named. Raises `ValueError` for an
        index that no slice has.
        """
        if slice_index is not None and not 0 <= slice_index < self._num_slices:
            raise ValueError(f"Invalid slice_index: {slice_index}. Slices have indexes from 0 to {self._num_slices - 1}")
        self._reserved -= set(self._reserved) if slice_index is None else {slice_index}
        if self._heads is not None and not self._reserved:
            remove_placement_group(self._heads)
            self._heads = None

    def shutdown(self) -> None:
        """Gives the slices up: what runs within them is killed. It may be called again."""
        groups, self._groups = self._groups, []
        for group in groups:
            remove_placement_group(group)
        self.release_head_pgs()


def slice_placement_group(
    topology: str,
    accelerator_version: str,
    resources_per_bundle: dict[str, float] | None = None,
    num_slices: int = 1,
    chips_per_vm: int | None = None,
    pg_per_slice: bool = False,
    tpu_resource_per_chip: int | None = None,
    **kwargs: Any,
) -> SlicePlacementGroup:
    """Reserves whole slices; the arguments, and what is raised, are those of `SlicePlacementGroup`."""
    return SlicePlacementGroup(
        topology,
        accelerator_version,
        resources_per_bundle,
        num_slices=num_slices,
        chips_per_vm=chips_per_vm,
        pg_per_slice=pg_per_slice,
        tpu_resource_per_chip=tpu_resource_per_chip,
        **kwargs,
    )


def run_on_slice(
    fn: Any,
    *args: Any,
    topology: str | None = None,
    accelerator_version: str | None = None,
    tpu_slice: SlicePlacementGroup | None = None,
    slice_index: int | None = None,
    num_slices: int = 1,
    chips_per_vm: int | None = None,
    head_reservation_timeout_s: float | None = DEFAULT_TPU_HEAD_RESERVATION_TIMEOUT_S,
    pg_ready_timeout_s: float | None = None,
    **kwargs: Any,
) -> list[ObjectRef[Any]]:
    """Runs a remote function once in each bundle of `tpu_slice`, or of slices that are reserved for it, with the bundle's chips.

    Returns a reference for each, in the order of the bundles. With `slice_index` it runs on one slice of several that have groups of
    their own. Slices that are reserved here stay so until the program ends.

    Raises `TypeError` for what is no remote function, `ValueError` where there is neither a slice nor a kind of them, or the slice
    was given up, and `TimeoutError` where slices are not free within `head_reservation_timeout_s` seconds, or the group is not
    placed within `pg_ready_timeout_s`; then what was reserved here is given up.
    """
    if not hasattr(fn, "options"):
        raise TypeError(f"fn must be a @ray.remote-decorated function, but got {type(fn).__name__!r} which has no .options() method.")
    of = tpu_slice
    if of is None:
        if slice_index is not None:
            raise ValueError("slice_index can only be used when an existing tpu_slice is provided.")
        if topology is None or accelerator_version is None:
            raise ValueError("topology and accelerator_version are required when tpu_slice is not provided.")
        of = SlicePlacementGroup(
            topology,
            accelerator_version,
            num_slices=num_slices,
            chips_per_vm=chips_per_vm,
            head_reservation_timeout_s=head_reservation_timeout_s,
        )
    try:
        groups = _groups_of(of, slice_index)
        _await(groups, pg_ready_timeout_s)
    except BaseException:
        if tpu_slice is None:
            of.shutdown()
        raise
    if tpu_slice is None:
        of.release_head_pgs()
    resources = {"TPU": of.bundle_resources["TPU"]}
    strategies = [PlacementGroupSchedulingStrategy(group, index) for group in groups for index in range(group.bundle_count)]
    return [
        fn.options(num_cpus=0, resources=resources, scheduling_strategy=strategy).remote(*args, **kwargs) for strategy in strategies
    ]


def _groups_of(of: SlicePlacementGroup, slice_index: int | None) -> list[PlacementGroup]:
    if slice_index is not None and not of._pg_per_slice:
        raise ValueError("slice_index can only be used when tpu_slice was created with pg_per_slice=True.")
    if slice_index is not None and not 0 <= slice_index < of.num_slices:
        raise ValueError(f"Invalid slice_index {slice_index}. Must be between 0 and {of.num_slices - 1}.")
    if not of._groups:
        raise ValueError(
            "The provided tpu_slice has already been shut down. Create a new SlicePlacementGroup or pass tpu_slice=None to reserve one "
            "automatically."
        )
    return of._groups if slice_index is None else [of._groups[slice_index]]


def _await(groups: list[PlacementGroup], timeout_s: float | None) -> None:
    ready, waiting = _api.wait([group.ready() for group in groups], num_returns=len(groups), timeout=timeout_s)
    if waiting:
        raise TimeoutError(
            f"TPU slice placement group was not ready within {timeout_s}s. Ensure your cluster has sufficient TPU resources available; "
            "`oxiray explain` tells what is missing"
        )
    _api.get(ready)


def dispatch(*args: Any, **kwargs: Any) -> list[ObjectRef[Any]]:
    """The same as `run_on_slice`, which it is now called."""
    warnings.warn("'dispatch' is deprecated and has been renamed to 'run_on_slice'", DeprecationWarning, stacklevel=2)
    return run_on_slice(*args, **kwargs)


def init_jax_profiler(port: int | None = None) -> None:
    """Has JAX's profiler listen in this process, at `port`, else at that of JAX_PROFILER_PORT, else at 9999.

    Nothing is raised: where JAX is not installed or the port is taken, the log says so.
    """
    try:
        import jax
    except ImportError:
        logger.warning("JAX is not installed, so its profiler is not started")
        return
    try:
        port = int(os.environ.get("JAX_PROFILER_PORT", _PROFILER_PORT)) if port is None else port
        jax.profiler.start_server(port)
    except Exception as error:
        logger.error("JAX's profiler cannot be started at port %s: %s", port, error)
        return
    logger.info("JAX's profiler listens at port %s", port)


__all__ = [
    "SlicePlacementGroup",
    "dispatch",
    "get_current_pod_name",
    "get_current_pod_worker_count",
    "get_num_ready_tpu_slices",
    "get_num_tpu_chips_on_node",
    "get_num_tpu_slices",
    "get_tpu_coordinator_env_vars",
    "get_tpu_nodes_for_slice",
    "get_tpu_num_slices_for_workers",
    "get_tpu_slice_name_from_node",
    "get_tpu_version_from_type",
    "get_tpu_worker_resources",
    "init_jax_profiler",
    "run_on_slice",
    "slice_placement_group",
]
