"""Where graphs of tasks run. Here: the threads of this process; the workers of a cluster have a room of their own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

try:
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph
    from dask.system import CPU_COUNT
except ModuleNotFoundError as error:
    raise ImportError(f"Samples on a cluster need dask ({error}): pip install 'elldict[dask]'") from error

Graph = dict[Any, Any]

FAN_IN = 16
"""Results that one task puts together."""


@dataclass(frozen=True)
class Plan:
    """Tasks to run, for the sake of one result."""

    name: str
    tasks: Graph  # a tree
    dependencies: Sequence[Any]  # collections whose keys the tasks refer to
    n_bytes: int = 0  # of what the tasks are told

    @property
    def delayed(self) -> Any:
        """The result, as dask speaks of it before it is there."""
        graph = HighLevelGraph.from_collections(self.name, self.tasks, dependencies=self.dependencies)
        return Delayed(root_of(self.name), graph, layer=self.name)


class Engine(Protocol):
    """Where plans are carried out."""

    @property
    def n_threads(self) -> int:
        """Tasks that run at the same time."""
        ...

    def result(self, plan: Callable[[], Plan]) -> Any:
        """What a plan comes to. It is drawn up again, under another name, for each attempt."""
        ...


@dataclass(frozen=True)
class LocalEngine:
    """The threads of this process, or what else dask's configuration says."""

    @property
    def n_threads(self) -> int:
        """As many as dask would start."""
        return int(CPU_COUNT)

    def result(self, plan: Callable[[], Plan]) -> Any:
        """What a plan comes to."""
        return plan().delayed.compute()


def new_name(what: str) -> str:
    """Name of the tasks of a pass, on dask's dashboard too; never given twice."""
    return f"elldict-{what}-{uuid.uuid4().hex}"


Together = Callable[[list[Any]], Any]
"""From the keys of neighbours to the task that makes one result of theirs."""


def tree(tasks: Graph, name: str, inner: Together, last: Together) -> Graph:
    """Tasks, and those that put neighbours together until one is left: `root_of` the name."""
    graph, keys, level = dict(tasks), list(tasks), 0
    while len(keys) > FAN_IN:
        level += 1
        groups = [keys[k : k + FAN_IN] for k in range(0, len(keys), FAN_IN)]
        keys = [(name, level, number) for number in range(len(groups))]
        graph.update({key: inner(group) for key, group in zip(keys, groups, strict=True)})
    graph[root_of(name)] = last(keys)
    return graph


def root_of(name: str) -> Hashable:
    """Key of the task whose result is that of the whole tree."""
    return f"{name}-root"
