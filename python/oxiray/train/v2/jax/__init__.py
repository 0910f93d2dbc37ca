"""Training with JAX: every worker a process of one `jax.distributed` cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oxiray._slices import MEGASCALE_PORT
from oxiray.train import _inside
from oxiray.train._configs import DataConfig, RunConfig
from oxiray.train._scaling import ScalingConfig
from oxiray.train.backend import Backend, BackendConfig
from oxiray.train.data_parallel_trainer import DataParallelTrainer


@dataclass
class JaxConfig(BackendConfig):
    """How the workers find each other. `use_tpu` and `use_gpu` are those of `ScalingConfig`."""

    use_tpu: bool = False
    use_gpu: bool = False

    __module__ = "oxiray.train.v2.jax"

    @property
    def backend_cls(self) -> type[Backend]:
        """What sets it up."""
        return _JaxBackend


class _JaxBackend(Backend):
    """Each worker sees its own devices only: JAX takes all that it sees."""

    needs_port = True

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        assert isinstance(backend_config, JaxConfig)
        platform = "tpu" if backend_config.use_tpu else "cuda" if backend_config.use_gpu else None
        host, port = worker_group.address
        size, slices = len(worker_group), getattr(worker_group, "slices", 0)
        worker_group.execute(_join, platform, host, port, size, slices)

    def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
        # Ranks leave together: of a group that failed, the others would wait for the one that cannot.
        if len(worker_group) > 1 and not worker_group.has_failed:
            worker_group.execute(_leave)


def _join(platform: str | None, host: str, port: int, size: int, slices: int) -> None:
    rank = _inside.current("jax.distributed").place.world_rank
    if platform is not None:
        os.environ.setdefault("JAX_PLATFORMS", platform)
    if slices > 1:
        # Other than what a cloud has set for a machine, this is of the group that is there now.
        of_slice = {"COORDINATOR_ADDRESS": host, "NUM_SLICES": slices, "SLICE_ID": rank // (size // slices)}
        os.environ.update({f"MEGASCALE_{name}": str(value) for name, value in of_slice.items()})
        os.environ.setdefault("MEGASCALE_PORT", MEGASCALE_PORT)
    # JAX opens the port itself, so it is let go of at the last moment.
    _inside.hold(None)
    if size > 1:
        import jax

        jax.distributed.initialize(coordinator_address=f"{host}:{port}", num_processes=size, process_id=rank)


def _leave() -> None:
    import jax

    jax.distributed.shutdown()


class JaxTrainer(DataParallelTrainer):
    """Runs a function in every worker, with `jax.distributed` initialized between them where there are several."""

    __module__ = "oxiray.train.v2.jax"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        jax_config: JaxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: Any = None,
    ) -> None:
        if jax_config is not None and not isinstance(jax_config, JaxConfig):
            raise ValueError(f"jax_config takes a ray.train.v2.jax.JaxConfig, and was given {jax_config!r}")
        scaling = scaling_config or ScalingConfig()
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=jax_config or JaxConfig(use_tpu=scaling.use_tpu, use_gpu=scaling.use_gpu),
            scaling_config=scaling,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
        )


__all__ = ["JaxConfig", "JaxTrainer"]
