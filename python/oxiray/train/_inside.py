"""What a training function may ask and say: reports, checkpoints, its rank, its data.

Invariant: there is one session in a process, from the moment the worker joins its group to its end.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oxiray import _core
from oxiray.train import _errors, _storage
from oxiray.train._checkpoint import Checkpoint
from oxiray.train._configs import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    PreemptionInfo,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    validation_spec,
)

_MODES = CheckpointUploadMode


@dataclass(frozen=True)
class Place:
    """Where a worker stands in its group."""

    world_rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int


@dataclass
class Session:
    """What a worker knows of the run; the same on every restart but for the last checkpoint."""

    run: str
    place: Place
    #: Where the ranks meet; None in the driver itself, where there is one rank.
    exchange: Any
    storage: _storage.Storage | None
    checkpoint: Checkpoint | None = None
    #: Every checkpoint that is kept.
    kept: list[ReportedCheckpoint] = field(default_factory=list)
    #: Whether the trainer was told how checkpoints are validated.
    validates: bool = False
    datasets: dict[str, Any] = field(default_factory=dict)
    #: Datasets of Ray Data, whose parts the ranks ask for.
    ingested: frozenset[str] = frozenset()
    #: Indices of this worker's devices among those it sees; None where each sees its own only.
    device_indices: list[int] | None = None
    late_s: float = 60.0
    first_report: int = 0
    reports: int = 0
    meetings: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    upload: _Upload | None = None

    def __post_init__(self) -> None:
        self.reports = self.first_report

    def settled_uploads(self) -> None:
        """Waits for the upload under way. Raises where it failed."""
        upload, self.upload = self.upload, None
        if upload is not None:
            upload.wait()


class _Upload:
    """A checkpoint that is stored while training goes on."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name="oxiray-checkpoint", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error


_session: Session | None = None
_listener: socket.socket | None = None


def enter(session: Session | None) -> None:
    """Makes this process a worker of a run, or none any more."""
    global _session
    _session = session


def hold(listener: socket.socket | None) -> None:
    """Keeps a socket whose port the ranks will meet at; closes the one before."""
    global _listener
    if _listener is not None:
        _listener.close()
    _listener = listener


def held_port() -> int | None:
    """The held socket's descriptor, which is the caller's from now on; None where this rank holds none."""
    global _listener
    listener, _listener = _listener, None
    return listener.detach() if listener is not None else None


def current(what: str) -> Session:
    """The session. Raises `RuntimeError` outside of a training function."""
    if _session is None:
        raise _errors.outside(what)
    return _session


def is_inside() -> bool:
    """Whether this process is a worker of a run."""
    return _session is not None


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
    validation: Any = False,
) -> None:
    """Tells the run what this rank measured, and hands over a checkpoint. Returns once all ranks have called it.

    With a checkpoint and `SYNC`, it returns when the checkpoint of all ranks is kept; with `ASYNC`, this rank's files
    are stored while training goes on, one checkpoint at a time; with `NO_UPLOAD` they lie in the run's folder already.
    With `validation` (True, or a `ValidationTaskConfig`), the trainer's `validation_config` is applied to the checkpoint
    once it is kept. Raises `CheckpointError` where a checkpoint cannot be kept.
    """
    session = current("report")
    _check_report(metrics, checkpoint, checkpoint_upload_mode)
    asked = _validation_of(session, checkpoint, validation) if validation else None
    session.reports += 1
    index = session.reports
    name = None
    if checkpoint is not None:
        name = _name_of(session, checkpoint, checkpoint_dir_name, checkpoint_upload_mode)
    if session.exchange is None:
        session.history.append(dict(metrics))
        session.checkpoint = checkpoint or session.checkpoint
        return
    rank = session.place.world_rank
    agreed = _core.get_one(session.exchange.report.remote(rank, index, pickle.dumps(metrics), name, _core.draining() is not None))
    if agreed is None:
        return
    session.settled_uploads()
    is_async = checkpoint_upload_mode is _MODES.ASYNC
    delete = is_async if delete_local_checkpoint_after_upload is None else delete_local_checkpoint_after_upload

    def keep() -> None:
        _keep(session, index, agreed, checkpoint, checkpoint_upload_mode, checkpoint_upload_fn, metrics, asked)
        if delete and checkpoint is not None and checkpoint_upload_mode is not _MODES.NO_UPLOAD:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    if is_async:
        session.upload = _Upload(keep)
    else:
        keep()


