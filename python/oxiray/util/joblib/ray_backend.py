"""The backend `ray` of joblib: a pool of actors that runs joblib's batches.

Invariants:
1. Every batch that was submitted calls back once, with its result or with what it raised, unless its pool was ended.
2. When `terminate` or `abort_everything` has returned, no callback of that pool runs or will: joblib would take the
   rest of an aborted loop for a part of the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from joblib._parallel_backends import FallbackToBackend, SequentialBackend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

import oxiray
from oxiray.util.multiprocessing import Pool


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class RayBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs batches in a pool with one actor for each job; `ray_remote_args` are options of the actors."""

    supports_retrieve_callback = True
    supports_return_generator = True

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads, **kwargs)
        self.ray_remote_args = ray_remote_args
        self._pool: Pool | None = None
        # Reentrant: a callback submits the next batch.
        self._telling = threading.RLock()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many actors `n_jobs` means: -1 is one for each CPU of the cluster, -2 one less, None one."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning: give a number of jobs, or -1 for one for each CPU")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        return max(int(oxiray.cluster_resources().get("CPU", 1)) + 1 + n_jobs, 1)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        **_: Any,
    ) -> int:
        """Starts the pool; returns how many jobs run at once. `ray_remote_args` go before those of the constructor."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._pool = Pool(n_jobs, ray_remote_args=ray_remote_args or self.ray_remote_args)
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Any:
        """Runs a batch; `callback` is called with what `retrieve_result_callback` takes."""
        pool = self._pool
        assert pool is not None, "joblib configures a backend before it submits"
        if callback is None:
            return pool.apply_async(func, ())

        def tell(outcome: Any) -> None:
            with self._telling:
                if self._pool is pool:
                    callback(outcome)

        return pool.apply_async(func, (), callback=tell, error_callback=lambda error: tell(_Failed(error)))

    def retrieve_result_callback(self, out: Any) -> Any:
        """The batch's results; raises what it raised."""
        if isinstance(out, _Failed):
            raise out.error
        return out

    def terminate(self) -> None:
        """Ends the actors."""
        with self._telling:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Ends the actors with what they run, and starts new ones where more is to come."""
        self.terminate()
        # joblib keeps what it had taken from a loop's inputs and not submitted, and would give it to the next loop.
        with self.parallel._lock:
            while not self.parallel._ready_batches.empty():
                self.parallel._ready_batches.get_nowait()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel, **self.parallel._backend_kwargs)
