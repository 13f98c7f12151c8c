"""Gaussian noise: the strategy of least error, with its proof, for any policy.

    primal   minimise tr(V X^-1) * max_e d_e(X)       dual   maximise f(mu)^2 over weights on the edges

Dual ascent (see `ascent`). X(mu) minimises tr(V X^-1) + sum_e mu_e d_e.

Primal rounding. Scaling X(mu) to sensitivity 1 pays for the largest excess max d / f. In the distances of all
pairs of vertices, a linear image of X, the constraint is a box d_e <= c: moving X(mu) into the box pays only the
mu-average of the excess. This brings the proof ten times closer at every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from jaxtyping import Float64

from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.bounds.dense import DualPoint, GramRoot, gram_scale, uniform
from hdmm_bf.parallel.devices import Array, Mesh
from hdmm_bf.parallel.sharded import Matrices, Spread
from hdmm_bf.problem.forms import EdgeForms, edge_forms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian.ascent import Point, ascent
from hdmm_bf.strategies.registry import Family
from hdmm_bf.strategies.search import Progress

_LEVELS = (0.999, 1.0, 1.001, 1.003, 1.01, 1.03)
"""Heights of the box, against f, among which a separable model of the error chooses."""

_MODEL_EDGES = 50_000
"""Edges, at even steps through the list, on which the model that chooses the level is evaluated."""

GATHERED = "the matrices are too badly conditioned for products alone, so they were gathered and factored on the host"


Gram: TypeAlias = SquareMatrix | Array
"""X = A^T A, in NumPy or spread over devices."""


class Held(NamedTuple):
    """A point in NumPy."""

    root_sum: float
    trace: float
    X: SquareMatrix
    d: RealVector
    L: SquareMatrix
    dual: DualPoint


@final
class InMemory:
    """All that the search does with matrices, in NumPy, with roots by eigendecomposition."""

    why = ""

    def __init__(self, root: GramRoot, forms: EdgeForms) -> None:
        self.root, self.forms = root, forms

    def at(self, mu: RealVector) -> Held:
        """Return X(mu)."""
        L = self.forms.laplacian(mu)
        dual = self.root.dual_point(L)
        return Held(dual.root_sum, dual.trace, dual.X, self.forms.distances(dual.X), L, dual)

    def curvature(self, point: Held) -> RealVector | None:
        """Return the second derivatives of tr(V X^-1) along the distances."""
        Y = self.root.pseudo_inverse(point.dual)
        return None if Y is None else self.forms.curvature(point.L, Y)

    def moved(self, point: Held, change: RealVector) -> tuple[float, SquareMatrix]:
        """Move X inside the range of V."""
        X = point.X.copy(order="F")
        self.forms.shift(X, change)
        X = self.root.project(X)
        return self.root.trace(X) * float(self.forms.distances(X).max()), X


@final
class OnDevices:
    """The same with matrices spread over a mesh and roots by products.

    Where S is too badly conditioned for that, the search goes on in memory, and `why` says so.
    """

    def __init__(self, root: GramRoot, forms: EdgeForms, mesh: Mesh, *, gap: float) -> None:
        self.matrices, self.in_memory, self.why = Matrices(root, forms, mesh, gap=gap), InMemory(root, forms), ""

    def at(self, mu: RealVector) -> Spread | Held:
        """Return X(mu)."""
        found = None if self.why else self.matrices.at(mu)
        if found is not None:
            return found
        self.why = GATHERED
        return self.in_memory.at(mu)

    def curvature(self, point: Spread | Held) -> RealVector | None:
        """Return the second derivatives of tr(V X^-1) along the distances."""
        return self.in_memory.curvature(point) if isinstance(point, Held) else self.matrices.curvature(point)

    def moved(self, point: Spread | Held, change: RealVector) -> tuple[float, Gram]:
        """Move X inside the range of V."""
        if isinstance(point, Held):
            return self.in_memory.moved(point, change)
        return self.matrices.moved(point, change)

    def to_host(self, X: Gram) -> SquareMatrix:
        """Return a Gram matrix for NumPy."""
        return X if isinstance(X, np.ndarray) else self.matrices.to_host(X)


Kernel: TypeAlias = InMemory | OnDevices


def steps(
    problem: Problem,
    *,
    gap: float,
    start: Float64[np.ndarray, " e"] | None = None,
    kernel: Kernel | None = None,
) -> Iterator[Progress[Any, RealVector]]:
    """Yield Gram matrices X = A^T A (lower triangles) and weights mu, better and better, for a problem with edges.

    Args:
        problem: the workload under the policy.
        gap: the proven gap aimed at; it decides when rounding is worth its price.
        start: edge weights of an earlier search, to start from.
        kernel: where matrices live; in memory if not said.
    """
    scale, edges = gram_scale(problem), problem.policy.num_edges
    kernel = kernel or InMemory(GramRoot(problem, scale), edge_forms(problem.P))
    weights = uniform(edges) if start is None else np.maximum(start, 0) / start.sum()
    return ascent(partial(_evaluate, kernel), weights, gap=gap, scale=scale)


def _evaluate(kernel: Kernel, mu: RealVector) -> Point[Gram]:
    """X(mu), with its rounding."""
    at = kernel.at(mu)
    return Point(at.root_sum, at.trace, at.d, at.X, lambda mu: rounded(kernel, at, mu))


def on_devices(problem: Problem, mesh: Mesh, *, gap: float) -> OnDevices:
    """Prepare a search on a mesh."""
    return OnDevices(GramRoot(problem, gram_scale(problem)), edge_forms(problem.P), mesh, gap=gap)


def rounded(kernel: Kernel, point: Any, mu: RealVector) -> tuple[float, Gram]:
    """Move X(mu) into the box d_e <= c: down where it sticks out, up by mu / curvature where there is room."""
    curvature = kernel.curvature(point)
    if curvature is None:
        return math.inf, point.X
    f, d = point.root_sum, point.d
    bend = np.maximum(curvature, 1e-300)
    wish = mu / bend

    some = slice(None, None, -(-mu.size // _MODEL_EDGES))
    share = mu.sum() / mu[some].sum()
    wish_, d_, mu_, bend_ = wish[some], d[some], mu[some] * share, bend[some] * share

    def model(level: float) -> float:
        change = np.minimum(wish_, level * f - d_)
        return float(level * (f - mu_ @ change + 0.5 * (bend_ * change) @ change))

    return kernel.moved(point, np.minimum(wish, min(_LEVELS, key=model) * f - d))


FAMILY = Family(name="gaussian", noise="gaussian", structured=False, search=steps, spreads=True)
