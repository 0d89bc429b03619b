"""The order in which the sums of tiles are added up: one binary tree over all tiles, whoever holds them.

Addition rounds, so another order is another answer in the last digits. From left to right would be the plainest order,
but only one hand could follow it. Along a tree many can: what 2**k tiles in a row add up to, counted from the first of
all, is a node of the tree, and it does not matter who adds it up. Rounding grows with the depth, not the number, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from elldict.samples.base import S


def folded(totals: Iterable[S]) -> S:
    """Add up, along the tree, what consecutive tiles amount to; no more than one total a level is held at a time.

    Also for totals of runs of 2**k tiles, the same k for each: the tree is the same, cut off k levels above its leaves.
    """
    waiting: list[tuple[int, S]] = []  # whole nodes, each of a lower level than the one before
    for total in totals:
        level = 0
        while waiting and waiting[-1][0] == level:
            total = waiting.pop()[1] + total  # noqa: PLW2901
            level += 1
        waiting.append((level, total))
    if not waiting:
        raise ValueError("there are no tiles to add up")
    total = waiting.pop()[1]
    while waiting:  # the number of tiles need not be a power of two: what is left over is added from the right
        total = waiting.pop()[1] + total
    return total
