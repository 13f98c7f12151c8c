"""From a strategy on its grid to a `Fit`: the certificate, with the bound by factors evaluated beside it."""

from __future__ import annotations

from functools import singledispatch

from hdmm_bf._types import Noise, Proof
from hdmm_bf.bounds.products import ProductBounds, product_bound
from hdmm_bf.certificate import Certificate, certify
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.options import FitOptions, final_status
from hdmm_bf.problem.product import product_view
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import Status, limits
from hdmm_bf.strategies.records import MatrixStrategy, ProductStrategy, Strategy, TreeNorm


@singledispatch
def factor_bounds(strategy: object, problem: Problem, proof: Proof | None) -> ProductBounds | None:
    """Evaluate bounds that the certificate has no code for."""
    raise TypeError(f"no bounds for {type(strategy).__name__}")


@factor_bounds.register(MatrixStrategy)
@factor_bounds.register(TreeNorm)
def _(_: MatrixStrategy | TreeNorm, problem: Problem, proof: Proof | None) -> ProductBounds | None:
    return None  # the certificate evaluates the edge weights


@factor_bounds.register
def _(_: ProductStrategy, problem: Problem, proof: Proof | None) -> ProductBounds | None:
    return product_bound(product_view(problem), proof)


def certificate(strategy: Strategy, problem: Problem, *, noise: Noise, proof: Proof | None) -> Certificate:
    """Return the certificate of a strategy, with the bounds that its proof gives."""
    return certify(strategy, problem, noise=noise, proof=proof, bounds=factor_bounds(strategy, problem, proof))


def certified(
    problem: Problem,
    strategy: Strategy,
    proof: Proof | None,
    options: FitOptions,
    *,
    status: Status,
    reached: dict[str, float] | None = None,
    why: str = "",
) -> Fit:
    """Certify a strategy and return it as a fit."""
    derived = certificate(strategy, problem, noise=options.noise, proof=proof)
    return Fit(
        problem=problem,
        strategy=strategy,
        certificate=derived,
        proof=proof,
        requested_gap=options.gap,
        seed=options.seed,
        status=final_status(status, derived, options.gap),
        seconds=limits.now() - options.started,
        reached=reached or {},
        why=why,
    )
