"""Tools on top of the core: names of device types, scheduling strategies, annotations, pools, and queues."""

from oxiray.util import accelerators, annotations, debug, scheduling_strategies
from oxiray.util._explain import explain
from oxiray.util._named_actors import list_named_actors
from oxiray.util._node import get_node_instance_id, get_node_ip_address
from oxiray.util.actor_pool import ActorPool
from oxiray.util.annotations import DeveloperAPI, PublicAPI
from oxiray.util.check_serialize import inspect_serializability
from oxiray.util.client_connect import connect, disconnect
from oxiray.util.debug import disable_log_once_globally, enable_periodic_logging, log_once
from oxiray.util.helpers import as_completed, map_unordered
from oxiray.util.placement_group import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from oxiray.util.serialization import deregister_serializer, register_serializer

__all__ = [
    "ActorPool",
    "DeveloperAPI",
    "PublicAPI",
    "accelerators",
    "annotations",
    "as_completed",
    "connect",
    "debug",
    "deregister_serializer",
    "disable_log_once_globally",
    "disconnect",
    "enable_periodic_logging",
    "explain",
    "get_current_placement_group",
    "get_node_instance_id",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "log_once",
    "map_unordered",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
    "scheduling_strategies",
]
