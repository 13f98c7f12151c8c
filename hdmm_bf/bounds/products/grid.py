"""Dual bound on a grid: one product workload over two attributes, at the cost of matrices of side n_1 + n_2.

Weights w_1 d_2[c] on (edge of attribute 1, cell c of 2) and w_2 d_1[c] on (cell c of 1, edge of attribute 2) give
L = w_1 L_1 (x) D_2 + w_2 D_1 (x) L_2. With V_i = R_i^T R_i and R_i L_i R_i^T = Q_i diag(alpha_i) Q_i^T, f = tr
G^(1/2) for

    G = w_1 diag(alpha_1) (x) B_2 + w_2 B_1 (x) diag(alpha_2),        B_i = Q_i^T R_i D_i R_i^T Q_i.

For all ranges and for prefixes on a line alpha is constant but for two (one) border values; inside the constant part,
the core, Q can be turned so that B is diagonal. Then G is diagonal on core x core, and what is left after eliminating
that has side r_1 n_2 + n_1 r_2. Reflections split all ranges into four such problems with r = 1.

The root from below is the trapezoidal rule for a sech integral, whose error Poisson's formula gives; terms left out
only lower it:    sqrt(z) >= (1 - eps) (2 h / pi) sum_k e^{h k} z / (z + e^{2 h k}),     eps = 2 sum_m sech(pi^2 m /
h).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float64

from hdmm_bf import _linalg as la
from hdmm_bf._types import EdgeArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.products.folding import folds, is_reflected
from hdmm_bf.bounds.products.resizing import resized, resized_edges
from hdmm_bf.matrix import Incidence
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem

_SPACING = 0.6
"""Of the nodes u_k; eps is then 3e-7 of the bound."""
_TAIL, _ROUGH_TAIL = 1e-6, 1e-3
"""Share of the root that nodes left out at both ends may hold; rough while weights are searched."""
_CORE = 1e-8
_MOST_BORDERS = 2
_SEARCH_SIDE, _FEWEST = 48, 6
_START, _STEP, _MOST_TRIALS = 0.3, 0.4, 200
"""Exponents to start from, the first step, and how many weights are tried: one number after the other needed more."""

_HOPELESS = 1e9
"""What stands for the logarithm of a bound that cannot be had."""

_MOST = 4.0
"""Size of exponents, and of logarithms of ratios, beyond which nothing is searched."""


class Side(NamedTuple):
    """One attribute in one parity: G's ingredients with the core made diagonal."""

    level: float
    """alpha in the core."""
    core: RealVector
    """Diagonal of B in the core."""
    border: RealVector
    """alpha outside."""
    coupling: RealMatrix
    """B between core and border, core x border."""
    corner: SquareMatrix
    """B on the border."""

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.core.size + self.border.size


def sides(
    V: Float64[np.ndarray, "n n"], edges: EdgeArray, d: Float64[np.ndarray, " n"], *, fold: bool
) -> list[Side] | None:
    """Split an attribute into parities and bring each to its core form; None where it has none."""
    n = len(V)
    P = Incidence(edges[:, 0], edges[:, 1], n).sparse()
    L = (P @ P.T).toarray().astype(np.float64)
    found = [_side(U.T @ V @ U, U.T @ L @ U, U.T @ (d[:, None] * U)) for U in folds(n, symmetric=fold)]
    known = [side for side in found if side is not None]
    return known if len(known) == len(found) else None


def _side(V: SquareMatrix, L: SquareMatrix, D: SquareMatrix) -> Side | None:
    C = la.cholesky(V)
    if C is None:
        return None
    alpha, Q = la.eigen(C.T @ L @ C)
    near = np.abs(alpha[:, None] - alpha) < _CORE * np.abs(alpha).max()
    core = near[np.argmax(near.sum(axis=1) + (alpha > _CORE * alpha[-1]))]
    core &= alpha > _CORE * alpha[-1]
    if np.count_nonzero(~core) > _MOST_BORDERS:
        return None
    level = float(alpha[core].mean()) if core.any() else 0.0
    S = C @ Q
    B = S.T @ (D @ S)
    b, Z = la.eigen(B[np.ix_(core, core)])
    coupling = Z.T @ B[np.ix_(core, ~core)]
    return Side(level, np.maximum(b, 0.0), np.maximum(alpha[~core], 0.0), coupling, B[np.ix_(~core, ~core)])


