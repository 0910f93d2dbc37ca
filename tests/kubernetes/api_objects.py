"""What the API stand-in knows of objects: their kinds, and how patches and selectors work on them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]


class Refused(Exception):
    """The API's answer to what it does not do."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


class Kind:
    """A kind of objects: where it is, and what is special about it."""

    def __init__(self, version: str, plural: str, kind: str, *, namespaced: bool = True, status: bool = False) -> None:
        self.version, self.plural, self.kind = version, plural, kind
        self.namespaced, self.status = namespaced, status

    @property
    def group(self) -> str:
        return self.version.rpartition("/")[0]


#: All there is: what is not here is not found, as on a server without it.
KINDS = [
    Kind("v1", "pods", "Pod", status=True),
    Kind("v1", "services", "Service", status=True),
    Kind("v1", "secrets", "Secret"),
    Kind("v1", "persistentvolumeclaims", "PersistentVolumeClaim", status=True),
    Kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", status=True),
    Kind("coordination.k8s.io/v1", "leases", "Lease"),
    Kind("events.k8s.io/v1", "events", "Event"),
    Kind("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Kind("resource.k8s.io/v1", "deviceclasses", "DeviceClass", namespaced=False),
    Kind("scheduling.k8s.io/v1alpha2", "podgroups", "PodGroup", status=True),
    Kind("ray.io/v1", "rayclusters", "RayCluster", status=True),
    Kind("ray.io/v1", "rayjobs", "RayJob", status=True),
    Kind("ray.io/v1", "rayservices", "RayService", status=True),
]

#: Lists whose entries have a name, by the field that they are in: an applied entry is merged with its namesake.
NAMED_LISTS = {"ownerReferences": "uid", "containers": "name", "initContainers": "name", "env": "name"}
NAMED_LISTS |= {"volumes": "name", "volumeMounts": "mountPath", "conditions": "type", "ports": "port"}


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Object, operations: list[Object]) -> Object:
    """RFC 6902: test, add, replace and remove."""
    result = copy.deepcopy(target)
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place: Any = result
        try:
            for part in parents:
                place = place[int(part)] if isinstance(place, list) else place[part]
            key: Any = (len(place) if last == "-" else int(last)) if isinstance(place, list) else last
            match operation["op"]:
                case "test" if place[key] != operation["value"]:
                    raise Refused(422, "Invalid", f"the test of {operation['path']} failed")
                case "test":
                    pass
                case "add" if isinstance(place, list):
                    place.insert(key, operation["value"])
                case "add":
                    place[key] = operation["value"]
                case "replace":
                    place[key]  # what is not there cannot be replaced
                    place[key] = operation["value"]
                case "remove":
                    del place[key]
                case other:
                    raise Refused(501, "NotImplemented", f"JSON patch operation {other} is not implemented here")
        except (KeyError, IndexError) as error:
            raise Refused(422, "Invalid", f"{operation['path']} is not there") from error
    return result


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every field with a value of its own, by its path. Entries of named lists go by their names."""
    if isinstance(value, dict) and value:
        return {key: leaf for name, inner in value.items() for key, leaf in leaves(inner, (*path, name)).items()}
    name = NAMED_LISTS.get(path[-1]) if path else None
    if isinstance(value, list) and name and all(isinstance(entry, dict) and name in entry for entry in value):
        return {
            key: leaf
            for entry in value
            for key, leaf in leaves(entry, (*path, f"[{entry[name]}]")).items()
        }
    return {path: value}


def apply_patch(target: Any, applied: Any, field: str = "") -> Any:
    """The fields of `applied` over those of `target`."""
    name = NAMED_LISTS.get(field)
    if isinstance(applied, dict):
        merged = dict(target) if isinstance(target, dict) else {}
        for key, value in applied.items():
            merged[key] = apply_patch(merged.get(key), value, key)
        return merged
    if isinstance(applied, list) and name and isinstance(target, list):
        merged_list = [dict(entry) for entry in target]
        for entry in applied:
            at = next((i for i, known in enumerate(merged_list) if known.get(name) == entry.get(name)), None)
            if at is None:
                merged_list.append(copy.deepcopy(entry))
            else:
                merged_list[at] = apply_patch(merged_list[at], entry)
        return merged_list
    return copy.deepcopy(applied)


def remove_leaf(target: Any, path: tuple[str, ...]) -> None:
    """Takes away a field, where it is still there. Entries of lists stay."""
    place = target
    for part in path[:-1]:
        if isinstance(place, dict):
            place = place.get(part)
        if part.startswith("[") or not isinstance(place, (dict, list)):
            return
    if isinstance(place, dict):
        place.pop(path[-1], None)


def selector(text: str) -> Callable[[Object], bool]:
    """A label selector: `a=b`, `a!=b`, `a`, `!a`, with commas between."""
    terms = []
    for term in filter(None, text.split(",")):
        if match := re.fullmatch(r"(!?)([\w./-]+)(?:(==|=|!=)([\w./-]*))?", term.strip()):
            terms.append(match.groups())
        else:
            raise Refused(400, "BadRequest", f"selector `{term}` is not implemented here")

    def matches(labels: dict[str, str]) -> bool:
        for absent, key, operator, value in terms:
            if operator is None and (key in labels) == bool(absent):
                return False
            if operator in ("=", "==") and labels.get(key) != value:
                return False
            if operator == "!=" and labels.get(key) == value:
                return False
        return True

    return lambda found: matches(found["metadata"].get("labels") or {})
