"""`oxiray ray install` and `oxiray ray wheel`: the name `ray`, and Ray's libraries, on this machine."""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from oxiray._libraries import contents, loading, local_wheel, official
from oxiray._libraries.official import VERSION, Refused

_LIBRARIES_HELP = f"libraries of Ray's, divided by commas, of {', '.join(sorted(contents.LIBRARIES))}; none: the name alone"


def main(arguments: list[str]) -> int:
    """The command; returns its exit status."""
    given = _parser().parse_args(arguments)
    try:
        libraries = contents.closed(name.strip() for name in given.libraries.split(",") if name.strip())
        return int(given.run(given, libraries))
    except (Refused, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oxiray ray",
        description=f"Makes a distribution called `ray` on this machine: `import ray` is Oxiray then, and dependents of "
        f"`ray` are content. Libraries are unmodified files of the official wheel of Ray {VERSION}, which pip fetches.",
    )
    orders = parser.add_subparsers(required=True, metavar="COMMAND")
    install = orders.add_parser("install", help="makes it and installs it, with what the libraries need")
    install.set_defaults(run=_install)
    wheel = orders.add_parser("wheel", help="makes it, to be installed elsewhere: with pip, uv, or in an image")
    wheel.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the wheel is written")
    wheel.set_defaults(run=_wheel)
    for order in (install, wheel):
        order.add_argument("libraries", nargs="?", default="", metavar="LIBRARIES", help=_LIBRARIES_HELP)
        order.add_argument("--from", dest="source", type=Path, metavar="FILE", help="the official wheel, fetched by yourself")
        order.add_argument("--as", dest="claimed", metavar="VERSION", help="the version of Ray that the name claims, for dependents that pin one")
        order.add_argument("--untested", action="store_true", help="takes any wheel of Ray's that --from names")
    return parser


def _wheel(given: argparse.Namespace, libraries: tuple[str, ...]) -> int:
    print(_made(given, libraries, given.output))
    return 0


def _install(given: argparse.Namespace, libraries: tuple[str, ...]) -> int:
    refuse_mixture()
    # What is there stays.
    kept = loading.installed()
    libraries = contents.closed((*libraries, *kept))
    with tempfile.TemporaryDirectory(prefix="oxiray-ray-") as folder:
        path = _made(given, libraries, Path(folder))
        for command in _commands(path, libraries):
            done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                raise Refused(f"installing failed, and the reason stands above; what was run is: {' '.join(command)}")
    version = importlib.metadata.version("ray")
    print(f"`import ray` means Oxiray now; libraries of Ray: {', '.join(libraries) or 'none'}.")
    print(f"A requirement `ray=={version}` in a constraints file keeps pip from replacing it. It goes with `pip uninstall ray`.")
    return 0


def _commands(path: Path, libraries: tuple[str, ...]) -> Iterator[list[str]]:
    install = official.installer()
    extras = f"[{','.join(local_wheel.extras_of(libraries))}]" if libraries else ""
    requirement = f"ray{extras} @ {path.as_uri()}"
    if install[-1] != "install":  # uv
        yield [*install, "--reinstall-package=ray", requirement]
        return
    yield [*install, "--quiet", requirement]
    # pip takes one of the same version for the same, whatever it has in it.
    yield [*install, "--quiet", "--no-deps", "--force-reinstall", str(path)]


def _made(given: argparse.Namespace, libraries: tuple[str, ...], folder: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="oxiray-ray-") as apart:
        if given.source is not None:
            source = official.given(given.source, untested=given.untested)
        else:
            source = official.fetched(VERSION, Path(apart))
        recipe = local_wheel.Recipe(source, libraries, claimed=given.claimed, untested=given.untested)
        return local_wheel.made(recipe, folder)


def refuse_mixture() -> None:
    """Raises `Refused` where something is installed that has the same files: Ray itself, or the alias."""
    for name in ("ray", "oxiray-ray-alias"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if "+oxiray" not in version:
            what = "Ray itself" if name == "ray" else "the alias, which has the same files,"
            raise Refused(f"{what} is installed ({name} {version}), and the two would mix: `pip uninstall {name}` first")
