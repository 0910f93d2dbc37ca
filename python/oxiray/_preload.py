"""Modules that a template imports once, so that its workers have them when they are born.

A fork copies one thread and shares every open device: a process in which a module started a thread or opened a
device cannot be forked. Such a template starts anew without the modules, and its workers import them themselves.
The one exception is jemalloc's background thread, which pandas and pyarrow start: jemalloc stops it before a fork and
makes its locks whole in the child.

Invariants:
1. Nothing is forked from a process with a second thread that has no fork handlers, or with a device open.
2. Modules imported by a worker itself see its variables: they are set before.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from oxiray import _families

#: What the daemon says is to be imported, and why it is not, once that was tried.
VARIABLE = "OXIRAY_TEMPLATE_PRELOAD"
_REFUSED = "OXIRAY_TEMPLATE_PRELOAD_REFUSED"
#: Numeric libraries start no threads while they are told to have one.
_THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
#: Threads, by the start of their names, whose libraries have fork handlers.
_FORKABLE_THREADS = ("jemalloc_bg_thd",)
#: Libraries with a thread count of their own, read when they were loaded, and how it is set.
_THREADED = re.compile(r"/lib(gomp|iomp5|omp|openblas|scipy_openblas|mkl_rt)[^/]*\.so")
_SETTERS = (
    "omp_set_num_threads", "openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_", "MKL_Set_Num_Threads",
)  # fmt: skip

#: What tells the libraries that were imported early how many threads to use.
_setters: list[Callable[[int], object]] = []


def in_template(descriptor: int) -> str:
    """Imports what the daemon asked for; returns what the users of this template should know, mostly nothing.

    Where that leaves a process that cannot be forked, the template starts over without.
    """
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return ""
    if (refused := os.environ.pop(_REFUSED, None)) is not None:
        return refused
    asked = json.loads(text)
    own = [_place(path, asked["session"]) for path in asked["path"]]
    sys.path[:0] = [path for path in own if path not in sys.path]
    reason = None
    if (opened := _opened_device()) is not None:
        reason = f"{sys.executable} opens {opened} when it starts, and a process that uses a device cannot be forked"
    with _one_thread(), _without_collection():
        for name in asked["modules"] if reason is None else []:
            try:
                importlib.import_module(name)
            except BaseException as error:
                reason = f"importing {name} raised {type(error).__name__}: {error}"
            if reason is None and (opened := _opened_device()) is not None:
                reason = f"importing {name} opens {opened}, and a process that uses a device cannot be forked"
            if reason is not None:
                break
    reason = reason or _why_not_forkable()
    if reason is not None:
        _start_over(descriptor, text, f"preload of {', '.join(asked['modules'])} has no effect: {reason}. Each worker imports them itself")
    _setters.extend(_thread_setters())
    return ""


def finish(modules: list[str]) -> None:
    """In a worker: imports what the template could not, and gives numeric libraries the threads that are granted."""
    for name in modules:
        importlib.import_module(name)
    count = os.environ.get("OMP_NUM_THREADS", "")
    if count.isdigit() and int(count) > 1:
        for setter in _setters:
            setter(int(count))


def _place(path: str, session: str) -> str:
    if not path.startswith("package://"):
        return path
    from oxiray import _environment_packages as packages

    return str(packages.present(Path(session), path.removeprefix("package://")))


@contextmanager
def _one_thread() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _THREAD_COUNTS}
    os.environ.update(dict.fromkeys(_THREAD_COUNTS, "1"))
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _without_collection() -> Iterator[None]:
    """What is imported stays: looking for garbage among it takes a fifth of the time, and in a worker copies its pages."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def _why_not_forkable() -> str | None:
    others = sum(1 for name in _thread_names() if not name.startswith(_FORKABLE_THREADS))
    if others > 0:
        return f"they start {others} thread{'s' if others > 1 else ''}, and a process with threads cannot be forked"
    return None


def _opened_device() -> str | None:
    """The device node that this process has open, where it has one."""
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if _families.NODE.match(target):
            return target
    return None


def _thread_names() -> Iterator[str]:
    """The names of the threads besides the main one."""
    for thread in Path("/proc/self/task").iterdir():
        if thread.name != str(os.getpid()):
            try:
                yield (thread / "comm").read_text()
            except OSError:  # It ended meanwhile.
                continue


def _start_over(descriptor: int, text: str, reason: str) -> NoReturn:
    """Replaces this process by one that imports nothing beforehand."""
    for number in os.listdir("/proc/self/fd"):
        if int(number) > 2 and int(number) != descriptor:
            try:
                os.set_inheritable(int(number), False)
            except OSError:
                continue
    os.set_inheritable(descriptor, True)
    variables = {**os.environ, VARIABLE: text, _REFUSED: reason, "OXIRAY_TEMPLATE_FD": str(descriptor)}
    os.execve(sys.executable, sys.orig_argv, variables)


def _thread_setters() -> Iterator[Callable[[int], object]]:
    if (torch := sys.modules.get("torch")) is not None:
        yield torch.set_num_threads
    for path in {line.rsplit(None, 1)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if _THREADED.search(line)}:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        found = (getattr(library, name, None) for name in _SETTERS)
        yield from [setter for setter in found if setter is not None][:1]
