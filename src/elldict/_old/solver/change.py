"""Whether the samples of a stream are still those that its atoms were learned from.

Batches are put together to blocks of at least `MIN_BLOCK_ROWS` samples, and each block is asked three things, from
sums that a step needs anyway and the codes that are evaluated one by one:

- Direction. Does it turn the atoms to the same side as the blocks before? Newton's step for all samples seen makes the
  angles that successive blocks ask for uncorrelated, as the residuals of recursive least squares are: a block is off
  from the atoms by its own noise, and the atoms from the truth by the noise of all before. So the product of the angles
  x of a block, in units of their standard deviation, with a mean L of those of recent blocks has mean zero, and
  x.L / |L| unit variance, whatever the law of the codes. A dictionary that moves makes it positive.
- Sparsity. Are codes less sparse than those of the blocks before, by E|z| over the root mean square? One-sided: atoms
  that get better make codes sparser.
- Scale. Is their mean magnitude another one?

Each gives a score for each atom and one for all atoms together, standard normal if nothing has changed. Scores are
summed up over blocks by Page's CUSUM, S <- max(0, S + score - k), which passes a threshold h after a large change at
once and after a small one in the end. For standard normal scores the mean number of blocks until S passes h by chance
is (exp(d) - d - 1) / (2 k^2), d = 2 k (h + 1.166) (Siegmund). With k = 1/2 and N scores a block, h = log(N R / 2) -
1.166 gives one false alarm in R blocks, and a block is one batch or several. Three things keep the rate lower than that
where scores are not standard normal: a score counts at most h/3 + k, so that it takes three blocks, not an outlier in
one; it is divided by the root mean square of those before it if that is above one, as it is where samples within a
block depend on each other; and angles are in units of the standard deviation that the same block shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict._old.solver.block_sums import CodeSums, PathSums
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.running import Matrix

MIN_BLOCK_ROWS = 256
"""Samples of a block, at least: enough for sums over sparse codes to be nearly normal."""

BLOCKS_PER_FALSE_ALARM = 100_000
"""Mean number of blocks of unchanged samples until chance alone is taken for a change, if scores are normal. Ten times
what is asked for, one in 10,000: tails of scores are heavier than normal where those of codes are."""

ALLOWANCE = 0.5
"""k of the CUSUM, in standard deviations of a score: half the shift that is noticed soonest."""

LAG_SHARE = 1 / 8
"""Weight of a block in the mean of the angles of recent ones, to which its successor is compared: the smaller, the
slower a drift may be, and the later it is noticed."""

LAG_VARIANCE = LAG_SHARE / (2 - LAG_SHARE)
"""Of that mean, if angles of blocks have unit variance."""

RECENT_SHARE, MIN_BLOCKS = 1 / 2, 3
"""Weight of a block in the recent sums from which errors are estimated, and blocks that an alarm takes, at least: 7/8
of the sums, and 3/4 of a squared angle, are then of changed samples. From then on sums are means over the blocks since,
over 1 / `LAG_SHARE` of them at most."""

NEARLY_GAUSSIAN = 0.1
"""Share of their distance from Gaussian ones, by E|z| over the root mean square, that codes have left which passes for
none: noise hides what they are."""

PRIOR_BLOCKS, LEARNING_BLOCKS = 4, 8
"""Blocks' worth of standard normal scores that their mean square starts with, and blocks in which any score counts for
it: what samples of one block have to do with each other is learned there, and a change noticed later."""

SURE_SCORE, LIKELY_SCORE, LARGE_ERROR = 3.0, 2.0, 0.1
"""Standard deviations from which recent blocks turn the atoms, or an atom is among those whose codes have changed once
it is known that some have; and for atoms that have an alarm of their own, or angles that are off by a large error."""


@dataclass(frozen=True)
class PathTest:
    """Whether blocks turn the atoms of a path to the same side, one after another."""

    block: PathSums
    recent: PathSums
    lag: Matrix  # like `pull`: mean of what recent blocks found, in standard deviations
    size: float = 0.0  # samples of the last block

    @classmethod
    def begin(cls, m: int, k: int) -> PathTest:
        """Before the first block."""
        empty = PathSums.empty(m, k)
        return cls(empty, empty, empty.pull)

    def add(self, stats: Statistics, A: Matrix) -> PathTest:
        """With a part, evaluated at A."""
        return replace(self, block=self.block + PathSums.of(stats, A))

    def end_block(self, n_before: float, share: float) -> tuple[PathTest, Matrix]:
        """After a block, which has this share in the recent sums, and its scores (m + 1,): of each atom and of all."""
        if not self.block.weight:  # what it was is no evidence of what it is
            empty = self.block
            return PathTest(empty, empty, empty.pull), np.zeros(len(self.lag) + 1)
        x = self.block.standardize(n_before)
        products, squares = np.sum(x * self.lag, axis=1), np.sum(self.lag**2, axis=1)
        m = len(x)
        twice = np.sum(x[:, :m] * self.lag[:, :m]), np.sum(self.lag[:, :m] ** 2)  # both halves say the same
        products = np.append(products, np.sum(products) - twice[0] / 2)
        squares = np.append(squares, np.sum(squares) - twice[1] / 2)
        scores = np.where(squares > 0, products / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)
        lag = (1 - LAG_SHARE) * self.lag + LAG_SHARE * x
        empty = PathSums.empty(m, x.shape[1] - m or m)
        recent = self.recent.decayed(1 - share) + self.block
        return PathTest(empty, recent, lag, self.block.weight), scores

    def find_turned(self) -> NDArray[np.bool_]:
        """Atoms (m,) whose angles in recent blocks are more than chance, for each alone or for all together."""
        m, width = self.lag.shape
        n_angles = np.full(m, m - 1.0 + max(0, width - 2 * m))
        found = np.sum(self.lag**2, axis=1) / LAG_VARIANCE
        pairs = ((found, n_angles), (np.sum(found) / 2, np.sum(n_angles) / 2))
        alone, together = ((a - b) / np.sqrt(2 * np.maximum(b, 1)) for a, b in pairs)
        return np.asarray((alone > 2 * SURE_SCORE) | (together > SURE_SCORE))

    def estimate_errors(self, *, chosen: bool) -> Matrix:
        """Error of the atoms (m,) that blocks ask to be corrected, beyond chance; zero before the first.

        By the mean angles of many blocks and a standard deviation, or by those of the last few less one if that is
        more. Less `SURE_SCORE` of them where other atoms are `chosen`: those have less chance, and l_p tells only of
        angles that are too large for their likelihood.
        """
        if not self.recent.weight:
            return np.zeros(len(self.lag))
        recent = self.recent
        variances = recent.measure_variances() / recent.measure_curvatures() ** 2  # of the angles of one sample
        np.fill_diagonal(variances, 0.0)
        relative_sd = math.sqrt(2 / max(len(variances) - 1, 1))  # of a sum of so many squares
        expected = LAG_VARIANCE * (1 - relative_sd if chosen else 1 + SURE_SCORE * relative_sd)
        slowly = np.sum((self.lag**2 - expected) * variances, axis=1)
        squares = np.sum((recent.pull / recent.weight / recent.measure_curvatures()) ** 2, axis=1)
        chance = np.sum(variances, axis=1) * (recent.squared_weight / recent.weight**2)
        slowly, at_once = slowly / self.size, squares - chance * (1 + (1 if chosen else SURE_SCORE) * relative_sd)
        return np.asarray(np.clip(2 * np.maximum(slowly, at_once), 0.0, 1.0))


@dataclass(frozen=True)
class ChangeTest:
    """Scores of all blocks, summed up, and what was found; of the size of the dictionary."""

    paths: tuple[PathTest, ...]
    block: CodeSums
    reference: CodeSums  # of codes before a change
    usual: Matrix  # (m,) mean magnitude of recent codes
    recent: CodeSums
    n_blocks: int
    squares: Matrix  # (s,) sum of the squares of the scores
    cusum: Matrix  # (s,) of paths, sparsity, louder and quieter; for each atom and for all together
    began: Matrix  # (s,) sample at which it was last zero
    alarmed: NDArray[np.bool_]  # (s,) that passed the threshold, and have not come back
    age: int  # blocks since the alarm
    since: int = 0  # sample from which on, about, samples have changed, if any alarm goes on

    @classmethod
    def begin(cls, n_paths: int, shape: tuple[int, int], first: Statistics, n_seen: int) -> ChangeTest:
        """After a fit with these statistics of l_p.

        Its codes are no reference: they look sparser to the fit that they were chosen by than those to come will.
        """
        m, k = shape
        size = (n_paths + 3) * (m + 1)
        return cls(
            paths=(PathTest.begin(m, k),) * n_paths,
            block=CodeSums.empty(m),
            reference=CodeSums.empty(m),
            usual=np.asarray(first.extra["magnitude"] / first.weight),
            recent=CodeSums.empty(m),
            n_blocks=0,
            squares=np.zeros(size),
            cusum=np.zeros(size),
            began=np.full(size, float(n_seen)),
            alarmed=np.zeros(size, bool),
            age=0,
        )

    @property
    def threshold(self) -> float:
        """Of the CUSUM, from which it is no chance."""
        wanted = 2 * ALLOWANCE**2 * len(self.cusum) * BLOCKS_PER_FALSE_ALARM
        return math.log(wanted) / (2 * ALLOWANCE) - 1.166

    def add(self, parts: tuple[tuple[Statistics, Matrix] | None, ...], codes: Matrix) -> ChangeTest:
        """With a part: sums of each path at its atoms, None where it is not at its maximum; and some codes (b, m)."""
        paths = tuple(path if part is None else path.add(*part) for path, part in zip(self.paths, parts, strict=True))
        return replace(self, paths=paths, block=self.block + CodeSums.of(codes, self.usual))

    def end_batch(self, n_seen: int, n_before: float, keep: float | None, signs: Matrix | None) -> ChangeTest:
        """After a batch, which ends a block if that has enough samples.

        `keep` is the share of the reference that is kept, None if nothing is ever forgotten.
        """
        if self.block.weight < MIN_BLOCK_ROWS:
            return self
        block, before = self.block.end_block(), self.reference
        share, m = max(LAG_SHARE, 1 / (self.age + 1)) if self.age else RECENT_SHARE, block.powers.shape[1]
        ended = [path.end_block(n_before, share) for path in self.paths]
        signs = np.ones(m) if signs is None else signs
        sparsity, scale = block.compare(before, signs) if before.weight else (np.zeros(m + 1),) * 2
        summed = self._sum_up(np.concatenate([*(each for _, each in ended), sparsity, scale, -scale]), n_seen)
        # what is forgotten is no reference, unless the atoms are still on their way
        if not np.any(summed.alarmed) or (keep is not None and not np.any(self._find_turned())):
            before = before.decayed(1.0 if keep is None else keep) + block
        is_news = summed.found_atoms and not self.found_atoms  # larger codes of before would decide on the fourth power
        recent = block if is_news else self.recent.decayed(1 - share) + block
        return replace(
            summed,
            paths=tuple(path for path, _ in ended),
            block=CodeSums.empty(m),
            reference=before,
            recent=recent,
            usual=recent.means[0],
            n_blocks=self.n_blocks + 1,
            age=self.age + 1 if summed.found_atoms else 0,
        )

    def _sum_up(self, scores: Matrix, n_seen: int) -> ChangeTest:
        """With the scores of a block in the sums, and alarms raised and taken back."""
        h, n, squares = self.threshold, PRIOR_BLOCKS + self.n_blocks, np.nan_to_num(scores) ** 2
        power = np.maximum((PRIOR_BLOCKS + self.squares) / n, 1.0)
        if self.n_blocks >= LEARNING_BLOCKS:  # an outlier counts nine times the mean, a change not at all
            squares = np.where(self.alarmed, power, np.minimum(squares, 9 * power))
        squares = self.squares + squares
        most = h / MIN_BLOCKS + ALLOWANCE
        sd = np.sqrt(np.maximum((PRIOR_BLOCKS + squares) / (n + 1), 1.0))
        counted = np.clip(np.nan_to_num(scores) / sd, -most, most)
        cusum = np.clip(self.cusum + counted - ALLOWANCE, 0.0, h)
        alarmed = self.alarmed | (cusum >= h)
        for kind in self._split():
            if np.any(self.alarmed[kind]) and np.all(cusum[kind] < h / 2):
                alarmed[kind], cusum[kind] = False, 0.0
        began = np.where((cusum > 0) | alarmed, self.began, n_seen)
        since = self.since
        if np.any(alarmed) and not np.any(self.alarmed):  # those that began before had a start by chance
            since = int(np.max(began[alarmed]))
        return replace(self, squares=squares, cusum=cusum, began=began, alarmed=alarmed, since=since)

    def _split(self) -> tuple[slice, slice, slice]:
        """Which scores are of direction, of sparsity and of scale."""
        n, size = len(self.paths), len(self.cusum) // (len(self.paths) + 3)
        return slice(0, n * size), slice(n * size, (n + 1) * size), slice((n + 1) * size, None)

    def _find_turned(self) -> NDArray[np.bool_]:
        """Atoms (m,) that recent blocks turn, or may turn: that is known some blocks after an alarm."""
        found = np.any([path.find_turned() for path in self.paths], axis=0)
        return np.asarray(found | (self.found_atoms and self.age * LAG_SHARE < 1))

    @property
    def kinds(self) -> tuple[bool, ...]:
        """Whether direction, sparsity and scale have changed."""
        return tuple(bool(np.any(self.alarmed[kind])) for kind in self._split())

    @property
    def found_atoms(self) -> bool:
        """Whether atoms or what they explain have changed, and not the scale alone."""
        return any(self.kinds[:2])

    @property
    def scale(self) -> Matrix:
        """Mean magnitude of recent codes (m,) over that of codes before."""
        return np.asarray(self.recent.means[0] / self.reference.means[0])

    def estimate_errors(self, signs: Matrix | None, chosen: int) -> Matrix:
        """Error of the atoms (m,) of the chosen path that recent blocks show; zero if nothing has changed.

        The angles that they ask for, to first order. Beyond that, codes of an atom a of independent ones z along the
        true atoms d have a fourth cumulant of sum_k <a, d_k>^4 of theirs, and one minus that sum is the error. Codes of
        the same atoms may also have become less sparse: then they are not Gaussian, and after some blocks it is known
        that nothing turns the atoms. An atom whose codes have become smaller than those of the others while something
        turns it has been left by its true one: what remains is the cosine between them.
        """
        m = self.block.powers.shape[1]
        if not self.found_atoms:
            return np.zeros(m)
        less_sparse, larger = self.recent.compare(self.reference, np.ones(m) if signs is None else signs)
        left, before = (math.sqrt(2 / math.pi) - each.sparsity for each in (self.recent, self.reference))
        turned = self._find_turned()
        errors = np.max([path.estimate_errors(chosen=i == chosen) for i, path in enumerate(self.paths)], axis=0)
        marked = np.any(self.alarmed.reshape(-1, m + 1)[len(self.paths) :, :m], axis=0) | (errors > LARGE_ERROR)
        least = np.where(marked, LIKELY_SCORE, SURE_SCORE)
        mixed = (less_sparse[:m] > least) & (turned | (left / before < NEARLY_GAUSSIAN))
        by_kurtosis = np.where(mixed, 1 - self.recent.kurtosis / self.reference.kurtosis, 0.0)
        left_behind = (larger[:m] < -least) & turned
        by_size = np.where(left_behind, 1 - np.minimum(self.scale / np.median(self.scale), 1.0) ** 4, 0.0)
        return np.asarray(np.clip(np.max([errors, by_kurtosis, by_size], axis=0), 0.0, 1.0))
