"""How a job's processes log: the logger `ray` from the import on, and all loggers as `LoggingConfig` says.

Invariant: one handler of ours at most is on a logger, however often `install` and `configure` run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import asdict, dataclass, field, fields
from typing import Any

#: The format of the logger `ray` where `init(logging_format=...)` says nothing.
_TEXT_FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"
#: What every record of Python has; anything else on a record was put there by the program or by us.
_STANDARD = frozenset(
    (
        "args asctime created exc_info exc_text filename funcName levelname levelno lineno message module msecs msg name "
        "pathname process processName relativeCreated stack_info thread threadName taskName"
    ).split()
)
_TASK_KEYS = {"task_id": "task_id", "task_name": "task_name", "function_name": "task_func_name"}


@dataclass
class LoggingConfig:
    """How the driver, tasks and actors of a job log, from `init(logging_config=...)` on.

    `encoding` is `TEXT` or `JSON`; `additional_log_standard_attrs` names attributes of Python's log records to add.
    """

    encoding: str = "TEXT"
    log_level: str = "INFO"
    additional_log_standard_attrs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.encoding not in _FORMATTERS:
            raise ValueError(f"the encoding of a LoggingConfig is one of {', '.join(_FORMATTERS)}, not {self.encoding!r}")
        for attribute in self.additional_log_standard_attrs:
            if attribute not in _STANDARD:
                raise ValueError(
                    f"{attribute!r} is no attribute of Python's log records; there are {', '.join(sorted(_STANDARD))}"
                )

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> LoggingConfig:
        """The configuration that a dictionary describes; keys it does not know are left aside."""
        known = {known.name for known in fields(cls)}
        return cls(**{name: value for name, value in d.items() if name in known})


class _OwnHandler(logging.StreamHandler[Any]):
    """Writes to what `sys.stderr` is at that moment; in a worker the message alone, since the driver says whose it is."""

    is_in_worker = False

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:  # type: ignore[override]
        """Where it writes to."""
        return sys.stderr

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        plain = self.is_in_worker and not isinstance(self.formatter, _Formatter)
        return record.getMessage() if plain else super().format(record)


def install() -> None:
    """Has the logger `ray`, and those below it, log to standard error from INFO on; done by the import and by `init`."""
    logger = logging.getLogger("ray")
    if any(isinstance(handler, _OwnHandler) for handler in logger.handlers):
        return
    handler = _OwnHandler()
    handler.setFormatter(logging.Formatter(_TEXT_FORMAT))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logging.getLogger("ray.rllib").setLevel(logging.WARNING)


def configure_own(level: int, text_format: str | None) -> None:
    """Has what Ray's name and ours log come from this level on, in this format."""
    install()
    for name in ("ray", "oxiray"):
        logging.getLogger(name).setLevel(level)
    for handler in logging.getLogger("ray").handlers:
        if isinstance(handler, _OwnHandler):
            handler.setFormatter(logging.Formatter(text_format or _TEXT_FORMAT))


def leave_own() -> None:
    """Leaves it to the program where the logger `ray` writes to, as `init(configure_logging=False)` asks."""
    logger = logging.getLogger("ray")
    logger.handlers = [one for one in logger.handlers if not isinstance(one, _OwnHandler)]


def be_in_worker() -> None:
    """Has the logger `ray` of this process write messages alone."""
    _OwnHandler.is_in_worker = True


def from_variables() -> dict[str, Any] | None:
    """The configuration that RAY_LOGGING_CONFIG_ENCODING asks for; None where it is not set."""
    encoding = os.environ.get("RAY_LOGGING_CONFIG_ENCODING")
    return LoggingConfig(encoding=encoding).to_dict() if encoding else None


def configure(config: LoggingConfig) -> None:
    """Makes this process log as `config` says."""
    formatter = _FORMATTERS[config.encoding](list(config.additional_log_standard_attrs))
    handler = logging.StreamHandler()
    handler.setLevel(config.log_level)
    handler.setFormatter(formatter)
    handler.addFilter(_add_context)
    root = logging.getLogger()
    for earlier in [one for one in root.handlers if isinstance(one.formatter, _Formatter)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    for own in logging.getLogger("ray").handlers:
        if isinstance(own, _OwnHandler):
            own.setFormatter(formatter)
            if _add_context not in own.filters:
                own.addFilter(_add_context)
    for logger in (root, logging.getLogger("ray"), logging.getLogger("oxiray")):
        logger.setLevel(config.log_level)


def _add_context(record: logging.LogRecord) -> bool:
    from oxiray import _core
    from oxiray._async_context import current_call

    if _core.is_connected():
        facts: dict[str, Any] = dict(_core.context())
        call = current_call.get()
        if call is not None:
            facts.update(zip(_TASK_KEYS, call, strict=True))
        named = {key: facts[key] for key in ("job_id", "worker_id", "node_id")}
        if facts["is_worker"]:
            named.update(actor_id=facts["actor_id"], actor_name=facts["actor_name"])
            named.update({name: facts[key] for key, name in _TASK_KEYS.items()})
            if named["task_func_name"]:
                from oxiray import _worker

                named["task_func_name"] = _worker.function_name(facts)
        for key, value in named.items():
            if value:
                setattr(record, key, value)
    return True


class _Formatter(logging.Formatter):
    def __init__(self, additional: list[str]) -> None:
        super().__init__(_TEXT_FORMAT)
        self._additional = additional

    def added(self, record: logging.LogRecord) -> dict[str, Any]:
        """What is said besides the standard part: attributes asked for, the program's own, and who logged."""
        added = {name: getattr(record, name, None) for name in self._additional}
        added.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
        added["timestamp_ns"] = int(record.created * 1e9)
        return added


class _Text(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join([super().format(record), *(f"{key}={value}" for key, value in self.added(record).items())])


class _Json(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            "process": record.process,
        }
        if record.exc_info:
            said["exc_text"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps({**said, **self.added(record)}, default=str)


_FORMATTERS: dict[str, type[_Formatter]] = {"TEXT": _Text, "JSON": _Json}
