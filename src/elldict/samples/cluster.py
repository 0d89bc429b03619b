"""Tasks of dask, computed by the scheduler in use, and what may go wrong on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from elldict.exceptions import ClusterError

PATIENCE = 120.0
"""Seconds without a running worker after which a pass fails; also for a result to be transferred."""

LARGE_GRAPH = "distributed.admin.large-graph-warning-threshold"


def send(function: Callable[..., Any]) -> tuple[Any, int]:
    """Make the task that unpacks a function, which goes once to each worker; return it and its size in bytes."""
    import cloudpickle  # noqa: PLC0415
    import dask  # noqa: PLC0415

    packed = cloudpickle.dumps(function)
    return dask.delayed(cloudpickle.loads, pure=False)(packed), len(packed)


def compute(tasks: Sequence[Any], n_bytes: int = 0) -> Iterator[Any]:
    """Compute tasks in one graph, and yield their results in order; `n_bytes` may be sent without a warning."""
    import dask  # noqa: PLC0415
    import dask.utils  # noqa: PLC0415

    client: Any = getattr(dask.base.get_scheduler(), "__self__", None)
    if not hasattr(client, "scheduler_info"):
        yield from dask.compute(*tasks)
        return
    allowed = dask.utils.parse_bytes(dask.config.get(LARGE_GRAPH, "10MB")) + n_bytes
    with dask.config.set({LARGE_GRAPH: allowed}):
        futures = client.compute(list(tasks))
    try:
        for future in futures:
            yield fetch(future, client)
    except BaseException:  # also Ctrl-C
        with suppress(Exception):
            client.cancel(futures, force=True)
        raise


def fetch(future: Any, client: Any) -> Any:
    """Wait for a task on a cluster and return its result."""
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415

    try:
        while True:
            wait_for(future, client)
            with suppress(TimeoutError):
                return future.result(timeout=PATIENCE)
            if future.status == "error":
                raise future.exception()
            # otherwise it was lost with its worker, and is computed again
    except KilledWorker as error:
        raise ClusterError(
            f"{error.allowed_failures + 1} workers died with the same samples, the last one at "
            f"{error.last_worker.address}. They probably ran out of memory: use smaller chunks, or workers with more."
        ) from error
    except CancelledError as error:
        raise ClusterError(
            f"Tasks were cancelled during a pass ({error}): the cluster was restarted, or lost chunks that cannot be "
            "computed again. Persist X again, or fit it from its source."
        ) from error


def wait_for(future: Any, client: Any) -> None:
    """Wait until a task has finished; raise an error if the cluster cannot finish it."""
    last_seen = time.monotonic()
    while True:
        with suppress(TimeoutError):
            future.exception(timeout=1)
            return
        if client.status != "running":
            raise ClusterError("The connection to the dask scheduler is lost. Make a new Client, and fit again.")
        workers = client.sync(client.scheduler.identity)["workers"].values()
        states = sorted({str(worker["status"]) for worker in workers})
        if "running" in states:
            last_seen = time.monotonic()
        elif time.monotonic() - last_seen > PATIENCE:
            found = f"all {len(workers)} are {', '.join(states)}" if states else "there are none"
            raise ClusterError(f"No worker has run tasks for {PATIENCE:g} s: {found}. Start workers with more memory.")
