"""Which tables there are: spines, and what layers keep."""

from __future__ import annotations

import itertools
import math

import numpy as np

from hdmm_bf._types import RealMatrix
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import component_rows

MOST_CELLS = 2**22
"""Cells up to which noise is added to each."""

MOST_VALUES, MOST_OUTSIDE, _MOST_LAYERS = 512, 6, 32
"""Values of a spine, attributes beside it, and layers, with which a step takes less than a second."""


def applies(product: ProductProblem) -> bool:
    """Whether some attribute can be the spine, and noise be added to every cell."""
    moved = any(len(edges) for edges in product.edges)
    return moved and math.prod(product.sizes) <= MOST_CELLS and bool(spines(product)) and product.threshold is None


def spines(product: ProductProblem) -> list[int]:
    """Return the attributes that may be the spine, the one that has most to gain first.

    Public totals must be known to the noise, so of every other attribute either all values are one component, or all
    records can come and go. First are those whose policy is neither complete nor empty nor a star, then those whose
    queries are no counts, then the largest. Values and layers must not be too many.
    """
    d, found = len(product.sizes), []
    parts = [component_rows(edges, n) for n, edges in zip(product.sizes, product.edges, strict=True)]
    plain = [
        not len(edges) or own.shape[0] == 0 or (own.shape[0] == 1 and own.nnz == n)
        for own, n, edges in zip(parts, product.sizes, product.edges, strict=True)
    ]
    for i, (n, edges) in enumerate(zip(product.sizes, product.edges, strict=True)):
        alike = len(edges) in (0, n * (n - 1) // 2) or bool(np.all(edges[:, 1] == BOTTOM))
        counts = all(is_even(term.grams[i]) for term in product.terms)
        known = all(plain[:i] + plain[i + 1 :])
        if known and 1 < n <= MOST_VALUES and d - 1 <= MOST_OUTSIDE and len(kept_by_layers(product, i)) <= _MOST_LAYERS:
            found.append(((not alike, not counts, n), i))
    return [i for _, i in sorted(found, reverse=True)]


def is_even(V: RealMatrix) -> bool:
    """Whether a Gram matrix is a I + b J."""
    rest = V - np.diag(np.full(len(V), V[0, 0]))
    return len(V) == 1 or bool(np.allclose(rest, V[0, 1] * (1 - np.eye(len(V))), rtol=1e-9, atol=1e-9 * abs(V[0, 0])))


def is_total(V: RealMatrix) -> bool:
    """Whether queries see the total alone."""
    return bool(np.allclose(V, V[0, 0], rtol=1e-9, atol=0.0))


def kept_by_layers(product: ProductProblem, spine: int) -> list[tuple[int, ...]]:
    """Return what the layers keep: what every term sees of the other attributes, what several see, and all."""
    outside = [i for i in range(len(product.sizes)) if i != spine]
    seen = {tuple(i for i in outside if not is_total(term.grams[i])) for term in product.terms}
    both = {tuple(i for i in one if i in other) for one, other in itertools.combinations(seen, 2)}
    return sorted(seen | both | {tuple(outside)}, key=lambda keeps: (-len(keeps), keeps))
