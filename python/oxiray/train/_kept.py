"""The checkpoints that a run keeps, and the rows that it reported: in memory, and in files that a later run reads.

Invariants:
1. The file of checkpoints is written before a checkpoint that it no longer names is removed.
2. The last checkpoint is never removed.
3. Rows after the checkpoint that a run starts from are not there: those reports happen again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oxiray._version import RAY_VERSION
from oxiray.train._checkpoint import Checkpoint
from oxiray.train._configs import CheckpointConfig
from oxiray.train._configs import ReportedCheckpointStatus as Status
from oxiray.train._storage import Storage

#: The list of checkpoints, in Ray's format, so that a run may go on from one to the other.
SNAPSHOT = "checkpoint_manager_snapshot.json"
#: One row of JSON for each report.
ROWS = "reports.jsonl"


@dataclass
class Entry:
    """A checkpoint that is kept."""

    name: str
    metrics: dict[str, Any]
    #: The number of the report that brought it, from 1.
    report: int
    #: The validation that is asked for and not over: its arguments and limit, or True for the defaults.
    validation: dict[str, Any] | bool | None = None
    status: str = Status.COMMITTED.value

    def __post_init__(self) -> None:
        if self.validation is not None:
            self.status = Status.PENDING_VALIDATION.value


#: How a validation ended -> the entry of the list that names such checkpoints.
_OVER = {
    Status.VALIDATED.value: "validated_checkpoint_dir_names",
    Status.VALIDATION_TIMEOUT.value: "timed_out_validation_checkpoint_dir_names",
    Status.VALIDATION_FAILED.value: "failed_validation_checkpoint_dir_names",
}


class Kept:
    """What a run has to show."""

    def __init__(self, storage: Storage, config: CheckpointConfig, say: Callable[[str], None]) -> None:
        self.storage = storage
        self._config = config
        self._say = say
        self.entries: list[Entry] = []
        self.rows: list[dict[str, Any]] = []
        self._file: Any = None

    def load(self) -> None:
        """Reads what an earlier run of this name left, to go on from its last checkpoint that is whole."""
        self.read()
        self.rewind()

    def read(self) -> None:
        """Reads what a run left. Raises `ValueError` where that is not readable."""
        content = self.storage.read(SNAPSHOT)
        if content is not None:
            try:
                state = json.loads(content)
                results, reports = state["checkpoint_results"], state["checkpoint_report_indices"]
                latest = state.get("latest_checkpoint_result")
                if latest and latest["checkpoint_dir_name"] not in [one["checkpoint_dir_name"] for one in results]:
                    results, reports = [*results, latest], [*reports, state["current_report_index"]]
                pending = [one["checkpoint_dir_name"] for one in state.get("pending_training_results", [])]
                asked = dict(zip(pending, state.get("pending_validation_specs", []), strict=True))
                over = {name: status for status, key in _OVER.items() for name in state.get(key, [])}
                self.entries = [
                    Entry(name, one["metrics"], report, asked.get(name), over.get(name, Status.COMMITTED.value))
                    for one, report in zip(results, reports, strict=True)
                    for name in [one["checkpoint_dir_name"]]
                ]
                self.entries.sort(key=lambda entry: entry.report)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{self.storage.join(SNAPSHOT)} cannot be read ({type(error).__name__}: {error}), so this run cannot go "
                    "on from its last checkpoint: give RunConfig another name, or remove the file to start anew"
                ) from error
        lines = (self.storage.read(ROWS) or b"").splitlines()
        self.rows = [row for line in lines if (row := _row(line)) is not None]

    def rewind(self) -> None:
        """Drops checkpoints that are damaged or gone, the newest first until one is whole, and the rows after it.

        No group of this run may be alive: what one had begun to store is removed.
        """
        self.storage.sweep()
        while self.entries:
            wrong = self.storage.what_is_wrong(self.entries[-1].name)
            if wrong is None:
                break
            self._say(f"checkpoint {self.entries[-1].name} cannot be used, as {wrong}: going back to the one before")
            self.entries.pop()
        last = self.entries[-1].report if self.entries else 0
        self.rows = [row for row in self.rows if row["report"] <= last]
        self.close()
        self._write_rows()

    @property
    def latest(self) -> Entry | None:
        """The newest checkpoint."""
        return self.entries[-1] if self.entries else None

    @property
    def reports(self) -> int:
        """How many reports there were up to the newest checkpoint."""
        return self.entries[-1].report if self.entries else 0

    def checkpoint(self, entry: Entry) -> Checkpoint:
        """The folder of a checkpoint."""
        return Checkpoint(self.storage.join(entry.name), self.storage.filesystem)

    def add_row(self, report: int, metrics: dict[str, Any], seconds: float) -> None:
        """Notes what rank 0 reported, and how many seconds after the run's begin."""
        row = {"report": report, "seconds": round(seconds, 6), "metrics": plain(metrics)}
        self.rows.append(row)
        if len(self.rows) > 1 and self.rows[-2]["report"] > report:
            # One whose checkpoint was stored while others were reported.
            self.rows.sort(key=lambda one: int(one["report"]))
        if self.storage.is_local:
            if self._file is None:
                self._file = open(self.storage.join(ROWS), "a")  # noqa: SIM115  it is open as long as the run
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def add(self, entry: Entry) -> None:
        """Keeps a checkpoint that is in its place, and lets go of those that are too many."""
        self.entries.append(entry)
        self.entries.sort(key=lambda one: one.report)
        self._let_go()

    def validated(self, entry: Entry, status: str, metrics: dict[str, Any]) -> None:
        """The validation of a checkpoint is over; what it measured is the checkpoint's from now on."""
        entry.validation, entry.status = None, status
        entry.metrics = {**entry.metrics, **metrics}
        if any(one is entry for one in self.entries):
            self._let_go()

    def _let_go(self) -> None:
        dropped = self._too_many()
        self.entries = [one for one in self.entries if one not in dropped]
        self._write()
        for one in dropped:
            self.storage.remove(one.name)
        if not self.storage.is_local:
            self._write_rows()

    def best(self) -> list[Entry]:
        """Those kept, the best last; the oldest first where there is no score."""
        attribute = self._config.checkpoint_score_attribute
        if attribute is None:
            return list(self.entries)
        return sorted(self.entries, key=self._score)

    def _score(self, entry: Entry) -> float:
        found: Any = entry.metrics
        for part in (self._config.checkpoint_score_attribute or "").split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        if not isinstance(found, (int, float)) or math.isnan(found):
            return -math.inf
        return float(found) if self._config.checkpoint_score_order == "max" else -float(found)

    def _too_many(self) -> list[Entry]:
        number = self._config.num_to_keep
        if number is None:
            return []
        return [entry for entry in self.best()[:-number] if entry is not self.entries[-1] and entry.validation is None]

    def _write(self) -> None:
        best = self.best()
        results = [{"version": 0, "checkpoint_dir_name": one.name, "metrics": plain(one.metrics)} for one in best]
        state = {
            "ray_version": RAY_VERSION,
            "checkpoint_results": results,
            "checkpoint_report_indices": [one.report for one in best],
            "latest_checkpoint_result": next(
                (one for one in results if one["checkpoint_dir_name"] == self.entries[-1].name), None
            ),
            "pending_training_results": [result for result, one in zip(results, best, strict=True) if one.validation is not None],
            "pending_validation_specs": [one.validation for one in best if one.validation is not None],
            "current_report_index": self.reports,
            **{key: [one.name for one in best if one.status == status] for status, key in _OVER.items()},
        }
        self.storage.write(SNAPSHOT, json.dumps(state).encode())

    def _write_rows(self) -> None:
        self.storage.write(ROWS, "".join(json.dumps(row) + "\n" for row in self.rows).encode())

    def finish(self) -> None:
        """The run has ended: everything is written."""
        self.close()
        if not self.storage.is_local:
            self._write_rows()

    def close(self) -> None:
        """Lets go of the open file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None  # the run was killed in the middle of it
    is_whole = isinstance(row, dict) and isinstance(row.get("report"), int) and isinstance(row.get("metrics"), dict)
    return row if is_whole else None


def plain(value: Any) -> Any:
    """A value as JSON can hold it: numbers of other libraries as numbers, what is left as text."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return repr(value)
