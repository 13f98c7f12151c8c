"""p-Identity on the edges: S = [I; Theta] with every column scaled to L1 norm 1.

On forests P_G is square, so this is ordinary differential privacy over the edges and, with every entry polished at
the end, the whole class of strategies. Off forests S is an edge strategy of full column rank, for policies with few
edges. Theta >= 0 is written as a square, or kept by bounds; edges are turned so that the workload's correlations are
mostly positive.

Where the columns have no order of their own they are put in that of the workload's second eigenvector, for the
search from coarse to fine (`p_identity_search`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import IndexArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.objectives.descent import minimise
from hdmm_bf.parallel.devices import Mesh
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft, edge_gram
from hdmm_bf.strategies.laplace.p_identity_search import NEGLIGIBLE, Search
from hdmm_bf.strategies.registry import Family, Turns

if TYPE_CHECKING:
    from hdmm_bf.objectives.grams import Gram

NAME = "p-identity"

LARGEST_EDGES = 1100
MOST_EDGES_A_CELL = 2.5
"""Off forests the family is asked only for graphs with few edges: on denser ones it never won."""

_MIXED = 0.05
"""Share of negative correlation from which signed rows are tried as well."""

_LARGEST_POLISH = 300
"""Columns up to which every entry is freed: a descent factors a matrix of that size at every step."""

_SHORT_POLISH = 30
"""Steps of the first such descents: for prefixes of 256 cells 20 gained more than half of what 300 did."""

_WORTH_A_POLISH = 1e-4
"""Share of the error that the rows must have gained for another one."""


def applies(problem: Problem) -> bool:
    """Whether the graph is a forest or has few edges."""
    most = min(LARGEST_EDGES, MOST_EDGES_A_CELL * problem.grounding.kept.size)
    return problem.policy.is_forest or problem.policy.num_edges <= most


def alone(problem: Problem) -> bool:
    """Whether P is square, so that edge strategies are all there is."""
    return problem.policy.is_forest


def steps(problem: Problem, *, seed: int, mesh: Mesh | None = None) -> Iterator[Draft]:
    """Yield the best strategy after every pass or perturbation, forever.

    On a mesh V is spread by its rows. Signed rows and the polish factor a matrix over the edges and stay on one device.
    """
    columns = _columns(problem, mesh)
    best = plain = columns.draft(problem, np.zeros((0, columns.V.n)))
    yield best
    search = Search(columns.V, columns.dense, np.random.default_rng(seed))
    begun = finished = math.inf  # the errors from which a short and a long polish were last begun
    for value, Theta in search.found(signed=columns.mixed):
        if value < math.log(plain.error / columns.scale):  # what Woodbury's formula says is checked by the plain one
            plain = min(plain, columns.draft(problem, Theta), key=lambda d: d.error)
            best = min(best, plain, key=lambda d: d.error)
        yield best
        if columns.V.n > _LARGEST_POLISH:
            continue
        if search.settled and plain.error < begun * (1 - _WORTH_A_POLISH):
            begun = plain.error
            best = min(best, free_polish(problem, plain, steps=_SHORT_POLISH), key=lambda d: d.error)
            yield best
        if search.idle and best.error < finished * (1 - la.AGREEMENT):
            best = min(best, free_polish(problem, best), key=lambda d: d.error)
            finished = best.error
            yield best


class Columns(NamedTuple):
    """The columns that are measured, in the order of the search.

    Attributes:
        V: the Gram matrix over them, turned and scaled.
        dense: the same, written out.
        scale: V times this is the problem's.
        order: which column of the problem stands at each place.
        flip: its sign.
        mixed: whether correlations of both signs are left.
    """

    V: Gram
    dense: SquareMatrix
    scale: float
    order: IndexArray
    flip: RealVector
    mixed: bool

    def draft(self, problem: Problem, Theta: RealMatrix) -> Draft:
        """Return [I; Theta] over the problem's edges, its columns scaled; rows that vanished are left out."""
        rows = Theta[np.abs(Theta).max(axis=1, initial=0) > NEGLIGIBLE]
        own = np.zeros_like(rows)
        own[:, self.order] = rows * self.flip
        S = np.vstack([np.eye(own.shape[1]), own])
        return draft(problem, "edge", S / np.abs(S).sum(axis=0), norm="L1", origin=NAME)


