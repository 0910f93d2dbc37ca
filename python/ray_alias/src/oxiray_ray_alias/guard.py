"""Refuse to stand in for Ray where Ray itself is installed.

Purpose: two distributions that write the same folder leave a mixture of both, whose
failures nobody could read. This says so before anything else happens.
"""

from __future__ import annotations

from pathlib import Path

#: Files of Ray that are never ours, inside its package folder.
_RAY_FILES = ("_raylet.*", "_private/worker.py", "core/src/ray")
#: Ray's own record, beside the package folder.
_RAY_RECORDS = ("ray-[0-9]*.dist-info", "ray-[0-9]*.egg-info")


def find_ray(package_directory: str | Path) -> Path | None:
    """A file that only Ray itself installs, in or beside this package folder; None where there is none."""
    package = Path(package_directory)
    for folder, patterns in ((package, _RAY_FILES), (package.parent, _RAY_RECORDS)):
        for pattern in patterns:
            for found in sorted(folder.glob(pattern)):
                # The distribution `ray` that `oxiray ray install` makes.
                if "+oxiray" not in found.name:
                    return found
    return None


def refuse_beside_ray(package_directory: str | Path) -> None:
    """Raise ImportError where Ray's files lie beneath this package."""
    found = find_ray(package_directory)
    if found is not None:
        raise ImportError(
            f"Ray itself is installed in the place where Oxiray's `ray` alias lies (found {found}), so `import ray` "
            "would mix the two. To run on Oxiray: `pip uninstall ray oxiray-ray-alias`, then `oxiray ray install`, "
            "which satisfies what requires `ray` too. To run on Ray: uninstall both and install ray alone."
        )
