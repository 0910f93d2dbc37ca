"""The official wheel of Ray: which one, and how it comes to this machine.

Invariant: a file of the supported version is one whose hash stands here. One platform's serves every machine, since only
pure Python is taken of it, in which the platforms do not differ.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from oxiray._version import RAY_VERSION

#: The version whose libraries were tried.
VERSION = RAY_VERSION
#: The file that is fetched: the interpreter and the machine it was made for.
_PYTHON, _PLATFORM = "311", "manylinux2014_x86_64"
#: The SHA-256 of each file of that version, as the package index names them; the first is the one that is fetched.
_SHA256 = {
    "cp311-manylinux2014_x86_64": "e227f6b2af8ab4626dd9a35a5860b33864325ea137383d57f854d4637ee3fea2",
    "cp310-macosx_12_0_arm64": "63ba7cacbfe568d2a038700c2c1411bbd53bb02fe07b11972da15d72decfd1b9",
    "cp310-manylinux2014_aarch64": "7695a1c3c5e44170af72e43ff6f4edbecb35a5519c669ad010756e8c98d26f58",
    "cp310-manylinux2014_x86_64": "ac1589b18a12ae5bc51c3954a82c2ccefbd220d216c31a1a704375060a51399e",
    "cp310-win_amd64": "03e9857324c474212df06e5d24f65d8423e16af68e539f39772523238e59d653",
    "cp311-macosx_12_0_arm64": "aa4207cbf40817d0bf4e35aa793b8a3a987008c342c0e8cbcde18a6e31b6b85a",
    "cp311-manylinux2014_aarch64": "d51d623d6af4ef49f5dee7d3340b95b44cdc774b6a7964e8632acdfce8b9efac",
    "cp311-win_amd64": "844eb7f6a2425f2f578066d09ce4aa20961b2b6d457379d493e457512db4fb6e",
    "cp312-macosx_12_0_arm64": "b9ee3d2bd3210b97e2e253046333a12e08617c6fb3e6a1fac082689d6709660a",
    "cp312-manylinux2014_aarch64": "0f08c7af063583b68be55feab90dd056255d4d689a37e67bc94fcad79800a29e",
    "cp312-manylinux2014_x86_64": "b951b40965947a63615830916be04f26440d234de1e9a29dbf2155d03fa9ad2a",
    "cp312-win_amd64": "897c66d944c908d7c7475a37232dcfb15c1413f8e5cc7aeeaec0784ef101eb59",
    "cp313-macosx_12_0_arm64": "ccf194ff534cd8294d52b4327d1457a5c0d601f48cc1c849c898f1d4dbc44328",
    "cp313-manylinux2014_aarch64": "03b05ce23d309e4c2d1626bf94343e3a3e9e26fa4c0d2ca70b66f86b84c97f26",
    "cp313-manylinux2014_x86_64": "7f7fb209a2df375f141e8d0e132e7644b8e8efe3855b70f4844fbfb14ea6672c",
    "cp313-win_amd64": "45fe3453323a8e1310ff29d56effa7dfb5dd712b3ea7f1dbfd9fc0f455b9803b",
    "cp314-macosx_12_0_arm64": "367d6efe7a15651d75aa0c754853f84ef27d931d49ebc531a307902a8e728811",
    "cp314-manylinux2014_aarch64": "b20215a57f887b203463d5b8074c8b133bce23ae89c85522b9f932ddc589301f",
    "cp314-manylinux2014_x86_64": "0ec3f44af2961d8cad2f8d699b470e2f6843d443ccc6f403948aeeeb77ad35c3",
    "cp314-win_amd64": "2a5ad62b1b00797aed7ac6a6aa8931b7d69eaed5b52e49d705d31f18fdcdbbd3",
}


class Refused(Exception):
    """Something cannot be done; the text says what, why, and what to do instead."""


def fetched(version: str, folder: Path) -> Path:
    """The official wheel of a version, in `folder`: pip fetches it where it is not there. Raises `Refused` where it cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    tag = f"cp{_PYTHON}"
    path = folder / f"ray-{version}-{tag}-{tag}-{_PLATFORM}.whl"
    if path.is_file() and (version != VERSION or _sha256(path) == next(iter(_SHA256.values()))):
        return path
    chosen = ["--no-deps", "--only-binary=:all:", f"--platform={_PLATFORM}", f"--python-version={_PYTHON}", "--implementation=cp"]
    with tempfile.TemporaryDirectory(prefix="oxiray-ray-") as apart:
        listed = Path(apart, "requirements.txt")
        known = f" --hash=sha256:{next(iter(_SHA256.values()))}" if version == VERSION else ""
        listed.write_text(f"ray=={version}{known}\n")
        asked = [*_pip(), "download", "--quiet", *chosen, f"--abi={tag}", f"--dest={folder}", f"--requirement={listed}"]
        done = subprocess.run(asked, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0 or not path.is_file():
        raise Refused(
            f"pip could not fetch the official wheel of Ray {version}, and has said why above: fetch {path.name} where there is "
            "a network, and name it with --from"
        )
    return path


def given(path: Path, *, untested: bool) -> Path:
    """An official wheel that is here already. Raises `Refused` where it is none of those whose hashes are known."""
    if not path.is_file():
        raise Refused(f"--from={path}: there is no such file; it is to be an official wheel of Ray {VERSION}")
    if not untested and _sha256(path) not in _SHA256.values():
        raise Refused(
            f"--from={path}: its SHA-256 is of no official wheel of Ray {VERSION}: fetch one from PyPI, or allow any with --untested"
        )
    return path


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _pip() -> list[str]:
    """What fetches: this interpreter's pip, else the one that uv brings."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    uv = shutil.which("uv")
    if uv is None:
        raise Refused("neither pip nor uv is here to fetch Ray's official wheel with: install one, or name the file with --from")
    return [uv, "tool", "run", "--quiet", "pip"]


def installer() -> list[str]:
    """What installs into this interpreter's environment: its pip, else uv. Raises `Refused` where there is neither."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    uv = shutil.which("uv")
    if uv is None:
        raise Refused("neither pip nor uv is here to install with: install one, or make the wheel with `oxiray ray wheel`")
    return [uv, "pip", "install", f"--python={sys.executable}"]
