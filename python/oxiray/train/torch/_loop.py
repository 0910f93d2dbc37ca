"""What turns a training loop for one process into one for many."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

from oxiray.train import _inside
from oxiray.train.torch._devices import get_device


class _Accelerator:
    """What this worker's loop was asked for: mixed precision, or none."""

    def __init__(self) -> None:
        self.precision: Any = None
        self.scaler: Any = None


_accelerator = _Accelerator()


def accelerate(amp: bool = False) -> None:
    """Asks for mixed precision: models that are prepared from now on run in it, and `backward` scales their losses.

    The precision is `float16` on GPUs and `bfloat16` on CPUs.
    """
    import torch

    _inside.current("accelerate")
    on_gpu = get_device().type == "cuda"
    _accelerator.precision = (torch.float16 if on_gpu else torch.bfloat16) if amp else None
    _accelerator.scaler = torch.amp.GradScaler("cuda") if amp and on_gpu else None


def prepare_model(
    model: Any,
    move_to_device: Any = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Moves a model to this worker's device, and wraps it so that gradients are shared between workers.

    `parallel_strategy` is "ddp", "fsdp" or None; `parallel_strategy_kwargs` go to the wrapper.
    """
    import torch

    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ValueError(f"prepare_model(parallel_strategy={parallel_strategy!r}) must be 'ddp', 'fsdp', or None")
    session = _inside.current("prepare_model")
    if isinstance(move_to_device, torch.device):
        device = move_to_device
    else:
        device = get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if move_to_device:
        model = model.to(device)
    if _accelerator.precision is not None:
        model = _in_precision(model, device.type, _accelerator.precision)
    if parallel_strategy is None or session.place.world_size == 1:
        return model
    options = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        # Told its device, it needs no GPU: Gloo shares parameters between processors.
        return FullyShardedDataParallel(model, **{"device_id": device, **options})
    if device.type != "cpu":
        options = {"device_ids": [device], "output_device": device, **options}
    return torch.nn.parallel.DistributedDataParallel(model, **options)


def _in_precision(model: Any, device: str, precision: Any) -> Any:
    import torch

    forward = model.forward

    def cast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, dtype=precision):
            found = forward(*args, **kwargs)
        return _as_float32(found)

    model.forward = cast
    return model


def _as_float32(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.float()
    if isinstance(value, (list, tuple)):
        return type(value)(_as_float32(part) for part in value)
    if isinstance(value, dict):
        return {name: _as_float32(part) for name, part in value.items()}
    return value


def prepare_optimizer(optimizer: Any) -> Any:
    """An optimizer whose steps undo the scaling of `backward`, where that scales; else the same one."""
    _inside.current("prepare_optimizer")
    return optimizer if _accelerator.scaler is None else _ScalingOptimizer(optimizer, _accelerator.scaler)


class _ScalingOptimizer:
    def __init__(self, optimizer: Any, scaler: Any) -> None:
        self._optimizer, self._scaler = optimizer, scaler

    def step(self, closure: Any = None) -> Any:
        taken = self._scaler.step(self._optimizer) if closure is None else self._scaler.step(self._optimizer, closure)
        self._scaler.update()
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


def backward(tensor: Any) -> None:
    """Computes the gradients of a loss, scaled where mixed precision needs it."""
    _inside.current("backward")
    (tensor if _accelerator.scaler is None else _accelerator.scaler.scale(tensor)).backward()


def prepare_data_loader(
    data_loader: Any, add_dist_sampler: bool = True, move_to_device: bool = True, auto_transfer: bool = True
) -> Any:
    """A loader of this worker's part of the data, whose batches are on its device.

    `auto_transfer` copies a batch to a GPU while the one before is worked on. The samples are shuffled anew in each
    epoch where the loader shuffles; call `loader.sampler.set_epoch(epoch)`, as PyTorch wants it.
    """
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, SequentialSampler

    session = _inside.current("prepare_data_loader")
    place = session.place
    sampler = getattr(data_loader, "sampler", None)
    divides = add_dist_sampler and place.world_size > 1
    if divides and not isinstance(sampler, DistributedSampler) and not isinstance(data_loader.dataset, IterableDataset):
        shuffles = not isinstance(sampler, SequentialSampler)
        generator = getattr(data_loader, "generator", None)
        kept = ("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn",
                "multiprocessing_context", "prefetch_factor", "persistent_workers", "pin_memory_device")  # fmt: skip
        options = {name: getattr(data_loader, name) for name in kept if hasattr(data_loader, name)}
        if not options.get("num_workers"):
            options.pop("prefetch_factor", None)
        own = DistributedSampler(data_loader.dataset, place.world_size, place.world_rank, shuffle=shuffles)
        data_loader = DataLoader(data_loader.dataset, sampler=own, generator=generator, **options)
    device = get_device()
    if not move_to_device or device.type == "cpu":
        return data_loader
    return _OnDevice(data_loader, device, auto_transfer and device.type == "cuda" and torch.cuda.is_available())


class _OnDevice:
    """A loader whose batches are copied to a device, on a stream of their own where that helps."""

    def __init__(self, loader: Any, device: Any, ahead: bool) -> None:
        import torch

        self._loader, self._device = loader, device
        self._stream = torch.cuda.Stream(device) if ahead else None

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        if self._stream is None:
            yield from (self._moved(batch) for batch in self._loader)
            return
        batches = iter(self._loader)
        following = self._ahead(batches)
        while following is not None:
            self._arrived(following[0])
            (current,), following = following, self._ahead(batches)
            yield current

    def _ahead(self, batches: Iterator[Any]) -> tuple[Any] | None:
        import torch

        try:
            batch = next(batches)
        except StopIteration:
            return None
        with torch.cuda.stream(self._stream):
            return (self._moved(batch),)

    def _arrived(self, batch: Any) -> None:
        """Makes what comes next on the device wait for the copy, and keeps its memory until that is done."""
        import torch

        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        _each(batch, lambda tensor: tensor.record_stream(current))

    def _moved(self, batch: Any) -> Any:
        return _each(batch, lambda tensor: tensor.to(self._device, non_blocking=self._stream is not None))


def _each(value: Any, act: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return act(value)
    if isinstance(value, dict):
        return {name: _each(part, act) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_each(part, act) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_each(part, act) for part in value)
    return value


def enable_reproducibility(seed: int = 0) -> None:
    """Seeds PyTorch, NumPy and Python with one number, and asks for algorithms that always give the same."""
    import torch

    _inside.current("enable_reproducibility")
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.manual_seed(seed)
    random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed)
