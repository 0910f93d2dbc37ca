"""The program that `benches/train.py` runs on Oxiray and on Ray for its rows of tensors: 1 GiB of them from actor to actor.

Prints one line, `RESULT {...}`: seconds from the call that returns the tensors until the other actor has them (`group_s`,
`nearest_s`), and until it has added up all of their elements (`nearest_read_s`).
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import ray
import torch
from ray.experimental.collective import create_collective_group

#: 1 GiB.
TENSORS, EACH = 16, 1 << 24
ROUNDS = 5


@ray.remote(num_cpus=0, enable_tensor_transport=True)
class Actor:
    """Has tensors, and looks at those of others."""

    def __init__(self) -> None:
        self.tensors = [torch.full((EACH,), float(number)) for number in range(TENSORS)]

    @ray.method(tensor_transport="gloo")
    def by_group(self) -> list[torch.Tensor]:
        return self.tensors

    def nearest(self) -> list[torch.Tensor]:
        return self.tensors

    def look(self, tensors: list[torch.Tensor]) -> float:
        return sum(float(tensor[0] + tensor[-1]) / 2 for tensor in tensors)

    def read(self, tensors: list[torch.Tensor]) -> float:
        return sum(round(float(tensor.mean())) for tensor in tensors)


def seconds(make, looks) -> float:
    """The median of some rounds."""
    took = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        assert ray.get(looks.remote(make())) == TENSORS * (TENSORS - 1) / 2
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def main() -> None:
    ray.init(num_cpus=2, object_store_memory=4 << 30, logging_level="ERROR")
    maker, reader = Actor.remote(), Actor.remote()
    create_collective_group([maker, reader], backend="gloo")
    # Ray has no other way for tensors of the CPU: "auto" is Oxiray's.
    nearest = maker.nearest.options(tensor_transport="auto").remote if "oxiray" in sys.modules else maker.by_group.remote
    result = {
        "group_s": seconds(maker.by_group.remote, reader.look),
        "nearest_s": seconds(nearest, reader.look),
        "nearest_read_s": seconds(nearest, reader.read),
    }
    print("RESULT", json.dumps(result), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
