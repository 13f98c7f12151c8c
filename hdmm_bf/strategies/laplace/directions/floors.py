"""The paper's and the classical mechanisms on products, in closed form by their factors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix
from hdmm_bf.bounds.products.kronecker import moved_attributes
from hdmm_bf.objectives import limits
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import has_public_totals, indicators
from hdmm_bf.strategies.baselines.classical import branchings, haar, hierarchy
from hdmm_bf.strategies.gaussian.sketch import Sketch
from hdmm_bf.strategies.laplace.directions.candidates import Candidates
from hdmm_bf.strategies.laplace.directions.drafts import SumDraft
from hdmm_bf.strategies.laplace.factors import EDGES, IDENTITY, WAVELET
from hdmm_bf.strategies.laplace.kronecker import reaches

STEPS = ", step by step"
"""Under distance thresholds above 1: noise that hides single steps, and so, with more of it, several."""
GRID, EACH = "rows and columns of wavelets", "identity on cells, each attribute"

MOST_CELLS = 2**22
"""Cells up to which noise is added to each."""


def applies(product: ProductProblem) -> bool:
    """Whether noise can be added to every cell, and some query is moved."""
    return bool(moved_attributes(product)) and math.prod(product.sizes) <= MOST_CELLS


def joint(product: ProductProblem, factors: Sequence[RealMatrix], name: str) -> SumDraft | None:
    """Return rows over the cells that are products of rows, with public totals; None where they have not full rank."""
    loss = float(reaches(product, factors).max())
    inverses = [la.inverse(A.T @ A) if len(A) >= A.shape[1] else None for A in factors]
    known = [la.symmetric(Y) for Y in inverses if Y is not None]
    if len(known) < len(factors) or not loss > 0:
        return None
    totals = [indicators(edges, n) for edges, n in zip(product.edges, product.sizes, strict=True)]
    error = 0.0
    for term in product.terms:
        whole = math.prod(float(np.vdot(V, Y)) for V, Y in zip(term.grams, known, strict=True))
        fall = math.prod(la.conditioning_gain(Y, V, C) for Y, V, C in zip(known, term.grams, totals, strict=True))
        error += term.weight**2 * (whole - fall)
    moved = tuple(moved_attributes(product))
    alone = len(moved) > 1 and has_public_totals(product)
    precisions = np.full((1,) * len(factors), loss**-2)
    if len(moved) == 1 and has_public_totals(product):
        return None  # better by itself, where its own totals are rows
    return SumDraft((Sketch(tuple(factors), precisions, hides=moved if alone else None),), loss**2 * error, name)


def joint_floors(product: ProductProblem) -> Iterator[SumDraft]:
    """Yield the classical mechanisms: identity on the cells, products of wavelets and of hierarchies."""
    sizes = product.sizes
    kinds = [(IDENTITY, [np.eye(n) for n in sizes]), (WAVELET, [haar(n) for n in sizes])]
    for name, branching in branchings(max(sizes)):
        kinds.append((name, [np.vstack(hierarchy(n, branching)) if n > 1 else np.eye(1) for n in sizes]))
    for name, factors in kinds:
        if name != IDENTITY and limits.ending():
            return
        found = joint(product, factors, name)
        if found is not None:
            yield found


def floors(product: ProductProblem, candidates: Candidates) -> Iterator[SumDraft]:
    """Yield the paper's and the classical mechanisms in closed form, by their factors; identity on the cells first."""
    yield from joint_floors(product)
    if not limits.ending():
        yield from sums(candidates)


def sums(candidates: Candidates) -> Iterator[SumDraft]:
    """Yield the paper's mechanisms that add up noise for every attribute, and identity on the cells of each."""
    named = [(EDGES, IDENTITY, EDGES), (EDGES, WAVELET, GRID), (IDENTITY, IDENTITY, EACH)]
    for own, star, name in named:
        found = candidates.best(own, star, name)
        if found is not None:
            yield found


def floor_kind(name: str) -> str:
    """Say whose a mechanism is: the paper's, classical, or ours."""
    if name.removesuffix(STEPS) in (EDGES, GRID):
        return "paper"
    return "classical" if name in (IDENTITY, WAVELET) or name.startswith(("hierarchy", "HB")) else "ours"
