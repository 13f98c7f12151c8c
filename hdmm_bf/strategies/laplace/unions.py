"""Unions of products under Laplace noise: one Kronecker block a term, and a share of the budget for each.

A term is answered by its own block alone: sum_k E_k / b_k^2 is least for shares b_k that are cube roots, with a price
for every kind of edge. Tables of counts may be merged into larger ones that answer several of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.matrix import Identity, Ones
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.strategies.laplace import kronecker
from hdmm_bf.strategies.laplace.factors import reach
from hdmm_bf.strategies.laplace.kronecker import Attributes, KroneckerDraft, combined, reaches
from hdmm_bf.strategies.registry import Family
from hdmm_bf.strategies.search import Callback, Progress, Status, search

NAME = "union"

_SHARE_PATIENCE = 15
"""Steps without gain after which the division of the budget is settled."""


class UnionDraft(NamedTuple):
    """Blocks that together have L1 sensitivity 1, the terms that each answers, and the error of all."""

    blocks: tuple[KroneckerDraft, ...]
    answers: tuple[tuple[int, ...], ...]
    error: float
    status: Status = "finished"


def fit_union(
    product: ProductProblem,
    *,
    seed: int = 0,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
    max_steps: int | None = None,
) -> UnionDraft:
    """Search one Kronecker block for every term, or group of tables of counts, and divide the budget between them.

    Guarantees:
        The blocks together have L1 sensitivity at most 1 under the policy; each term is answered by its own block
        alone, and the error is the sum over the terms.
    """
    if is_closed(product):
        return _fit_tables(product)
    drafts = steps(product, seed=seed)
    found = search(
        (Progress(draft.error, 0.0, draft, None) for draft in drafts),
        gap=0.0,
        max_seconds=max_seconds,
        max_iterations=max_steps,
        callback=callback,
    )
    return found.best._replace(status=found.status)


def is_closed(product: ProductProblem) -> bool:
    """Whether all terms are tables of counts, which need no search."""
    return all(_is_table(term) for term in product.terms)


def steps(product: ProductProblem, *, seed: int) -> Iterator[UnionDraft]:
    """Yield the union after every step of its terms, one term after the other, from the identity for each on."""
    if is_closed(product):
        yield _fit_tables(product)
        return
    pool = Attributes(product, seed)
    attributes = [pool.of(term) for term in product.terms]
    blocks = [combined(term, own) for term, own in zip(product.terms, attributes, strict=True)]
    answers = tuple((k,) for k in range(len(blocks)))
    for k, (term, own) in enumerate(zip(product.terms, attributes, strict=True)):
        for block in kronecker.steps(term, own):
            blocks[k] = block
            yield _shared_out(product, blocks, answers)


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
        KroneckerDraft((block.factors[0] * share, *block.factors[1:]), error)
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
    along = _table_reaches(product)
    best = _table_error(product, groups, along)
    while len(groups) > 1:
        options = [_merged(groups, a, b) for i, (a, _) in enumerate(groups) for b, _ in groups[i + 1 :]]
        error, k = min((_table_error(product, option, along), k) for k, option in enumerate(options))
        if error >= best:
            break
        groups, best = options[k], error
    return _tables(product, groups if best <= _table_error(product, whole, along) else whole)


def _table_reaches(product: ProductProblem) -> RealMatrix:
    """Return, for every attribute, how far its edges move a table that sums over it, and one that keeps it."""
    pairs = zip(product.sizes, product.edges, strict=True)
    return np.array([[reach(np.ones((1, n)), edges), reach(np.eye(n), edges)] for n, edges in pairs])


def _merged(groups: Groups, first: frozenset[int], other: frozenset[int]) -> Groups:
    """Replace two tables by one that keeps the attributes of both."""
    both = first | other
    terms = sorted(k for table, ks in groups if table in (first, other, both) for k in ks)
    return [*(group for group in groups if group[0] not in (first, other, both)), (both, tuple(terms))]


def _table_errors(product: ProductProblem, groups: Groups) -> RealVector:
    """Return, for each table, the sum over its terms: each has the error of all its cells, whatever it sums over."""
    cells = [math.prod(product.sizes[i] for i in table) for table, _ in groups]
    weights = [sum(product.terms[k].weight ** 2 for k in terms) for _, terms in groups]
    return np.asarray(np.array(cells, dtype=np.float64) * np.array(weights))


def _table_error(product: ProductProblem, groups: Groups, along: RealMatrix) -> float:
    """Return the error of all tables with the budget divided best, without writing a factor out."""
    errors = _table_errors(product, groups)
    moves = np.array([[row[int(i in table)] for i, row in enumerate(along)] for table, _ in groups])
    noisy = moves.max(axis=1) > 0
    return float((errors / shares(errors, moves) ** 2)[noisy].sum())


def _tables(product: ProductProblem, groups: Groups) -> UnionDraft:
    """One block a table."""
    errors = _table_errors(product, groups)
    blocks = [
        KroneckerDraft(tuple(np.eye(n) if i in table else np.ones((1, n)) for i, n in enumerate(product.sizes)), error)
        for (table, _), error in zip(groups, errors.tolist(), strict=True)
    ]
    return _shared_out(product, blocks, tuple(terms for _, terms in groups))


FAMILY = Family(name=NAME, noise="laplace", structured=True, search=fit_union)
