"""Resources that are reserved together: placement groups.

Purpose: make, await, list and remove groups, and check what they ask for.

Invariant: whatever is refused names the bundle and the rule.
"""

from __future__ import annotations

import warnings
from typing import Any

from oxiray import _core, _gpu_memory, _labels, _option_rules, _session
from oxiray._core import NodeID, ObjectRef, PlacementGroupID
from oxiray._init_options import QUANTITY_MAX

VALID_PLACEMENT_GROUP_STRATEGIES = {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
NODE_ID_LABEL_KEY = "ray.io/node-id"
#: The finest share the ledger keeps.
_FINEST = 0.0001


class PlacementGroup:
    """A group, as everybody who runs in it, awaits it or removes it sees it."""

    @staticmethod
    def empty() -> PlacementGroup:
        """The group that stands for none."""
        return PlacementGroup(PlacementGroupID.nil())

    def __init__(self, id: PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None) -> None:
        self._id = id
        #: Whether it was made here and nobody was told its identifier: then what the daemon said of it still holds.
        self._is_fresh = False
        self.bundle_cache = bundle_cache

    @property
    def id(self) -> PlacementGroupID:
        """Its identifier, by which others may find it."""
        if self._is_fresh:
            self._is_fresh = False
            _core.share_placement_group(self._id)
        return self._id

    @property
    def is_empty(self) -> bool:
        """Whether it stands for no group."""
        return self._id.is_nil()

    def ready(self) -> ObjectRef[PlacementGroup]:
        """A reference that gets this group as its value once all bundles are reserved.

        Where the group is removed before, `get` raises `TaskPlacementGroupRemoved`.
        """
        _session.ensure()
        if self.is_empty:
            return _core.put(self)
        # A copy, as others may see the value only when the group is created.
        return _core.placement_group_ready(self._id, PlacementGroup(self._id, self.bundle_cache))

    def wait(self, timeout_seconds: float | None = 30) -> bool:
        """Waits until all bundles are reserved; False where that does not happen in time. None waits as long as it takes.

        Raises `TaskPlacementGroupRemoved` where the group is removed.
        """
        _session.ensure()
        if self.is_empty or (self._is_fresh and _core.placement_group_created(self._id)):
            return True
        reference = _core.placement_group_ready(self._id, None)
        if not _core.wait_some([reference], 1, timeout_seconds)[0]:
            return False
        _core.get_one(reference)
        return True

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle."""
        if self.bundle_cache is None:
            found = [] if self.is_empty else _core.placement_groups(self._id)
            if not found:
                return []
            self.bundle_cache = [bundle["resources"] for bundle in found[0]["bundles"]]
        return self.bundle_cache

    @property
    def bundle_count(self) -> int:
        """How many bundles it has."""
        return len(self.bundle_specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __reduce__(self) -> tuple[Any, ...]:
        return PlacementGroup, (self.id, self.bundle_cache)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
    *,
    priority: int | None = None,
    preemptible: bool = False,
) -> PlacementGroup:
    """Asks for bundles of resources, all or none. Returns at once; `ready()` and `wait()` tell when they are reserved.

    `strategy` is PACK (few machines), SPREAD (many), STRICT_PACK (one) or STRICT_SPREAD (each its own).
    `topology_strategy`, in its place, is `{label: "STRICT_PACK"}`: all machines of the group have that label with one value, such
    as "ray.io/gpu-domain" for GPUs that NVLink connects across machines; `{"ray.io/node-id": strategy}` beside it says how the
    bundles are spread over machines, "PACK" by default. The group ends with its job unless `lifetime` is "detached". `gpu_memory` in a bundle is bytes of one GPU. `priority` says how urgent it
    is, from -1000 to 1000: the higher one goes first; by default as what makes it. With `preemptible` all of it is given back
    early where something of a higher priority needs that, in a cluster with `--preemption=on`: what runs within it ends, and the
    group waits for room again. All three are Oxiray's own. Raises `ValueError` for what no group may ask for, and `TypeError` for
    a `preemptible` that is no bool.
    """
    from oxiray import _strategies

    _option_rules.check_priority("priority", priority)
    if not isinstance(preemptible, bool):
        raise TypeError(f"preemptible says whether the group may be given back early: it is True or False, and not {preemptible!r}")

    validate_placement_group(bundles, strategy, lifetime, _soft_target_node_id, bundle_label_selector, topology_strategy)
    over_nodes, domain = _levels(strategy, topology_strategy)
    if not isinstance(name, str):
        raise TypeError(f"a placement group's name is a string, but {name!r} was given")
    _session.ensure()
    amounts = [_gpu_memory.in_bytes(bundle) for bundle in bundles]
    group_id = _core.create_placement_group(
        name=name,
        strategy=over_nodes,
        bundles=[_gpu_memory.inward(bundle) for bundle in amounts],
        selectors=[_strategies.selector(selector) for selector in bundle_label_selector or []],
        detached=lifetime == "detached",
        preferred=NodeID.from_hex(_soft_target_node_id) if _soft_target_node_id else None,
        urgency=(priority, preemptible),
        domain=domain,
    )
    group = PlacementGroup(group_id, amounts)
    group._is_fresh = True
    return group


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives a group up. Tasks and actors within it are killed; nothing happens where it is gone already."""
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(f"remove_placement_group() takes a PlacementGroup, and was given {placement_group!r}")
    _session.ensure()
    _core.remove_placement_group(placement_group._id)


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group of this name in this program's namespace. Raises `ValueError` where there is none."""
    if not placement_group_name:
        raise ValueError("Please supply a non-empty value to get_placement_group")
    _session.ensure()
    found = _core.placement_groups(name=placement_group_name)
    if not found:
        raise ValueError(
            f"Failed to look up placement group with name: {placement_group_name}. There is none of it in this namespace: check "
            "the name, and that the group was not removed and its job is still there"
        )
    return PlacementGroup(PlacementGroupID.from_hex(found[0]["placement_group_id"]))


#: The least time that making a group is said to have taken, in milliseconds.
_TURN_MS = 0.001


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """What there is to know of one group, or of all by their id; `{}` for one that is forgotten or never was.

    Beside what Ray's table has, `bundles_to_devices` names the devices of each bundle by their numbers on its node.
    """
    _session.ensure()
    found = _core.placement_groups(placement_group.id if placement_group is not None else None)
    rows = {group["placement_group_id"]: _row(group) for group in found}
    if placement_group is None:
        return rows
    return rows.get(placement_group.id.hex(), {})


def _row(group: dict[str, Any]) -> dict[str, Any]:
    # A group that was made within one turn of the head took less than its clock tells.
    latency = max(group["creation_ms"], _TURN_MS) if group["state"] == "CREATED" else 0.0
    return {
        "placement_group_id": group["placement_group_id"],
        "name": group["name"],
        "bundles": {index: bundle["resources"] for index, bundle in enumerate(group["bundles"])},
        "bundles_to_node_id": {index: bundle["node_id"] for index, bundle in enumerate(group["bundles"])},
        "bundles_to_devices": {index: bundle["devices"] for index, bundle in enumerate(group["bundles"])},
        "strategy": group["strategy"],
        "state": group["state"],
        "stats": {
            "end_to_end_creation_latency_ms": latency,
            "scheduling_latency_ms": latency,
            "scheduling_attempt": 1,
            "highest_retry_delay_ms": 0.0,
            "scheduling_state": group["scheduling_state"],
            "reason": group["reason"],
        },
    }


def get_current_placement_group() -> PlacementGroup | None:
    """The group that this task or actor runs in; None outside of any."""
    _session.ensure()
    group = _core.context()["placement_group"]
    return PlacementGroup(PlacementGroupID.from_hex(group)) if group is not None else None


def check_placement_group_index(placement_group: PlacementGroup, bundle_index: int) -> None:
    """Raises `ValueError` where the group has no such bundle; -1 stands for any."""
    if placement_group.is_empty:
        if bundle_index != -1:
            raise ValueError(
                "If placement group is not set, the value of bundle index must be -1. placement_group_bundle_index is "
                f"{bundle_index}: leave it out, or give a placement group"
            )
    elif not -1 <= bundle_index < placement_group.bundle_count:
        raise ValueError(
            f"placement group bundle index {bundle_index} is invalid. Valid placement group indexes: "
            f"0-{placement_group.bundle_count}, the last one not included, and -1, which stands for any of them"
        )


def validate_placement_group(
    bundles: Any,
    strategy: str | None = None,
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: Any = None,
    topology_strategy: Any = None,
) -> bool:
    """Raises `ValueError` for what no group may ask for."""
    if topology_strategy is not None and strategy is not None:
        raise ValueError(
            "`strategy` and `topology_strategy` cannot both be specified. How bundles are spread over machines is "
            f"`topology_strategy['{_NODE_ID}']` there"
        )
    if strategy is not None and strategy not in VALID_PLACEMENT_GROUP_STRATEGIES:
        raise ValueError(
            f"Invalid placement group strategy {strategy}. Supported strategies are: {sorted(VALID_PLACEMENT_GROUP_STRATEGIES)}"
        )
    if lifetime not in (None, "detached"):
        raise ValueError(
            f"Placement group `lifetime` argument must be either `None` or 'detached'. Got {lifetime}. With None it ends with its job"
        )
    if topology_strategy is not None:
        _check_topology(topology_strategy)
    _check_target(_soft_target_node_id, _levels(strategy, topology_strategy)[0])
    if not isinstance(bundles, list):
        raise ValueError(f'Placement group bundles must be a list, got {type(bundles)}. Write [{{"CPU": 1}}, {{"GPU": 1}}]')
    if not bundles:
        raise ValueError('Bundles must be a non-empty list of resource dictionaries. Write [{"CPU": 1}]; an empty list was given')
    for index, bundle in enumerate(bundles):
        _check_bundle(index, bundle)
    if bundle_label_selector is not None:
        _check_selectors(bundle_label_selector, len(bundles))
    return True


#: The label that stands for the machine itself.
_NODE_ID = "ray.io/node-id"


def _levels(strategy: str | None, topology_strategy: dict[str, str] | None) -> tuple[str, str]:
    """How bundles are spread over machines, and the label of which all these have one value; empty for none."""
    if topology_strategy is None:
        return strategy or "PACK", ""
    return topology_strategy.get(_NODE_ID, "PACK"), next((key for key in topology_strategy if key != _NODE_ID), "")


def _check_topology(given: Any) -> None:
    if not isinstance(given, dict):
        raise ValueError(f'`topology_strategy` must be a dict, got {type(given).__name__}. Write {{"ray.io/gpu-domain": "STRICT_PACK"}}')
    for key, value in given.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"`topology_strategy` keys must be non-empty strings, got {key!r}. They are names of labels")
        if value not in VALID_PLACEMENT_GROUP_STRATEGIES:
            raise ValueError(
                f"Invalid topology strategy {value!r} for label {key!r}. Supported strategies are: "
                f"{sorted(VALID_PLACEMENT_GROUP_STRATEGIES)}"
            )
        if key != _NODE_ID and value != "STRICT_PACK":
            raise ValueError(
                f"Topology strategy {value!r} for label {key!r} is not supported yet; only 'STRICT_PACK' is, except for {_NODE_ID!r}"
            )
    labels = [key for key in given if key != _NODE_ID]
    if len(labels) > 1:
        raise ValueError(
            f"`topology_strategy` currently supports at most one topology label other than `{_NODE_ID}`. Got {labels}: name the one "
            "of which all machines are to have the same value"
        )


