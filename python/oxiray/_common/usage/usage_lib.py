"""What Ray's libraries call to report how they are used: nothing is recorded, and nothing is sent anywhere."""

from __future__ import annotations

from typing import Any

from oxiray import _missing


class _Tags(type):
    """Whatever tag is named is there, as its own name."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class TagKey(metaclass=_Tags):
    """The names that uses are reported under."""

    @staticmethod
    def Name(tag: str) -> str:  # noqa: N802  Ray's name
        """The name of a tag."""
        return tag

    @staticmethod
    def Value(tag: str) -> str:  # noqa: N802  Ray's name
        """What stands for a tag of this name: the name."""
        return tag


def usage_stats_enabled() -> bool:
    """Whether uses are reported: never."""
    return False


def record_library_usage(library_usage: str) -> None:
    """Does nothing."""


def record_extra_usage_tag(key: str, value: str, gcs_client: Any = None) -> None:
    """Does nothing."""


def get_hardware_usages_to_report(gcs_client: Any = None) -> list[str]:
    """The kinds of accelerators that living nodes have, as their labels name them: a library asks which GPU it runs on."""
    from oxiray._api import nodes

    kinds = {node["Labels"].get("ray.io/accelerator-type") for node in nodes() if node["Alive"]}
    return sorted(kind for kind in kinds if kind)


__all__ = [
    "TagKey",
    "get_hardware_usages_to_report",
    "record_extra_usage_tag",
    "record_library_usage",
    "usage_stats_enabled",
]

__getattr__ = _missing.attributes(__name__)