def _check_report(metrics: Any, checkpoint: Any, mode: Any) -> None:
    if not isinstance(metrics, dict):
        raise TypeError(f"report() takes its metrics as a dictionary of numbers by name, and was given {metrics!r}")
    refuse_tensors(metrics, "metrics")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"report(checkpoint={checkpoint!r}) takes a Checkpoint: make one with Checkpoint.from_directory(folder)")
    if not isinstance(mode, CheckpointUploadMode):
        raise ValueError(f"report(checkpoint_upload_mode={mode!r}) takes a ray.train.CheckpointUploadMode")


def _validation_of(session: Session, checkpoint: Checkpoint | None, validation: Any) -> Any:
    if checkpoint is None:
        raise ValueError("report(validation=...) needs a checkpoint to validate: report one beside it")
    if not session.validates:
        raise ValueError(
            "report(validation=...) needs a trainer that was given validation_config=ValidationConfig(fn), and workers of its "
            "own (num_workers of at least 1)"
        )
    return validation_spec(validation)


def _name_of(session: Session, checkpoint: Checkpoint, asked: str | None, mode: CheckpointUploadMode) -> str:
    if asked is not None and (not isinstance(asked, str) or "/" in asked or asked.startswith(".") or not asked):
        raise ValueError(f"report(checkpoint_dir_name={asked!r}) must be the name of a folder, without `/`")
    if mode is _MODES.NO_UPLOAD and session.storage is not None:
        folder = os.path.dirname(checkpoint.path.rstrip("/"))
        if folder != session.storage.path:
            raise ValueError(
                f"report(checkpoint_upload_mode=NO_UPLOAD) takes a checkpoint right below the run's folder "
                f"{session.storage.path}, and {checkpoint.path} lies elsewhere: write it there, or leave the mode out"
            )
        return os.path.basename(checkpoint.path.rstrip("/"))
    return asked or time.strftime("checkpoint_%Y-%m-%d_%H-%M-%S.") + f"{time.time_ns() // 1000 % 1_000_000:06d}"


def _keep(
    session: Session, index: int, name: str, checkpoint: Checkpoint | None, mode: CheckpointUploadMode,
    upload: Callable[[Checkpoint, str], Checkpoint] | None, metrics: dict[str, Any], validation: Any,
) -> None:  # fmt: skip
    """Stores this rank's files, and waits until the checkpoint of all ranks is kept."""
    assert session.storage is not None, "a session with an exchange has a storage"
    rank = session.place.world_rank
    outcome: Any = (rank, {})
    cause: Exception | None = None
    try:
        if checkpoint is None:
            pass
        elif upload is not None or mode is _MODES.NO_UPLOAD:
            if upload is not None:
                upload(checkpoint, name)
            outcome = None
        else:
            with checkpoint.as_directory() as folder:
                outcome = (rank, session.storage.store(folder, name, rank))
    except Exception as error:
        cause = error
        outcome = f"rank {rank}: {error}"
    is_missed, refused = _core.get_one(session.exchange.stored.remote(rank, index, (name, outcome, validation)))
    if is_missed:
        # The checkpoint is kept without this rank's files, whose folder may have been removed under it.
        return
    if cause is not None:
        raise cause
    if refused is not None:
        raise _errors.CheckpointError(refused)
    session.checkpoint = Checkpoint(session.storage.join(name), session.storage.filesystem)
    session.kept.append(ReportedCheckpoint(session.checkpoint, metrics, ReportedCheckpointStatus.COMMITTED))


