"""What went wrong in a group, in words and as exceptions."""

from __future__ import annotations

import traceback
from collections.abc import Container
from typing import Any

from oxiray import _api, _core, exceptions
from oxiray.train._errors import WorkerDiedError, WorkerHungError
from oxiray.train._worker import RayTrainWorker

#: Once a rank has failed, how long the others are given to fail too, so that the cause is among what is told. In seconds.
_OTHERS_S = 0.3
#: The place where ranks meet may take so long to say who is missing there, in seconds.
_LOOK_S = 2.0
#: The most ranks that are asked where they are.
_RANKS_MAX = 1000
#: A longer error is shown by its begin and end, in characters.
_SHOWN_MAX = 4000
#: Groups in a row that may fail before their training function has begun.
STARTUPS_MAX = 10


def of_ranks(runs: dict[Any, int], group: Any) -> dict[int, Exception]:
    """The failure of each rank that has failed, or does so at once."""
    ready, _ = _api.wait(list(runs), num_returns=len(runs), timeout=_OTHERS_S)
    found: dict[int, Exception] = {}
    for reference in ready:
        rank = runs[reference]
        try:
            _api.get(reference)
        except exceptions.RayTaskError as error:
            found[rank] = _cause(error)
        except exceptions.RayError as error:
            facts = group.workers[rank].facts
            found[rank] = WorkerDiedError(
                f"the process of rank {rank} (pid {facts['pid']} on {facts['hostname']}) ended in the middle of the training "
                f"function: {error}"
            )
    died = {rank: error for rank, error in found.items() if isinstance(error, WorkerDiedError)}
    # What the others say is that they lost it.
    return {**died, **{rank: error for rank, error in sorted(found.items()) if rank not in died}}


def _cause(error: exceptions.RayTaskError) -> Exception:
    # Ray Data's exception says only that a function of the program failed: the text of the whole error has that failure.
    is_shown = isinstance(error.cause, Exception) and not isinstance(error.cause, exceptions.UserCodeException)
    cause: Exception = error.cause if is_shown else error
    # The worker's own stack, which the exception lost on its way.
    cause.__dict__["_oxiray_traceback"] = getattr(error, "traceback_str", None) or str(error)
    return cause


def hung(group: Any, limit: float) -> dict[int, Exception]:
    """Each rank that is to blame for the silence, with where it is."""
    meetings = group.expect(group.exchange.missing.remote())
    ready, _ = _api.wait([meetings], timeout=_LOOK_S)
    missing: dict[str, list[int]] = _api.get(meetings) if ready else {}
    stacks, silent = _looked_at(group)
    late = {rank: meeting for meeting, ranks in missing.items() for rank in ranks}
    blamed = silent or sorted(late) or list(range(len(group.workers)))
    found: dict[int, Exception] = {}
    for rank in blamed:
        facts = group.workers[rank].facts
        where = f"; the others wait for it in {late[rank]}" if rank in late else ""
        at = stacks.get(rank, "its process is gone\n")
        found[rank] = WorkerHungError(
            f"no report for {limit:g} s (FailureConfig.hang_timeout_s), and rank {rank} (pid {facts['pid']} on "
            f"{facts['hostname']}) is here{where}:\n{at}"
        )
    return found


def _looked_at(group: Any) -> tuple[dict[int, str], list[int]]:
    """Where the main thread of each rank is, and the ranks whose processes tell nothing."""
    ranks = {worker.handle._actor_id.hex(): rank for rank, worker in enumerate(group.workers)}
    wanted = [("job_id", False, _core.context()["job_id"]), ("name", False, RayTrainWorker.__name__)]
    try:
        rows, _, _ = _core.look("stacks", wanted, _RANKS_MAX, False, False, None)
    except exceptions.RayError as error:
        return dict.fromkeys(ranks.values(), f"it could not be asked: {error}\n"), []
    told = {ranks[row["actor_id"]]: row for row in rows if row["actor_id"] in ranks}
    return {rank: _place(row) for rank, row in told.items()}, [rank for rank, row in sorted(told.items()) if not row["stacks"]]


def _place(row: dict[str, Any]) -> str:
    """What a process tells of its main thread, as Python writes stacks."""
    note = f"({row['note']})\n" if row["note"] else ""
    frames = row["stacks"][0]["frames"] if row["stacks"] else []
    return note + "".join(
        traceback.format_list([(call["file"], call["line"], call["function"], None) for call in reversed(frames)])
    )


#: What the cluster says of how such a process ended.
_PREEMPTED = "was preempted: "


def is_preempted(failures: dict[int, Exception], group: Any, leaving: Container[str]) -> bool:
    """Whether a rank died with a machine that was drained, or ended early for what is more urgent."""
    died = {rank: error for rank, error in failures.items() if isinstance(error, WorkerDiedError)}
    return any(
        rank in group.excused or group.workers[rank].facts["node_id"] in leaving or _PREEMPTED in str(error)
        for rank, error in died.items()
    )


def lost_exchange(error: Exception) -> Exception:
    """The failure of a group whose meeting place is gone."""
    return WorkerDiedError(f"the process in which the ranks meet is gone: {error}")


def told(failures: dict[int, Exception]) -> str:
    """Failures as text, equal ones together."""
    texts: dict[str, list[int]] = {}
    for rank, error in failures.items():
        text = getattr(error, "_oxiray_traceback", None) or f"{type(error).__name__}: {error}"
        texts.setdefault(_shown(text.strip()), []).append(rank)
    return "\n".join(f"[Rank {','.join(map(str, ranks))} Error Snippet]:\n{text}" for text, ranks in texts.items())


def _shown(text: str) -> str:
    if len(text) <= _SHOWN_MAX:
        return text
    return f"{text[: _SHOWN_MAX // 2]}\n[...]\n{text[-_SHOWN_MAX // 2 :]}"


def places(group: Any) -> str:
    """Where the ranks are, machine by machine."""
    machines: dict[str, list[int]] = {}
    for worker in group.workers:
        machines.setdefault(worker.facts["hostname"], []).append(worker.place.world_rank)
    return "; ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {ranks[0]}{f'-{ranks[-1]}' if len(ranks) > 1 else ''} on {machine}"
        for machine, ranks in machines.items()
    )


def is_passing(error: Exception) -> bool:
    """Whether trying again may help: processes and machines come and go, an exception in set-up comes again."""
    return not isinstance(error, (exceptions.RayTaskError, exceptions.RuntimeEnvSetupError))
