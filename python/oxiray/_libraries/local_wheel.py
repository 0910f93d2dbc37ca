"""Makes the distribution `ray` of this machine: the name, and of the official wheel the files of the libraries asked for.

The same official wheel, libraries and Oxiray give the same bytes.
"""

from __future__ import annotations

import base64
import email.message
import email.parser
import hashlib
import importlib.metadata
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from oxiray._libraries import contents, loading
from oxiray._libraries.official import VERSION, Refused
from oxiray._version import VERSION as OWN_VERSION

#: The moment that every file of the wheel bears: the first that the format knows.
_MOMENT = (1980, 1, 1, 0, 0, 0)
#: What Ray's own wheel carries along instead of requiring it.
_CARRIED_ALONG = ("colorama", "psutil")
#: What a library cannot work with, although the official metadata allows it.
_BOUNDS = {"pandas": "pandas<3"}
#: Extras of ours: the official wheel has none of these names.
_OWN_EXTRAS = {"dask": "dask"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"""\bextra\s*==\s*["']([\w.-]+)["']""")


@dataclass(frozen=True)
class Recipe:
    """What is to be made."""

    official: Path
    libraries: tuple[str, ...] = ()
    #: The version that the name claims; that of the official wheel where it is None.
    claimed: str | None = None
    untested: bool = False


def version_of(official_version: str) -> str:
    """The version of the distribution: a local one of Ray's, so that it fits `ray>=...` and `ray==...`."""
    return f"{official_version}+oxiray.{OWN_VERSION}"


def extras_of(libraries: Iterable[str]) -> list[str]:
    """The extras that bring what these libraries need of others' packages."""
    return sorted(libraries)


def made(recipe: Recipe, folder: Path) -> Path:
    """Writes the wheel into `folder`; returns it. Raises `Refused` where the official wheel is none, or another version."""
    libraries = contents.closed(recipe.libraries)
    with zipfile.ZipFile(recipe.official) as official:
        metadata = _metadata_of(official, recipe)
        files = dict(_name_files())
        taken = _library_files(official, libraries)
    files.update(taken)
    version = version_of(recipe.claimed or metadata["Version"])
    facts = f"ray-{version}.dist-info"
    files |= {f"{facts}/{name}": text for name, text in _facts(metadata, version, libraries, recipe.official, len(taken)).items()}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"ray-{version}-py3-none-any.whl"
    beside = path.with_suffix(".new")
    _write(beside, files, f"{facts}/RECORD")
    beside.rename(path)
    return path


def _metadata_of(official: zipfile.ZipFile, recipe: Recipe) -> email.message.Message:
    found = [name for name in official.namelist() if re.fullmatch(r"ray-[^/]+\.dist-info/METADATA", name)]
    if len(found) != 1:
        raise Refused(f"{recipe.official} is no official wheel of Ray: it has no METADATA of a distribution `ray`")
    metadata = email.parser.BytesParser().parsebytes(official.read(found[0]))
    version = metadata["Version"]
    if "+oxiray" in version:
        raise Refused(f"{recipe.official} was made by Oxiray: name an official wheel of Ray {VERSION}")
    if version != VERSION and not recipe.untested:
        raise Refused(
            f"{recipe.official} is of Ray {version}, and this Oxiray was tried with the libraries of {VERSION}: take that "
            "version, or allow another with --untested"
        )
    return metadata


def _name_files() -> Iterable[tuple[str, bytes]]:
    """The files that make `import ray` mean Oxiray: those of the alias, which travels within Oxiray's wheel."""
    folder = Path(__file__).parent.parent / "_native"
    found = sorted(folder.glob("oxiray_ray_alias-*.whl"))
    if not found:
        raise Refused(f"the alias that Oxiray's wheel carries is not in {folder}: reinstall `oxiray`")
    with zipfile.ZipFile(found[-1]) as alias:
        for name in alias.namelist():
            if ".dist-info/" not in name and not name.endswith("/"):
                yield name, alias.read(name)


def _library_files(official: zipfile.ZipFile, libraries: tuple[str, ...]) -> dict[str, bytes]:
    prefixes = contents.prefixes(libraries)
    names = [name for name in official.namelist() if contents.is_taken(name, prefixes)]
    for library in libraries:
        own = contents.LIBRARIES[library][0]
        if own and not any(contents.is_taken(name, own) for name in names):
            raise Refused(f"the official wheel {official.filename} has no file of the library {library!r}")
    files = {f"{loading.PACKAGE}/{name}": official.read(name) for name in names}
    if libraries:
        text = f'"""Files of Ray, unmodified, which Oxiray loads as `ray.<name>`."""\n\nLIBRARIES = {libraries!r}\n'
        files[f"{loading.PACKAGE}/__init__.py"] = text.encode()
    return files


