"""Torch on a graphics card: precision of products, streams, CUDA graphs, and the Triton kernels where installed."""

from __future__ import annotations

import functools
import importlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any

_precision = threading.RLock()
"""Torch has one setting for all threads: whoever makes a product holds it."""


_own = threading.local()
"""What a thread keeps from one fit to the next."""

FITS_BEFORE_KERNELS = 3
"""Fits of a process that go without kernels and graphs, which take eight seconds to compile and record and save a tenth
of a second each: whoever fits once or twice does not wait. By their number alone, so that the same program gives the
same bits however fast a compiler is."""

PIECE_BYTES, MIN_PIECES, N_COPIERS = 2**23, 2, 4
"""Of a tensor on its way to the host: bytes of a piece, pieces from which that is faster than one call, and threads
that store them."""

_fits = itertools.count()
"""Fits on a card that this process has begun."""


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


def draw_normal(shape: tuple[int, int], seed: int, device: Any) -> Array:
    """Standard normal numbers in float64, drawn by a card."""
    import torch  # noqa: PLC0415

    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=device)


def add_fast_product(C: Array, a: Array, b: Array, share: float, factor: float) -> Array:
    """Return share C + factor a b, by fast products."""
    import torch  # noqa: PLC0415

    with products(fast=True):
        return torch.addmm(C, a, b, beta=share, alpha=factor)


def take(table: Array, index: Array) -> Array:
    """Entries of a table at an index of any shape, none of which is negative."""
    import torch  # noqa: PLC0415

    return torch.take(table, index)


def copy_to_host(tensor: Array) -> NDArray[Any]:
    """A tensor of a card as a NumPy array; a large one piece by piece, through memory that the card can write to.

    Fresh memory of the host is what takes the time, so that several threads take it: 134 MB come in a tenth of the time
    of one call.
    """
    import torch  # noqa: PLC0415

    size = tensor.numel() * tensor.element_size()
    if size < MIN_PIECES * PIECE_BYTES or not tensor.is_cuda:
        return np.asarray(tensor.cpu())
    flat = tensor.contiguous().view(-1)
    out = np.empty(tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
    target, step = out.reshape(-1), PIECE_BYTES // tensor.element_size()
    rooms = [torch.empty(step, dtype=tensor.dtype, pin_memory=True) for _ in range(N_COPIERS)]
    stream = torch.cuda.current_stream(tensor.device)

    def store(room: Any, first: int, last: int) -> None:
        target[first:last] = room[: last - first].numpy()

    with ThreadPoolExecutor(N_COPIERS) as copiers:
        waiting: list[Any] = [None] * N_COPIERS
        for number, first in enumerate(range(0, flat.shape[0], step)):
            place, last = number % N_COPIERS, min(first + step, flat.shape[0])
            if waiting[place] is not None:
                waiting[place].result()
            rooms[place][: last - first].copy_(flat[first:last], non_blocking=True)
            stream.synchronize()
            waiting[place] = copiers.submit(store, rooms[place], first, last)
        for task in waiting:
            if task is not None:
                task.result()
    return out


def count_memory(device: Any) -> int:
    """Bytes of memory that a card has."""
    import torch  # noqa: PLC0415

    return int(torch.cuda.get_device_properties(device).total_memory)


def can_capture(device: Any) -> bool:
    """Whether work can be captured as a CUDA graph: on a card of NVIDIA, off its main stream."""
    import torch  # noqa: PLC0415

    captures = torch.version.cuda is not None and torch.cuda.current_stream(device).cuda_stream != 0
    return captures and _own.__dict__.get("compiles", False)


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


@contextmanager
def own_stream(device: Any) -> Iterator[None]:
    """Let a fit work on a stream of its own: what is on the main one cannot be captured."""
    import torch  # noqa: PLC0415

    known = _own.__dict__.setdefault("streams", {})
    with torch.cuda.device(device):
        if device not in known:
            known[device] = torch.cuda.Stream(device)
        main, own = torch.cuda.current_stream(), known[device]
        own.wait_stream(main)  # samples may still be on their way
        outermost = "compiles" not in _own.__dict__
        if outermost:
            _own.compiles = next(_fits) >= FITS_BEFORE_KERNELS  # for the whole fit
        try:
            with torch.cuda.stream(own):
                yield
        finally:
            main.wait_stream(own)
            if outermost:
                del _own.compiles


Fused = Any
"""Module `elldict._old.backend.triton_kernels`, which is not imported to say what it holds, or `HostKernels`."""


def fused_terms() -> Fused | None:
    """Kernels; None in the first fits of a process, outside of fits, and where Triton is not installed."""
    return import_kernels() if _own.__dict__.get("compiles", False) else None


@functools.cache
def import_kernels() -> Fused | None:
    """Kernels, or None where Triton is not installed."""
    try:
        return importlib.import_module("elldict._old.backend.triton_kernels")
    except ImportError:
        return None
