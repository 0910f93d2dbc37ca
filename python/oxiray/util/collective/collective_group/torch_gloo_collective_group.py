"""Collectives between processors, over TCP."""

from __future__ import annotations

from typing import Any

import oxiray
import torch
import torch.distributed as dist
from oxiray.util.collective.collective_group._torch_group import TorchGroup
from oxiray.util.collective.types import Backend


class TorchGLOOGroup(TorchGroup):
    """Over Gloo, which comes with PyTorch. Tensors are in main memory; the connections are not encrypted."""

    @classmethod
    def backend(cls) -> str:
        return Backend.GLOO

    @classmethod
    def check_backend_availability(cls) -> bool:
        return dist.is_available() and dist.is_gloo_available()

    def _make(self, store: dist.Store) -> Any:
        options = dist.ProcessGroupGloo._Options()
        # By the address that the others reach, whatever the machine's name is.
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=oxiray.util.get_node_ip_address())]
        options._timeout = self._timeout
        return dist.ProcessGroupGloo(store, self.rank, self.world_size, options)

    def _check(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu":
            raise ValueError(
                f"Gloo works on tensors in main memory, and this one is on {tensor.device}: make the group with "
                'backend="NCCL", or pass `tensor.cpu()`'
            )
