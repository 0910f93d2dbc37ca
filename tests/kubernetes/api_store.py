"""The API stand-in's objects: what becomes of each request, without a socket.

It does what the operator, its tests and the process kubelet use, and refuses everything else: a request that a real server
would understand and this one does not is an error of the test, never a success.
"""

from __future__ import annotations

import base64
import collections
import copy
import datetime
import threading
import uuid
from typing import Any

from api_objects import (
    KINDS,
    Kind,
    Object,
    Refused,
    apply_patch,
    json_patch,
    leaves,
    merge_patch,
    refuse_untyped,
    remove_leaf,
    selector,
)

#: How many changes can be watched from; older ones are gone.
HISTORY = 5000
#: What of a running pod may still be changed.
POD_SPEC_MUTABLE = {"tolerations", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "schedulingGates"}


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """All objects, their changes, and who owns which field."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.revision = 1
        #: The oldest revision that can still be watched from.
        self.oldest = 1
        self.objects: dict[str, dict[tuple[str, str], Object]] = {kind.plural: {} for kind in KINDS}
        self.history: collections.deque[tuple[int, str, str, Object | None, Object]] = collections.deque()
        self.owned: dict[str, dict[str, set[tuple[str, ...]]]] = {}
        #: Pods of a namespace that may be made yet; nothing where there is no quota.
        self.pod_quota: int | None = None

    # Requests. All are called with `changed` held.

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        found = self.objects[kind.plural].get((namespace, name))
        if found is None:
            raise Refused(404, "NotFound", f'{kind.plural} "{name}" not found', name)
        return found

    def list(self, kind: Kind, namespace: str, labels: str) -> list[Object]:
        matches = selector(labels)
        every = self.objects[kind.plural].items()
        return [found for (within, _), found in sorted(every) if namespace in ("", within) and matches(found)]

    def create(self, kind: Kind, namespace: str, given: Object, manager: str) -> Object:
        made = copy.deepcopy(given)
        metadata = made.setdefault("metadata", {})
        if "generateName" in metadata and "name" not in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        name = metadata.get("name") or ""
        if not name or made.get("kind") != kind.kind or made.get("apiVersion") != kind.version:
            raise Refused(400, "BadRequest", f"the object is no {kind.version} {kind.kind} with a name")
        if metadata.get("namespace", namespace) != namespace:
            raise Refused(400, "BadRequest", "the namespace of the object is not that of the request")
        if (namespace, name) in self.objects[kind.plural]:
            raise Refused(409, "AlreadyExists", f'{kind.plural} "{name}" already exists')
        self._admit(kind, made)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        if kind.namespaced:
            metadata["namespace"] = namespace
        if kind.status:
            made.pop("status", None)
        if kind.kind == "Pod":
            made["status"] = {"phase": "Pending"}
        if kind.kind == "Secret":
            texts = made.pop("stringData", {})
            made.setdefault("data", {}).update({key: base64.b64encode(text.encode()).decode() for key, text in texts.items()})
        self._own(made, manager, set(leaves(given)))
        self._put(kind, None, made)
        return made

    def replace(self, kind: Kind, namespace: str, name: str, given: Object, part: str, manager: str) -> Object:
        before = self.get(kind, namespace, name)
        asked = (given.get("metadata") or {}).get("resourceVersion")
        if asked and asked != before["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f'the object "{name}" has been modified; apply your changes to the latest')
        after = copy.deepcopy(given)
        metadata = dict(before["metadata"])
        for field in ("labels", "annotations", "finalizers", "ownerReferences"):
            if part == "":
                metadata.pop(field, None)
                if field in (after.get("metadata") or {}):
                    metadata[field] = after["metadata"][field]
        after["metadata"] = metadata
        return self._change(kind, before, after, part, manager)

    def patch(self, kind: Kind, namespace: str, name: str, form: str, given: Any, part: str, options: Object) -> Object:
        manager, force = options.get("fieldManager", "unknown"), options.get("force") == "true"
        if form == "application/apply-patch+yaml":
            return self._apply(kind, namespace, name, given, part, manager, force)
        before = self.get(kind, namespace, name)
        if form == "application/merge-patch+json":
            after = merge_patch(before, given)
        elif form == "application/json-patch+json":
            after = json_patch(before, given)
        else:
            raise Refused(415, "UnsupportedMediaType", f"patches of type {form} are not implemented here")
        if after["metadata"].get("uid") != before["metadata"]["uid"]:
            raise Refused(409, "Conflict", "the UID in the precondition is not that of the object")
        asked = after["metadata"].get("resourceVersion")
        if asked != before["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f'the object "{name}" has been modified; apply your changes to the latest')
        return self._change(kind, before, after, part, manager)

    def delete(self, kind: Kind, namespace: str, name: str, options: Object) -> Object:
        found = self.get(kind, namespace, name)
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != found["metadata"]["uid"]:
            raise Refused(409, "Conflict", "the UID in the precondition is not that of the object")
        grace = options.get("gracePeriodSeconds")
        spec = found.get("spec") or {}
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds", 30) if kind.kind == "Pod" else 0
        is_over = (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        # A pod with a machine is its kubelet's to end.
        waits = kind.kind == "Pod" and grace > 0 and "nodeName" in spec and not is_over
        if waits or found["metadata"].get("finalizers"):
            if "deletionTimestamp" not in found["metadata"]:
                after = copy.deepcopy(found)
                after["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": grace}
                self._put(kind, found, after)
                return after
            return found
        self._remove(kind, found)
        return found

    def bind(self, namespace: str, name: str, machine: str) -> None:
        pods = next(kind for kind in KINDS if kind.kind == "Pod")
        before = self.get(pods, namespace, name)
        if "nodeName" in before["spec"]:
            raise Refused(409, "Conflict", f"pod {name} is already assigned to node {before['spec']['nodeName']}")
        after = copy.deepcopy(before)
        after["spec"]["nodeName"] = machine
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
        after["status"]["conditions"] = [condition]
        self._put(pods, before, after)

    # What they have in common.

    def _admit(self, kind: Kind, made: Object) -> None:
        owners = made["metadata"].get("ownerReferences") or []
        if sum(bool(owner.get("controller")) for owner in owners) > 1:
            raise Refused(422, "Invalid", "only one reference can have Controller set to true")
        if kind.kind == "Pod":
            containers = made.get("spec", {}).get("containers") or []
            if not containers or not all(one.get("name") and one.get("image") for one in containers):
                raise Refused(422, "Invalid", "spec.containers: a name and an image are required of each")
            if self.pod_quota is not None and len(self.objects["pods"]) >= self.pod_quota:
                raise Refused(403, "Forbidden", f"exceeded quota: pods, used: {self.pod_quota}, limited: {self.pod_quota}")
        if len(made["metadata"]["name"]) > 253:
            raise Refused(422, "Invalid", "metadata.name: must be no more than 253 characters")

    def _apply(
        self, kind: Kind, namespace: str, name: str, given: Object, part: str, manager: str, force: bool
    ) -> Object:
        if kind.group != "ray.io":  # its lists have no keys
            refuse_untyped(given)
        fields = set(leaves(given)) - {("metadata", "name"), ("metadata", "namespace"), ("apiVersion",), ("kind",)}
        if (namespace, name) not in self.objects[kind.plural]:
            if part:
                raise Refused(404, "NotFound", f'{kind.plural} "{name}" not found', name)
            return self.create(kind, namespace, given, manager)
        before = self.get(kind, namespace, name)
        owned, values = self.owned[before["metadata"]["uid"]], leaves(given)
        known = leaves(before)
        for other, theirs in owned.items():
            clash = sorted(path for path in fields & theirs if other != manager and known.get(path) != values[path])
            if clash and not force:
                raise Refused(409, "Conflict", f'conflict with "{other}": .{".".join(clash[0])}')
            theirs -= set(clash)
        after = copy.deepcopy(before)
        for path in owned.get(manager, set()) - fields:
            if not any(path in theirs for other, theirs in owned.items() if other != manager):
                remove_leaf(after, path)
        owned[manager] = fields
        return self._change(kind, before, apply_patch(after, given), part, None)

    def _own(self, found: Object, manager: str, fields: set[tuple[str, ...]]) -> None:
        owned = self.owned.setdefault(found["metadata"]["uid"], {})
        for theirs in owned.values():
            theirs -= fields
        owned.setdefault(manager, set()).update(fields)

    def _change(self, kind: Kind, before: Object, after: Object, part: str, manager: str | None) -> Object:
        """What is left of a change when each part of the object is kept to its own door."""
        if part == "status":
            after = {**before, "status": after.get("status")}
        elif part:
            raise Refused(404, "NotFound", f"there is no part {part} here")
        elif kind.status:
            kept = {"status": before["status"]} if "status" in before else {}
            after = {**{key: value for key, value in after.items() if key != "status"}, **kept}
        for field in ("uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp"):
            after["metadata"] = dict(after["metadata"])
            after["metadata"].pop(field, None)
            if field in before["metadata"]:
                after["metadata"][field] = before["metadata"][field]
        if after == before:
            return before
        if kind.kind == "Pod" and part == "":
            frozen = [{k: v for k, v in one["spec"].items() if k not in POD_SPEC_MUTABLE} for one in (before, after)]
            frozen[1].setdefault("nodeName", frozen[0].get("nodeName"))
            frozen[0].setdefault("nodeName", None)
            if frozen[0] != frozen[1]:
                raise Refused(422, "Invalid", "spec: Forbidden: pod updates may not change fields other than a few")
        if part == "" and after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] = before["metadata"]["generation"] + 1
        if manager is not None:
            old = leaves(before)
            self._own(after, manager, {path for path, value in leaves(after).items() if old.get(path) != value})
        if "deletionTimestamp" in after["metadata"] and not after["metadata"].get("finalizers") and kind.kind != "Pod":
            self._remove(kind, after)
            return after
        self._put(kind, before, after)
        return after

    def _put(self, kind: Kind, before: Object | None, after: Object) -> None:
        self.revision += 1
        after["metadata"]["resourceVersion"] = str(self.revision)
        key = (after["metadata"].get("namespace", ""), after["metadata"]["name"])
        self.objects[kind.plural][key] = after
        self._tell(kind, "ADDED" if before is None else "MODIFIED", before, after)

    def _remove(self, kind: Kind, found: Object) -> None:
        key = (found["metadata"].get("namespace", ""), found["metadata"]["name"])
        if self.objects[kind.plural].pop(key, None) is None:
            return
        gone = copy.deepcopy(found)
        self.revision += 1
        gone["metadata"]["resourceVersion"] = str(self.revision)
        self._tell(kind, "DELETED", found, gone)
        uid = found["metadata"]["uid"]
        self.owned.pop(uid, None)
        for other in KINDS:
            for dependent in list(self.objects[other.plural].values()):
                owners = dependent["metadata"].get("ownerReferences") or []
                if owners and all(owner["uid"] == uid for owner in owners):
                    metadata = dependent["metadata"]
                    self.delete(other, metadata.get("namespace", ""), metadata["name"], {})

    def _tell(self, kind: Kind, what: str, before: Object | None, after: Object) -> None:
        self.history.append((self.revision, kind.plural, what, before, after))
        while len(self.history) > HISTORY:
            self.oldest = self.history.popleft()[0]
        self.changed.notify_all()

    def forget_history(self) -> None:
        """Nobody can go on from what they have seen: who watches is told `410 Gone`."""
        self.history.clear()
        self.oldest = self.revision
