"""Checks of `oxiray doctor`: where objects are spilled to, a folder or storage that speaks S3.

Invariant: nothing is written; storage is asked for a file that nobody has.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from oxiray import _cli
from oxiray._doctor_findings import NOT_STARTED, TIMED_OUT, Finding, ok, output_of, warning

#: How full a disk may be that objects are spilled to, unless RAY_local_fs_capacity_threshold says otherwise.
DISK_FULL_SHARE = 0.95
#: How long storage may take; its program would wait for an answer for a minute.
STORAGE_LIMIT_S = 30.0
#: A file that nobody has: that it is not there is an answer, to whom the storage lets look.
UNUSED = "oxiray-doctor"
#: What S3 answers where not the file is missing, but the bucket.
_NO_BUCKET = "NoSuchBucket"
PLACE, CONFIG = "RAY_object_spilling_directory", "RAY_object_spilling_config"


def disk_full_share() -> float:
    """How full a disk may be that objects are spilled to."""
    try:
        return float(os.environ.get("RAY_local_fs_capacity_threshold", ""))
    except ValueError:
        return DISK_FULL_SHARE


def of_disk(check: str, folder: Path) -> Finding:
    """How much is free where a folder lies."""
    usage = shutil.disk_usage(folder)
    full = 1 - usage.free / usage.total if usage.total else 0.0
    found = f"{folder}, {usage.free >> 30} GiB free, {100 * full:.0f} % full"
    if full < disk_full_share():
        return ok(check, found)
    advice = (
        "Objects are not spilled to a disk that is so full (RAY_local_fs_capacity_threshold): free space, or name another "
        "disk with `oxiray start --object-spilling-directory`."
    )
    return warning(check, found, advice)


def spilling() -> Iterator[Finding]:
    """The place that the variables name; without one, objects are spilled to the session's folder."""
    check = "spilling"
    named = PLACE if os.environ.get(PLACE) else CONFIG
    said = os.environ.get(named)
    if not said:
        return
    try:
        place = said if named == PLACE else _configured(said)
    except (ValueError, KeyError, TypeError) as error:
        form = '{"type": "smart_open", "params": {"uri": "s3://bucket/prefix"}} or {"type": "filesystem", "params": {"directory_path": "/disk"}}'
        yield warning(check, f"{CONFIG} is `{said}`, which no node can follow: {error}", f"Write it as {form}.")
        return
    place = place.removeprefix("file://")
    if "://" in place:
        yield _of_storage(check, place)
    else:
        yield _of_folder(check, Path(place), named)


def _configured(said: str) -> str:
    """The one place in Ray's JSON."""
    config = json.loads(said)
    keys = {"filesystem": "directory_path", "smart_open": "uri"}
    if config["type"] not in keys:
        raise ValueError(f"the type {config['type']} is not known")
    places = config["params"][keys[config["type"]]]
    named = places if isinstance(places, list) else [places]
    if len(named) != 1 or not isinstance(named[0], str):
        raise ValueError("it does not name one place, and objects go to one")
    return named[0]


def _of_folder(check: str, folder: Path, named: str) -> Finding:
    advice = f"No node starts with it: make the folder (`mkdir -p {folder}`), or name another one with {named}."
    if not folder.exists():
        return warning(check, f"{folder} does not exist ({named})", advice)
    if not folder.is_dir():
        return warning(check, f"{folder} is not a folder ({named})", f"Name a folder with {named}.")
    if not os.access(folder, os.W_OK | os.X_OK):
        return warning(check, f"this user cannot write to {folder} ({named})", f"Give the user the right to, or name another one with {named}.")
    return of_disk(check, folder)


def _of_storage(check: str, url: str) -> Finding:
    """Whether the program that speaks to storage is there, and what it hears."""
    program = _cli.native_binary().resolve().with_name("oxiray-storage")
    status, said = output_of(program, "files", "--url", url, told=f"get {UNUSED}\n", limit_s=STORAGE_LIMIT_S)
    if status == 0 and said.startswith(("gone ", "bytes ")) and _NO_BUCKET not in said:
        return ok(check, f"{url} answers, and lets these credentials look what is there")
    if status == TIMED_OUT:
        advice = "See whether AWS_ENDPOINT_URL and AWS_REGION name the storage that you mean, and whether a firewall lets connections to it through."
        return warning(check, f"{url} did not answer within {STORAGE_LIMIT_S:g} s", advice)
    if status == NOT_STARTED:
        return warning(check, f"{url} cannot be asked: {program}: {said}", "Reinstall the wheel `oxiray`, which has this program.")
    # What failed and what to do, in the program's words: they name the variable that is missing.
    text = re.sub(r"^(error:|gone|refused|away) ", "", said)
    parts = re.match(r"(.+?)[.;:] ((?:Look|No credentials|name|set) .+)$", text, re.DOTALL)
    if parts is None:
        return warning(check, text, "Look at the variables AWS_* of this environment, which daemons inherit.")
    found, todo = parts.groups()
    return warning(check, found, f"{todo[0].upper()}{todo[1:]}.")
