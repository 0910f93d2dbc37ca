"""A hook that writes spans into files, one for each process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: Where they are written: `PID.txt`, a span as JSON in each line.
spans_dir = "/tmp/spans/"


def setup_tracing() -> None:
    """Installs a tracer provider whose spans go to a file in `/tmp/spans`.

    Raises `ImportError` without opentelemetry-sdk, and `PermissionError` where others can write to that folder.
    """
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    folder = _own_folder()
    file = open(folder / f"{os.getpid()}.txt", "w")  # noqa: SIM115  it is open until the process ends
    provider = TracerProvider()
    exporter = ConsoleSpanExporter(out=file, formatter=lambda span: f"{span.to_json(indent=None)}\n")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _own_folder() -> Path:
    """The folder, which nobody else can put links into: its name is known to every user of the machine."""
    folder = Path(os.path.normpath(spans_dir))
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(
            f"spans are written into {folder}, which is a link, belongs to another user or can be written to by others: remove it, or "
            "name another hook in _tracing_startup_hook"
        )
    return folder
