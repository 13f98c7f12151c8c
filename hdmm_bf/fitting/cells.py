"""Laplace fits for products of queries under ordinary privacy: p-identity on the cells, written out for shipping."""

from __future__ import annotations

import time
from functools import reduce

import numpy as np

from hdmm_bf.certificate import certify
from hdmm_bf.error import Draft
from hdmm_bf.fitting.asked import Asked
from hdmm_bf.fitting.record import Fit
from hdmm_bf.strategies import cells_laplace, from_draft
from hdmm_bf.strategies.products import fit_product
from hdmm_bf.structure import ProductProblem

LARGEST = 4096
_SECONDS = 240.0
_BOUND_GAP = 1e-3


def cells_apply(product: ProductProblem, family: str | None) -> bool:
    """Whether rows over all cells are searched: one product of queries, presence hidden, not too many cells."""
    fits = len(product.terms) == 1 and product.problem.policy.num_cells <= LARGEST
    return family in (None, "cells") and fits and cells_laplace.applies(product)


def fit_cells_dense(product: ProductProblem, asked: Asked) -> Fit:
    """Search rows over the cells through the factors of the workload, then ship and certify the matrix."""
    started = time.perf_counter()
    limit = _SECONDS if asked.max_seconds is None else asked.max_seconds
    found = cells_laplace.fit_cells(product, seed=asked.seed, max_seconds=limit, callback=asked.callback)
    problem = product.problem
    draft = Draft("vertex", cells_laplace.matrix(found.Theta), cells_laplace.NAME, found.error)
    strategy = from_draft(problem, draft)
    proof = fit_product(product, gap=_BOUND_GAP, family="kronecker").proof or {}
    weights = np.asarray(reduce(np.kron, proof["weights"]), dtype=np.float64)
    certificate = certify(
        problem, noise="laplace", kind="vertex", integers=strategy.integers, bits=strategy.bits, weights=weights
    )
    return Fit(
        problem=problem,
        strategy=strategy,
        certificate=certificate,
        weights=weights,
        requested_gap=asked.gap,
        seed=asked.seed,
        status=found.status,
        seconds=time.perf_counter() - started,
    )
