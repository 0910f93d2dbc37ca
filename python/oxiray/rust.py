"""Functions and actors of Rust programs, called from Python, and the other way round.

    from oxiray import rust

    program = rust.program("./target/release/app")
    reference = program.function("add").remote(1, 2)
    counter = program.actor("Counter").remote(10)

The program is what `#[oxiray::remote]` stands in; its workers are forked from the program's own file. What crosses is
None, bool, int (64 bits), float, str, bytes, list, dict, numpy arrays, ObjectRefs and handles of actors; structs and maps
are dicts, tuples arrive as lists. A failure is a `RayTaskError` whose cause is a `CrossLanguageError`.

Invariant: who was called from another language answers in what both can read; nothing is ever unpickled in Rust.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from oxiray import (
    _core, _environment, _environment_packages as packages, _options, _session, _strategies, actor, exceptions,
)  # fmt: skip
from oxiray.remote_function import RemoteFunction, stream_terms

#: How a handle of a Rust actor begins, where that of a Python one is a pickle.
_COMMON = (5, 6)
_SETUP_TIMEOUT_S = 600
#: What of a runtime environment workers of a Rust program have.
_FIELDS = {"config", "device_isolation", "env_vars", "excludes", "working_dir"}


def program(path: str | os.PathLike[str]) -> Program:
    """The Rust program at `path`, which calls `oxiray::init()` or is marked with `#[oxiray::main]`.

    Raises `ValueError` where there is no program that can be run.
    """
    return Program(Path(path))


def put(value: Any) -> Any:
    """Keeps a value that Rust programs can read; what plain `put` keeps only Python can.

    Raises `TypeError` where the value has parts that Rust has no counterpart for.
    """
    _session.ensure()
    return _core.put_common(value)


class Program:
    """A program whose functions and actors can be called by their names, or by the end of their paths."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        if not (self.path.is_file() and os.access(self.path, os.X_OK)):
            raise ValueError(f"{path} is no program that can be run: build it (cargo build --release), and name its file")
        self._name = packages.ship_program(self.path)

    def function(self, name: str) -> RustFunction:
        """The remote function of that name."""
        # Whether it yields is known in Rust; here it has one result unless something else is asked for.
        return RustFunction(self, name, _options.task_options({"num_returns": 1}, is_generator=True))

    def actor(self, name: str) -> RustActorClass:
        """The class of actors of that name."""
        return RustActorClass(self, name, _options.actor_options({}))

    def environment(self, asked: dict[str, Any] | None) -> dict[str, Any]:
        """What the daemon is told of the processes that are to run it."""
        variables = {**_session.job_environment.get("env_vars", {}), **((asked or {}).get("env_vars") or {})}
        own_packages = [(self._name, str(packages.zip_of(self._name)))]
        fields = {"directory": os.getcwd()}
        if folder := _working_dir(asked):
            name = folder.removeprefix(_environment.SCHEME)
            own_packages.append((name, str(packages.zip_of(name))))
            fields = {"working_dir": folder}
        preparation = {"packages": own_packages, "program": self._name}
        return {
            "variables": variables,
            "fields": json.dumps(fields),
            "preparation": json.dumps(preparation, sort_keys=True),
            "cached": "",
            "preload": [],
            "preload_path": [],
            "setup_timeout_s": _SETUP_TIMEOUT_S,
            "eager": False,
            "native": True,
            "isolation": (asked or {}).get("device_isolation") or _session.job_environment.get("device_isolation") or "",
        }

    def __repr__(self) -> str:
        return f"Program({str(self.path)!r})"


def _working_dir(asked: dict[str, Any] | None) -> str | None:
    """The shipped folder that a program's workers are in: their own, or the job's."""
    for name in asked or {}:
        if name not in _FIELDS:
            raise ValueError(
                f"runtime_env[{name!r}] is for workers that run Python, and a Rust program is to run: it takes "
                f"{', '.join(sorted(_FIELDS))}"
            )
    settled = _environment.settled(asked)
    return settled.get("working_dir") or _session.job_environment.get("working_dir")


