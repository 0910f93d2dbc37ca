"""What went wrong in a group, in words and as exceptions."""

from __future__ import annotations

from typing import Any

from oxiray import _api, exceptions
from oxiray.train._errors import WorkerDiedError, WorkerHungError

#: Once a rank has failed, how long the others are given to fail too, so that the cause is among what is told. In seconds.
_OTHERS_S = 0.3
#: A hung rank may take so long to say where it is, in seconds.
_LOOK_S = 2.0
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
    cause = error.cause if isinstance(error.cause, Exception) else error
    # The worker's own stack, which the exception lost on its way.
    cause.__dict__["_oxiray_traceback"] = getattr(error, "traceback_str", None) or str(error)
    return cause


def hung(group: Any, limit: float) -> dict[int, Exception]:
    """Each rank that is to blame for the silence, with where it is."""
    looks = {group.expect(worker.handle.where.remote()): rank for rank, worker in enumerate(group.workers)}
    meetings = group.expect(group.exchange.missing.remote())
    ready, _ = _api.wait([meetings, *looks], num_returns=len(looks) + 1, timeout=_LOOK_S)
    stacks = {}
    for reference in ready:
        if reference in looks:
            try:
                stacks[looks[reference]] = _api.get(reference)
            except exceptions.RayError as error:
                stacks[looks[reference]] = f"it could not be asked: {error}\n"
    missing: dict[str, list[int]] = _api.get(meetings) if meetings in ready else {}
    silent = [rank for rank in looks.values() if rank not in stacks]
    late = {rank: meeting for meeting, ranks in missing.items() for rank in ranks}
    blamed = silent or sorted(late) or sorted(looks.values())
    found: dict[int, Exception] = {}
    for rank in blamed:
        facts = group.workers[rank].facts
        where = f"; the others wait for it in {late[rank]}" if rank in late else ""
        at = stacks.get(rank, "its process answers nothing: it is stopped, or holds the interpreter\n")
        found[rank] = WorkerHungError(
            f"no report for {limit:g} s (FailureConfig.hang_timeout_s), and rank {rank} (pid {facts['pid']} on "
            f"{facts['hostname']}) is here{where}:\n{at}"
        )
    return found


#: What the cluster says of how such a process ended.
_PREEMPTED = "was preempted: "


def is_preempted(failures: dict[int, Exception], group: Any, leaving: set[str]) -> bool:
    """Whether a rank died with a machine that was drained, or ended early for what is more urgent."""
    died = {rank: error for rank, error in failures.items() if isinstance(error, WorkerDiedError)}
    return any(group.workers[rank].facts["node_id"] in leaving or _PREEMPTED in str(error) for rank, error in died.items())


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
