"""A tree of interval counts, measured level by level and made consistent by weighted least squares in O(n).

Level 0 holds the counts themselves; a node of level l sums `branching` nodes of level l - 1, the last one perhaps
fewer. A level measured with weight w gets Laplace noise of scale 1 / (epsilon w); a weight of 0 leaves it out.

Reference: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through
consistency", 2010, for equal weights; the two passes are Gaussian elimination on the tree, so any weights will do.
"""

from __future__ import annotations

import numpy as np

from experiments.mechanisms.checks import Columns, RealMatrix, RealVector, whole_number
from experiments.mechanisms.draws import Draw
from experiments.mechanisms.mechanism import Mechanism, Stage


def num_levels(size: int, branching: int) -> int:
    """Return the number of levels of the tree over `size` counts, from single counts to the total."""
    levels = 1
    while size > 1:
        size, levels = -(-size // branching), levels + 1
    return levels


def tree_sums(counts: Columns, branching: int) -> list[Columns]:
    """Return the sums of every level, from the counts to the total; whole counts stay whole."""
    levels = [counts]
    while levels[-1].size > 1:
        levels.append(_families(levels[-1], branching).sum(axis=1))
    return levels


def _families(level: Columns, branching: int) -> Columns:
    """Children in rows, one row a parent; missing children are zeros."""
    padding = -level.size % branching
    return np.concatenate([level, np.zeros(padding, dtype=level.dtype)]).reshape(-1, branching)


def measure(
    counts: Columns, weights: RealVector, epsilon: float, draw: Draw, *, branching: int
) -> tuple[list[RealVector], RealVector]:
    """Return noisy sums of every level, and the noise variance of every level (infinite where it was left out).

    Guarantees:
        One record is in one node of each level, so the loss is the sum of epsilon * weight: epsilon for weights
        that sum to 1.
    """
    noisy, variances = [], []
    for sums, weight in zip(tree_sums(counts, branching), weights.tolist(), strict=True):
        noise = draw.laplace(1.0 / (epsilon * weight), sums.size) if weight > 0 else np.zeros(sums.size)
        noisy.append(np.asarray(sums + noise if weight > 0 else noise, dtype=np.float64))
        variances.append(2.0 / (epsilon * weight) ** 2 if weight > 0 else np.inf)
    return noisy, np.array(variances)


def consistent(noisy: list[RealVector], variances: RealVector, *, branching: int) -> RealVector:
    """Return the counts that fit the noisy sums of all levels best by weighted least squares.

    Guarantees:
        Equals the least-squares solution with rows weighted by 1 / variance; level 0 must have been measured.
    """
    best, spread = [noisy[0]], [np.full(noisy[0].size, variances[0])]
    for own, variance in zip(noisy[1:], variances[1:].tolist(), strict=True):  # upwards: all that is known from below
        below = _families(best[-1], branching).sum(axis=1)
        uncertain = _families(spread[-1], branching).sum(axis=1)
        trust = uncertain / (uncertain + variance) if np.isfinite(variance) else np.zeros(own.size)
        best.append(below + trust * (own - below))
        spread.append(uncertain * (1 - trust))
    return _downwards(best, spread, branching)


def _downwards(best: list[RealVector], spread: list[RealVector], branching: int) -> RealVector:
    """Share what a parent's final value differs from its children's sum among them, by their variances."""
    final = best[-1]
    for value, variance in zip(best[-2::-1], spread[-2::-1], strict=True):
        children, uncertain = _families(value, branching), _families(variance, branching)
        residual = (final - children.sum(axis=1)) / uncertain.sum(axis=1)
        final = (children + uncertain * residual[:, None]).ravel()[: value.size]
    return final


def hierarchical(branching: int = 2) -> Mechanism:
    """Measure a tree of interval counts, every level with the same noise, and make it consistent.

    Guarantees:
        epsilon-private between counts that differ by 1 in one cell.
        The estimate is the least-squares fit to all noisy nodes.
    """
    fan = whole_number("hierarchical", "branching", branching, least=2, advice="Use at least 2.")

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        levels = num_levels(counts.size, fan)
        noisy, variances = measure(counts, np.full(levels, 1.0 / levels), epsilon, draw, branching=fan)
        return consistent(noisy, variances, branching=fan)

    return Mechanism(f"Hierarchical {fan}", (Stage("levels", 1.0),), estimate)


def optimal_weights(usage: RealVector) -> RealVector:
    """Return level weights, summing to 1, for queries that use `usage[l]` nodes of level l in all.

    The error sum_l usage_l * 2 / (epsilon w_l)^2 is least at w_l proportional to the cube root of usage_l.
    Level 0 always gets something, so that the counts can be told apart.
    """
    roots = np.cbrt(usage)
    roots[0] = max(roots[0], 0.01 * roots.max(), np.finfo(np.float64).tiny)
    return np.asarray(roots / roots.sum())


def usage(rows: RealMatrix, branching: int = 2) -> RealVector:
    """Return, for every level, the summed squared coefficients that queries put on its nodes.

    From the bottom up, what all children of a node have in common (the least of their coefficients, when of one sign)
    is asked of the node itself; for a range of counts these are its canonical intervals.
    """
    used, level = [], rows
    while level.shape[1] > 1:
        size = level.shape[1]
        padded = np.pad(level, ((0, 0), (0, -size % branching)), mode="edge")
        children = padded.reshape(len(level), -1, branching)
        shared = np.maximum(children.min(axis=2), 0.0) + np.minimum(children.max(axis=2), 0.0)
        rest = (children - shared[:, :, None]).reshape(len(level), -1)[:, :size]
        used.append(float((rest**2).sum()))
        level = shared
    return np.array([*used, float((level**2).sum())])
