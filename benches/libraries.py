"""Ray's libraries on Oxiray beside Ray 2.60: the cases of tests/libraries on one node and on two, and `library_cases.py`.

Every library in fresh processes, the two alternating, medians compared; what each case comes to must be equal in the same
round. Prints tables and, with `--write`, keeps them as a document, after each library what there is by then, with what
differed. Exits non-zero where a value differed that Ray gave, or nothing was measured, and with `--check` also where a goal
was missed. A case that fails on Ray in a round says nothing of Oxiray in that round, and is only listed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from compare import FOREIGN, machine  # noqa: E402  (it lies beside this file, not in a package)

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "libraries" / "run.py"
MEASURES = Path(__file__).parent / "library_cases.py"
LIBRARIES = {
    "data": "Data", "tune": "Tune", "serve": "Serve", "train_data": "Training on datasets of Data", "rllib": "RLlib",
}  # fmt: skip
#: How long all cases of a library may take on one side, in seconds.
LIMIT_S = 2400
#: By how much a case may be slower than on Ray.
MARGIN = 1.1
#: What is measured apart: its key, what it is, and how much better than Ray it has to be.
ROWS = (
    ("tune_s", "Tune: an experiment of 8 trials of 5 reports", 4.0),
    ("groupby_s", "Data: `groupby().sum()` of 100,000 rows in 8 blocks", 3.0),
    ("sort_s", "Data: `sort()` of 100,000 rows in 8 blocks", 3.0),
    ("http_s", "Serve: a request over HTTP, one at a time, median", 1.0),
    ("handle_s", "Serve: a call of a handle, one at a time, median", 1.0),
)
#: What is told of a case that failed on Ray begins so.
RAYS_OWN = "failed on Ray, too: "
#: Seconds of each case: round by round, by who ran it.
Times = dict[str, dict[str, list[float]]]


class Failed(Exception):
    """What ran told nothing; says what it printed."""


def ran(python: str, command: list[str]) -> tuple[str, Path]:
    """A program's output, in a session of its own, and the folder that it had. Whoever asks removes the folder."""
    folder = Path(tempfile.mkdtemp(prefix="oxb-"))
    environment = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
    environment |= {
        "OXB_MARK": uuid.uuid4().hex, "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with Path(folder, "output").open("w+") as output:
        try:
            subprocess.run(
                [python, *command], env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired:
            output.write(f"\nended after {LIMIT_S} s\n")
        output.seek(0)
        return output.read(), folder


def cases(python: str, nodes: int, chosen: list[str]) -> dict[str, Any]:
    """What the cases gave once, by name."""
    with tempfile.TemporaryDirectory(prefix="oxb-written-") as kept:
        written = Path(kept, "results.json")
        output, folder = ran(python, [str(CASES), f"--nodes={nodes}", str(written), *chosen])
        shutil.rmtree(folder, ignore_errors=True)
        if not written.exists():
            raise Failed(output[-3000:])
        return dict(json.loads(written.read_text()))


def measures(python: str) -> dict[str, float]:
    """What `library_cases.py` measured once."""
    output, folder = ran(python, [str(MEASURES)])
    shutil.rmtree(folder, ignore_errors=True)
    for line in output.splitlines():
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    raise Failed(output[-3000:])


def differences(of: dict[str, dict[str, Any]], where: str) -> list[str]:
    """Where what Oxiray gave is not what Ray gave in the same round. What Ray did not give begins with `RAYS_OWN`."""
    found = []
    for name in sorted(set(of["oxiray"]) | set(of["ray"])):
        ours, theirs = (of[who].get(name, {"error": "it did not run"}) for who in ("oxiray", "ray"))
        if "value" not in ours or "value" not in theirs or ours["value"] != theirs["value"]:
            shown = [str(one.get("value", one.get("error")))[-400:] for one in (ours, theirs)]
            failed = RAYS_OWN if name in of["ray"] and "value" not in theirs else ""
            found.append(f"{failed}{name}, {where}: Oxiray gave {shown[0]}, Ray gave {shown[1]}")
    return found


def alternating(number: int) -> list[str]:
    """Who goes first changes from round to round, so that neither always meets the machine as the other left it."""
    return sorted(["oxiray", "ray"], reverse=number % 2 == 1)


def compared(pythons: dict[str, str], chosen: list[str], nodes: int, rounds: int) -> tuple[Times, list[str]]:
    """Times of the cases of one library, and what differed or did not run."""
    times: Times = {}
    wrong = []
    for number in range(rounds):
        found: dict[str, dict[str, Any]] = {}
        for who in alternating(number):
            try:
                found[who] = cases(pythons[who], nodes, chosen)
            except Failed as failed:
                wrong.append(f"{' '.join(chosen)} on {who}, {nodes} nodes, round {number + 1}: {failed}")
                found[who] = {}
            for name, result in found[who].items():
                times.setdefault(name, {"oxiray": [], "ray": []})[who].append(float(result["seconds"]))
            total = sum(result["seconds"] for result in found[who].values())
            print(f"  {' '.join(chosen)}, {nodes} nodes, round {number + 1}, {who}: {len(found[who])} cases, {total:.1f} s", flush=True)
        wrong += differences(found, f"{nodes} nodes, round {number + 1}")
    return times, wrong


def measured(pythons: dict[str, str], rounds: int) -> tuple[dict[str, dict[str, list[float]]], list[str]]:
    """The figures of `library_cases.py` by key, and what did not run."""
    found: Times = {key: {"oxiray": [], "ray": []} for key, _, _ in ROWS}
    wrong = []
    for number in range(rounds):
        for who in alternating(number):
            try:
                figures = measures(pythons[who])
            except Failed as failed:
                wrong.append(f"{MEASURES.name} on {who}, round {number + 1}: {failed}")
                continue
            print(f"  {MEASURES.name}, round {number + 1}, {who}: {figures}", flush=True)
            for key, value in figures.items():
                found[key][who].append(value)
    return found, wrong


def medians(of: dict[str, list[float]]) -> tuple[float, float]:
    return statistics.median(of["oxiray"]), statistics.median(of["ray"])


def is_complete(of: dict[str, list[float]]) -> bool:
    return all(of.values())


def is_slower(of: dict[str, list[float]]) -> bool:
    """Whether a case is slower on Oxiray by more than the margin, as far as times to a hundredth of a second tell."""
    ours, theirs = medians(of)
    return ours > theirs * MARGIN + 0.005


def figure(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g} ms" if seconds < 0.1 else f"{seconds:,.3g} s"


def ratio(ours: float, theirs: float) -> str:
    return f"{theirs / ours:,.1f}×" if ours else "—"


def goals(figures: Times, all_times: dict[tuple[str, int], Times]) -> tuple[list[str], list[str]]:
    """The table of goals, and those that were missed."""
    table = ["| | Oxiray | Ray | ratio | wanted, at least | met |", "|---|---:|---:|---:|---:|---|"]
    missed = []
    for key, name, wanted in ROWS:
        if not is_complete(figures[key]):
            continue
        ours, theirs = medians(figures[key])
        is_met = theirs / ours >= wanted
        missed += [] if is_met else [name]
        table.append(f"| {name} | {figure(ours)} | {figure(theirs)} | {ratio(ours, theirs)} | {wanted:g}× | {'yes' if is_met else '**no**'} |")
    slow = [
        (name, nodes, *medians(of))
        for (_, nodes), times in all_times.items() for name, of in times.items() if is_complete(of) and is_slower(of)
    ]  # fmt: skip
    count = sum(len(times) for times in all_times.values())
    missed += [f"{name}, {nodes} nodes" for name, nodes, _, _ in slow]
    lines = [f"- `{name}`, {'one node' if nodes == 1 else f'{nodes} nodes'}: {figure(ours)}, Ray {figure(theirs)}" for name, nodes, ours, theirs in slow]
    told = f"Slower than Ray by more than a tenth: {len(slow)} of {count} (a case counts for each number of nodes)."
    return [*table, "", told, *(["", *lines] if lines else [])], missed


def sums(all_times: dict[tuple[str, int], Times]) -> list[str]:
    """The medians of each library's cases, added up."""
    table = ["| library | nodes | cases | Oxiray | Ray | ratio |", "|---|---:|---:|---:|---:|---:|"]
    for (library, nodes), times in all_times.items():
        pairs = [medians(of) for of in times.values() if is_complete(of)]
        ours, theirs = (sum(pair[side] for pair in pairs) for side in (0, 1))
        table.append(f"| {LIBRARIES[library]} | {nodes} | {len(pairs)} | {figure(ours)} | {figure(theirs)} | {ratio(ours, theirs)} |")
    return table


def every_case(all_times: dict[tuple[str, int], Times], nodes: Iterable[int]) -> list[str]:
    """Each case's medians and ratio, a column for each number of nodes."""
    columns = list(nodes)
    head = " | ".join(f"Oxiray, {count} | Ray, {count} | ratio" for count in columns)
    table = [f"| case | {head} |", "|---|" + "---:|---:|---:|" * len(columns)]
    names = dict.fromkeys(name for times in all_times.values() for name in times)
    for name in names:
        cells = []
        for count in columns:
            of = all_times.get((name.partition(".")[0], count), {}).get(name, {"oxiray": [], "ray": []})
            if not is_complete(of):
                cells += ["—", "—", "—"]
                continue
            ours, theirs = medians(of)
            cells += [figure(ours), figure(theirs), ratio(ours, theirs)]
        table.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oxiray-python", default=".build/libraries/bin/python", help="a Python with Oxiray and Ray's libraries")
    parser.add_argument("--ray-python", default=".build/ray-libraries/bin/python", help="a Python with Ray and its libraries")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--check", action="store_true", help="fail where a goal was missed")
    parser.add_argument("--without-measures", action="store_true", help="leave library_cases.py out")
    parser.add_argument("--write", type=Path, help="write the tables to this document")
    parser.add_argument("chosen", nargs="*", help=f"of {', '.join(LIBRARIES)}, or cases such as data.sort_rows (default: all)")
    given = parser.parse_args()
    # Not resolved: the environment is the folder that the link lies in.
    pythons = {"oxiray": os.path.abspath(given.oxiray_python), "ray": os.path.abspath(given.ray_python)}
    began, facts, wrong = time.monotonic(), machine(), []
    all_times: dict[tuple[str, int], Times] = {}
    figures: Times = {key: {"oxiray": [], "ray": []} for key, _, _ in ROWS}

    def keep() -> tuple[list[str], list[str]]:
        table, missed = goals(figures, all_times)
        tables = [*table, "", *sums(all_times), "", *every_case(all_times, given.nodes), "", *differing_cases(wrong)]
        if given.write:
            given.write.write_text("\n".join([*opening(given.rounds, facts, time.monotonic() - began), *tables]))
        return tables, missed

    for library in LIBRARIES:
        chosen = [one for one in given.chosen if one.partition(".")[0] == library] or ([] if given.chosen else [library])
        for nodes in given.nodes if chosen else []:
            all_times[library, nodes], differing = compared(pythons, chosen, nodes, given.rounds)
            wrong += differing
            keep()
    if not given.without_measures:
        figures, differing = measured(pythons, given.rounds)
        wrong += differing
    tables, missed = keep()
    print("\n".join(["", *tables]))
    is_wrong = any(not one.startswith(RAYS_OWN) for one in wrong)
    return 1 if is_wrong or (given.check and missed) else 0


def differing_cases(wrong: list[str]) -> list[str]:
    """What was not equal, as a list; nothing where all was."""
    if not wrong:
        return []
    return ["Not equal:", "", *(f"- {' '.join(one.split())}" for one in wrong), ""]


def opening(rounds: int, facts: list[str], seconds: float) -> list[str]:
    return [
        "# Ray's libraries: on Oxiray and on Ray",
        "",
        "The unmodified files of Ray's official wheel on both. The cases are those of `tests/libraries`: every library in fresh",
        "programs that alternate, on one node of 4 processors and on two nodes of 2 (on Oxiray over TLS); what each case came to",
        f"is compared round by round, and told of below where it was not equal. Medians of {rounds} rounds; a case's",
        "time has what it imports and starts first. The first table is of `benches/library_cases.py`, which measures a second run on one node. Written by `make bench-libraries`.",
        "",
        *facts,
        f"- {seconds:.0f} s in all",
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
