"""Seconds that putting a strategy on its grid and certifying it will take, so that a time limit can leave them over.

In units of the time an eigenvalue problem takes on this machine just now; the factors are measured.
"""

from __future__ import annotations

import numpy as np

from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Noise, Proof
from hdmm_bf.bounds import pairs
from hdmm_bf.certificate.duals.metric import largest_matrices
from hdmm_bf.certificate.duals.weights import proof_weights
from hdmm_bf.certificate.norms import MOST_CELLS
from hdmm_bf.certificate.ordered_law import ordered
from hdmm_bf.fit.memory import num_losses
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import limits
from hdmm_bf.strategies.norm import flows
from hdmm_bf.strategies.norm.groups import searched

_PROBE = 256
_CELLS = 6.0
"""For n^3: two bounds, the triangular factor, the trace."""
_EDGES_ROWS, _EDGES_GRAM = 4.0, 1.6
"""For e^3 more, where the strategy may be over the edges: from the rows of the workload, or from its Gram matrix."""
_MOST_EDGES, _TALL = 3000, 8
"""Edges up to which strategies over the edges are searched; queries an edge up to which rows are written out."""
_PAIRED, _MULTIPLIED, _PARTNERS = 8.0, 1.5, 200.0
"""For Laplace noise, choosing pairs of edges and evaluating their bound: for n^3, for n^2 e, for a pair looked at."""
_PAIRS, _SETS, _DRAFT = 2e5, 5e6, 3e6
"""For tree norms: a pair of cells in the laws; a cell where queries are prefixes, ranges or sets of the tree; a cell in
the draft that is under way at the limit and in the check that the noise can be drawn."""
LARGEST_YARDSTICK = 2048
"""Cells up to which the bound on matrix mechanisms is computed beside a tree norm: at 4096 it takes many minutes."""
_LOSSES, _MOST_LOSSES = 800.0, 2**27
"""For products: the exact loss of an edge at a cell, from tables of 70,000 cells; beyond so many they are narrowed."""
_ROOM, _LEAST = 1.2, 0.15


def dense_seconds(problem: Problem, noise: Noise) -> float:
    """Predict the time for a matrix over the cells or the edges."""
    n, e = problem.grounding.kept.size, problem.policy.num_edges
    units = _CELLS * n**3
    if noise == "laplace" and not problem.policy.is_forest and e <= _MOST_EDGES:
        units += (_EDGES_ROWS if problem.workload.num_queries <= _TALL * e else _EDGES_GRAM) * e**3
    if noise == "laplace" and n <= pairs.MOST_CELLS and n * n * e <= pairs.MOST_WORK:
        units += _PAIRED * n**3 + _MULTIPLIED * n**2 * e + _PARTNERS * min(e**2, pairs.MOST_LOOKED_AT)
    return _LEAST + _ROOM * units * pace()


def norm_seconds(problem: Problem) -> float:
    """Predict the time for a tree norm: a last draft, the bounds beside the error, and four laws of the noise."""
    own = searched(problem)
    n = own.policy.num_cells
    cheap = n > MOST_CELLS or ordered(own.workload.objective) is not None
    units = _DRAFT * n + (_SETS * n if cheap else _PAIRS * n**2) + (_CELLS * n**3 if n <= LARGEST_YARDSTICK else 0.0)
    return _LEAST + _ROOM * units * pace()


def norm_fit_seconds(problem: Problem) -> float:
    """Predict the time for a tree norm, or for a sum of them where policies are products."""
    return flows_seconds(problem) if flows.applies(problem) else norm_seconds(problem)


def flows_seconds(problem: Problem) -> float:
    """Predict the time for a sum of tree norms: a draft, the laws of trees over one attribute, and the bounds."""
    sizes = problem.policy.domain.sizes
    units = sum(_DRAFT * n + _PAIRS * min(n, flows.LARGEST_TREE) ** 2 + _CELLS * n**3 for n in sizes)
    return _LEAST + _ROOM * units * pace()


def product_seconds(product: ProductProblem, family: str, noise: Noise) -> float:
    """Predict the time for factors and the losses of all edges, but for bounds that a family evaluates again."""
    losses = min(num_losses(product, family, noise), _MOST_LOSSES)
    return _LEAST + _ROOM * (_CELLS * sum(n**3 for n in product.sizes) + _LOSSES * losses) * pace()


def pairing_seconds(product: ProductProblem, proof: Proof | None) -> float:
    """Predict the time for choosing pairs of edges by factors and for the bound that they prove."""
    units = 0.0 if proof is None else _PAIRED * largest_matrices(product, proof_weights(product, proof))
    return _ROOM * units * pace() if units else 0.0


def pace() -> float:
    """Return the seconds of an eigenvalue problem, over the cube of its size."""
    M = np.add.outer(np.arange(_PROBE), np.arange(_PROBE)) % 7.0
    taken = []
    with threads_for(_PROBE):
        for _ in range(2):
            started = limits.now()
            np.linalg.eigvalsh(M)
            taken.append(limits.now() - started)
    return min(taken) / _PROBE**3
