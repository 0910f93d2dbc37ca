"""How many workers there are, and what each has."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from oxiray import _gpu_memory, _labels, _option_rules
from oxiray._slices import Slice

#: What a worker takes of the resource that says which kind of device a machine has.
_OF_KIND = 0.001


@dataclass
class ScalingConfig:
    """How many workers train, what each is given, and how they are spread over machines.

    `num_workers` is a number, or `(least, most)` for a group that grows and shrinks with the cluster; 0 runs the
    function in the driver. `priority` says how urgent the workers are, from -1000 to 1000, by default as the driver.
    `preemptible` workers end early where something of a higher priority needs what they hold, in a cluster with
    `--preemption=on`: the run waits for room and goes on from its latest checkpoint, which counts against
    `max_preemption_failures` alone. Both are Oxiray's own. What breaks a rule raises `ValueError`.
    """

    trainer_resources: dict[str, Any] | None = None
    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    label_selector: dict[str, str] | list[dict[str, str]] | None = None
    use_tpu: bool = False
    topology: str | None = None
    elastic_resize_monitor_interval_s: float = 60.0
    priority: int | None = None
    preemptible: bool = False

    __module__ = "oxiray.train"

    def __post_init__(self) -> None:
        self._check_trainer_resources()
        self._check_num_workers()
        self._check_resources()
        self._check_devices()
        self._check_tpu()
        self._check_label_selector()
        _option_rules.check_priority("ScalingConfig(priority)", self.priority)
        if not isinstance(self.preemptible, bool):
            raise ValueError(f"ScalingConfig(preemptible={self.preemptible!r}) is to be True or False")
        if self.elastic_resize_monitor_interval_s < 0:
            raise ValueError(
                f"ScalingConfig(elastic_resize_monitor_interval_s={self.elastic_resize_monitor_interval_s}) must be "
                "non-negative: it is how many seconds lie between two looks for room for more workers"
            )

    def _check_trainer_resources(self) -> None:
        asked = self.trainer_resources
        if asked is None:
            return
        if isinstance(asked, dict) and not any(asked.values()):
            warnings.warn(
                "ScalingConfig(trainer_resources) is deprecated: the trainer itself takes nothing of the cluster, so "
                "there is nothing to set to zero. Leave it out",
                DeprecationWarning,
                stacklevel=4,
            )
            return
        raise DeprecationWarning(
            f"`ray.train.ScalingConfig(trainer_resources={asked!r})` is deprecated: the trainer runs in the program that "
            "calls fit() and takes nothing of the cluster. Leave it out, or give what the workers need as "
            "resources_per_worker"
        )

    def _check_num_workers(self) -> None:
        given = self.num_workers
        if isinstance(given, list):
            given = self.num_workers = tuple(given)
        numbers = given if isinstance(given, tuple) else (given,)
        if any(not isinstance(number, int) or isinstance(number, bool) for number in numbers) or (
            isinstance(given, tuple) and len(given) != 2
        ):
            raise ValueError(
                f"ScalingConfig(num_workers) must be an int or a tuple of two ints, the least and the most, but is {given!r}"
            )
        if min(numbers) < 0:
            raise ValueError(f"Invalid ScalingConfig(num_workers={given}): Number of workers cannot be negative.")
        if self.min_workers > self.max_workers:
            raise ValueError(
                f"Invalid ScalingConfig(num_workers={given}): min_workers={self.min_workers} must be <= "
                f"max_workers={self.max_workers}."
            )
        if self.elasticity_enabled and self.min_workers == 0:
            raise ValueError(
                f"Invalid ScalingConfig(num_workers={given}): an elastic group has at least one worker; 0 alone, not in a "
                "range, runs the function in the driver"
            )

    def _check_resources(self) -> None:
        if self.resources_per_worker is None:
            return
        if not isinstance(self.resources_per_worker, dict):
            raise ValueError(
                f'ScalingConfig(resources_per_worker) must be a dictionary, as in {{"CPU": 2}}, but is '
                f"{self.resources_per_worker!r}"
            )
        for name, amount in self.resources_per_worker.items():
            if name == _gpu_memory.OPTION:
                _gpu_memory.check("gpu_memory of ScalingConfig(resources_per_worker)", amount)
                continue
            if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount < float("inf"):
                raise ValueError(
                    f"ScalingConfig(resources_per_worker) gives {amount!r} of {name!r}: an amount is a number from 0 on"
                )

    def _check_label_selector(self) -> None:
        given = self.label_selector
        selectors = given if isinstance(given, list) else [given] if given is not None else []
        for selector in selectors:
            if not isinstance(selector, dict):
                raise ValueError(
                    f'ScalingConfig(label_selector) must be a dictionary, as in {{"zone": "a"}}, or a list of them, but has '
                    f"{selector!r}"
                )
            try:
                _labels.check_selector("label_selector", selector)
            except TypeError as error:
                raise ValueError(f"ScalingConfig({error})") from None
        if isinstance(given, list) and len(given) != self.max_workers:
            raise ValueError(
                f"ScalingConfig(label_selector) is a list of {len(given)} selectors for {self.max_workers} "
                "workers: give one for each worker (of the most there may be), or one dictionary for all"
            )

    def _check_devices(self) -> None:
        given = self.resources_per_worker or {}
        if not self.use_gpu and given.get("GPU", 0) > 0:
            raise ValueError(
                "`use_gpu` is False but `GPU` was found in `resources_per_worker`. Either set `use_gpu` to True or remove "
                "`GPU` from `resources_per_worker`."
            )
        if self.use_gpu and self.use_tpu:
            raise ValueError("Cannot specify both `use_gpu=True` and `use_tpu=True`: a worker has one kind of device")
        if not self.use_tpu and given.get("TPU", 0) > 0:
            raise ValueError(
                "`use_tpu` is False but `TPU` was found in `resources_per_worker`. Either set `use_tpu` to True or remove "
                "`TPU` from `resources_per_worker`."
            )

    def _check_tpu(self) -> None:
        if not self.use_tpu:
            return
        if not (self.resources_per_worker or {}).get("TPU", 1):
            raise ValueError("`use_tpu` is True but `resources_per_worker` gives 0 `TPU`: remove it, or give at least 1")
        if self.max_workers > 1 and (self.topology is None or self.accelerator_type is None):
            raise ValueError(
                f"ScalingConfig(use_tpu=True, num_workers={self.num_workers}) needs `topology` and `accelerator_type`: "
                "several workers share a slice, which has to be known"
            )
        if self.max_workers > 1 and self.label_selector is not None:
            raise ValueError(
                "ScalingConfig(label_selector) cannot be given with use_tpu=True and several workers: the topology decides "
                "on the machines"
            )
        per_slice = self.workers_per_slice
        for what, number in (("num_workers", self.max_workers), ("min_workers", self.min_workers)):
            if number % per_slice:
                raise ValueError(
                    f"The configured `{what}` ({number}) must be a multiple of {per_slice} for the specified topology "
                    f"({self.topology}): a slice of it has {per_slice} workers, and a part of a slice cannot train"
                )

    @property
    def slice(self) -> Slice | None:
        """The kind of TPU slice that the workers are placed on; None where they need no whole one."""
        if not self.use_tpu or not self.topology or not self.accelerator_type:
            return None
        return Slice.of(self.topology, self.accelerator_type)

    @property
    def workers_per_slice(self) -> int:
        """How many workers a TPU slice is; 1 where workers need no whole one."""
        return self.slice.workers(self.num_tpus_per_worker) if self.slice is not None else 1

    def whole(self, workers: int) -> int:
        """The most workers, no more than given, that are whole slices."""
        return workers - workers % self.workers_per_slice

    @property
    def elasticity_enabled(self) -> bool:
        """Whether the group may grow and shrink."""
        return isinstance(self.num_workers, tuple)

    @property
    def min_workers(self) -> int:
        """The fewest workers that may train."""
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def max_workers(self) -> int:
        """The most workers that may train."""
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def _resources_per_worker_not_none(self) -> dict[str, float]:
        """What each worker is given, with defaults filled in and without zeros."""
        given = {name: amount for name, amount in (self.resources_per_worker or {}).items() if amount}
        if "gpu_memory" in given:
            given["gpu_memory"] = _gpu_memory.size("gpu_memory", given["gpu_memory"])
        if self.use_gpu and "gpu_memory" not in given:
            given.setdefault("GPU", 1)
        of_slice = self.slice
        if self.use_tpu:
            given.setdefault("TPU", of_slice.chips_per_host if of_slice is not None else 1)
        if of_slice is not None and self.resources_per_worker is None:
            given["CPU"] = 1
        if not given and self.resources_per_worker is None:
            given["CPU"] = 1
        if self.accelerator_type:
            kind = of_slice.resource if of_slice is not None else f"accelerator_type:{self.accelerator_type}"
            given.setdefault(kind, _OF_KIND)
        return given

    @property
    def total_resources(self) -> dict[str, float]:
        """What all workers have together, of the most there may be."""
        return {name: amount * self.max_workers for name, amount in self._resources_per_worker_not_none.items()}

    @property
    def num_cpus_per_worker(self) -> float:
        """Processors of each worker."""
        return self._resources_per_worker_not_none.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """GPUs of each worker."""
        return self._resources_per_worker_not_none.get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        """TPUs of each worker."""
        return self._resources_per_worker_not_none.get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What each worker has besides CPUs, GPUs and TPUs."""
        usual = ("CPU", "GPU", "TPU")
        return {name: amount for name, amount in self._resources_per_worker_not_none.items() if name not in usual}

    def selectors(self, count: int) -> list[dict[str, str]] | None:
        """The label selector of each of `count` workers; None where any machine will do."""
        if self.label_selector is None:
            return None
        if isinstance(self.label_selector, list):
            return self.label_selector[:count]
        return [self.label_selector] * count
