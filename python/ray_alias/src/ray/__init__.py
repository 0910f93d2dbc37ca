"""Oxiray under Ray's name: `ray.x` is `oxiray.x`, for every x that Oxiray has."""

from oxiray_ray_alias import RAY_COMMIT as __commit__, RAY_VERSION as __version__, package as _package

_package.install(__file__)

__all__ = _package.names()
__getattr__ = _package.find
__dir__ = _package.listed
