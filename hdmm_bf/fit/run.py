"""`fit` and `bound`: from a workload and a policy to certified numbers."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import Literal

from hdmm_bf._checks import fail, fits
from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Noise, RealVector
from hdmm_bf.bounds.dense import Bounds, is_public, svd_bound, uniform
from hdmm_bf.bounds.pairs import choose_pairs, laplace_bound
from hdmm_bf.domain import DomainLike
from hdmm_bf.fit.cells import cells_apply, fit_cells_dense
from hdmm_bf.fit.dense import fit_dense
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.goals import fit_for_goal
from hdmm_bf.fit.memory import check_norm_size, dense_bytes, is_large, most_memory
from hdmm_bf.fit.noises import best_noise
from hdmm_bf.fit.norms import fit_norm
from hdmm_bf.fit.options import DEFAULT_GAP, PRODUCT_FAMILIES, FitOptions, check_path, check_search
from hdmm_bf.fit.reserve import dense_seconds
from hdmm_bf.fit.structured import fit_structured, structured_bound
from hdmm_bf.parallel.devices import Mesh, as_mesh
from hdmm_bf.problem import inputs
from hdmm_bf.problem.goal import Function, Groups, Targets
from hdmm_bf.problem.product import ProductProblem, as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import Callback, TracePoint, limits, search
from hdmm_bf.strategies.gaussian import dense as gaussian

_FEWEST_HURRIED, _HURRIED = 1024, 0.3
"""Cells from which on dense matrices may be too slow for a time limit, and the share of it that certifying one may
take: a search needs several times as long."""


def fit(
    workload: object,
    policy: object,
    *,
    domain: DomainLike | None = None,
    noise: Noise | Literal["auto"] = "gaussian",
    epsilon: float | None = None,
    delta: float | None = None,
    objective: str | Function = "total",
    targets: Targets | None = None,
    groups: Groups | None = None,
    gap: float = DEFAULT_GAP,
    max_seconds: float | None = None,
    max_steps: int | None = None,
    family: str | None = None,
    seed: int = 0,
    start: Fit | RealVector | None = None,
    workers: int | None = None,
    effort: str = "normal",
    devices: int | None = None,
    mesh: Mesh | None = None,
    callback: Callback | None = None,
) -> Fit:
    """Find the strategy of least expected error for a workload under a policy, and certify it.

    Args:
        workload: a Workload, Tables, a spec string or path, a NumPy or scipy.sparse matrix.
        policy: a Policy, Policies, a spec string or path, a networkx graph.
        domain: the attributes, for tables, policies by attribute and specs that leave their sizes out.
        noise: "gaussian", where the best possible is reached with a proof; "laplace", for pure epsilon; "norm", pure
            epsilon with noise drawn on the cells by the norm of a tree, which often has a third less error; "auto", the
            one with the least error at `epsilon` and `delta`, or that has least of another objective.
        epsilon: for "auto", the budget that is to be served.
        delta: for "auto", the probability that epsilon is exceeded; without one only pure epsilon is considered.
        objective: what is to be small: "total", the sum of the variances (times squared weights); "largest", the
            largest of them; "targets"; or an increasing function of the vector of variances at sensitivity 1, in JAX.
            Optimal with proof for Gaussian noise; a function of one's own where it is convex in the variances or
            in their logarithms, which is found out by trying.
        targets: standard deviations that the queries should have, one for all, one each (NaN asks for none), or one a
            group: the budget at which all are met is made as small as can be. Only their proportions count here;
            `fit.epsilon_for(stddev=targets)` tells the budget.
        groups: the group of every query: with "largest", the worst group's mean variance is to be small; with
            targets={group: target}, names of the groups.
        gap: stop when the error is proven to be within this share of the best possible.
        max_seconds: time limit of the fit, certificate included; the best strategy by then is returned. Floors that do
            not fit are left out. Where the certificate alone takes longer, the search gets half of the limit. By
            default none for Gaussian noise, and `default_seconds` for a Laplace search (structured 120 s, cells 240 s).
        max_steps: limit on the steps of the search, which gives the same result on every run.
        family: search this family alone. For Laplace noise (the floors are kept) p-identity, cell-budgets, vertex,
            dictionary, tables, or grid, for products of trees; for Gaussian noise gaussian; for tree norms chain,
            hierarchy, blocks, clusters, or flows, for products. A structured one is what domains that are too
            large for matrices get anyway if policy and workload are products: marginals, sectors, kronecker, bases for
            Gaussian noise; kronecker, union, layers, directions, and cells, for ordinary privacy, for Laplace noise.
        seed: for families that draw random numbers.
        start: an earlier fit of the same policy to start from; for Gaussian noise also its edge weights. A Laplace fit
            is never worse than its start.
        workers: for Laplace noise and dense matrices, processes that search with seeds of their own. By default as
            many as cores (`default_workers`), and one when `max_steps` is given, so that the result is the same on
            every machine.
        effort: for Laplace noise and dense matrices, when a search that finds nothing better is over: "quick" after one
            look at every family, "normal" after as many steps as led to the last gain, "thorough" after four times as
            many.
        callback: called with the error and bound after every step.
        devices: spread the search over so many of JAX's devices. For Gaussian noise matrices are spread by rows and
            edges by their ends, also those of the factors of a Kronecker product; for Laplace noise, where only
            p-identity is, the Gram matrix over the edges. The certificate is derived on the host.
        mesh: the same on the devices of a `jax.sharding.Mesh` with one axis. After `jax.distributed.initialize` every
            process calls `fit` with the same arguments and a mesh of all devices, and gets the same fit.

    Ctrl-C ends the search with the best so far, status "interrupted"; a second one, or one before there is any result,
    raises KeyboardInterrupt. An option that the search for this problem would not use is refused.

    Guarantees:
        The number of devices changes no number by more than 1e-8 of it.
        Without a time limit, the same inputs, seed and workers give the same strategy on the same machine, bit by bit.
        Laplace fits are never worse than any of the paper's and the classical mechanisms in `reached`.
    """
    started = limits.now()
    problem = inputs.problem(workload, policy, domain=domain, objective=objective, targets=targets, groups=groups)
    if noise == "auto":
        if family is not None or start is not None or devices is not None or mesh is not None or workers is not None:
            problem_seen = "family, start, workers and devices are of one noise"
            raise fail("fit", "noise='auto'", problem_seen, "Leave them out, or name the noise.")
        given = {"gap": gap, "max_seconds": max_seconds, "max_steps": max_steps, "seed": seed, "callback": callback}
        with limits.noting_interruptions():
            return best_noise(problem, epsilon=epsilon, delta=delta, **given)
    if epsilon is not None or delta is not None:
        advice = 'Give the budget to `rmse` or `release`, or use noise="auto".'
        raise fail("fit", f"epsilon={epsilon}, delta={delta}", f"are not used by {noise} noise", advice)
    trace: list[TracePoint] = []

    def note(point: TracePoint) -> None:
        trace.append(point)
        if callback is not None:
            callback(point)

    options = FitOptions(
        noise=noise,
        gap=gap,
        max_seconds=max_seconds,
        max_steps=max_steps,
        family=family,
        seed=seed,
        start=start,
        workers=workers,
        effort=effort,
        mesh=as_mesh(devices, mesh),
        callback=note,
        started=started,
    ).checked(problem)
    with limits.noting_interruptions():
        made = _fit(problem, options)
    if made.status == "exact":
        return made  # nothing was searched, so no option was used
    if not trace:  # a closed form; there is nothing left to interrupt
        with contextlib.suppress(KeyboardInterrupt):
            note(TracePoint(made.seconds, made.unit_error, made.bounds.lower, 0.0))
    return replace(made, trace=tuple(trace), options=options.given())


def _fit(problem: Problem, options: FitOptions) -> Fit:
    product = None if options.noise == "norm" else _structure(problem, options)
    check_path(problem, options, product)
    if options.noise == "norm":
        check_norm_size(problem, options.family)
    if problem.goal.kind == "total" or (options.noise == "gaussian" and product is None):
        return _fit_total(problem, options)
    return fit_for_goal(problem, options, _fit_total, structured=product is not None)


def _fit_total(problem: Problem, options: FitOptions) -> Fit:
    if options.noise == "norm":
        return fit_norm(problem, options)
    product = _structure(problem, options)
    if product is None:
        return fit_dense(problem, options)
    if options.noise == "laplace" and cells_apply(product, options):
        return fit_cells_dense(product, options)
    return fit_structured(product, options)


def _structure(problem: Problem, options: FitOptions) -> ProductProblem | None:
    """Return the product structure to search in, also where dense matrices would not be ready within a time limit."""
    if _is_hurried(problem, options):
        product = as_product(problem)
        if product is not None:
            return product
    return structured(problem, options.noise, options.family)


def _is_hurried(problem: Problem, options: FitOptions) -> bool:
    """Whether certifying a matrix takes most of the time limit, and nothing that was asked for needs a matrix."""
    plain = options.noise == "gaussian" and problem.goal.kind == "total"
    free = options.family is None and options.start is None and options.mesh is None and options.max_steps is None
    if options.max_seconds is None or not (plain and free) or problem.policy.num_cells < _FEWEST_HURRIED:
        return False
    if is_large(problem, "gaussian") or is_public(problem):
        return False
    return dense_seconds(problem, "gaussian") > _HURRIED * options.max_seconds


def structured(problem: Problem, noise: Noise, family: str | None) -> ProductProblem | None:
    """Return the product structure to search in, or None to search dense matrices.

    Structure is used when it is asked for by name, or when the domain has more cells than `is_large` allows.
    A large domain without it is refused, with the memory that dense matrices would take.
    """
    cells = problem.policy.num_cells
    if family not in PRODUCT_FAMILIES and (family is not None or not is_large(problem, noise)):
        return None
    product = as_product(problem, balls=True)
    if product is None and family in PRODUCT_FAMILIES:
        advice = "Use a product policy, or a distance threshold, and a workload of products, or leave the family out."
        raise fail("fit", f"family={family!r}", "needs a policy and a workload that are products", advice)
    if product is None:
        advice = (
            "Use a smaller domain, or a workload that is a product of one an attribute and a policy that is such a "
            "product or a distance threshold."
        )
        fits("fit", f"{cells} cells", dense_bytes(cells), advice=advice, limit=most_memory())
    return product


def bound(
    workload: object,
    policy: object,
    *,
    domain: DomainLike | None = None,
    gap: float = DEFAULT_GAP,
    max_seconds: float | None = None,
    callback: Callback | None = None,
) -> Bounds:
    """Return the SVD bound and the best proven bound on the unit error of any strategy, tight to `gap`.

    `laplace` is the best proven bound for strategies with Laplace noise, up to 1.57 times `lower`. On domains too large
    for dense matrices they are the best bounds that can be evaluated exactly from the factors; the gap is infinite
    where no strategy shows how tight `lower` is, and a bound that cannot be evaluated is 0.

    Example:
        >>> import hdmm_bf as bf
        >>> bounds = bf.bound("all-range:8x8", "threshold:8x8:1")
        >>> round(bounds.lower), round(bounds.laplace)
        (5804, 7580)
    """
    problem = inputs.problem(workload, policy, domain=domain)
    check_search("gaussian", gap, max_seconds, None)
    product = structured(problem, "gaussian", None)
    if product is not None:
        with limits.noting_interruptions():
            return structured_bound(product, gap=gap, max_seconds=max_seconds, callback=callback)
    if is_public(problem):
        return Bounds(0.0, 0.0, uniform(problem.policy.num_edges), 0.0, 0.0)
    limit = math.inf if max_seconds is None else max_seconds
    with limits.noting_interruptions(), threads_for(problem.policy.num_cells):
        steps = gaussian.steps(problem, gap=gap)
        found = search(steps, gap=gap, max_seconds=limit, callback=callback, whole_steps=True)
        svd = svd_bound(problem)
        pairs = choose_pairs(problem, found.proof)
        laplace = laplace_bound(problem, found.proof, pairs) if len(pairs.edges) else 0.0
    lower = max(svd, found.bound)
    return Bounds(svd, lower, found.proof, float(found.error / found.bound - 1), max(lower, laplace))
