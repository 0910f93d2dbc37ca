"""Wheels made on the spot, so that nothing needs a network."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Wheels:
    """A folder of wheels, and environments that are made from it alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offline = ["--no-index", "--find-links", str(folder)]
        folder.mkdir()

    def make(self, name: str, version: str, requires: str = "", files: Mapping[str, str] | None = None) -> Path:
        """A wheel with these files, or with one module, whose VERSION is its version."""
        files = files or {f"{name}.py": f"VERSION = {version!r}\n"}
        path = self.folder / f"{name}-{version}-py3-none-any.whl"
        facts = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        record = "".join(f"{file},,\n" for file in (*files, *(f"{facts}/{f}" for f in ("METADATA", "WHEEL", "RECORD"))))
        with zipfile.ZipFile(path, "w") as wheel:
            for file, text in files.items():
                wheel.writestr(file, text)
            wheel.writestr(f"{facts}/METADATA", metadata + (f"Requires-Dist: {requires}\n" if requires else ""))
            wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{facts}/RECORD", record)
        return path

    def slow(self, folder: Path) -> Path:
        """A package that is not built before a file `go` lies in its folder; `pid` says which process builds it."""
        made = folder / "slow"
        made.mkdir()
        wheel = self.make("slow", "1.0")
        moved = wheel.rename(made / wheel.name)
        (made / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "slow"\nversion = "1.0"\n'
        )
        (made / "backend.py").write_text(
            "import os, shutil, time\n"
            "def build_wheel(folder, *ignored, **settings):\n"
            f"    beside = {str(made / 'pid.new')!r}\n"
            "    open(beside, 'w').write(str(os.getpid()))\n"
            f"    os.rename(beside, {str(made / 'pid')!r})\n"
            f"    while not os.path.exists({str(made / 'go')!r}):\n"
            "        time.sleep(0.02)\n"
            f"    return os.path.basename(shutil.copy({str(moved)!r}, folder))\n"
        )
        return made

    def pip(self, *packages: str, **more: Any) -> dict[str, Any]:
        """An environment that pip makes."""
        return {"pip": {"packages": list(packages), "pip_install_options": self.offline, **more}}

    def uv(self, *packages: str, **more: Any) -> dict[str, Any]:
        """An environment that uv makes."""
        return {"uv": {"packages": list(packages), "uv_pip_install_options": self.offline, **more}}