def refuse_tensors(value: Any, where: str) -> None:
    """Raises `ValueError` for tensors of PyTorch, which would bring devices and PyTorch itself where they are read."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor is None:
        return
    if isinstance(value, tensor):
        raise ValueError(
            f"Passing objects containing Torch tensors as {where} is not supported: pass numbers, with `.item()` or `.tolist()`"
        )
    if isinstance(value, dict):
        for part in value.values():
            refuse_tensors(part, where)
    elif isinstance(value, (list, tuple)):
        for part in value:
            refuse_tensors(part, where)


def get_checkpoint() -> Checkpoint | None:
    """The last checkpoint that is kept: of this run, or of an earlier one of its name. None where there is none."""
    return current("get_checkpoint").checkpoint


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED, timeout_s: float | None = None
) -> list[ReportedCheckpoint]:
    """Every checkpoint of this run that is kept, oldest first, with its metrics and what became of it.

    Waits for an upload under way, and with `VALIDATED` until every validation is over, `timeout_s` at most.
    """
    session = current("get_all_reported_checkpoints")
    if not isinstance(consistency_mode, CheckpointConsistencyMode):
        raise ValueError(f"get_all_reported_checkpoints(consistency_mode={consistency_mode!r}) takes a CheckpointConsistencyMode")
    session.settled_uploads()
    waits = consistency_mode is CheckpointConsistencyMode.VALIDATED
    validating: set[str] = set()
    validated: dict[str, tuple[str, bytes]] = {}
    if session.validates:
        validating, validated = _core.get_one(session.exchange.validations.remote(waits, timeout_s))
    found = []
    for one in session.kept:
        name, status, metrics = os.path.basename(one.checkpoint.path), one.status, one.metrics
        if name in validated:
            status, metrics = ReportedCheckpointStatus(validated[name][0]), pickle.loads(validated[name][1])
        elif name in validating:
            status = ReportedCheckpointStatus.PENDING_VALIDATION
        if one.checkpoint.is_there():
            found.append(ReportedCheckpoint(one.checkpoint, metrics, status))
    return found


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This rank's part of a dataset that was given to the trainer. Raises `KeyError` for one that was not.

    Of a dataset of Ray Data, the part is a `DataIterator`. Where the dataset is divided, all ranks have to read their parts.
    """
    session = current("get_dataset_shard")
    if dataset_name is None:
        dataset_name = "train"
    if dataset_name in session.ingested and dataset_name not in session.datasets:
        session.datasets[dataset_name] = _part_of(session, dataset_name)
    if dataset_name not in session.datasets:
        given = ", ".join(sorted({*session.datasets, *session.ingested})) or "none"
        raise KeyError(
            f"no dataset {dataset_name!r} was given to the trainer (given: {given}): pass datasets={{{dataset_name!r}: ...}}"
        )
    return session.datasets[dataset_name]


def _part_of(session: Session, name: str) -> Any:
    is_divided, found = _core.get_one(session.exchange.part.remote(session.place.world_rank, name))
    if not is_divided:
        raise pickle.loads(found)
    return _core.get_one(found[0])


def get_preemption_info() -> Any:
    """Which machines of the run are being drained, or on which its workers are to end early for what is more urgent, and when
    the first of them ends; None while none is.

    All ranks have to call it, and get the same answer. It names the ranks that were told by then: of workers that are to end
    early together, one may be told some milliseconds before another, and a later call names both.
    """
    session = current("get_preemption_info")
    told = (_core.draining(), _core.preempted()) if session.exchange is not None else ()
    own = None
    if any(told):
        left = min((said[0] for said in told if said is not None and said[0] is not None), default=None)
        own = (_core.context()["node_id"], None if left is None else int((time.time() + left) * 1000))
    found = {rank: one for rank, one in meet("get_preemption_info", own).items() if one is not None}
    if not found:
        return None
    nodes: dict[str, list[int]] = {}
    for rank, (node, _) in found.items():
        nodes.setdefault(node, []).append(rank)
    return PreemptionInfo(min((end for _, end in found.values() if end is not None), default=None), nodes)


def meet(kind: str, value: Any) -> dict[int, Any]:
    """Every rank's value, once all have called this."""
    session = current(kind)
    if session.exchange is None:
        return {0: value}
    session.meetings += 1
    found = _core.get_one(session.exchange.meet.remote(kind, session.meetings, session.place.world_rank, pickle.dumps(value)))
    return {rank: pickle.loads(entry) for rank, entry in found.items()}


