"""What can be said of a strategy, as differentiable functions of it.

For a problem with queries W over the kept cells, V = W^T W and policy edges p_e, and a strategy A of full column rank,

    sensitivity   Delta(A) = max_e ||A p_e||                      L1 for Laplace noise, L2 for Gaussian
    variances     Delta(A)^2 w_q^T (A^T A)^-1 w_q                 one per query
    total         Delta(A)^2 tr(V (A^T A)^-1)                     the unit error, of queries times their weights
    dual bound    (tr (V^(1/2) L(mu) V^(1/2))^(1/2))^2 / sum mu    no strategy has a smaller total, for any mu >= 0

Noise of variance Delta^2 s on every row gives s times these. Each is a frozen record: call it on a strategy, an array
r x n over all cells (or r x k over the kept ones) or an operator of `hdmm_bf.objectives`; `jax.grad`, `jax.jit` and
`jax.vmap` work on it; everything is computed in float64. Where A^T A has no inverse, total and variances are
1e250, with gradient zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np

from hdmm_bf._checks import fail, fits
from hdmm_bf._linalg import RANK_TOLERANCE, in_float64
from hdmm_bf._types import Norm, Number
from hdmm_bf.objectives.grams import Gram, Over, problem_gram
from hdmm_bf.objectives.operators import (
    UNSUPPORTED,
    Edges,
    Operator,
    ProductEdges,
    ProductPrecisions,
    Rows,
    problem_edges,
)
from hdmm_bf.objectives.pytrees import Array, double, pytree
from hdmm_bf.problem.transform import Problem

Of = TypeVar("Of")


class Smoothing(NamedTuple):
    """A sensitivity that is smooth: `|t|` becomes sqrt(t^2 + eta^2), the largest over the edges a q-norm.

    Attributes:
        eta: rounding of `|t|` at zero; small against the entries, and the smaller the more rows there are.
        power: q; the largest is the limit.
    """

    eta: float
    power: float


@pytree()
class Columns:
    """How a matrix over all cells is brought to the kept ones: A D, and which width means which.

    Attributes:
        kept: the kept cells.
        anchor: the cell that each one's component gives up, or -1.
        cells: one entry per cell, for their number.
    """

    kept: Array
    anchor: Array
    cells: Array

    def __call__(self, A: Any) -> Operator:
        """Return the operator of an array or of rows, grounded; other operators are over the kept cells already."""
        n, k = self.cells.shape[0], self.kept.shape[0]
        A = A.A if isinstance(A, Rows) else A
        if not hasattr(A, "shape"):
            if A.n != k and not isinstance(A, ProductPrecisions):
                shown = f"a strategy of {A.n} columns"
                raise fail("objectives", shown, f"there are {k}", f"Give an operator over {k} columns.")
            return A  # type: ignore[no-any-return]
        A = jnp.asarray(A, jnp.float64)
        if A.ndim != 2 or A.shape[1] not in (n, k):
            advice = f"Give one column for each of the {n} cells."
            raise fail("objectives", f"a strategy of shape {tuple(A.shape)}", f"the policy has {n} cells", advice)
        if A.shape[1] == n and n > k:
            ended = jnp.concatenate([A, jnp.zeros((len(A), 1))], axis=1)
            A = ended[:, self.kept] - ended[:, self.anchor]
        return Rows(A)


class Objective:
    """A function of strategies that can be taken of a parametrisation."""

    def of(self, parametrisation: Any) -> Composed[Any]:
        """Return the function of parameters f(parametrisation.strategy(parameters))."""
        return Composed(self, parametrisation)


@pytree()
class Composed(Generic[Of]):
    """An objective of the parameters of a parametrisation; a frozen record, as both are."""

    objective: Of
    parametrisation: Any

    @double
    def __call__(self, parameters: Any) -> Array:
        """Return the objective of the strategy that the parameters stand for."""
        return self.objective(self.parametrisation.strategy(parameters))  # type: ignore[operator,no-any-return]


@pytree("norm")
class Sensitivity(Objective):
    """Delta(A) = max_e ||A p_e||; made by `sensitivity`."""

    columns: Columns
    edges: Edges | ProductEdges | None
    smoothing: Smoothing | None
    norm: Norm

    @double
    def __call__(self, strategy: Any) -> Array:
        """Return Delta(A)."""
        return self.measure(self.columns(strategy))

    def measure(self, A: Operator) -> Array:
        """Return the largest norm of a column, or its smooth stand-in."""
        eta = 0.0 if self.smoothing is None else self.smoothing.eta
        norms = A.norms(self.edges, self.norm, eta)  # type: ignore[arg-type]
        top = jnp.max(norms, initial=0.0)
        if self.smoothing is None:
            return top
        top = jax.lax.stop_gradient(jnp.where(top > 0, top, 1.0))
        norms = jnp.where(norms > 0, norms, 1e-300)
        return top * jnp.sum((norms / top) ** self.smoothing.power) ** (1 / self.smoothing.power)


@pytree("log")
class Total(Objective):
    """Delta(A)^2 tr(V (A^T A)^-1), or its logarithm; made by `total`."""

    gram: Gram
    columns: Columns
    sensitivity: Sensitivity | None
    log: bool

    def smoothed(self, eta: float, power: float) -> Total:
        """Return the same with another smoothing; nothing is compiled again for it."""
        assert self.sensitivity is not None, "without a sensitivity there is nothing to smooth"
        smoothing = Smoothing(np.float64(eta), np.float64(power))
        return replace(self, sensitivity=replace(self.sensitivity, smoothing=smoothing))

    @double
    def __call__(self, strategy: Any) -> Array:
        """Return the unit error, or its logarithm."""
        A = self.columns(strategy)
        trace = A.trace(self.gram)
        delta = jnp.ones(()) if self.sensitivity is None else self.sensitivity.measure(A)
        supported = (trace < UNSUPPORTED) & (delta > 0)
        trace, delta = jnp.where(supported, trace, UNSUPPORTED), jnp.where(supported, delta, 1.0)
        return jnp.log(trace) + 2 * jnp.log(delta) if self.log else trace * delta**2


@pytree()
class Variances(Objective):
    """Delta(A)^2 w_q^T (A^T A)^-1 w_q for every query; made by `variances`."""

    queries: Array
    sensitivity: Sensitivity | None
    columns: Columns

    @double
    def __call__(self, strategy: Any) -> Array:
        """Return the variance of every answer."""
        A = self.columns(strategy).dense()
        X = A.T @ A
        definite = jnp.all(jnp.isfinite(jnp.linalg.cholesky(jax.lax.stop_gradient(X))))
        C = jnp.linalg.cholesky(jnp.where(definite, X, jnp.eye(len(X))))
        half = jax.scipy.linalg.solve_triangular(C, self.queries.T, lower=True)
        delta = 1.0 if self.sensitivity is None else self.sensitivity.measure(Rows(A))
        return jnp.where(definite, (half**2).sum(axis=0) * delta**2, UNSUPPORTED)


@pytree()
class DualBound:
    """(tr (R L(mu) R^T)^(1/2))^2 / sum mu with V = R^T R; made by `dual_bound`."""

    root: Array
    head: Array
    tail: Array

    @double
    def __call__(self, weights: Any) -> Array:
        """Return the bound that edge weights prove."""
        mu = jnp.asarray(weights, jnp.float64)
        if mu.shape != self.head.shape:
            edges = self.head.shape[0]
            raise fail("objectives", f"weights of shape {mu.shape}", f"the policy has {edges} edges", "Give one each.")
        ended = jnp.concatenate([self.root, jnp.zeros((len(self.root), 1))], axis=1)
        moved = ended[:, self.head] - ended[:, self.tail]  # R P
        return trace_of_root((moved * mu) @ moved.T) ** 2 / jnp.sum(mu)


@jax.custom_jvp
def trace_of_root(M: Array) -> Array:
    """Return tr M^(1/2) for a positive semidefinite M; eigenvalues that are rounding are zero, without derivative."""
    values = jnp.linalg.eigvalsh(M)
    seen = values > RANK_TOLERANCE * len(values) * values[-1]
    return jnp.where(seen, jnp.sqrt(jnp.where(seen, values, 1.0)), 0.0).sum()


@trace_of_root.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    values, Q = jnp.linalg.eigh(primals[0])
    seen = values > RANK_TOLERANCE * len(values) * values[-1]
    roots = jnp.sqrt(jnp.where(seen, values, 1.0))
    slope = jnp.where(seen, 0.5 / roots, 0.0)
    along = jnp.einsum("ki,kl,li->i", Q, tangents[0], Q)
    return jnp.where(seen, roots, 0.0).sum(), slope @ along


@in_float64
def total(
    problem: Problem,
    *,
    norm: str | None = "L1",
    smoothing: Smoothing | tuple[Number, Number] | None = None,
    over: str = "cells",
    log: bool = False,
) -> Total:
    """Return the unit error of strategies as a function: Delta(A)^2 tr(V (A^T A)^-1).

    Args:
        problem: from `bf.problem(workload, policy)`.
        norm: "L1" for Laplace noise, "L2" for Gaussian; None leaves Delta(A)^2 out, for parametrisations that have
            sensitivity 1 whatever their parameters.
        smoothing: (eta, power) of a smooth sensitivity; None for the largest, whose gradient is that of one edge.
        over: "cells"; or "edges" for strategies S, r x e, that measure the policy's edges: the columns are then those
            of S and V is P^T W^T W P. On trees the two are the same problem.
        log: return the logarithm, which is what is best minimised.

    Example:
        >>> import hdmm_bf as bf, numpy as np
        >>> f = bf.objectives.total(bf.problem("identity:4", "unbounded:4"))
        >>> float(f(np.eye(4)))
        4.0
    """
    columns = _checked_over(over)
    measured = None if norm is None else sensitivity(problem, norm, smoothing=smoothing, over=over)
    return Total(problem_gram(problem, columns), _columns(problem, columns), measured, bool(log))


@in_float64
def sensitivity(
    problem: Problem,
    norm: str = "L1",
    *,
    smoothing: Smoothing | tuple[Number, Number] | None = None,
    over: str = "cells",
) -> Sensitivity:
    """Return the sensitivity of strategies under the problem's policy as a function: max_e ||A p_e||.

    Example:
        >>> import hdmm_bf as bf, numpy as np
        >>> float(bf.objectives.sensitivity(bf.problem("identity:4", "bounded:4"))(np.eye(4)))
        2.0
    """
    if norm not in ("L1", "L2"):
        raise fail("objectives", f"norm={norm!r}", "is neither L1 nor L2", "Use L1 for Laplace noise, L2 for Gaussian.")
    columns = _checked_over(over)
    smooth = None if smoothing is None else Smoothing(*(np.float64(t) for t in smoothing))
    measured = cast(Norm, norm)
    return Sensitivity(_columns(problem, columns), problem_edges(problem, columns), smooth, measured)


@in_float64
def variances(problem: Problem, norm: str | None = "L1") -> Variances:
    """Return the variances of all answers as a function of the strategy: Delta(A)^2 w_q^T (A^T A)^-1 w_q.

    Args:
        problem: from `bf.problem(workload, policy)`.
        norm: "L1" or "L2", of the sensitivity; None leaves the factor Delta(A)^2 out.
    """
    m, k = problem.workload.num_queries, problem.grounding.kept.size
    fits("objectives.variances", f"{m} x {k}", 2 * m * k * 8, advice="Use fewer queries, or `total`.")
    queries = problem.grounding.columns(problem.workload.matrix.dense())
    measured = None if norm is None else sensitivity(problem, norm)
    return Variances(jnp.asarray(queries), measured, _columns(problem, "cells"))


@in_float64
def dual_bound(problem: Problem) -> DualBound:
    """Return the dual bound as a function of edge weights mu >= 0, in the order of the policy's edges.

    No strategy of L2 (hence of L1) sensitivity 1 has a smaller total; the best mu is attained by a Gaussian strategy.
    The bound that a certificate states is rounded down; this one is not.
    """
    values, U = np.linalg.eigh(problem.gram)
    kept = values > RANK_TOLERANCE * len(values) * values[-1]
    root = (U[:, kept] * np.sqrt(values[kept])).T
    return DualBound(jnp.asarray(root), jnp.asarray(problem.P.head), jnp.asarray(problem.P.tail))


def _checked_over(over: str) -> Over:
    if over not in get_args(Over):
        advice = 'Use "cells", "edges" for strategies that measure the policy\'s edges, "products" for products.'
        raise fail("objectives", f"over={over!r}", "is not known", advice)
    return cast(Over, over)


def total_of(gram: Gram, edges: Edges | None = None, *, log: bool = True) -> Total:
    """Return the total for a Gram matrix by itself: with the edges' L1 sensitivity, or without any."""
    columns = plain_columns(gram.n)
    measured = None if edges is None else Sensitivity(columns, edges, None, "L1")
    return Total(gram, columns, measured, log)


def plain_columns(n: int) -> Columns:
    """Return n columns of which none is given up."""
    columns = jnp.asarray(np.arange(n))
    return Columns(columns, jnp.asarray(np.full(n, -1)), columns)


def _columns(problem: Problem, over: Over) -> Columns:
    if over == "edges":
        return plain_columns(problem.policy.num_edges)
    grounding, cells = problem.grounding, np.arange(problem.policy.num_cells)
    return Columns(jnp.asarray(grounding.kept), jnp.asarray(grounding.anchor), jnp.asarray(cells))
