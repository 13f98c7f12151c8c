"""Laplace fits for products of queries under ordinary privacy: p-identity on the cells, written out for shipping."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf.fit.certified import certified
from hdmm_bf.fit.dense import edge_proof, pairs_proof
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.fit.reserve import dense_seconds
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies import Progress, from_draft, limits, search
from hdmm_bf.strategies.drafts import Draft
from hdmm_bf.strategies.gaussian import fit_product, kronecker
from hdmm_bf.strategies.laplace import cells as cells_laplace

_SECONDS = 240.0
_BOUND_GAP = 1e-3
_BOUND_SHARE = 0.25
"""Of the time that is left, for the bound."""

_CERTIFICATE_SHARE = 0.75
"""Of a time limit: where the certificate takes more, factors are searched, whose certificate is quick."""


def cells_apply(product: ProductProblem, options: FitOptions) -> bool:
    """Whether rows over all cells are searched: one product of queries, presence hidden, not too many cells.

    Unless the family is asked for, a time limit must leave room for the certificate.
    """
    applies = cells_laplace.FAMILY.applies(product)
    if options.family == cells_laplace.FAMILY.name and not applies:
        shown = f"family={options.family!r} for {product.problem.policy.num_cells} cells"
        raise fail("fit", shown, cells_laplace.FAMILY.needs, "Leave the family out.")
    if options.family is not None or not applies:
        return options.family == cells_laplace.FAMILY.name
    seconds = options.max_seconds
    return seconds is None or dense_seconds(product.problem, "gaussian") < _CERTIFICATE_SHARE * seconds


def fit_cells_dense(product: ProductProblem, options: FitOptions) -> Fit:
    """Search rows over the cells through the factors of the workload, then ship and certify the matrix."""
    problem = product.problem
    reserve = 0.0 if options.max_seconds is None else dense_seconds(problem, "gaussian")
    with limits.limited(options.until(reserve)):
        with limits.limited(limits.now() + _BOUND_SHARE * limits.time_left()):
            lower = fit_product(product, gap=_BOUND_GAP, family=kronecker.FAMILY.name)
        drafts = cells_laplace.steps(product, seed=options.seed)
        found = search(
            (Progress(draft.error, lower.bound or 0.0, draft, None) for draft in drafts),
            gap=options.gap,
            max_seconds=math.inf if options.limited else _SECONDS,
            max_iterations=options.max_steps,
            callback=options.callback,
        )
    draft = Draft("vertex", cells_laplace.matrix(found.best.Theta), cells_laplace.NAME, found.error)
    strategy = from_draft(problem, draft)
    proof = lower.proof or {}
    weights = np.asarray(reduce(np.kron, proof["weights"]), dtype=np.float64)
    edge_weights = edge_proof(weights) | pairs_proof(problem, weights)
    return certified(problem, strategy, edge_weights, options, status=found.status)
