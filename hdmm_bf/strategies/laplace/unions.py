"""Unions of products under Laplace noise: one Kronecker block a term, and a share of the budget for each.

A term is answered by its own block alone: sum_k E_k / b_k^2 is least for shares b_k that are cube roots, with a price
for every kind of edge. Tables of counts may be merged into larger ones that answer several of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import numpy as np

from hdmm_bf._types import EdgeArray, RealMatrix, RealVector
from hdmm_bf.bounds.products import moves
from hdmm_bf.matrix import Identity, Ones
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.strategies.laplace import kronecker
from hdmm_bf.strategies.laplace.factors import Factor, owns, reach
from hdmm_bf.strategies.laplace.kronecker import Attribute, Attributes, KroneckerDraft, combined, reaches
from hdmm_bf.strategies.registry import Family

NAME = "union"

_SHARE_PATIENCE = 15
"""Steps without gain after which the division of the budget is settled."""


class UnionDraft(NamedTuple):
    """Blocks that together have L1 sensitivity 1, the terms that each answers, and the error of all."""

    blocks: tuple[KroneckerDraft, ...]
    answers: tuple[tuple[int, ...], ...]
    error: float


def is_closed(product: ProductProblem) -> bool:
    """Whether all terms are tables of counts, which need no search."""
    return all(_is_table(term) for term in product.terms)


def first(product: ProductProblem, *, seed: int = 0) -> UnionDraft:
    """Return one block a table, or one a term, before anything is searched, with the budget divided best."""
    return next(steps(product, seed=seed))


def steps(product: ProductProblem, *, seed: int) -> Iterator[UnionDraft]:
    """Yield one Kronecker block a term, or group of tables of counts, after every step of one term after the other.

    The first is there before anything is searched; tables need no search.

    Guarantees:
        The blocks together have L1 sensitivity at most 1 under the policy; each term is answered by its own block
        alone, and the error is the sum over the terms.
    """
    if is_closed(product):
        yield _fit_tables(product)
        return
    pool = Attributes(product, seed)
    attributes = [pool.of(term) for term in product.terms]
    blocks = [_better(product, t, own, combined(t, own)) for t, own in zip(product.terms, attributes, strict=True)]
    answers = tuple((k,) for k in range(len(blocks)))
    yield _shared_out(product, blocks, answers)
    for k, (term, own) in enumerate(zip(product.terms, attributes, strict=True)):
        for block in kronecker.steps(term, own):
            blocks[k] = _better(product, term, own, block)
            yield _shared_out(product, blocks, answers)


def _better(
    product: ProductProblem, term: Term, attributes: Sequence[Attribute], block: KroneckerDraft
) -> KroneckerDraft:
    """Return a block, or the one that hides one attribute alone where that is better: at a loss of 1 for both."""
    seen = [i for i, edges in enumerate(product.edges) if len(edges) and moves(term, i, edges)]
    if len(seen) != 1:
        return block
    (i,) = seen
    V, edges = term.grams[i], product.edges[i]
    own = min(owns(edges, product.sizes[i]), key=lambda factor: float(np.vdot(V, factor.covariance)))
    if own.over_edges:  # only sums of noise can have it
        return block
    others = [min(a.points, key=lambda point: point.error) for a in attributes]
    error = term.weight**2 * float(np.vdot(V, own.covariance)) / own.loss**2
    error *= math.prod(point.error for k, point in enumerate(others) if k != i)
    factors = tuple(own.matrix if k == i else point.matrix for k, point in enumerate(others))
    alone = KroneckerDraft(factors, error, public=(i, own.public))
    return alone if _at_loss_one(product, alone) < _at_loss_one(product, block) else block


def _at_loss_one(product: ProductProblem, block: KroneckerDraft) -> float:
    return block.error * float(reaches(product, block.factors).max()) ** 2


def shares(errors: RealVector, moves: RealMatrix) -> RealVector:
    """Return b >= 0 of least sum_k errors_k / b_k^2 with sum_k b_k moves_ki <= 1 for every kind of edge i.

    With one kind of edge b_k is proportional to (errors_k / moves_k)^(1/3). In general b_k = (errors_k / (moves mu)_k)
    ^(1/3) for prices mu of the kinds of edge, which rise where they are used too much. Blocks that move nothing are
    public and get 1.
    """
    noisy = moves.max(axis=1, initial=0.0) > 0
    found = np.ones(errors.size)
    if noisy.any():
        found[noisy] = _noisy_shares(np.maximum(errors[noisy], 1e-300), moves[noisy])
    return found


def _noisy_shares(E: RealVector, M: RealMatrix) -> RealVector:
    mu = np.where(M.max(axis=0) > 0, 1.0, 0.0)
    best, shares, idle = math.inf, np.ones(E.size), 0
    while idle < _SHARE_PATIENCE:
        b = np.cbrt(E / (M @ mu))
        used = b @ M
        b /= used.max()
        error = float((E / b**2).sum())
        idle = 0 if error < best * (1 - 1e-10) else idle + 1
        best, shares = min((best, shares), (error, b), key=lambda pair: pair[0])
        mu = mu * (used / used.max()) ** 2
        mu = np.maximum(mu, 1e-12 * mu.max())
    return shares


def _shared_out(
    product: ProductProblem, blocks: Sequence[KroneckerDraft], answers: tuple[tuple[int, ...], ...]
) -> UnionDraft:
    """Scale every block by its share."""
    moves = np.array([reaches(product, block.factors) for block in blocks])
    errors = np.where(moves.max(axis=1) > 0, [block.error for block in blocks], 0.0)  # what nothing moves is public
    b = shares(errors, moves)
    scaled = [
        KroneckerDraft((block.factors[0] * share, *block.factors[1:]), error, public=block.public)
        for block, share, error in zip(blocks, b.tolist(), (errors / b**2).tolist(), strict=True)
    ]
    return UnionDraft(tuple(scaled), answers, sum(block.error for block in scaled))


def _is_table(term: Term) -> bool:
    """Whether a term is a table of counts: every attribute written out or summed over."""
    return all(isinstance(factor, Identity | Ones) for factor in term.factors)


Groups = list[tuple[frozenset[int], tuple[int, ...]]]
"""Tables measured, by the attributes they keep, each with the terms it answers."""


def _fit_tables(product: ProductProblem) -> UnionDraft:
    """Measure tables: first the workload's own, then merge two into the smallest that holds both while that helps."""
    kept = [frozenset(i for i, f in enumerate(t.factors) if isinstance(f, Identity)) for t in product.terms]
    groups = [(table, tuple(k for k, other in enumerate(kept) if other == table)) for table in dict.fromkeys(kept)]
    whole: Groups = [(frozenset().union(*kept), tuple(range(len(kept))))]
    tables = _Tables(product, kept)
    best = tables.error(groups)
    while len(groups) > 1:
        options = [_merged(groups, a, b) for i, (a, _) in enumerate(groups) for b, _ in groups[i + 1 :]]
        error, k = min((tables.error(option), k) for k, option in enumerate(options))
        if error >= best:
            break
        groups, best = options[k], error
    return tables.draft(groups if best <= tables.error(whole) else whole)


