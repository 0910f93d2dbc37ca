"""What `ray.util.iter` counts besides its items, for compatibility: deprecated in Ray."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from oxiray import _missing


class MetricsContext:
    """Counters, figures and the actor that the last item came from."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = defaultdict(int)
        self.info: dict[str, Any] = {}
        self.current_actor: Any = None

    def save(self) -> dict[str, Any]:
        """The counters and figures, as `restore` takes them."""
        return {"counters": dict(self.counters), "info": dict(self.info)}

    def restore(self, values: dict[str, Any]) -> None:
        """Takes over what `save` returned."""
        self.counters.clear()
        self.counters.update(values["counters"])
        self.info = dict(values["info"])


class SharedMetrics:
    """A context that iterators made of one another share."""

    def __init__(self, metrics: MetricsContext | None = None, parents: list[SharedMetrics] | None = None) -> None:
        self.metrics = metrics or MetricsContext()
        self.parents = parents or []
        self.set(self.metrics)

    def set(self, metrics: MetricsContext) -> None:
        """Has this and what it was made of use `metrics`."""
        self.metrics = metrics
        for parent in self.parents:
            parent.set(metrics)

    def get(self) -> MetricsContext:
        """The context."""
        return self.metrics


__all__ = ["MetricsContext", "SharedMetrics"]

__getattr__ = _missing.attributes(__name__)
