"""Which names of actors are taken."""

from __future__ import annotations

from typing import Any

from oxiray import _core, _session


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """The names of the living actors of this job's namespace; with `all_namespaces`, dictionaries of both names."""
    _session.ensure()
    actors = _core.cluster()["actors"]
    living = [actor for actor in actors if actor["state"] != "dead" and actor["name"]]
    if all_namespaces:
        return [{"name": actor["name"], "namespace": actor["namespace"]} for actor in living]
    here = _core.context()["namespace"]
    return [actor["name"] for actor in living if actor["namespace"] == here]
