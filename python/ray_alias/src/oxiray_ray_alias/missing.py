"""What Ray has and Oxiray has not, and what to do instead.

Purpose: an import that cannot work says why. Consulted only after `oxiray` was asked,
so a row goes stale, never wrong, when Oxiray grows.
"""

from __future__ import annotations

_LIBRARY = "is a library on top of Ray that Oxiray does not carry"

#: Name under `ray` -> why it is not there and the way out.
ADVICE = {
    "air": f"{_LIBRARY}: its configuration classes belong to training and tuning",
    "autoscaler": "is not in this version: start machines by hand and join them with `oxiray start --address`",
    "client": "is Ray Client, which Ray deprecates: connect with init(address='host:port') instead",
    "ClientBuilder": "is Ray Client, which Ray deprecates: connect with init(address='host:port') instead",
    "cluster_utils": "is not in this version: start a second daemon with `oxiray start` to test two machines",
    "cpp_function": "calls C++ functions, which Oxiray does not run: wrap them in a Python function",
    "dag": "builds lazy graphs of calls: call .remote() and pass references instead",
    "data": f"{_LIBRARY}: read with your own code in tasks (pyarrow, polars, datasets), or keep Ray for this part",
    "experimental": "is not promised to stay by Ray, and is not in this version",
    "internal": "is not in this version: drop the last reference to an object to free it",
    "java_actor_class": "calls Java, which Oxiray does not run",
    "java_function": "calls Java, which Oxiray does not run",
    "job_submission": "is not in this version: run the program on the cluster's machine with RAY_ADDRESS=auto",
    "llm": f"{_LIBRARY}: run the inference engine in an actor",
    "rllib": f"{_LIBRARY}: keep Ray for this part, or write the loop with actors",
    "serve": f"{_LIBRARY}: put a web framework in an actor, or keep Ray for this part",
    "timeline": "is not in this version",
    "train": "is not in this version",
    "tune": f"{_LIBRARY}: run an optimiser such as optuna in the program, with each trial a task",
    "util.collective": "is not in this version: use torch.distributed inside the actors",
    "util.metrics": "is not in this version",
    "util.placement_group": "is not in this version: placement groups come later",
    "util.state": "is not in this version: use nodes(), or `oxiray status`",
    "widgets": "shows notebooks' boxes, which Oxiray does not have",
    "workflow": "was removed from Ray too",
}


def advice(name: str) -> str:
    """Why `ray.<name>` is not there, as a sentence."""
    longest = name
    while longest:
        if longest in ADVICE:
            return f"`ray.{longest}` {ADVICE[longest]}."
        longest = longest.rpartition(".")[0]
    return (
        f"`ray.{name}` is not in Oxiray (there is no `oxiray.{name}`). If Ray 2.60 has it, it is not supported here; "
        "if not, check the spelling."
    )