def _merged(groups: Groups, first: frozenset[int], other: frozenset[int]) -> Groups:
    """Replace two tables by one that keeps the attributes of both."""
    both = first | other
    terms = sorted(k for table, ks in groups if table in (first, other, both) for k in ks)
    return [*(group for group in groups if group[0] not in (first, other, both)), (both, tuple(terms))]


@final
class _Tables:
    """Errors of tables without writing a factor out: counts of cells, or, along one attribute, what hides it best."""

    def __init__(self, product: ProductProblem, kept: Sequence[frozenset[int]]) -> None:
        self.product, self.kept = product, kept
        pairs = list(zip(product.sizes, product.edges, strict=True))
        self._along = np.array([[reach(np.ones((1, n)), edges), reach(np.eye(n), edges)] for n, edges in pairs])
        self._owns = {i: _best_for_counts(edges, n) for i, (n, edges) in enumerate(pairs) if len(edges)}

    def _own(self, table: frozenset[int]) -> int | None:
        """The attribute along which alone a table is moved, if it keeps it and rows can hide it."""
        moved = [i for i, row in enumerate(self._along) if row[int(i in table)] > 0]
        alone = len(moved) == 1 and moved[0] in table and self._owns[moved[0]] is not None
        return moved[0] if alone else None

    def _cost(self, table: frozenset[int], terms: Sequence[int]) -> tuple[float, RealVector]:
        """Error and moves of a table: each term has the error of all its cells, whatever it sums over."""
        squares = [self.product.terms[k].weight ** 2 for k in terms]
        i = self._own(table)
        cells = math.prod(self.product.sizes[k] for k in table if k != i)
        if i is None:
            return cells * sum(squares), np.array([row[int(k in table)] for k, row in enumerate(self._along)])
        own = self._owns[i]
        assert own is not None
        Y = own.covariance / own.loss**2
        seen = [float(np.trace(Y) if i in self.kept[k] else Y.sum()) for k in terms]
        moves = np.where(np.arange(len(self._along)) == i, own.loss, 0.0)
        return cells * sum(w * s for w, s in zip(squares, seen, strict=True)), moves

    def error(self, groups: Groups) -> float:
        """Return the error of all tables with the budget divided best."""
        costs = [self._cost(*group) for group in groups]
        errors, along = np.array([error for error, _ in costs]), np.array([moves for _, moves in costs])
        noisy = along.max(axis=1) > 0
        return float((errors / shares(errors, along) ** 2)[noisy].sum())

    def draft(self, groups: Groups) -> UnionDraft:
        """Return one block a table."""
        blocks = []
        for table, terms in groups:
            i = self._own(table)
            factors = [np.eye(n) if k in table else np.ones((1, n)) for k, n in enumerate(self.product.sizes)]
            own = None if i is None else self._owns[i]
            if i is not None and own is not None:
                factors[i] = own.matrix
            public = (0, 0) if i is None or own is None else (i, own.public)
            blocks.append(KroneckerDraft(tuple(factors), self._cost(table, terms)[0], public=public))
        return _shared_out(self.product, blocks, tuple(terms for _, terms in groups))


def _best_for_counts(edges: EdgeArray, n: int) -> Factor | None:
    """Return what hides the counts of one attribute with least error; None where only sums of noise can have it."""
    own = min(owns(edges, n), key=lambda factor: float(np.trace(factor.covariance)))
    return None if own.over_edges else own


FAMILY = Family(name=NAME, noise="laplace", structured=True, search=steps)