def _check_target(node_id: str | None, strategy: str | None) -> None:
    if not node_id:
        return
    if strategy != "STRICT_PACK":
        raise ValueError(
            f"_soft_target_node_id prefers one machine for all bundles, so it needs strategy='STRICT_PACK', not {strategy!r}"
        )
    try:
        is_nil = NodeID.from_hex(node_id).is_nil()
    except ValueError as error:
        raise ValueError(f"Invalid _soft_target_node_id: {error}") from error
    if is_nil:
        raise ValueError(f"Invalid _soft_target_node_id {node_id!r}: this is the id of no machine")


def _check_bundle(index: int, bundle: Any) -> None:
    where = f"bundle {index} of the placement group"
    if not isinstance(bundle, dict):
        raise ValueError(
            f'Bundles must be a non-empty list of resource dictionaries. Write [{{"CPU": 1}}]; {where} is a {type(bundle)}'
        )
    if bundle.get("GPU") and bundle.get(_gpu_memory.OPTION):
        raise ValueError(f"{where} asks for GPU and gpu_memory together: ask for a number of GPUs, or for memory of one")
    for resource, amount in bundle.items():
        if resource == _gpu_memory.OPTION:
            _gpu_memory.check(f"gpu_memory of {where}", amount)
            continue
        if not isinstance(resource, str) or not isinstance(amount, (int, float)):
            raise ValueError(f"{where} must map names of resources to numbers, but has {resource!r}: {amount!r}")
        _check_amount(where, resource, amount)
    if not any(bundle.values()):
        raise ValueError(
            f"Bundles cannot be an empty dictionary or resources with only 0 values. {where} is {bundle!r}: give it a resource "
            "above zero, or leave it out"
        )
    if "object_store_memory" in bundle:
        warnings.warn(
            "'object_store_memory' in a bundle is deprecated, as it reserves nothing of the store: leave it out",
            DeprecationWarning,
            stacklevel=5,
        )


