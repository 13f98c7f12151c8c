"""Products of trees, such as grids: one block of rows for each direction of the edges.

An edge of G_1 x ... x G_d moves a record along one attribute, so its column lies in one block and no budget is split:

    S = blockdiag_i ( H_1 (x) ... (x) S_i (x) ... (x) H_d )        unit error = sum_i E(S_i) prod_{j != i} E(H_j)

for a workload W_1 (x) ... (x) W_d. S_i is a p-identity on the edges of the tree G_i for W_i, and H_j a p-identity of
ordinary differential privacy for W_j: all columns have L1 norm 1. Identity on the edges is S_i = I, H_j = I.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from typing import final

import numpy as np
from scipy.linalg import block_diag

from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._types import RealMatrix
from hdmm_bf.matrix import Matrix
from hdmm_bf.policy import Policy
from hdmm_bf.problem.product import ProductProblem, as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft
from hdmm_bf.strategies.laplace import p_identity
from hdmm_bf.strategies.registry import Family, Turns

NAME = "grid"
LARGEST_EDGES = 3000
"""Edges up to which the blocks are written out as one matrix."""

_FEWEST_CELLS = 3
"""Trees and stars with fewer columns keep the identity."""


def parts(problem: Problem) -> ProductProblem | None:
    """Return the factors of a problem this family is for: one product of workloads, trees without BOTTOM; else None."""
    factors = problem.policy.factors
    if factors is None or len(factors) < 2 or problem.policy.num_edges > LARGEST_EDGES:
        return None
    if any(not factor.is_tree or factor.has_bottom for factor in factors):
        return None
    product = as_product(problem)
    return product if product is not None and len(product.terms) == 1 else None


def applies(problem: Problem) -> bool:
    """Whether the problem is a product of trees, and not one tree."""
    return not problem.policy.is_forest and parts(problem) is not None


def alone(problem: Problem) -> bool:
    """Whether the grid is so large that a step of another family takes minutes; on small grids none comes near it."""
    return problem.policy.num_edges > p_identity.LARGEST_EDGES and applies(problem)


def steps(problem: Problem, *, seed: int) -> Iterator[Draft]:
    """Yield the best strategy after every step of all one-attribute searches, forever; nothing where none applies."""
    product, factors = parts(problem), problem.policy.factors
    if product is None or factors is None:
        return
    term = product.terms[0]
    pool: dict[bytes, Part] = {}
    trees = [_shared(pool, W, G, seed) for W, G in zip(term.factors, factors, strict=True)]
    stars = [_shared(pool, W, policies.unbounded(W.shape[1]), seed) for W in term.factors]
    best: Draft | None = None
    while True:
        for part in pool.values():
            part.advance()
        error = term.weight**2 * unit_error([t.best.error for t in trees], [s.best.error for s in stars])
        if best is None or error < best.error:
            best = Draft("edge", edge_matrix(trees, stars), NAME, error)
        yield best


def unit_error(trees: list[float], stars: list[float]) -> float:
    """Return sum_i E(S_i) prod_{j != i} E(H_j)."""
    return sum(tree * math.prod(stars[:i] + stars[i + 1 :]) for i, tree in enumerate(trees))


@final
class Part:
    """The search for one attribute: ordinary p-identity under a tree or a star, from the identity on its edges."""

    def __init__(self, problem: Problem, *, seed: int) -> None:
        identity = np.eye(problem.policy.num_edges)
        seen = len(identity) > 0 and bool(np.any(problem.gram))
        self.best = draft(problem, "edge", identity, norm="L1", origin="identity") if seen else _unseen(identity)
        searched = seen and len(identity) >= _FEWEST_CELLS
        self._steps = p_identity.steps(problem, seed=seed) if searched else iter(())

    def advance(self) -> None:
        """Take one step of the search."""
        self.best = min(self.best, next(self._steps, self.best), key=lambda d: d.error)

    @property
    def matrix(self) -> RealMatrix:
        """The strategy over the edges: policies write the ground second, so none is turned round."""
        return self.best.matrix


def _unseen(identity: RealMatrix) -> Draft:
    """Queries that no edge changes, or no edges: nothing to gain."""
    return Draft("edge", identity, "identity", 0.0)


def _shared(pool: dict[bytes, Part], W: Matrix, G: Policy, seed: int) -> Part:
    """Return the search for (W, G), the same one for the same W^T W and edges."""
    key = G.edges.tobytes() + W.gram().tobytes()
    if key not in pool:
        pool[key] = Part(Problem(workloads.from_matrix(W), G), seed=seed + len(pool))
    return pool[key]


def edge_matrix(trees: list[Part], stars: list[Part]) -> RealMatrix:
    """Return S over the edges of the product, type by type in the policy's order."""
    H = [star.matrix for star in stars]
    blocks = [reduce(np.kron, [*H[:i], tree.matrix, *H[i + 1 :]]) for i, tree in enumerate(trees)]
    return np.asarray(block_diag(*(block for block in blocks if block.size)))


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=False,
    search=steps,
    applies=applies,
    possible=lambda problem: parts(problem) is not None,
    alone=alone,
    needs=f"needs a product of trees with at most {LARGEST_EDGES} edges and one product of workloads",
    turns=Turns(look=4, stale=60),
)
