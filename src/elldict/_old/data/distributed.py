"""The workers of a dask.distributed cluster, and what may go wrong there.

Dask itself computes lost tasks again, from the source of the samples. What is left to do here is to notice when that
will not end, and to say so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import dask
import dask.utils
from distributed import CancelledError, Future, KilledWorker

from elldict._old.data.dask_tasks import Engine, Plan, name_root
from elldict.exceptions import ClusterError

MOST_ATTEMPTS = 3
"""Times that a pass is begun if its tasks are cancelled from outside, as by a restart of the cluster."""


@dataclass(frozen=True)
class DistributedEngine(Engine):
    """The workers that a client speaks to."""

    client: Any
    patience: float  # seconds without a worker that takes tasks, or without an answer from the scheduler

    @property
    def n_threads(self) -> int:
        """Threads of all workers that there are at the moment."""
        return max(1, sum(int(worker["nthreads"]) for worker in self._workers().values()))

    def result(self, plan: Callable[[], Plan]) -> Any:
        """What a plan comes to, or a ClusterError that says why it will not."""
        reason = ""
        for _ in range(MOST_ATTEMPTS):
            self._check_connection()
            try:
                return self._attempt(plan())
            except CancelledError as error:
                self._check_connection()
                reason = str(error) or "no reason given"
        raise ClusterError(
            f"The tasks of a pass were cancelled {MOST_ATTEMPTS} times ({reason}). If X was persisted, its chunks are "
            "gone: persist it again, or fit from its source. Otherwise let the cluster be during a fit."
        )

    def _attempt(self, plan: Plan) -> Any:
        """The result; raises CancelledError if tasks were cancelled."""
        try:
            # dask may warn of data in a graph, but not of A, which is meant to be there
            key = "distributed.admin.large-graph-warning-threshold"
            allowed = dask.utils.parse_bytes(dask.config.get(key, "10MB")) + plan.n_bytes
            with dask.config.set({key: f"{allowed}B"}):
                future = self.client.compute(plan.delayed)
            try:
                return self._fetch(future)
            finally:
                future.release()  # at once: whoever holds on to a traceback holds on to the future too
        except CancelledError:
            raise
        except BaseException as error:  # Ctrl-C, at whatever moment, ends the work on the cluster too
            with contextlib.suppress(Exception):
                self.client.cancel([Future(name_root(plan.name), self.client)], force=True)
            _explain(error)

    def _fetch(self, future: Any) -> Any:
        """The result of a future, fetched when it is done; raises what its task raised."""
        while True:
            self._wait_for(future)
            try:
                return future.result(timeout=self.patience)
            except TimeoutError:
                if future.status == "error":
                    raise  # it was the task that waited in vain, for a disk perhaps
                if future.status == "finished":
                    raise ClusterError(
                        f"The result of a pass was there, and did not arrive within {self.patience:g} s. Look at the "
                        "network between the cluster and this process."
                    ) from None
                # otherwise its worker has died with it, and it is being made again

    def _wait_for(self, future: Any) -> None:
        """Until the future is done; raises if it will never be."""
        idle_since = None
        while True:
            with contextlib.suppress(TimeoutError):
                future.exception(timeout=2.0)  # seconds; it waits, and does not fetch the result
                return
            self._check_connection()
            states = [str(worker["status"]) for worker in self._workers().values()]
            if "running" in states:
                idle_since = None
                continue
            idle_since = idle_since or time.monotonic()
            if time.monotonic() - idle_since > self.patience:
                if not states:
                    raise ClusterError(
                        f"The cluster has had no workers for {self.patience:g} s. Start some, for instance with "
                        "cluster.scale(4); if there were any, their logs tell why they left."
                    )
                raise ClusterError(
                    f"None of the {len(states)} workers has taken tasks for {self.patience:g} s (they are "
                    f"{', '.join(sorted(set(states)))}). Paused workers are short of memory: give them more, or use "
                    "smaller chunks."
                )

    def _check_connection(self) -> None:
        if self.client.status != "running":
            raise ClusterError(
                f"The connection to the scheduler is lost: the client is {self.client.status}. See whether the "
                "scheduler is alive, make a new Client, and fit again."
            )

    def _workers(self) -> Mapping[str, Any]:
        try:
            known = self.client.sync(self.client.scheduler.identity, callback_timeout=self.patience)
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"The scheduler gives no answer ({str(error) or 'timed out'}). See whether it is alive, make a new "
                "Client, and fit again."
            ) from error
        workers: Mapping[str, Any] = known["workers"]
        return workers


def _explain(error: BaseException) -> NoReturn:
    """Raise an error of a task, in words where it is not about the task but about the cluster."""
    if isinstance(error, KilledWorker):
        raise ClusterError(
            f"{error.allowed_failures + 1} workers died one after the other with the same samples in hand, the last "
            f"at {error.last_worker.address}. Most often they run out of memory: give them more, or use smaller "
            "chunks; their logs tell."
        ) from error
    if isinstance(error, ModuleNotFoundError):
        raise ClusterError(
            f"A worker cannot run its task: {error}. Install the same packages on all workers as here."
        ) from error
    raise error
