"""Laplace strategies for large product domains: floors by factors, products, unions, noise for every kind of move."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import Proof
from hdmm_bf.bounds.products import is_public, product_bound
from hdmm_bf.objectives import limits
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian import Found, Sketch
from hdmm_bf.strategies.gaussian.choose import FLOOR, short_proof
from hdmm_bf.strategies.laplace import balls, directions, kronecker, layers, unions
from hdmm_bf.strategies.laplace.directions import Candidates, SumDraft
from hdmm_bf.strategies.laplace.kronecker import Attributes, KroneckerDraft, in_turn
from hdmm_bf.strategies.laplace.unions import UnionDraft
from hdmm_bf.strategies.records import AnyTensor
from hdmm_bf.strategies.registry import Family
from hdmm_bf.strategies.search import Callback, Progress, search

_FAMILIES = (kronecker.FAMILY, unions.FAMILY, layers.FAMILY, directions.FAMILY)
_WHY = {
    kronecker.NAME: "one product of queries: a small search an attribute, multiplied",
    unions.NAME: "several products of queries: each, or each group of tables, is measured by itself with its share of "
    "the budget",
    layers.NAME: "several products of queries: rows in several tables that share what they tell, solved together",
    directions.NAME: "noise for the moves along every attribute by itself, added up: none pays for the others, and "
    "each knows the totals that its moves leave alone; by rows over several attributes at once where that is better",
    balls.ORDINARY: "rows of ordinary privacy: an edge takes one record away and adds another, however far apart",
}
_TIE = 1e-9
"""Share by which blocks that answer their terms alone must be better: they give no estimate of the cells."""
_BOUND_SHARE = 0.25
"""Of the time that is left, for the bound."""


def laplace_proof(product: ProductProblem) -> Proof | None:
    """Return what proves a bound, found in a share of the time that is left."""
    with limits.limited(limits.now() + _BOUND_SHARE * limits.time_left()):
        return short_proof(product)


def choose_laplace(product: ProductProblem) -> str:
    """Return the first family that fits."""
    order = (kronecker.FAMILY, unions.FAMILY) if product.threshold is None else (directions.FAMILY,)
    return next(known.name for known in order if known.applies(product))


def fit_laplace(
    product: ProductProblem,
    *,
    seed: int,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
    max_steps: int | None = None,
    family: str | None = None,
    gap: float = 0.0,
    proof: Proof | None = None,
) -> Found:
    """Find an implicit Laplace strategy for a product problem without writing the domain out.

    Args:
        product: the problem by its factors.
        seed: for random numbers.
        max_seconds: time limit of the search.
        callback: called with error and bound after every step.
        max_steps: limit on the steps of the search; tables of counts need none.
        family: kronecker, for one product of queries, union, layers or directions; None for all that fit.
        gap: stop when the error is proven to be within this share of the best possible.
        proof: what proves a bound; by default that of `laplace_proof`.

    Guarantees:
        Never worse than any of the paper's and the classical mechanisms in `reached`, whatever the family.
    """
    chosen = [_asked(product, family)] if family is not None else [f for f in _FAMILIES if _fits(f, product)]
    proof = proof or laplace_proof(product)
    bounds = product_bound(product, proof)
    reached: dict[str, float] = {}
    steps = _steps(product, [family.name for family in chosen], seed, bounds.lower or 0.0, reached)
    closed = [family.name for family in chosen] == [unions.NAME] and unions.is_closed(product)
    found = search(
        steps,
        gap=gap,
        max_seconds=max_seconds,
        max_iterations=max_steps,
        callback=None if closed else callback,
    )
    best = found.best
    why = _WHY.get(best.name, FLOOR)
    return Found(best.sketches, best.error, bounds.lower, bounds.svd, best.name, proof, why, found.status, reached)


def _fits(family: Family, product: ProductProblem) -> bool:
    return (family.balls or product.threshold is None) and family.applies(product)


def _asked(product: ProductProblem, name: str) -> Family:
    known = next(family for family in _FAMILIES if family.name == name)
    if product.threshold is not None and not known.balls:
        shown = f"family={name!r} for {product.problem.policy.spec}"
        advice = f"Use family={directions.NAME!r}, or leave the family out."
        raise fail("fit", shown, "has no strategies for edges that change several attributes at once", advice)
    if not known.applies(product):
        shown = f"family={name!r} for {len(product.terms)} products of queries"
        advice = f"Use family={unions.NAME!r}, or leave the family out."
        raise fail("fit", shown, known.needs, advice)
    return known


def _steps(
    product: ProductProblem, names: list[str], seed: int, bound: float, reached: dict[str, float]
) -> Iterator[Progress[SumDraft, None]]:
    """Yield the best floor, then what the families find; `reached` gets the least error of every name."""
    for group in _drafts(product, names, seed) if product.threshold is None else balls.drafts(product, seed):
        for draft in (known for known in group if known.error < math.inf):
            reached[draft.name] = min(draft.error, reached.get(draft.name, math.inf))
        best = min(group, key=lambda draft: draft.error)
        yield Progress(best.error, bound, best, None)


def _drafts(product: ProductProblem, names: list[str], seed: int) -> Iterator[list[SumDraft]]:
    """Yield all floors together, one block a term among them, then what families find, one draft after the other."""
    candidates = Candidates(product) if directions.applies(product) and not is_public(product) else None
    known = [] if candidates is None else list(directions.floors(product, candidates))
    pool = Attributes(product, seed)
    families: list[Iterator[SumDraft]] = []
    last: Iterator[SumDraft] = iter(())
    if candidates is not None and directions.NAME in names:
        single = kronecker.applies(product)
        own = pool.of(product.terms[0]) if single else directions.searches(product, seed)
        families.append(directions.steps(product, candidates, own, seed, together=single))
        if not single:  # a step of theirs takes as long as many of the others, and those come far
            last = directions.steps_over_several(product, candidates, seed)
    if kronecker.NAME in names:
        families.append(_products(product, pool))
    if layers.NAME in names and (len(names) == 1 or len(product.terms) > 1):  # one product has better families
        families.append(layers.steps(product, seed=seed))
    if unions.NAME in names and not (kronecker.applies(product) and len(names) > 1):
        families.append(map(_of_union, unions.steps(product, seed=seed)))
    apart = _of_union(unions.first(product, seed=seed))
    best = min((draft.error for draft in known), default=math.inf)
    if len(product.terms) > 1 or not families or apart.error < best * (1 - _TIE):
        known.append(apart)
    yield known
    for draft in itertools.chain(in_turn(families), last) if len(product.terms) > 1 else itertools.chain(*families):
        yield [draft]


def _products(product: ProductProblem, pool: Attributes) -> Iterator[SumDraft]:
    """Yield Kronecker products, with public totals where all attributes are seen in full."""
    (term,) = product.terms
    for draft in kronecker.steps(term, pool.of(term)):
        plain = SumDraft((Sketch(draft.factors, np.ones((1,) * len(draft.factors))),), draft.error, kronecker.NAME)
        known = None
        if draft.error > 0 and directions.applies(product):
            known = directions.joint(product, draft.factors, kronecker.NAME)
        yield plain if known is None or plain.error <= known.error else known


def _of_union(union: UnionDraft) -> SumDraft:
    pairs = zip(union.blocks, union.answers, strict=True)
    sketches = tuple(Sketch(block.factors, _precisions(block), terms) for block, terms in pairs)
    return SumDraft(sketches, union.error, unions.NAME)


def _precisions(block: KroneckerDraft) -> AnyTensor:
    """One for all rows, infinite for those of public totals and where all that a block answers is public."""
    attribute, count = block.public
    rows = np.ones(len(block.factors[attribute]) if count else 1)
    rows[:count] = math.inf
    shape = [-1 if k == attribute else 1 for k in range(len(block.factors))]
    return rows.reshape(shape) if block.error > 0 else np.full_like(rows[:1], math.inf).reshape([1] * len(shape))
