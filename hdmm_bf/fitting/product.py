"""Fits for large domains: structured search, block strategies, factors instead of matrices."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from hdmm_bf import __version__, bundle_blocks
from hdmm_bf._checks import fits, readable_bytes
from hdmm_bf._types import IndexArray, Noise, RealVector
from hdmm_bf.bounds import Bounds
from hdmm_bf.certificate_blocks import certify_blocks
from hdmm_bf.devices import Mesh
from hdmm_bf.fitting.facts import Facts
from hdmm_bf.mechanisms.block_recovery import BlockRecovery
from hdmm_bf.product_bounds import product_svd_bound
from hdmm_bf.strategies import Callback, Status
from hdmm_bf.strategies.blocks import BlockStrategy, from_factors
from hdmm_bf.strategies.large_laplace import fit_laplace
from hdmm_bf.strategies.products import Found, fit_product
from hdmm_bf.strategies.products.choose import choose
from hdmm_bf.strategies.products.proofs import best_proof
from hdmm_bf.structure import ProductProblem

_LAPLACE_SECONDS = 120.0
"""Time limit of a structured Laplace search when none is given."""

_SEARCH_SHARE = 0.95
"""The search stops at this share of the wanted gap; the rest is for the grid."""

MOST_MEMORY = 16 * 2**30
_PROGRAM, _TENSORS, _FACTORS = 90 * 2**20, 85, 2

FAMILIES = ("marginals", "sectors", "kronecker", "bases", "union", "cells")
"""Names of structured families."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ProductFit(Facts):
    """An implicit strategy for a large domain, with its certificate.

    Attributes:
        product: the workload and the policy by their factors.
        strategy: what is measured, as it ships.
        proof: what proves the lower bound; None when no bound is proven.
        why: why this family was chosen, in words.
    """

    product: ProductProblem
    strategy: BlockStrategy
    proof: dict[str, Any] | None
    why: str = ""
    reached: dict[str, float] = field(default_factory=dict)

    __repr__ = Facts.__repr__

    @property
    def bounds(self) -> Bounds:
        """The SVD bound and the best proven bound, without edge weights; zero where none is proven."""
        return Bounds(self.certificate.svd_bound, self.certificate.lower_bound, np.empty(0), self.gap)

    @property
    def family(self) -> str:
        """The family that found the strategy."""
        return self.strategy.family

    @property
    def num_rows(self) -> int:
        """Number of queries measured."""
        return self.strategy.num_rows

    @cached_property
    def recovery(self) -> BlockRecovery:
        """How noisy answers of the strategy become answers of the workload."""
        return BlockRecovery(self.product, self.strategy)

    def _variances(self, chosen: IndexArray | None) -> RealVector:
        return self.recovery.variances(self.problem.workload, chosen)

    def save(self, path: str | Path) -> Path:
        """Write the fit as a bundle, a folder of plain files."""
        manifest = {
            "versions": {"hdmm_bf": __version__, "numpy": np.__version__},
            **{key: value for key, value in self.summary().items() if key not in ("workload", "policy")},
            "requested_gap": self.requested_gap,
            "why": self.why,
            "reached": dict(self.reached),
        }
        return bundle_blocks.write(
            path,
            product=self.product,
            strategy=self.strategy,
            proof=self.proof,
            certificate=self.certificate.as_dict(),
            manifest=manifest,
        )


def fit_structured(
    product: ProductProblem,
    *,
    noise: Noise,
    gap: float,
    max_seconds: float | None,
    family: str | None,
    seed: int,
    callback: Callback | None,
    mesh: Mesh | None = None,
) -> ProductFit:
    """Search the structured families, put the best on a grid, and certify it."""
    started = time.perf_counter()
    limit = math.inf if max_seconds is None else max_seconds
    name = family or (choose(product) if noise == "gaussian" else "kronecker")
    needed = predicted_bytes(product, name)
    fits("fit", f"{math.prod(product.sizes)} cells", needed, advice="Use a smaller domain.", limit=MOST_MEMORY)
    found: Found
    if noise == "gaussian":
        found = fit_product(
            product, gap=_SEARCH_SHARE * gap, max_seconds=limit, callback=callback, family=family, mesh=mesh
        )
    else:
        found = fit_laplace(product, seed=seed, max_seconds=min(limit, _LAPLACE_SECONDS), callback=callback)
    blocks = tuple(from_factors(sketch.factors, sketch.precisions, sketch.terms) for sketch in found.sketches)
    strategy = BlockStrategy(blocks, found.family)
    certificate = certify_blocks(product, noise=noise, strategy=strategy, proof=found.proof)
    return ProductFit(
        problem=product.problem,
        product=product,
        strategy=strategy,
        certificate=certificate,
        proof=found.proof,
        why=f"{found.why}; about {readable_bytes(needed)} of memory",
        requested_gap=gap,
        seed=seed,
        status="exact"
        if certificate.unit_error == 0
        else "converged"
        if certificate.gap <= gap
        else _ended(found.status),
        seconds=time.perf_counter() - started,
    )


def predicted_bytes(product: ProductProblem, family: str) -> int:
    """Predict the peak memory of a structured fit, from measurements on grids of side 64 to 1000.

    Bases hold a tensor over the cells for every correction of the search; the others only factors.
    """
    factors = sum(size**2 for size in product.sizes) * 8
    tensors = _TENSORS * math.prod(product.sizes) * 8 if family == "bases" else 0
    return _PROGRAM + _FACTORS * factors + tensors


def structured_bound(
    product: ProductProblem, *, gap: float, max_seconds: float | None, callback: Callback | None
) -> Bounds:
    """Return the bounds that can be evaluated from the factors, with their tightness where a small search shows it."""
    limit = math.inf if max_seconds is None else max_seconds
    if choose(product) == "bases":
        lower, _ = best_proof(product)
        svd = product_svd_bound(product)
        return Bounds(svd or 0.0, max(lower or 0.0, svd or 0.0), np.empty(0), math.inf)
    found = fit_product(product, gap=gap, max_seconds=limit, callback=callback)
    return Bounds(found.svd or 0.0, max(found.bound or 0.0, found.svd or 0.0), np.empty(0), found.gap)


def _ended(status: Status) -> Status:
    """A search that converged before its strategy was put on the grid has only finished if the gap is missed now."""
    return "finished" if status == "converged" else status
