"""What programs count and measure: counters, gauges and histograms, as `oxiray metrics` shows them.

Purpose: values are added up in the process that records them, and told to the cluster about once a second; this
module checks what it is given. Metrics work before `init()`: what was recorded is told once there is a cluster.

Invariants:
1. Recording sends nothing, waits for nothing, and raises for wrong arguments only. What cannot be kept is logged, once
   for each metric.
"""

from __future__ import annotations

import logging
import re
import warnings
from typing import Any, TypeVar

from oxiray import _core, _missing

_M = TypeVar("_M", bound="Metric")

_logger = logging.getLogger(__name__)

#: What Prometheus allows.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class Metric:
    """What all kinds of metrics have in common."""

    _kind = ""

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        self._name = name
        self._description = description
        self._tag_keys = tag_keys or ()
        self._default_tags: dict[str, str] = {}
        self._is_usable = _is_usable(name)
        self._metric: _core.Metric | None = None
        if not isinstance(self._tag_keys, tuple):
            raise TypeError(f"tag_keys should be a tuple type, got: {type(tag_keys)}, for the metric {name!r}")
        for key in self._tag_keys:
            if not isinstance(key, str):
                raise TypeError(f"Tag keys must be str, got {type(key)}, among those of the metric {name!r}")
        if ":" in name:
            warnings.warn(
                f"the metric {name!r} has a colon in its name, which Ray will refuse one day: rename it",
                FutureWarning,
                stacklevel=3,
            )

    def set_default_tags(self: _M, default_tags: dict[str, str]) -> _M:
        """Tags that a value has where nothing else is said. Returns the metric itself."""
        for key, value in default_tags.items():
            if key not in self._tag_keys:
                raise ValueError(f"Unrecognized tag key {key}. The metric {self._name!r} has the tag_keys {self._tag_keys}")
            self._check_tag(key, value)
        self._default_tags = default_tags
        return self

    @property
    def info(self) -> dict[str, Any]:
        """What it was made with."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": self._default_tags,
        }

    def _declare(self, boundaries: list[float]) -> None:
        """Takes a place in the table of this process."""
        if self._is_usable:
            try:
                self._metric = _core.Metric(self._kind, self._name, self._description, boundaries)
            except ValueError as refusal:
                self._refuse(str(refusal))

    def _record(self, value: float, tags: dict[str, str] | None) -> None:
        """Adds a value. A name that cannot be shown was warned of, and its values are not looked at."""
        if not self._is_usable:
            return
        for key, tag in (tags or {}).items():
            self._check_tag(key, tag)
        all_tags = {**self._default_tags, **tags} if tags else self._default_tags
        missing = [key for key in self._tag_keys if key not in all_tags]
        if missing:
            raise ValueError(
                f"Missing value for tag key(s): {','.join(missing)}. Give it for the metric {self._name!r} in tags=, or with "
                "set_default_tags()"
            )
        if self._metric is not None and (reason := self._metric.record(value, all_tags)) is not None:
            self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        """Says once why values are not kept."""
        if self._name not in _refused and len(_refused) < _REFUSED_MAX:
            _refused.add(self._name)
            _logger.warning("some values of a metric are not kept: %s", reason)

    def _check_tag(self, key: str, value: object) -> None:
        if not isinstance(value, str):
            raise TypeError(f"Tag values must be str, got {type(value)}, for {key!r} of the metric {self._name!r}")

    def _check_value(self, value: object) -> None:
        if not isinstance(value, int | float):
            raise TypeError(f"value must be int or float, got {type(value)}, for the metric {self._name!r}")


#: How many metrics are complained about.
_REFUSED_MAX = 100
#: Their names.
_refused: set[str] = set()


class Counter(Metric):
    """Something that only ever grows: shown as `ray_<name>_total`, added up over all processes."""

    _kind = "counter"

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, tag_keys)
        self._declare([])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._description, self._tag_keys)

    def inc(self, value: float = 1.0, tags: dict[str, str] | None = None) -> None:
        """Adds `value`, which is more than 0."""
        self._check_value(value)
        if value <= 0:
            raise ValueError(f"value must be >0, got {value}. A counter only grows: use a Gauge for what falls as well")
        self._record(value, tags)


class Gauge(Metric):
    """Something that rises and falls: the last value of each process is shown as `ray_<name>`, while it lives."""

    _kind = "gauge"

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, tag_keys)
        self._declare([])

    def __reduce__(self) -> tuple[Any, ...]:
        return Gauge, (self._name, self._description, self._tag_keys)

    def set(self, value: float | None, tags: dict[str, str] | None = None) -> None:
        """The value is this one from now on; `None` changes nothing."""
        if value is not None:
            self._check_value(value)
            self._record(value, tags)


class Histogram(Metric):
    """How many values there were of each size, up to `boundaries`: shown as `ray_<name>`, over all processes."""

    _kind = "histogram"

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: list[float] | None = None,
        tag_keys: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(name, description, tag_keys)
        if boundaries is None or len(boundaries) == 0:
            raise ValueError(
                f"boundaries argument should be provided when using the Histogram class. {name!r} has none: give some, such as "
                "boundaries=[0.1, 1, 10]"
            )
        for index, boundary in enumerate(boundaries):
            if boundary <= 0:
                raise ValueError(
                    f"Invalid `boundaries` argument at index {index}, {boundaries}. Use positive values for the arguments. They are "
                    f"those of the histogram {name!r}"
                )
        self.boundaries = boundaries
        self._declare([float(boundary) for boundary in boundaries])

    def __reduce__(self) -> tuple[Any, ...]:
        return Histogram, (self._name, self._description, self.boundaries, self._tag_keys)

    @property
    def info(self) -> dict[str, Any]:
        """What it was made with."""
        return {**super().info, "boundaries": self.boundaries}

    def observe(self, value: float, tags: dict[str, str] | None = None) -> None:
        """Counts one more `value`."""
        self._check_value(value)
        self._record(value, tags)


def _is_usable(name: str) -> bool:
    """Whether values of a metric of this name are kept; warns where they are not."""
    if name == "":
        raise ValueError("Empty name is not allowed. Please provide a metric name. It has letters, digits and _, and does not begin with a digit")
    if _NAME.fullmatch(name):
        return True
    warnings.warn(
        f"the metric {name!r} is not kept: names have letters, digits and _, and do not begin with a digit",
        UserWarning,
        stacklevel=4,
    )
    return False


__all__ = ["Counter", "Gauge", "Histogram"]

__getattr__ = _missing.attributes(__name__)