@la.in_float64
def _columns(problem: Problem, mesh: Mesh | None) -> Columns:
    """V over the edges: acting fast where it has a closed form without negative entries, else written out, turned."""
    import jax.numpy as jnp

    from hdmm_bf.objectives import grams

    dense = edge_gram(problem)
    scale, n = float(np.mean(np.diag(dense))), len(dense)
    dense = dense / scale
    if mesh is None and np.all(dense >= 0):
        V = grams.SumGram((grams.problem_gram(problem, "edges"),), jnp.asarray([1 / scale]))
        return Columns(V, dense, scale, np.arange(n), np.ones(n), False)
    flip = positive_signs(dense)
    dense = flip[:, None] * dense * flip
    order = _seriation(dense)
    dense = dense[np.ix_(order, order)]
    mixed = bool(np.minimum(dense, 0).sum() < -_MIXED * np.abs(dense).sum())
    if mesh is not None:
        from hdmm_bf.parallel.grams import spread_gram

        return Columns(spread_gram(dense, mesh), dense, scale, order, flip[order], mixed)
    return Columns(grams.DenseGram(jnp.asarray(dense)), dense, scale, order, flip[order], mixed)


def _seriation(V: SquareMatrix) -> IndexArray:
    """Put like columns side by side: the order of the Fiedler vector of their correlations, or as they are if good."""
    spread = np.sqrt(np.diag(V))
    spread[spread == 0] = 1.0
    near = np.maximum(V / np.outer(spread, spread), 0.0)
    np.fill_diagonal(near, 0.0)
    laplacian = np.diag(near.sum(axis=0)) - near
    order = np.argsort(la.eigen(laplacian)[1][:, 1], kind="stable") if len(V) > 2 else np.arange(len(V))
    beside = np.arange(len(V) - 1)
    as_is, sorted_ = near[beside, beside + 1].sum(), near[order[:-1], order[1:]].sum()
    return order if sorted_ > 1.05 * as_is else np.arange(len(V))


def free_polish(problem: Problem, best: Draft, *, steps: int = 300) -> Draft:
    """Return the strategy that a descent with every entry free reaches from the best."""
    from hdmm_bf.objectives.measures import total
    from hdmm_bf.objectives.parametrisations import UnitColumns, split

    A = best.matrix
    loss = total(problem, norm=None, over="edges", log=True).of(UnitColumns(*A.shape))
    found = minimise(loss, split(A), steps=steps, nonnegative=True, tolerance=1e-11).parameters
    A = np.asarray(found.positive) - np.asarray(found.negative)
    return draft(problem, "edge", A / np.abs(A).sum(axis=0), norm="L1", origin=f"{NAME}, all entries free")


def positive_signs(V: SquareMatrix) -> RealVector:
    """Return signs s that make s^T V s large: one-flip ascent from the leading eigenvector."""
    if np.all(V >= 0):
        return np.ones(len(V))
    signs = np.where(la.eigen(V)[1][:, -1] >= 0, 1.0, -1.0)
    pull = V @ signs
    for _ in range(20 * len(V)):
        gain = np.diag(V) - signs * pull
        k = int(np.argmax(gain))
        if gain[k] <= 1e-9 * np.diag(V).max():
            break
        signs[k] = -signs[k]
        pull += 2.0 * signs[k] * V[:, k]
    return signs


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=False,
    search=steps,
    applies=applies,
    alone=alone,
    spreads=True,
    turns=Turns(look=9, stale=96),
)