def _facts(
    metadata: email.message.Message, version: str, libraries: tuple[str, ...], official: Path, taken: int
) -> dict[str, bytes]:
    """The files that describe the distribution, but for RECORD."""
    generator = f"Wheel-Version: 1.0\nGenerator: oxiray {OWN_VERSION}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts = {
        "METADATA": _metadata(metadata, version, libraries),
        "WHEEL": generator,
        "entry_points.txt": "\n".join(["[console_scripts]", *(f"{name} = {function}" for name, function in _commands(libraries)), ""]),
        "licenses/LICENSE": _licence(),
        "licenses/NOTICE": _notice(metadata["Version"], libraries, official, taken),
    }
    return {name: text.encode() for name, text in texts.items()}


def _commands(libraries: tuple[str, ...]) -> list[tuple[str, str]]:
    """The commands that are installed, each with its function: Ray's names for them."""
    own = [("ray", "oxiray_ray_alias.command:main")]
    return [*own, ("serve", "ray.serve.scripts:cli")] if "serve" in libraries else own


def _metadata(official: email.message.Message, version: str, libraries: tuple[str, ...]) -> str:
    lines = [
        "Metadata-Version: 2.4",
        "Name: ray",
        f"Version: {version}",
        f"Summary: The name ray on Oxiray, with these libraries of Ray: {', '.join(libraries) or 'none'}",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "License-File: NOTICE",
        f"Requires-Python: {official['Requires-Python'] or '>=3.10'}",
        f"Requires-Dist: oxiray=={OWN_VERSION}",
    ]
    required = official.get_all("Requires-Dist") or []
    if contents.prefixes(libraries):
        lines += [f"Requires-Dist: {text}" for text in (*(one for one in required if not _EXTRA.search(one)), *_CARRIED_ALONG)]
    extras = [*(official.get_all("Provides-Extra") or []), *_OWN_EXTRAS]
    for extra in sorted(set(extras)):
        lines.append(f"Provides-Extra: {extra}")
        own = [one for one in required if extra in _EXTRA.findall(one)]
        lines += [f"Requires-Dist: {text}" for text in own]
        named = {_normal(found[0]) for one in own if (found := _NAME.match(one))}
        lines += [f'Requires-Dist: {bound}; extra == "{extra}"' for name, bound in _BOUNDS.items() if name in named]
        if extra in _OWN_EXTRAS:
            lines.append(f'Requires-Dist: {_OWN_EXTRAS[extra]}; extra == "{extra}"')
    return "\n".join(lines) + "\n"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _licence() -> str:
    """The text of the Apache License 2.0, which is Oxiray's licence and Ray's; Ray's wheel has only a broken link to it."""
    for file in importlib.metadata.distribution("oxiray").files or []:
        if file.name == "LICENSE":
            return file.read_text()
    raise Refused("the text of the Apache License is not among Oxiray's installed files: reinstall `oxiray`")


def _notice(official_version: str, libraries: tuple[str, ...], official: Path, taken: int) -> str:
    source = hashlib.sha256(official.read_bytes()).hexdigest()
    named = ", ".join(libraries) or "none"
    return (
        f"This distribution was made on a user's machine by Oxiray {OWN_VERSION}, and is none of the Ray project's.\n\n"
        f"Libraries of Ray that it has: {named}.\n"
        f"The {max(taken - 1, 0)} files under {loading.PACKAGE}/ray are unmodified files of the official wheel of Ray {official_version},\n"
        f"whose SHA-256 is {source}. Copyright of the Ray authors; Apache License 2.0, whose\n"
        "text is in LICENSE. Files under ray/_private/thirdparty keep the notices of their own authors.\n\n"
        "Left out of that wheel: Ray's core and its native programs, its dashboard and autoscaler, the reports of usage to\n"
        "Ray's makers, C++ and Java, tests, and the libraries that are not named above.\n"
        "The files under ray/ and oxiray_ray_alias/ are Oxiray's, under the same licence.\n"
    )


def _write(path: Path, files: dict[str, bytes], record: str) -> None:
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in sorted(files):
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).decode().rstrip("=")
            rows.append(f"{name},sha256={digest},{len(files[name])}")
            _add(wheel, name, files[name])
        _add(wheel, record, ("\n".join([*rows, f"{record},,"]) + "\n").encode())


def _add(wheel: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    # The machine that it was made on is not told either.
    entry.create_system = 3
    wheel.writestr(entry, data)
