"""Collectives between NVIDIA GPUs."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from oxiray.util.collective.collective_group._torch_group import TorchGroup
from oxiray.util.collective.types import Backend


class NCCLGroup(TorchGroup):
    """Over NCCL as PyTorch brings it, with every type of number that PyTorch has. CuPy is not needed."""

    @classmethod
    def backend(cls) -> str:
        return Backend.NCCL

    @classmethod
    def check_backend_availability(cls) -> bool:
        return dist.is_available() and dist.is_nccl_available() and torch.cuda.is_available()

    def _make(self, store: dist.Store) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = self._timeout
        return dist.ProcessGroupNCCL(store, self.rank, self.world_size, options)

    def _check(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cuda":
            raise ValueError(
                f"NCCL works on tensors on a GPU, and this one is on {tensor.device}: make the group with "
                'backend="GLOO", or pass `tensor.cuda()`'
            )
