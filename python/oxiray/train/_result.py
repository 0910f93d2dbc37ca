"""What `fit()` returns."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, NoReturn

from oxiray.train import _kept, _plot
from oxiray.train._checkpoint import Checkpoint
from oxiray.train._configs import CheckpointConfig
from oxiray.train._storage import Storage


@dataclass
class Result:
    """How training ended: the last report, the last checkpoint, and every row that rank 0 reported.

    `metrics` is the last report, with a checkpoint or without (Ray keeps those with a checkpoint only); each row of
    `history` has besides what was reported its number, `report`, and `seconds` since the run began, where no metric has
    those names.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    error: Exception | None
    path: str
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = field(default_factory=list)
    return_value: Any = None
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _storage: Any = field(default=None, repr=False)

    __module__ = "oxiray.train"

    @property
    def metrics_dataframe(self) -> Any:
        """`history` as a frame of pandas, which has to be installed."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            text = "Result.metrics_dataframe is a frame of pandas: `pip install pandas`, or take the same rows from Result.history"
            raise ModuleNotFoundError(text, name="pandas") from error
        return pandas.DataFrame(self.history)

    @property
    def filesystem(self) -> Any:
        """What reaches `path`: pyarrow's filesystem where pyarrow is installed, else fsspec's."""
        return Checkpoint(self.path, getattr(self._storage, "filesystem", None)).filesystem

    @property
    def config(self) -> NoReturn:
        """Was Ray Tune's; raises `DeprecationWarning`."""
        raise DeprecationWarning("`Result.config` is deprecated, as it belonged to Ray Tune: keep what you gave the trainer")

    def plot(self, *names: str, path: str | os.PathLike[str] | None = None) -> Any:
        """Draws metrics over the reports, as SVG: to a file where `path` is given, and shown by notebooks.

        Raises `ValueError` for a name that was not reported as a number.
        """
        drawing = _plot.Drawing(self.history, names)
        if path is not None:
            with open(path, "w") as file:
                file.write(drawing.svg)
        return drawing

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """The kept checkpoint whose `metric` is the greatest (`max`) or the least (`min`); None where none has it."""
        if mode not in ("max", "min"):
            raise ValueError(f"get_best_checkpoint(mode={mode!r}): the mode is 'max' or 'min'")
        scored = [(metrics[metric], checkpoint) for checkpoint, metrics in self.best_checkpoints if metric in metrics]
        if not scored:
            known = sorted({name for _, metrics in self.best_checkpoints for name in metrics})
            raise RuntimeError(f"Invalid metric name {metric!r}: reported with a checkpoint were {', '.join(known) or 'none'}")
        best = max if mode == "max" else min
        return best(scored, key=lambda pair: pair[0])[1]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """What a run left in its folder. Raises `RuntimeError` where there is none."""
        folder, _, name = os.fspath(path).rstrip("/").rpartition("/")
        storage = Storage(folder or ".", name, storage_filesystem)
        if storage.read(_kept.SNAPSHOT) is None and storage.read(_kept.ROWS) is None:
            raise RuntimeError(
                f"no run lies at {os.fspath(path)}: it has neither {_kept.SNAPSHOT} nor {_kept.ROWS}. Give the folder that "
                "Result.path named"
            )
        kept = _kept.Kept(storage, CheckpointConfig(), lambda text: None)
        kept.read()
        return of(kept)


def _last(rows: list[dict[str, Any]], latest: _kept.Entry | None) -> dict[str, Any] | None:
    """The last report, with what a validation found of its checkpoint."""
    if not rows:
        return latest.metrics if latest is not None else None
    is_validated = latest is not None and latest.report == rows[-1]["report"]
    return {**rows[-1]["metrics"], **(latest.metrics if is_validated and latest is not None else {})}


def of(kept: _kept.Kept, returned: Any = None) -> Result:
    """The result of a run."""
    latest = kept.latest
    rows = json.loads(json.dumps(kept.rows))
    return Result(
        metrics=_last(rows, latest),
        checkpoint=kept.checkpoint(latest) if latest is not None else None,
        error=None,
        path=kept.storage.path,
        best_checkpoints=[(kept.checkpoint(entry), entry.metrics) for entry in kept.best()],
        return_value=returned,
        history=[{"report": row["report"], "seconds": row["seconds"], **row["metrics"]} for row in rows],
        _storage=kept.storage,
    )
