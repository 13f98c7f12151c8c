"""Fits for large domains: structured search, block strategies, factors instead of matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from hdmm_bf._checks import fits, readable_bytes
from hdmm_bf._types import IndexArray, RealVector
from hdmm_bf.bounds.dense import Bounds
from hdmm_bf.bounds.products import product_svd_bound
from hdmm_bf.bundle import products as bundle_blocks
from hdmm_bf.certificate.dense import Certificate
from hdmm_bf.certificate.products import certify_blocks
from hdmm_bf.fit.facts import Facts
from hdmm_bf.fit.memory import most_memory, product_bytes
from hdmm_bf.fit.options import Asked, ended
from hdmm_bf.fit.reserve import product_seconds
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.release.block_recovery import BlockRecovery, row_variances
from hdmm_bf.release.plan import Plan
from hdmm_bf.strategies import Callback, Status, limits
from hdmm_bf.strategies.blocks import BlockStrategy, from_factors
from hdmm_bf.strategies.gaussian import Found, fit_product
from hdmm_bf.strategies.gaussian.choose import choose
from hdmm_bf.strategies.gaussian.proofs import best_proof
from hdmm_bf.strategies.laplace.structured import fit_laplace

_LAPLACE_SECONDS = 120.0
"""Time limit of a structured Laplace search when none is given."""

_SEARCH_SHARE = 0.95
"""The search stops at this share of the wanted gap; the rest is for the grid."""


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

    def _deviations(self, settled: Plan, chosen: IndexArray | None) -> RealVector:
        spreads = [row_variances(block, settled) for block in self.strategy.blocks]
        return np.asarray(np.sqrt(self.recovery.variances(self.problem.workload, chosen, spreads=spreads)))

    def save(self, path: str | Path) -> Path:
        """Write the fit as a bundle, a folder of plain files."""
        return bundle_blocks.write(
            path,
            product=self.product,
            strategy=self.strategy,
            proof=self.proof,
            certificate=self.certificate.as_dict(),
            manifest={**self._claims(), "why": self.why},
        )


def fit_structured(product: ProductProblem, asked: Asked) -> ProductFit:
    """Search the structured families, put the best on a grid, and certify it."""
    name = asked.family or (choose(product) if asked.noise == "gaussian" else "kronecker")
    needed = product_bytes(product, name)
    fits("fit", f"{math.prod(product.sizes)} cells", needed, advice="Use a smaller domain.", limit=most_memory())
    with limits.limited(asked.until(0.0 if asked.max_seconds is None else product_seconds(product))):
        found = _search(product, asked)
    limits.keep()
    blocks = tuple(from_factors(sketch.factors, sketch.precisions, sketch.terms) for sketch in found.sketches)
    strategy = BlockStrategy(blocks, found.family)
    certificate = certify_blocks(product, noise=asked.noise, strategy=strategy, proof=found.proof)
    return ProductFit(
        problem=product.problem,
        product=product,
        strategy=strategy,
        certificate=certificate,
        proof=found.proof,
        why=f"{found.why}; about {readable_bytes(needed)} of memory",
        requested_gap=asked.gap,
        seed=asked.seed,
        status=_status(found.status, certificate, asked.gap),
        seconds=limits.now() - asked.started,
    )


def _search(product: ProductProblem, asked: Asked) -> Found:
    if asked.noise == "gaussian":
        return fit_product(
            product,
            gap=_SEARCH_SHARE * asked.gap,
            callback=asked.callback,
            family=asked.family,
            mesh=asked.mesh,
            max_steps=asked.max_steps,
        )
    return fit_laplace(
        product,
        seed=asked.seed,
        max_seconds=math.inf if asked.limited else _LAPLACE_SECONDS,
        callback=asked.callback,
        max_steps=asked.max_steps,
        family=asked.family,
        gap=asked.gap,
    )


def _status(found: Status, certificate: Certificate, gap: float) -> Status:
    if certificate.unit_error == 0:
        return "exact"
    return "converged" if certificate.gap <= gap else ended(found, certificate.gap, gap)


def structured_bound(
    product: ProductProblem, *, gap: float, max_seconds: float | None, callback: Callback | None
) -> Bounds:
    """Return the bounds that can be evaluated from the factors, with their tightness where a small search shows it."""
    with limits.limited(limits.now() + (math.inf if max_seconds is None else max_seconds)):
        if choose(product) == "bases":
            lower, _ = best_proof(product)
            svd = product_svd_bound(product)
            return Bounds(svd or 0.0, max(lower or 0.0, svd or 0.0), np.empty(0), math.inf)
        found = fit_product(product, gap=gap, callback=callback)
    return Bounds(found.svd or 0.0, max(found.bound or 0.0, found.svd or 0.0), np.empty(0), found.gap)
