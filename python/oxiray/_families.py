"""The families of accelerators, as the table in `crates/families` has them: nothing else in Python names them.

Every name here is derived from that table, so a family that is added there needs no line of Python.
"""

from __future__ import annotations

import json
import re
from typing import Any

from oxiray import _core

_TABLE: list[dict[str, Any]] = json.loads(_core.families())

#: Resources whose units are devices, in the order of the families.
DEVICES: tuple[str, ...] = tuple(dict.fromkeys(family["resource"] for family in _TABLE))
#: Those of which one device may be shared.
SHAREABLE: tuple[str, ...] = tuple(dict.fromkeys(family["resource"] for family in _TABLE if family["is_shared"]))
#: The options of tasks and actors that ask for devices -> the resource.
OPTIONS: dict[str, str] = {family["option"]: family["resource"] for family in _TABLE if family["option"]}
#: A resource -> what PyTorch calls its devices, where it knows them.
TORCH: dict[str, str] = {family["resource"]: family["torch"] for family in _TABLE if family["torch"]}
#: The variables that list a process its devices and may list those of a whole group on its machine.
JOINED: tuple[str, ...] = tuple(name for family in _TABLE for name in family["joined"])
#: How the path of a device node begins.
NODE = re.compile("|".join(sorted({re.escape(node) for family in _TABLE for node in family["nodes"]})))
