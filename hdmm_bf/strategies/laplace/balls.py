"""Laplace noise for distance thresholds above 1 over several attributes: the family `directions`, with longer moves.

An edge changes several attributes at once, by `threshold` steps in all. What hides single moves hides it too:

    step by step                noise that hides a step along any attribute loses at most `threshold` times as much
    attribute by attribute      blocks that hide all moves of an attribute lose once for each attribute that changes
    at once                     rows over the cells lose max_o ||R a - R (a + o)||_1, counted out: identity loses 2
    as if records could go      rows of ordinary privacy lose at most twice what one record is worth to them

Every draft is scaled to loss 1; the certificate derives the loss again, offset by offset, and may find less.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hdmm_bf._types import EdgeArray, Number, RealMatrix
from hdmm_bf.bounds.products.kronecker import moved_attributes
from hdmm_bf.policy import line
from hdmm_bf.policy.constructors import offsets
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian.sketch import Sketch
from hdmm_bf.strategies.laplace import directions
from hdmm_bf.strategies.laplace.directions import STEPS, Candidates, SumDraft
from hdmm_bf.strategies.laplace.factors import reach

IN_TURN, ORDINARY = ", attribute by attribute", "ordinary privacy"

_MOST_PAIRS = 2**18
"""Pairs of pairs of entries up to which diagonal moves are counted out."""


def drafts(product: ProductProblem, seed: int) -> Iterator[list[SumDraft]]:
    """Yield all floors together, then what a search for noise that hides single steps finds."""
    assert product.threshold is not None, "a Cartesian product has families of its own"
    lines = replace(product, edges=tuple(line(n).edges for n in product.sizes), threshold=None)
    straight = replace(product, threshold=None)
    steps = min(product.threshold, sum(n - 1 for n in product.sizes))
    attributes = min(product.threshold, len(moved_attributes(product)))
    near = Candidates(lines)
    known = [_scaled(d, _excess(product, d)) for d in directions.joint_floors(straight)]
    known += [_scaled(d, steps, STEPS) for d in directions.sums(near)]
    known += [_scaled(d, attributes, IN_TURN) for d in directions.sums(Candidates(straight))]
    yield known
    for draft in directions.steps(lines, near, directions.searches(lines, seed), seed, together=False):
        yield [_scaled(draft, steps), *_ordinary(straight, near)]


def _ordinary(straight: ProductProblem, candidates: Candidates) -> list[SumDraft]:
    """Return the product of the best factors of ordinary privacy."""
    best = [candidates.least(i, stars) for i, stars in enumerate(candidates.stars)]
    draft = directions.joint(straight, [factor.matrix for factor in best], ORDINARY)
    return [] if draft is None else [_scaled(draft, 2 * math.prod(f.loss for f in best) * _unit(draft))]


def _scaled(draft: SumDraft, loss: Number, how: str = "") -> SumDraft:
    """Give every row so much more noise."""
    sketches = tuple(s._replace(precisions=s.precisions / loss**2) for s in _products(draft))
    return draft._replace(sketches=sketches, error=loss**2 * draft.error, name=draft.name + how)


def _products(draft: SumDraft) -> list[Sketch]:
    """The blocks of a draft, all of which are products of rows."""
    found = [sketch for sketch in draft.sketches if isinstance(sketch, Sketch)]
    assert len(found) == len(draft.sketches), "attributes are not joined under distance thresholds"
    return found


def _excess(product: ProductProblem, draft: SumDraft) -> float:
    """What rows over the cells lose by any edge, over what they lose by edges that change one attribute."""
    every = offsets(product.sizes, product.threshold or 1)
    return _unit(draft) * max(_loss(_products(draft)[0].factors, offset) for offset in every)


def _unit(draft: SumDraft) -> float:
    """The weight that all rows of one block have."""
    return math.sqrt(_products(draft)[0].precisions.item())


def _loss(factors: Sequence[RealMatrix], offset: Sequence[int]) -> float:
    """The largest ||R a - R (a + o)||_1: counted out where factors have few different entries, else in turn."""
    kinds = [_pair_counts(A, o) for A, o in zip(factors, offset, strict=True)]
    if math.prod(sum(map(len, counts)) for counts in kinds) > _MOST_PAIRS:
        norms = [float(np.abs(A).sum(axis=0).max()) for A in factors]
        moved = [reach(A, _pairs(A.shape[1], abs(o))) for A, o in zip(factors, offset, strict=True)]
        return sum(m * math.prod(norms[:i] + norms[i + 1 :]) for i, m in enumerate(moved))
    return max(_distance(chosen) for chosen in itertools.product(*kinds))


def _pairs(n: int, length: int) -> EdgeArray:
    near = np.arange(n - length if length else 0)
    return np.stack([near, near + length], axis=1)


Counts = tuple[tuple[tuple[float, float], int], ...]


def _pair_counts(A: RealMatrix, offset: int) -> set[Counts]:
    """How many rows have which entries in columns so far apart: the different answers."""
    near, far = A[:, : A.shape[1] - abs(offset)].T.tolist(), A[:, abs(offset) :].T.tolist()
    pairs = zip(near, far, strict=True) if offset >= 0 else zip(far, near, strict=True)
    return {tuple(sorted(Counter(zip(u, v, strict=True)).items())) for u, v in pairs}


def _distance(chosen: Sequence[Counts]) -> float:
    total = 0.0
    for rows in itertools.product(*chosen):
        here = math.prod(pair[0] for pair, _ in rows)
        there = math.prod(pair[1] for pair, _ in rows)
        total += math.prod(count for _, count in rows) * abs(here - there)
    return total
