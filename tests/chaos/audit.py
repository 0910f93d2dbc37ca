"""A last driver, when the load has ended: is everything that was promised there, and is nothing else left?

Prints what it finds as one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import load
from driver import KEEPERS, NAMESPACE, Promises
from oxiray import _core
from ticket import Ledger, Ticket

import ray
from ray.util.state import list_actors, list_placement_groups

#: How long what is over may take to be gone, in seconds.
REST_LIMIT_S = 60.0


def check_promises(folder: Path) -> tuple[list[str], int]:
    """Kept values that are not there, and detached actors that are not; and how many promises there were."""
    faults, count = [], 0
    ledger = Ledger(folder / "ledger-audit")
    for name in sorted({path.name.split("-")[1] for path in folder.glob("ledger-*-*")}):
        promises = Promises(name, folder, ledger)
        count += len(promises.kept) + len(promises.keepers)
        for key in promises.kept:
            try:
                promises.check_kept(key)
            except load.Wrong as wrong:
                faults.append(f"an acknowledged value is kept: {wrong}")
        for key in sorted(promises.keepers):
            ticket = Ticket(f"audit-{key}", random.Random(key), heads_die=False)
            try:
                keeper: Any = promises.find_keeper(key)
                value = ticket.number()
                load.expect("what it returns", load.get(keeper.step.remote(0, value))[2], load.mixed(value))
            except Exception as error:
                faults.append(f"a detached actor outlives its drivers: {key} does not: {type(error).__name__}: {error}")
        end_keepers(name)
    return faults, count


def end_keepers(name: str) -> None:
    """Ends all, those too whose drivers died before they could tell of them."""
    for number in range(KEEPERS):
        with contextlib.suppress(ValueError):
            ray.kill(ray.get_actor(f"keeper-{name}-{number}", namespace=NAMESPACE))


def settled(found: Callable[[], Any], wanted: Any) -> Any:
    """What is found, once it is what it must be or the time is over."""
    until = time.monotonic() + REST_LIMIT_S
    while (now := found()) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return now


def check_rest() -> list[str]:
    """Devices that do not come back, groups and actors that live on, objects that nobody refers to."""
    total = ray.cluster_resources()

    def free() -> dict[str, float]:
        return {name: ray.available_resources().get(name, 0.0) for name in ("CPU", "GPU")}

    def stored() -> int:
        return int(_core.cluster()["store"]["objects"])

    def actors() -> list[str]:
        return [f"{one.class_name} {one.name} {one.state}" for one in list_actors(limit=10_000) if one.state != "DEAD"]

    def groups() -> list[str]:
        listed = list_placement_groups(limit=10_000)
        return [f"{one.placement_group_id} {one.state}" for one in listed if one.state != "REMOVED"]

    looks: list[tuple[str, Callable[[], Any], Any]] = [
        ("what is free at the end", free, {name: total[name] for name in ("CPU", "GPU")}),
        ("actors that are left", actors, []),
        ("placement groups that are left", groups, []),
        ("objects in the head's store", stored, 0),
    ]
    faults = []
    for what, found, wanted in looks:
        last = settled(found, wanted)
        if last != wanted:
            faults.append(f"{what}: {last}, must be {wanted}")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    ray.init(address="auto", log_to_driver=False, namespace=NAMESPACE)
    faults, promises = check_promises(given.folder)
    faults += check_rest()
    print(json.dumps({"faults": faults, "promises": promises}))


if __name__ == "__main__":
    main()
