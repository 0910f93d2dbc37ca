"""Two actors for a cluster without GPUs, which grows for them; then a request that keeps two nodes, and its end."""

from __future__ import annotations

import time

import ray

LIMIT = 60.0
begun = time.monotonic()
ray.init(address="auto", log_to_driver=False)


@ray.remote(num_gpus=1)
class GPUActor:
    def say_hello(self) -> str:
        return "This actor runs on a node with a GPU."


def gpus() -> float:
    amount: float = ray.cluster_resources().get("GPU", 0)
    return amount


def note(what: str) -> None:
    print(f"{time.monotonic() - begun:6.2f} s  {gpus():.0f} GPUs  {what}", flush=True)


def until(count: int) -> None:
    while gpus() != count:
        assert time.monotonic() < begun + LIMIT, f"{gpus()} GPUs, not {count}"
        time.sleep(0.02)


note("none of the five nodes runs")
actors = [GPUActor.remote() for _ in range(2)]
print(*sorted(set(ray.get([actor.say_hello.remote() for actor in actors]))))
note("two actors asked for a GPU each, and run")
del actors
until(0)
note("the actors ended, and the nodes were idle")
ray.autoscaler.sdk.request_resources(bundles=[{"GPU": 1}] * 2)
until(2)
note('request_resources(bundles=[{"GPU": 1}] * 2) keeps two nodes, used or not')
ray.autoscaler.sdk.request_resources(bundles=[])
until(0)
note("request_resources(bundles=[]) keeps none")