class RustFunction:
    """A function of a Rust program: call it with `.remote(...)`."""

    def __init__(self, owner: Program, name: str, options: _options.TaskOptions) -> None:
        self._owner = owner
        self._name = name
        self._options = options
        self._caller: Any = None
        self._generation = -1

    def options(self, **options: Any) -> RustFunction:
        """The same function with other options, those of Python's tasks."""
        return RustFunction(self._owner, self._name, _options.task_options(options, in_options=True, base=self._options))

    def remote(self, *args: Any) -> Any:
        """Runs the function in another process; returns a reference to its result.

        With `num_returns=N` a list of references to the parts of the tuple that it returns; with
        `num_returns="streaming"` what yields references to the items of the iterator that it returns.
        """
        if self._generation != _session.generation or self._caller is None:
            self._prepare()
        return self._caller.call(args, {})

    def _prepare(self) -> None:
        options = self._options
        _options.check_submittable(options)
        _session.ensure()
        body = self._name.encode()
        stream = stream_terms(options.num_returns, options.generator_backpressure_num_objects, 1)
        self._caller = _core.Caller.of_function(
            hash=hashlib.blake2b(body, digest_size=16).digest(),
            body=body,
            name=self._name.rpartition("::")[2],
            label=options.name or "",
            resources=options.resources,
            environment=self._owner.environment(options.runtime_env),
            fresh=options.fresh,
            results=1 if stream else int(options.num_returns),
            max_calls=options.max_calls,
            retries=options.max_retries,
            retry_exceptions=_options.retried_as_sent(options.retry_exceptions, "rust"),
            stream=stream,
            least_arguments=0,
            most_arguments=None,
            bind=None,
            strategy=_strategies.told(options, self._name),
            urgency=(options.priority, options.preemptible),
            common=True,
        )
        self._generation = _session.generation


class RustActorClass:
    """A class of actors of a Rust program: make one with `.remote(...)`."""

    def __init__(self, owner: Program, name: str, options: _options.ActorOptions) -> None:
        self._owner = owner
        self._name = name
        self._options = options

    def options(self, **options: Any) -> RustActorClass:
        """The same class with other options, those of Python's actors."""
        return RustActorClass(self._owner, self._name, _options.actor_options(options, in_options=True, base=self._options))

    def remote(self, *args: Any) -> actor.ActorHandle:
        """Makes an actor; its constructor gets the arguments. Returns at once, with a handle of any method."""
        options = self._options
        _options.check_submittable(options)
        _session.ensure()
        concurrency = options.concurrency(is_async=False)
        handle = told(actor.Traits(self._name, {}, options.max_task_retries, unordered=concurrency > 1))
        actor_id, hold, existing = _core.create_actor(
            class_name=self._name.rpartition("::")[2],
            body=self._name.encode(),
            args=args,
            kwargs={},
            placement=options.placement,
            running=options.running,
            environment=self._owner.environment(options.runtime_env),
            name=options.name or "",
            namespace=options.namespace or "",
            detached=(options.lifetime or _session.default_lifetime) == "detached",
            get_if_exists=options.get_if_exists,
            max_concurrency=concurrency,
            groups=[],
            max_restarts=options.max_restarts,
            handle=handle,
            strategy=_strategies.told(options, self._name),
            urgency=(options.priority, options.preemptible),
            common=True,
        )
        return actor.ActorHandle(actor_id, traits(existing or handle), hold)


def is_traits(told: bytes) -> bool:
    """Whether these bytes tell of an actor that is called in what both languages read."""
    return bool(told) and told[0] in _COMMON


def traits(told: bytes) -> actor.Traits:
    """What a handle knows of an actor that a Rust program made, or whose class is Rust's."""
    known = _core.load_common(told)
    shape: dict[str, Any] = {"options": {}, "yields": False}
    return actor.Traits(
        class_name=known["class"].rpartition("::")[2],
        methods={name: shape for name in known["methods"]},
        max_task_retries=known["max_task_retries"],
        unordered=known["unordered"],
        language="rust",
    )


def told(of: actor.Traits) -> bytes:
    """What a handle knows of an actor whose class is Rust's, as every language reads it."""
    return _core.dump_common(
        {
            "class": of.class_name,
            "language": "rust",
            "max_task_retries": of.max_task_retries,
            "unordered": of.unordered,
            "methods": list(of.methods),
        }
    )


def error_of(record: dict[str, Any]) -> exceptions.RayTaskError:
    """The exception for what failed in another language."""
    kind = f"{record['error']}: " if record["error"] else ""
    text = f"{kind}{record['message']}" + (f"\n{record['trace']}" if record["trace"] else "")
    cause = exceptions.CrossLanguageError(text)
    return exceptions.RayTaskError(
        record["function"], text, cause, proctitle=f"{record['language']}::{record['function']}()", pid=record["pid"]
    )


def _load_function(module: str, name: str) -> Any:
    """What a Rust program means by a function: its worker unpickles a call of this."""
    found = _attribute(module, name)
    return found._function if isinstance(found, RemoteFunction) else found


def _load_class(module: str, name: str) -> Any:
    """What a Rust program means by a class of actors."""
    found = _attribute(module, name)
    return found._class if isinstance(found, actor.ActorClass) else found


def _attribute(module: str, name: str) -> Any:
    import importlib

    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
