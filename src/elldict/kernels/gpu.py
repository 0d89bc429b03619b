"""Torch on a graphics card: fast products where they are allowed, and kernels that read the codes once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import array_api_compat

from elldict.kernels.fused import fused_terms
from elldict.kernels.generic import FreshWork
from elldict.space import Array, Space

_precision = threading.RLock()
"""Torch has one setting for all threads: whoever makes a product holds it."""


_own = threading.local()
"""What a thread keeps from one fit to the next."""


class GpuWork(FreshWork):
    """Results of one pass go into fresh arrays: torch keeps memory that was let go, and hands it out again."""

    def __init__(self, *, fast: bool) -> None:
        self._fast = fast
        self.fused = fused_terms()

    def matmul(self, a: Array, b: Array, into: str) -> Array:  # noqa: ARG002
        """Product a @ b."""
        with products(fast=self._fast):
            return a @ b


@contextmanager
def products(*, fast: bool) -> Iterator[None]:
    """Products of float32 numbers in full, or by their first eleven binary digits; the user's setting comes back."""
    import torch  # noqa: PLC0415

    settings: Any = torch.backends.cuda.matmul
    with _precision:
        # torch 2.9 has a new name for the setting, and minds when the old one is used as well
        new = hasattr(settings, "fp32_precision")
        name, wanted = ("fp32_precision", "tf32" if fast else "ieee") if new else ("allow_tf32", fast)
        before = getattr(settings, name)
        if before == wanted:
            yield
            return
        setattr(settings, name, wanted)
        try:
            yield
        finally:
            setattr(settings, name, before)


def can_record(space: Space) -> bool:
    """Whether work in a space can be recorded and replayed: by torch, on a card of NVIDIA, off its main stream."""
    if not (space.on_gpu and array_api_compat.is_torch_namespace(space.xp)):
        return False
    import torch  # noqa: PLC0415

    return torch.version.cuda is not None and torch.cuda.current_stream(space.device).cuda_stream != 0


class Graph:
    """Work on a card, recorded once. It must ask the card for nothing, and find and leave data in the same place."""

    def __init__(self, work: Callable[[], None]) -> None:
        import torch  # noqa: PLC0415

        self._graph = torch.cuda.CUDAGraph()
        # other threads may ask the card for memory meanwhile
        self._graph.capture_begin(pool=_memory(), capture_error_mode="thread_local")
        try:
            work()
        finally:
            self._graph.capture_end()

    def replay(self) -> None:
        """Do the work."""
        self._graph.replay()


def _memory() -> Any:
    """Memory that the graphs of a thread share, since they work one after another: to ask for it anew takes long."""
    import torch  # noqa: PLC0415

    known = _own.__dict__.setdefault("graphs", {})
    device = torch.cuda.current_device()
    if device not in known:
        keeper = torch.cuda.CUDAGraph()  # the memory lives as long as one graph does
        number = torch.zeros(1, device="cuda")
        keeper.capture_begin(capture_error_mode="thread_local")
        number.add_(1)
        keeper.capture_end()
        known[device] = (keeper, number)
    return known[device][0].pool()


class Inbox:
    """A few numbers on their way from the card to the host, in memory that the card can write to."""

    def __init__(self, numbers: Array) -> None:
        import torch  # noqa: PLC0415

        self._memory = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        self._stream = torch.cuda.current_stream(numbers.device)

    def send(self, numbers: Array) -> None:
        """Put numbers on their way."""
        self._memory.copy_(numbers, non_blocking=True)

    def read(self) -> list[float]:
        """Wait for the card, and read them."""
        self._stream.synchronize()
        values: list[float] = self._memory.tolist()
        return values


def inbox(numbers: Array) -> Inbox:
    """An inbox for numbers like these."""
    return Inbox(numbers)


@contextmanager
def own_stream(space: Space) -> Iterator[None]:
    """Let a fit work on a stream of its own: what is on the main one cannot be recorded. Elsewhere, do nothing."""
    if not (space.on_gpu and array_api_compat.is_torch_namespace(space.xp)):
        yield
        return
    import torch  # noqa: PLC0415

    known = _own.__dict__.setdefault("streams", {})
    with torch.cuda.device(space.device):
        if space.device not in known:
            known[space.device] = torch.cuda.Stream(space.device)
        main, own = torch.cuda.current_stream(), known[space.device]
        own.wait_stream(main)  # samples may still be on their way
        try:
            with torch.cuda.stream(own):
                yield
        finally:
            main.wait_stream(own)
