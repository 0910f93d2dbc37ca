"""Clusters that grow and shrink: what programs can ask of the autoscaler is in `autoscaler.sdk`."""

from __future__ import annotations

from oxiray import _missing

__getattr__ = _missing.attributes(__name__)
