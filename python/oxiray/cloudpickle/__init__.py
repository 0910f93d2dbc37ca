"""Cloudpickle under the name that programs written for Ray know it by."""

from __future__ import annotations

from pickle import PicklingError

from cloudpickle import (
    CloudPickler,
    Pickler,
    cloudpickle,
    cloudpickle_fast,
    dump,
    dumps,
    load,
    loads,
    register_pickle_by_value,
    unregister_pickle_by_value,
)
from cloudpickle.cloudpickle import DEFAULT_PROTOCOL

__all__ = [
    "DEFAULT_PROTOCOL",
    "CloudPickler",
    "Pickler",
    "PicklingError",
    "cloudpickle",
    "cloudpickle_fast",
    "dump",
    "dumps",
    "load",
    "loads",
    "register_pickle_by_value",
    "unregister_pickle_by_value",
]