def _spread(a: Side, b: Side, w: tuple[float, float], inner: RealMatrix) -> SquareMatrix:
    """C^T diag(inner) C for the coupling C of the core (core_1 x core_2) to the border unknowns.

    Border unknowns are (border_1, core_2), then (core_1, border_2), then (border_1, border_2), to which C is zero.
    """
    r1, r2, m1, m2 = a.border.size, b.border.size, a.core.size, b.core.size
    first, second = w[1] * b.level, w[0] * a.level
    K = np.zeros((r1 * m2 + m1 * r2 + r1 * r2,) * 2)
    at = r1 * m2
    to = at + m1 * r2
    own = K[:at, :at].reshape(r1, m2, r1, m2)
    np.einsum("pkqk->pqk", own)[...] = first**2 * np.einsum("jp,jq,jk->pqk", a.coupling, a.coupling, inner)
    other = np.zeros((m1, r2, m1, r2))
    np.einsum("jpjq->pqj", other)[...] = second**2 * np.einsum("kp,kq,jk->pqj", b.coupling, b.coupling, inner)
    K[at:to, at:to] = other.reshape(m1 * r2, m1 * r2)
    cross = first * second * np.einsum("jp,kq,jk->pkjq", a.coupling, b.coupling, inner).reshape(at, m1 * r2)
    K[:at, at:to] = cross
    K[at:to, :at] = cross.T
    return K


def _border(a: Side, b: Side, w: tuple[float, float]) -> SquareMatrix:
    """G between border unknowns."""
    r1, r2, m1, m2 = a.border.size, b.border.size, a.core.size, b.core.size
    first, second = w[1] * b.level, w[0] * a.level
    at = r1 * m2
    to = at + m1 * r2
    G = np.zeros((to + r1 * r2,) * 2)
    alpha, beta = w[0] * np.diag(a.border), w[1] * np.diag(b.border)
    G[:at, :at] = np.kron(first * a.corner, np.eye(m2)) + np.kron(alpha, np.diag(b.core))
    G[at:to, at:to] = np.kron(np.eye(m1), second * b.corner) + np.kron(np.diag(a.core), beta)
    G[to:, to:] = np.kron(alpha, b.corner) + np.kron(a.corner, beta)
    G[:at, to:] = np.kron(alpha, b.coupling)
    G[at:to, to:] = np.kron(a.coupling, beta)
    G[to:, :at], G[to:, at:to] = G[:at, to:].T, G[at:to, to:].T
    return G


def _root_trace(a: Side, b: Side, w: tuple[float, float], tail: float) -> float:
    """Return tr G^(1/2), rounded down, for one pair of parities."""
    core = w[0] * a.level * b.core[None, :] + w[1] * b.level * a.core[:, None]
    border = _border(a, b, w)
    size, side = core.size, len(border)
    total = float(core.sum() + np.trace(border))
    guess = max(float(np.sqrt(core).sum()), math.sqrt(max(total, 0.0)))
    if not guess > 0:
        return 0.0

    def term(u: float) -> float:
        """Tr G (G + s)^-1 times the weight of a node, s = e^2u, less what rounding may have added."""
        s = math.exp(2 * u)
        shifted = core + s
        share = float((core / shifted).sum()) - side * side * la.EIGENVALUE_ERROR
        if side:
            schur = border - _spread(a, b, w, 1 / shifted)
            right = _spread(a, b, w, 1 / shifted**2)
            schur[np.diag_indices(side)] += s
            right[np.diag_indices(side)] += 1
            inverse = la.inverse(schur)
            if inverse is None:
                return 0.0
            doubled = 2 * np.tril(inverse) - np.diag(np.diag(inverse))
            share += side - s * float((doubled * np.tril(right)).sum())
        return 2 * _SPACING / math.pi * math.exp(u) * max(share, 0.0)

    bottom = math.floor(math.log(tail * guess / (size + side)) / _SPACING)
    top = math.ceil(math.log(total / (tail * guess)) / _SPACING)
    eps = 2 * sum(1 / math.cosh(math.pi**2 * m / _SPACING) for m in range(1, 4))
    return (1 - eps) * sum(term(_SPACING * k) for k in range(bottom, top + 1))


class Grid(NamedTuple):
    """Two attributes as the bound sees them."""

    grams: tuple[SquareMatrix, SquareMatrix]
    edges: tuple[EdgeArray, EdgeArray]
    weight: float

    @property
    def is_equal(self) -> bool:
        """Whether both attributes are the same."""
        return self.grams[0].shape == self.grams[1].shape and bool(
            np.array_equal(self.grams[0], self.grams[1]) and np.array_equal(self.edges[0], self.edges[1])
        )


def as_grid(product: ProductProblem) -> Grid | None:
    """Return the parts of a problem over two attributes with edges, one term and no BOTTOM; else None."""
    two = len(product.sizes) == 2 and len(product.terms) == 1 and all(len(e) for e in product.edges)
    if not two or any(np.any(e[:, 1] == BOTTOM) for e in product.edges):
        return None
    first, second = product.terms[0].grams
    return Grid((first, second), (product.edges[0], product.edges[1]), product.terms[0].weight)


