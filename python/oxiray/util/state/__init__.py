"""What the cluster runs and ran: lists, single things, and counts."""

from oxiray import _missing
from oxiray.util.state.api import (
    get_actor,
    get_job,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    get_worker,
    list_actors,
    list_jobs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_runtime_envs,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_tasks,
)

__all__ = [
    "get_actor",
    "get_job",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_jobs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_runtime_envs",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_tasks",
]

__getattr__ = _missing.attributes(__name__)
