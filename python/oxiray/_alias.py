"""Whether `import ray` would still mean Oxiray where the alias was installed for that.

Whatever requires `ray` has pip install the real one over the alias, and a program would run on it without anybody noticing.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import sys
from pathlib import Path

logger = logging.getLogger("ray")


def warn_of_ray() -> None:
    """Warns where the alias is installed and `ray` is Ray itself. Nothing of either is imported."""
    if "ray" in sys.modules or "OXIRAY_TEMPLATE_FD" in os.environ:
        return  # it was the alias that imported Oxiray; or this is a worker, whose driver was told
    found = _ray_over_alias()
    if found is not None:
        logger.warning(
            "`import ray` means Ray itself here (%s), although Oxiray's alias is installed: something that requires `ray` "
            "was installed after it. To run on Oxiray: `pip uninstall ray oxiray-ray-alias`, then `oxiray ray install`, which "
            "satisfies what requires `ray`. To run on Ray: `pip uninstall oxiray-ray-alias`",
            found,
        )


@functools.cache
def is_installed() -> bool:
    """Whether `import ray` means Oxiray here."""
    return "oxiray_ray_alias" in sys.modules or (_alias_folder() is not None and _ray_over_alias() is None)


def _alias_folder() -> Path | None:
    try:
        if importlib.util.find_spec("oxiray_ray_alias") is None:
            return None
        ray = importlib.util.find_spec("ray")
    except (ImportError, ValueError):
        return None
    return None if ray is None or ray.origin is None else Path(ray.origin).parent


def _ray_over_alias() -> Path | None:
    folder = _alias_folder()
    if folder is None:
        return None
    from oxiray_ray_alias import guard

    return guard.find_ray(folder)
