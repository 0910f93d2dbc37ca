"""The names of Ray's native module that libraries import: identifiers."""

from __future__ import annotations

from oxiray import _missing
from oxiray._core import ActorID, JobID, NodeID, ObjectRef, PlacementGroupID, TaskID, WorkerID

ObjectID = ObjectRef

__all__ = ["ActorID", "JobID", "NodeID", "ObjectID", "ObjectRef", "PlacementGroupID", "TaskID", "WorkerID"]

__getattr__ = _missing.attributes(__name__)
