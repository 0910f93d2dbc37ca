"""What programs ask of the autoscaler.

Invariants:
1. There is one standing request in a cluster. It is kept by the head, under `_NAMESPACE` and `_KEY`, as a list of bundles,
   and so outlives the job that made it and the head.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from oxiray import _core, _families, _labels, _missing, _strategies
from oxiray.experimental.internal_kv import _internal_kv_put

__all__ = ["request_resources"]

_NAMESPACE, _KEY = b"autoscaler", b"standing"

__getattr__ = _missing.attributes(__name__)


def request_resources(
    num_cpus: int | None = None,
    bundles: list[dict[str, int | float]] | None = None,
    bundle_label_selectors: list[dict[str, str]] | None = None,
) -> None:
    """Has the cluster be at least so large, used or not: that `num_cpus` times one CPU and all `bundles` fit into it.

    It is held against what machines have in total, whatever runs on them. Each call replaces the call before, whoever
    made it, and lasts until the next one; `bundles=[]` ends it. A bundle that no machine could ever have is left out, and
    named by `oxiray status`. Raises `TypeError` and `ValueError` for what is no request, and `RuntimeError` before `init()`.
    """
    if num_cpus is not None and (not isinstance(num_cpus, int) or isinstance(num_cpus, bool)):
        raise TypeError("num_cpus should be of type int.")
    if num_cpus is not None and num_cpus < 0:
        raise ValueError(f"num_cpus is {num_cpus}; it is a number of CPUs, zero or more")
    _check_bundles(bundles)
    selectors = _selectors(bundles or [], bundle_label_selectors, given=bundles is not None)
    if not _core.is_connected():
        raise RuntimeError("Ray is not initialized yet")
    wanted = Counter({_row({"CPU": 1}, {}): num_cpus} if num_cpus else {})
    wanted.update(_row(bundle, selector) for bundle, selector in zip(bundles or [], selectors))
    rows = [{**json.loads(row), "count": count} for row, count in wanted.items()]
    _internal_kv_put(_KEY, _core.encode_demands(json.dumps(rows), "[]"), namespace=_NAMESPACE)


def _row(bundle: dict[str, int | float], selector: dict[str, str]) -> str:
    amounts = {name: float(amount) for name, amount in sorted(bundle.items())}
    return json.dumps({"resources": amounts, "labels": _strategies.conditions(selector)})


def _check_bundles(bundles: Any) -> None:
    if bundles is None:
        return
    if not isinstance(bundles, list):
        raise TypeError("bundles should be of type List")
    for bundle in bundles:
        if not isinstance(bundle, dict):
            raise TypeError("each bundle should be a Dict.")
        for name, amount in bundle.items():
            if not isinstance(name, str):
                raise TypeError("each bundle key should be str.")
            if isinstance(amount, bool) or not isinstance(amount, (int, float)):
                raise TypeError("each bundle value should be a number (int or float).")
            if not (amount == 0 or 0.0001 <= amount < 1e14) or not 0 < len(name) <= 1024:
                raise ValueError(f"a bundle asks for {amount!r} of {name!r}; it is zero or 0.0001 and more of a resource")
            if name in _families.DEVICES and amount > 1 and amount != int(amount):
                raise ValueError(f"a bundle asks for {amount!r} {name}; more than one is a whole number of them")


def _selectors(
    bundles: list[dict[str, int | float]], selectors: Any, given: bool
) -> list[dict[str, str]]:
    if selectors is None:
        return [{} for _ in bundles]
    if not given:
        raise ValueError("`bundles` must be provided when `bundle_label_selectors` is specified.")
    if len(selectors) != len(bundles):
        raise ValueError("`bundle_label_selectors` must be a list with length equal to the number of bundles.")
    for selector in selectors:
        if not isinstance(selector, dict):
            raise ValueError(f"each of `bundle_label_selectors` is a dict of texts, but one is {selector!r}")
        try:
            _labels.check_selector("bundle_label_selectors", selector)
        except TypeError as error:
            raise ValueError(str(error)) from None
    return list(selectors)
