"""Laplace strategies for large product domains: one Kronecker product, or one for every term of a union."""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf.bounds.products import product_bound
from hdmm_bf.objectives import limits
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian import Found, Sketch, bases, fit_product
from hdmm_bf.strategies.gaussian.choose import choose
from hdmm_bf.strategies.laplace import kronecker, unions
from hdmm_bf.strategies.search import Callback

_ONE = "one product of queries: a small search an attribute, multiplied"
_MANY = "several products of queries: each, or each group of tables, is measured by itself with its share of the budget"
_BOUND_GAP = 1e-3
_BOUND_SHARE = 0.25
"""Of the time that is left, for the bound."""


def choose_laplace(product: ProductProblem) -> str:
    """Return the first family that fits."""
    return next(known.name for known in (kronecker.FAMILY, unions.FAMILY) if known.applies(product))


def fit_laplace(
    product: ProductProblem,
    *,
    seed: int,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
    max_steps: int | None = None,
    family: str | None = None,
    gap: float = 0.0,
) -> Found:
    """Find an implicit Laplace strategy for a product problem without writing the domain out.

    Args:
        product: the problem by its factors.
        seed: for random numbers.
        max_seconds: time limit of the search.
        callback: called with error and bound after every step.
        max_steps: limit on the steps of the search; tables of counts need none.
        family: kronecker, for one product of queries, or union; None for the one that fits.
        gap: stop when the error of a Kronecker product is proven to be within this share of the best possible.
    """
    name = family or choose_laplace(product)
    if name == kronecker.NAME and not kronecker.applies(product):
        shown = f"family={name!r} for {len(product.terms)} products of queries"
        advice = f"Use family={unions.NAME!r}, or leave the family out."
        raise fail("fit", shown, kronecker.FAMILY.needs, advice)
    with limits.limited(limits.now() + _BOUND_SHARE * limits.time_left()):
        proof = _proof(product)
    bounds = product_bound(product, proof)
    ones = np.ones((1,) * len(product.sizes))
    sketches: tuple[Sketch, ...]
    if name == kronecker.NAME:
        draft = kronecker.fit_kronecker(
            product,
            seed=seed,
            max_seconds=max_seconds,
            callback=callback,
            max_steps=max_steps,
            bound=bounds.lower or 0.0,
            gap=gap,
        )
        sketches, error, status, family, why = (
            (Sketch(draft.factors, ones),),
            draft.error,
            draft.status,
            kronecker.NAME,
            _ONE,
        )
    else:
        union = unions.fit_union(product, seed=seed, max_seconds=max_seconds, callback=callback, max_steps=max_steps)
        pairs = zip(union.blocks, union.answers, strict=True)
        sketches = tuple(
            Sketch(block.factors, ones if block.error > 0 else np.full_like(ones, np.inf), terms)
            for block, terms in pairs
        )
        error, status, family, why = union.error, union.status, unions.NAME, _MANY
    return Found(sketches, error, bounds.lower, bounds.svd, family, proof, why, status)


def _proof(product: ProductProblem) -> dict[str, object] | None:
    """The Gaussian optimum's proof where a small search finds it: it bounds Laplace strategies too."""
    if choose(product) == bases.FAMILY.name:
        return None
    return fit_product(product, gap=_BOUND_GAP).proof