def _check_amount(where: str, resource: str, amount: float) -> None:
    if resource == "bundle" or "_group_" in resource:
        raise ValueError(f"{where} asks for {resource!r}, a name that is reserved for placement groups: use another name")
    if amount < 0:
        raise ValueError(f"{where} asks for {amount} {resource}: an amount cannot be negative")
    if not amount <= QUANTITY_MAX:
        raise ValueError(f"{where} asks for {amount} {resource}: an amount is a finite number of at most {QUANTITY_MAX:.0e}")
    if 0 < amount < _FINEST:
        raise ValueError(f"{where} asks for {amount} {resource}, finer than {_FINEST}, the smallest amount there is")
    try:
        _option_rules.check_device_quantity(resource, amount, in_bundle=True)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _check_selectors(selectors: Any, count: int) -> None:
    if not isinstance(selectors, list):
        raise ValueError(
            f"Placement group bundle_label_selector must be a list, got {type(selectors)}. It has one dictionary for each bundle"
        )
    if len(selectors) != count:
        raise ValueError(
            f"Invalid bundle label selector {selectors}. The length of `bundle_label_selector` should equal the length of "
            f"`bundles`. They are {len(selectors)} and {count}"
        )
    for index, selector in enumerate(selectors):
        if not isinstance(selector, dict):
            raise ValueError(f"the label selector of bundle {index} must be a dictionary, but is {selector!r}")
        try:
            _labels.check_selector(f"bundle_label_selector[{index}]", selector)
        except TypeError as error:
            raise ValueError(str(error)) from error


def _valid_resource_shape(resources: dict[str, float], bundle_specs: list[dict[str, float]]) -> bool:
    """Whether one of the bundles has enough of everything that is asked for."""
    return any(all(bundle.get(name, 0) >= amount for name, amount in resources.items()) for bundle in bundle_specs)


__all__ = [
    "NODE_ID_LABEL_KEY",
    "VALID_PLACEMENT_GROUP_STRATEGIES",
    "PlacementGroup",
    "check_placement_group_index",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
    "validate_placement_group",
]
