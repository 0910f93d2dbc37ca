"""The library that answers as NVIDIA's do, from a text file: `crates/nvml-fixture` says what may stand in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cargo_built import cargo_built

ROOT = Path(__file__).resolve().parent.parent.parent


def library() -> str:
    """Builds the library as the rest of this project is built, and returns where it is."""
    if shutil.which("cargo") is None:
        pytest.skip("the library that stands in for NVML is built with cargo, which is not there")
    return str(cargo_built("liboxiray_nvml_fixture.so", "-p", "oxiray-nvml-fixture"))


class Answers:
    """The file with the answers, and the variables that have a daemon read it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
        self.file, self._draft = folder / "nvml.txt", folder / "draft.txt"
        monkeypatch.setenv("OXIRAY_HOST_ROOT", str(ROOT / "tests" / "fixtures" / "hosts" / "nvidia-h100x8"))
        monkeypatch.setenv("OXIRAY_NVML_LIBRARY", library)
        monkeypatch.setenv("OXIRAY_NVML_FIXTURE", str(self.file))

    def write(self, text: str) -> None:
        """Replaces all of it in one step, for the library may be reading."""
        self._draft.write_text(text)
        self._draft.rename(self.file)

    def are_listened_to(self) -> bool:
        """Whether a daemon waits for errors of devices by now: those that were there before are none of its."""
        return self.file.with_name(self.file.name + ".waits").exists()
