"""Fits for large domains: structured search, block strategies, factors instead of matrices."""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import fits, readable_bytes
from hdmm_bf.bounds.dense import Bounds
from hdmm_bf.bounds.products import product_svd_bound
from hdmm_bf.certificate.duals.pairs import paired_bound
from hdmm_bf.fit.certified import certified
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.memory import most_memory, product_bytes, structured_family
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.fit.pairing import paired_proof
from hdmm_bf.fit.reserve import pairing_seconds, product_seconds
from hdmm_bf.problem.product import ProductProblem, incidence
from hdmm_bf.strategies import Callback, limits
from hdmm_bf.strategies.blocks import from_factors, noise_block
from hdmm_bf.strategies.gaussian import Found, JoinedSketch, Sketch, bases, fit_beside_floors, fit_product
from hdmm_bf.strategies.gaussian.choose import choose
from hdmm_bf.strategies.gaussian.proofs import best_proof
from hdmm_bf.strategies.joined_blocks import joined_block
from hdmm_bf.strategies.laplace.structured import fit_laplace, laplace_proof
from hdmm_bf.strategies.records import NoiseSum, ProductStrategy

_LAPLACE_SECONDS = 120.0
"""Time limit of a structured Laplace search when none is given."""

_SEARCH_SHARE = 0.95
"""The search stops at this share of the wanted gap; the rest is for the grid."""


def fit_structured(product: ProductProblem, options: FitOptions) -> Fit:
    """Search the structured families, put the best on a grid, and certify it."""
    name = options.family or structured_family(product, options.noise)
    needed = product_bytes(product, name, options.noise)
    fits("fit", f"{math.prod(product.sizes)} cells", needed, advice="Use a smaller domain.", limit=most_memory())
    reserve = 0.0 if options.max_seconds is None else product_seconds(product, name, options.noise)
    with limits.limited(options.until(reserve)):
        found = _gaussian(product, options) if options.noise == "gaussian" else _laplace(product, options, reserve)
    limits.keep()
    proof = found.proof if options.noise == "gaussian" else paired_proof(product, found.proof)
    strategy = _strategy(product, found, fine=options.noise == "gaussian")
    why = f"{found.why}; about {readable_bytes(needed)} of memory"
    return certified(product.problem, strategy, proof, options, status=found.status, reached=found.reached, why=why)


def _strategy(product: ProductProblem, found: Found, *, fine: bool) -> ProductStrategy | NoiseSum:
    """Put what was found on a grid: rows to measure, or noise to add up."""
    sketches = [sketch for sketch in found.sketches if isinstance(sketch, Sketch)]
    joined = [sketch for sketch in found.sketches if isinstance(sketch, JoinedSketch)]
    hides = tuple(sketch.hides for sketch in sketches if sketch.hides is not None)
    if not hides and not joined:
        blocks = tuple(from_factors(s.factors, s.precisions, s.terms, fine=fine) for s in sketches)
        return ProductStrategy(blocks, found.family)
    over = [None if s.over is None else (s.over, incidence(product, s.over)) for s in sketches]
    blocks = tuple(noise_block(s.factors, s.precisions, own) for s, own in zip(sketches, over, strict=True))
    return NoiseSum(blocks, hides, found.family, tuple(joined_block(product, sketch) for sketch in joined))


def _gaussian(product: ProductProblem, options: FitOptions) -> Found:
    return fit_beside_floors(
        product,
        gap=_SEARCH_SHARE * options.gap,
        callback=options.callback,
        family=options.family,
        mesh=options.mesh,
        max_steps=options.max_steps,
    )


def _laplace(product: ProductProblem, options: FitOptions, reserve: float) -> Found:
    """Search with edge weights that prove a bound, as soon as it is known how long pairs of edges will take."""
    proof = laplace_proof(product)
    reserve += 0.0 if options.max_seconds is None else pairing_seconds(product, proof)
    with limits.limited(options.until(reserve)):
        return fit_laplace(
            product,
            seed=options.seed,
            max_seconds=math.inf if options.limited else _LAPLACE_SECONDS,
            callback=options.callback,
            max_steps=options.max_steps,
            family=options.family,
            gap=options.gap,
            proof=proof,
        )


def structured_bound(
    product: ProductProblem, *, gap: float, max_seconds: float | None, callback: Callback | None
) -> Bounds:
    """Return the bounds that can be evaluated from the factors, with their tightness where a small search shows it."""
    with limits.limited(limits.now() + (math.inf if max_seconds is None else max_seconds)):
        if choose(product) == bases.FAMILY.name:
            bound, proof = best_proof(product)
            svd, tight = product_svd_bound(product), math.inf
        else:
            found = fit_product(product, gap=gap, callback=callback)
            bound, proof, svd, tight = found.bound, found.proof, found.svd, found.gap
    lower = max(bound or 0.0, svd or 0.0)
    pairs = paired_proof(product, proof)
    laplace = None if pairs is None or "along" not in pairs else paired_bound(product, pairs)
    return Bounds(svd or 0.0, lower, np.empty(0), tight, max(lower, laplace or 0.0))
