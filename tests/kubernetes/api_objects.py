"""What the API stand-in knows of objects: their kinds, and how patches and selectors work on them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]


class Refused(Exception):
    """The API's answer to what it does not do."""

    def __init__(self, code: int, reason: str, message: str, name: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        #: The object that it is about, where it is about one.
        self.name = name


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
    Kind("v1", "nodes", "Node", namespaced=False, status=True),
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

#: Lists whose entries go by some of their fields: an applied entry is merged with its namesake.
KEYED_LISTS = {field: ("name",) for field in ("containers", "initContainers", "env", "volumes")}
KEYED_LISTS |= {"ownerReferences": ("uid",), "volumeMounts": ("mountPath",), "conditions": ("type",)}
KEYED_LISTS |= {"ports": ("port", "protocol"), "container ports": ("containerPort", "protocol")}


def keys_of(field: str, entries: Any) -> tuple[str, ...]:
    """The fields that entries of this list go by; none where the list is one value."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return ()
    is_of_container = field == "ports" and any("containerPort" in entry for entry in entries)
    return KEYED_LISTS.get("container ports" if is_of_container else field, ())


def name_in(entry: Object, keys: tuple[str, ...]) -> str:
    return f"[{','.join(str(entry.get(key)) for key in keys)}]"


def refuse_untyped(applied: Any, path: tuple[str, ...] = ()) -> None:
    """What is applied has every key on every entry of its lists, none twice, and texts for quantities.

    Newer servers know defaults of some keys, and that quantities may be numbers; version 1.20 does not.
    """
    if isinstance(applied, dict):
        for field, value in applied.items():
            refuse_untyped(value, (*path, field))
    if not isinstance(applied, str) and len(path) > 1 and path[-2] in ("limits", "requests"):
        text = f"failed to create typed patch object: .{'.'.join(path)}: expected string, got {applied}"
        raise Refused(500, "InternalError", text)
    keys = keys_of(path[-1], applied) if path else ()
    for index, entry in enumerate(applied if keys else []):
        refuse_untyped(entry, (*path, str(index)))
        absent = [key for key in keys if key not in entry]
        names = [name_in(other, keys) for other in applied]
        if absent or names.count(names[index]) > 1:
            why = f'has an element that omits key field "{absent[0]}"' if absent else f"has two of {names[index]}"
            text = f"failed to create typed patch object: .{'.'.join(path)}: element {index}: associative list with keys {why}"
            raise Refused(500, "InternalError", text)


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
    keys = keys_of(path[-1], value) if path else ()
    if keys and all(key in entry for entry in value for key in keys):
        return {
            key: leaf
            for entry in value
            for key, leaf in leaves(entry, (*path, name_in(entry, keys))).items()
        }
    return {path: value}


def apply_patch(target: Any, applied: Any, field: str = "") -> Any:
    """The fields of `applied` over those of `target`."""
    keys = keys_of(field, applied)
    if isinstance(applied, dict):
        merged = dict(target) if isinstance(target, dict) else {}
        for key, value in applied.items():
            merged[key] = apply_patch(merged.get(key), value, key)
        return merged
    if keys and isinstance(target, list):
        merged_list = [dict(entry) for entry in target]
        for entry in applied:
            name = name_in(entry, keys)
            at = next((i for i, known in enumerate(merged_list) if name_in(known, keys) == name), None)
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