def grid_bound(
    grid: Grid,
    cells: tuple[RealVector, RealVector],
    types: tuple[float, float] = (1.0, 1.0),
    *,
    tail: float = _TAIL,
) -> float | None:
    """Return the bound for cell profiles d_1, d_2 and type weights w_1, w_2; None where an attribute has no core."""
    profiles = [np.maximum(d, 0.0) for d in cells]
    if min(types) <= 0 or any(not d.min() > 0 for d in profiles):
        return None
    fold = [
        is_reflected(V, e) and np.array_equal(d, d[::-1])
        for V, e, d in zip(grid.grams, grid.edges, profiles, strict=True)
    ]
    same = grid.is_equal and types[0] == types[1] and np.array_equal(*profiles)
    with la.threads_for(max(map(len, profiles))):
        first = sides(grid.grams[0], grid.edges[0], profiles[0], fold=fold[0])
        second = first if same else sides(grid.grams[1], grid.edges[1], profiles[1], fold=fold[1])
        if first is None or second is None:
            return None
        f = 0.0
        for i, a in enumerate(first):
            for j, b in enumerate(second):
                if not (same and j < i):
                    f += _root_trace(a, b, types, tail) * (2 if same and j > i else 1)
    mass = [w * len(e) * d.sum() for w, e, d in zip(types, grid.edges, reversed(profiles), strict=True)]
    return float(grid.weight**2 * f * f / sum(mass))


def profile(n: int, left: float, right: float) -> RealVector:
    """Return t^left (1 - t)^right at the middles of n cells, largest 1; symmetric to the last digit if left = right."""
    t = (np.arange(n) + 0.5) / n
    d = t**left * t[::-1] ** right
    d = (d + d[::-1]) / 2 if left == right else d  # powers of equal numbers may differ by where they stand
    return np.asarray(d / d.max())


_RATIO = 4
"""The place of the ratio of the types among the numbers that are searched."""


class Weights(NamedTuple):
    """Profiles d_1, d_2 over the cells and weights w_1, w_2 of the two types of edges."""

    cells: tuple[RealVector, RealVector]
    types: tuple[float, float]


def best_weights(product: ProductProblem) -> Weights:
    """Search the exponents of the profiles and the weights of the types together, by Nelder and Mead's simplex.

    On a smaller grid of the same kind and shape where there is one: the best numbers hardly depend on the size.
    """
    share = min(1.0, _SEARCH_SIDE / max(product.sizes))
    grid, sizes = _smaller(product, tuple(max(round(share * n), min(n, _FEWEST)) for n in product.sizes))
    tied = _tied(grid)
    start = np.array([0.0 if numbers == [_RATIO] else _START for numbers in tied])

    def value(values: RealVector) -> float:
        return grid_bound(grid, *_made(_untied(tied, values), sizes), tail=_ROUGH_TAIL) or 0.0

    return _made(_untied(tied, highest(value, start)), product.sizes)


def highest(value: Callable[[RealVector], float], start: RealVector) -> RealVector:
    """Return where a bound is highest: exponents of profiles, and logarithms of ratios, by a simplex (Nelder, Mead)."""
    options = {
        "initial_simplex": np.vstack([start, start + _STEP * np.eye(start.size)]),
        "maxfev": _MOST_TRIALS,
        "xatol": 1e-2,
        "fatol": 1e-5,
    }

    def loss(where: RealVector) -> float:
        found = value(where) if np.abs(where).max() < _MOST else 0.0
        return -math.log(found) if found > 0 else _HOPELESS

    return np.asarray(scipy.optimize.minimize(loss, start, method="Nelder-Mead", options=options).x)


def _untied(tied: list[list[int]], values: RealVector) -> RealVector:
    """Return all numbers from those that are free."""
    knobs = np.zeros(_RATIO + 1)
    for numbers, value in zip(tied, values.tolist(), strict=True):
        knobs[numbers] = value
    return knobs


def _made(knobs: RealVector, sizes: tuple[int, ...]) -> Weights:
    """Return the weights of exponents, left and right of attribute 1 and of attribute 2, and log w_2 / w_1."""
    first, second = profile(sizes[0], *knobs[:2]), profile(sizes[1], *knobs[2:4])
    return Weights((first, second), (1.0, math.exp(knobs[_RATIO])))


def _tied(grid: Grid) -> list[list[int]]:
    """Which numbers of the search are one: reflections tie two exponents, equal attributes four."""
    tied = [is_reflected(V, e) for V, e in zip(grid.grams, grid.edges, strict=True)]
    if grid.is_equal:
        return [[0, 1, 2, 3]] if tied[0] else [[1, 3], [0, 2]]
    return [[_RATIO], *([[0, 1]] if tied[0] else [[1], [0]]), *([[2, 3]] if tied[1] else [[3], [2]])]


def _smaller(product: ProductProblem, sizes: tuple[int, ...]) -> tuple[Grid, tuple[int, ...]]:
    """Return a grid of the same kind with other sides, or the grid as it is where there is none."""
    grid = as_grid(product)
    assert grid is not None
    factors = [resized(f, n) for f, n in zip(product.terms[0].factors, sizes, strict=True)]
    edges = [resized_edges(e, o, n) for e, o, n in zip(grid.edges, product.sizes, sizes, strict=True)]
    if factors[0] is None or factors[1] is None or edges[0] is None or edges[1] is None:
        return grid, product.sizes
    return Grid((factors[0].gram(), factors[1].gram()), (edges[0], edges[1]), grid.weight), sizes
