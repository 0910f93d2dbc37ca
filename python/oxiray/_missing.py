"""Names that Ray has and Oxiray has not: raising errors that say so and what to do instead.

Invariants:
1. Nothing here answers for a name that exists: a module's own names and submodules come first.
2. The kind of error is the one Python raises for a missing name: `AttributeError` where an attribute is looked
   up, `ImportError` in `from x import y`, `ModuleNotFoundError` in `import x.y`; asking (`hasattr`,
   `importlib.util.find_spec`) answers no.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import opcode
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

#: Modules of which programs use all that `vars` has.
_OF_CONSTANTS = ("oxiray.util.accelerators.accelerators",)
#: Names that are looked for in another module only when somebody asks for them: the module, and the name there.
_ELSEWHERE = {
    "oxiray.ClientBuilder": ("oxiray.client_builder", "ClientBuilder"),
    "oxiray.Language": ("oxiray._raylet", "Language"),
    "oxiray.client": ("oxiray.client_builder", "client"),
    "oxiray.log": ("oxiray._private", "log"),
    "oxiray.ray_constants": ("oxiray._private", "ray_constants"),
    "oxiray.serialization": ("oxiray._private", "serialization"),
    "oxiray.state": ("oxiray._private", "state"),
    "oxiray.worker": ("oxiray._private", "worker"),
}
#: Those of device objects.
_OF_RDT = """
CommunicatorMetadata TensorTransportManager TensorTransportMetadata register_tensor_transport set_target_device_for_ref
set_target_for_ref wait_tensor_freed
""".split()
_ELSEWHERE |= {f"oxiray.experimental.{name}": ("oxiray.experimental.rdt", name) for name in _OF_RDT}
_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


@functools.cache
def names_of_ray() -> dict[str, frozenset[str]]:
    """The public names of Ray 2.60, by module (`ray.util.queue`)."""
    names: dict[str, set[str]] = {}
    module: set[str] = set()
    for line in (Path(__file__).parent / "_ray_names.txt").read_text().splitlines():
        if line.startswith(" "):
            module.update(line.split())
        elif line and not line.startswith("#"):
            module = names.setdefault(line, set())
    return {name: frozenset(found) for name, found in names.items()}


def is_of_ray(name: str) -> bool:
    """Whether Ray 2.60 has this module, or this public name of a module; `name` is without `ray.`."""
    known = names_of_ray()
    module, _, last = f"ray.{name}".rpartition(".")
    return f"ray.{name}" in known or last in known.get(module, ())


def alternative(name: str) -> str | None:
    """Why `ray.<name>` is not there and what to do instead, as what follows the name; None where nothing is known."""
    from oxiray._alternatives import ALTERNATIVES

    longest = name
    while longest:
        if longest in ALTERNATIVES:
            return ALTERNATIVES[longest]
        longest = longest.rpartition(".")[0]
    return None


def advice(name: str) -> str:
    """Why `ray.<name>` is not there, in a sentence."""
    from oxiray._alternatives import INSTALLED
    from oxiray._libraries import loading

    known, library = alternative(name), name.partition(".")[0]
    if known == INSTALLED.format(library) and library in loading.installed():
        return (
            f"`ray.{name}` is not among the modules of `ray.{library}` that were taken over from Ray 2.60: it has no such module, or "
            "Oxiray leaves it out."
        )
    if known is not None:
        return f"`ray.{name}` {known}."
    if is_of_ray(name):
        return f"`ray.{name}` is in Ray 2.60, and not in this version of Oxiray."
    return f"`ray.{name}` is not in Oxiray, and Ray 2.60 lists no such name: check the spelling."


def attributes(module: str, **computed: Callable[[], Any]) -> Callable[[str], Any]:
    """A `__getattr__` for a module of Oxiray that stands for one of Ray: it imports submodules, and explains.

    `computed` has names whose values are made whenever they are asked for.
    """

    def find(name: str) -> Any:
        if name in computed:
            return computed[name]()
        if (elsewhere := _ELSEWHERE.get(f"{module}.{name}")) is not None:
            return getattr(importlib.import_module(elsewhere[0]), elsewhere[1])
        if not name.startswith("__") and hasattr(sys.modules[module], "__path__"):
            submodule = f"{module}.{name}"
            if importlib.util.find_spec(submodule) is not None:
                return importlib.import_module(submodule)
        if not name.startswith("__"):
            from oxiray._libraries import loading

            found = loading.lent(module, name)
            if found is not None:
                return found
        raise missing_attribute(module, name, sys._getframe(1))

    return find


def explain(*modules: ModuleType) -> None:
    """Gives these modules, and every public module of Oxiray that is loaded by now, the `__getattr__` that explains."""
    public = [
        module for name, module in sys.modules.items() if name.startswith("oxiray.") and not name.startswith("oxiray._")
    ]
    for module in (*modules, *public):
        if module.__name__ in _OF_CONSTANTS:
            continue
        vars(module).setdefault("__getattr__", attributes(module.__name__))
    if not any(isinstance(finder, _Explainer) for finder in sys.meta_path):
        sys.meta_path.append(_Explainer())


def missing_attribute(module: str, name: str, asking: FrameType) -> Exception:
    """The error for `module.name`, of the kind that the code that asks expects."""
    text = f"module {module!r} has no attribute {name!r}"
    inside = ".".join([*module.split(".")[1:], name])
    if not name.startswith("__") and (is_of_ray(inside) or "." not in inside):
        text = f"{text}: {advice(inside)}"
    if _is_import_from(asking.f_code, asking.f_lasti):
        return ImportError(f"cannot import name {name!r} from {module!r}: {advice(inside)}", name=module)
    return AttributeError(text, name=name, obj=sys.modules.get(module))


def _is_import_from(code: CodeType, position: int) -> bool:
    # An AttributeError would be replaced there by an ImportError that says nothing.
    return 0 <= position < len(code.co_code) and code.co_code[position] == _IMPORT_FROM


def missing_module(name: str) -> Exception:
    """The error for importing `ray.<name>`."""
    if name == "workflow":
        # The kind of error importing it raises in Ray 2.60.
        return RuntimeError(advice(name))
    # Named for the module behind, as `from ray import x` would swallow the sentence under its own name.
    return ModuleNotFoundError(advice(name), name=f"oxiray.{name}")


def is_only_asked(frame: FrameType | None) -> bool:
    """Whether a finder was reached through `importlib.util.find_spec`, whose answer for "no" is None."""
    for _ in range(5):
        if frame is None:
            return False
        if frame.f_globals.get("__name__") == "importlib.util":
            return True
        frame = frame.f_back
    return False


class _Explainer:
    """The last finder: says why a module of Ray's is not under `oxiray`.

    It has no base class, as none is needed: importing `importlib.abc` takes longer than all else that finders import.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, name = fullname.partition(".")
        if root == "oxiray" and is_of_ray(name) and not is_only_asked(sys._getframe(1)):
            raise missing_module(name)
        return None
