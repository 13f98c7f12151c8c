"""p-Identity over the cells of a product domain, under unbounded differential privacy: no n x n matrix is ever made.

A = [I; Theta] with every column scaled to L1 norm 1, Theta >= 0 with p rows over all cells. With d = 1 + column sums,
Y = C^-1 Theta, C C^T = I + Theta Theta^T, the error is sum_k tr(d V_k d) - <Y d V_k, Y d>, and V_k is a Kronecker
product: O(p^2 n + p n sum n_i) a step. Rows are not products of rows, which is what Kronecker strategies lose by:
identity and product rows together cost each column one sum, not the product of one sum an attribute.
Starts are products of clusters of every attribute's values, on one or two levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, SquareMatrix
from hdmm_bf.matrix import apply_factors
from hdmm_bf.objectives.descent import minimise, padded
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.laplace import clusters as grouping
from hdmm_bf.strategies.registry import Family

if TYPE_CHECKING:
    from hdmm_bf.objectives.measures import Total

NAME = "p-identity on cells"
"""The origin of its strategies."""

LARGEST = 4096
"""Cells up to which the strategy is written out."""

_STARTS = 8
"""Starts of a search, after the identity."""
_MOST_ROWS = 128
_SHORT, _LONG = 60, 400
"""Iterations of a first descent, and of one that is worth going on with."""
_PATIENCE = 0.02
"""Logarithm of the error by which a first descent may be behind the best."""
_NEGLIGIBLE = 1e-3

Grams = tuple[tuple[SquareMatrix, ...], ...]


class CellsDraft(NamedTuple):
    """Theta, p x n >= 0, and the unit error of [I; Theta] / (1 + its column sums), of L1 sensitivity 1."""

    Theta: RealMatrix
    error: float


def applies(product: ProductProblem) -> bool:
    """Whether the policy hides the presence of every record and nothing else."""
    held = [(edges, n) for edges, n in zip(product.edges, product.sizes, strict=True) if len(edges)]
    return len(held) == 1 and len(held[0][0]) == held[0][1] and bool(np.all(held[0][0][:, 1] == BOTTOM))


def worthwhile(product: ProductProblem) -> bool:
    """Whether rows over all cells are searched: one product of queries, presence hidden, not too many cells."""
    return len(product.terms) == 1 and product.problem.policy.num_cells <= LARGEST and applies(product)


def unit_error(product: ProductProblem, Theta: RealMatrix) -> float:
    """Return the unit error of [I; Theta] with its columns scaled to L1 norm 1, in plain NumPy."""
    tensor = Theta.reshape(len(Theta), *product.sizes)
    d = 1 + tensor.sum(axis=0)
    C = cholesky(np.eye(len(Theta)) + Theta @ Theta.T, lower=True)
    Y = solve_triangular(C, Theta, lower=True).reshape(tensor.shape) * d
    error = 0.0
    for term in product.terms:
        diagonal = reduce(np.multiply.outer, [np.diag(V) for V in term.grams])
        seen = apply_factors((np.eye(len(Theta)), *term.grams), Y)
        error += term.weight**2 * (float(np.vdot(d**2, diagonal)) - float(np.vdot(Y, seen)))
    return error


def matrix(Theta: RealMatrix) -> RealMatrix:
    """Return the strategy written out: (n + p) x n."""
    A = np.vstack([np.eye(Theta.shape[1]), Theta])
    return np.asarray(A / A.sum(axis=0))


def steps(product: ProductProblem, *, seed: int) -> Iterator[CellsDraft]:
    """Yield the best strategy after every start, from the identity on.

    Guarantees:
        The strategy has L1 sensitivity 1 and the unit error it says, and is never worse than the identity.
    """
    from hdmm_bf.objectives.parametrisations import PIdentity

    rng = np.random.default_rng(seed)
    shape = product.sizes
    none = np.zeros((0, math.prod(shape)))
    best = CellsDraft(none, unit_error(product, none))
    scale = best.error
    total = _total(product, scale)
    points = [
        grouping.embedding(sum(t.grams[i] / np.trace(t.grams[i]) for t in product.terms)) for i in range(len(shape))
    ]
    yield best
    for count in range(_STARTS):
        rows = padded(_start(points, rng, count))
        loss = total.of(PIdentity(*rows.shape))
        value, roots, *_ = minimise(loss, rows, steps=_SHORT, tolerance=1e-8)
        if value < math.log(best.error / scale) + _PATIENCE:
            value, roots, *_ = minimise(loss, roots, steps=_LONG)
        Theta = np.asarray(roots) ** 2
        Theta = Theta[Theta.max(axis=1) > _NEGLIGIBLE]
        best = min(best, CellsDraft(Theta, unit_error(product, Theta)), key=lambda found: found.error)
        yield best


@la.in_float64
def _total(product: ProductProblem, scale: float) -> Total:
    """The error over the cells, V by its factors."""
    import jax.numpy as jnp

    from hdmm_bf.objectives.grams import SumGram, problem_gram
    from hdmm_bf.objectives.measures import total_of

    return total_of(SumGram((problem_gram(product.problem, "products"),), jnp.asarray([1 / scale])))


def _start(points: list[RealMatrix], rng: np.random.Generator, count: int) -> RealMatrix:
    """Roots of products of clusters: 2, 3, ... groups an attribute in turn, and every third time two levels."""
    most = int(_MOST_ROWS ** (1 / len(points)))
    levels = [2 + (5 * count + 4) % max(most - 1, 1)]
    if count % 3 == 2:
        levels = [max(2, levels[0] // 2), levels[0]] if 2 * levels[0] ** len(points) > _MOST_ROWS else [2, levels[0]]
    rows = np.concatenate([_clusters(points, groups, rng) for groups in levels])
    return np.sqrt(rows + 0.01 * rng.uniform(0, 1, rows.shape))


def _clusters(points: list[RealMatrix], groups: int, rng: np.random.Generator) -> RealMatrix:
    """Indicators of every combination of one cluster an attribute, with one weight for all."""
    made = []
    for rows in points:
        count = min(groups, len(rows))
        label = grouping.clusters(rows, count, rng) if count > 1 else np.zeros(len(rows), dtype=np.int64)
        made.append((label == np.arange(count)[:, None]).astype(np.float64))
    return np.asarray(rng.uniform(0.2, 1.0) * reduce(np.kron, made))


FAMILY = Family(
    name="cells",
    noise="laplace",
    structured=True,
    search=steps,
    applies=worthwhile,
    needs=f"needs ordinary privacy, one product of queries and at most {LARGEST} cells",
)
