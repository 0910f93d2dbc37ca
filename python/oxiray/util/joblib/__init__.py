"""Runs joblib's parallel loops, and so scikit-learn's, in actors."""

from __future__ import annotations

from oxiray import _missing


def register_ray() -> None:
    """Lets joblib know the backend `ray`: `with joblib.parallel_config("ray"): ...`. Raises `ImportError` without joblib."""
    try:
        import joblib
    except ImportError as error:
        raise ImportError("register_ray() registers a backend of joblib, which is not installed: `pip install joblib`") from error
    from oxiray.util.joblib.ray_backend import RayBackend

    joblib.register_parallel_backend("ray", RayBackend)


__all__ = ["register_ray"]

__getattr__ = _missing.attributes(__name__)
