"""`fit`, `bound` and `compare`: from a workload and a policy to certified numbers."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np

from hdmm_bf._checks import fail, fits, nearest, whole_number
from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Noise, RealVector
from hdmm_bf.bounds import Bounds, is_public, svd_bound, uniform
from hdmm_bf.certificate import certify
from hdmm_bf.devices import Mesh, as_mesh, clock
from hdmm_bf.error import Draft, draft
from hdmm_bf.fitting.cells import cells_apply, fit_cells_dense
from hdmm_bf.fitting.inputs import as_problem
from hdmm_bf.fitting.product import FAMILIES as PRODUCT_FAMILIES
from hdmm_bf.fitting.product import MOST_MEMORY, ProductFit, fit_structured, structured_bound
from hdmm_bf.fitting.record import Fit
from hdmm_bf.strategies import (
    Callback,
    Status,
    Strategy,
    TracePoint,
    from_draft,
    from_gram,
    gaussian,
    grids,
    nothing,
    p_identity,
    portfolio,
    search,
)
from hdmm_bf.strategies.products.choose import choose
from hdmm_bf.structure import ProductProblem, as_product
from hdmm_bf.transform import Problem

DEFAULT_GAP = 1e-3
_SEARCH_SHARE = 0.95
"""The search stops at this share of the wanted gap; the rest is for the grid."""

_BOUND_GAP = 1e-4
_BOUND_STEPS = 200
"""The lower bound beside a Laplace search is tight to this gap for Gaussian strategies, or as far as these steps go."""


DENSE_CELLS: dict[Noise, int] = {"gaussian": 4096, "laplace": 1100}
"""Cells up to which dense matrices are searched when nothing else is asked for: beyond, a fit takes many minutes."""

_DENSE_MATRICES = 10
_PROGRAM_BYTES = 200 * 2**20


class _Found(NamedTuple):
    strategy: Strategy
    weights: RealVector
    status: Status
    trace: tuple[TracePoint, ...]
    reached: dict[str, float]
    why: str = ""


def fit(
    workload: Any,
    policy: Any,
    *,
    noise: Noise = "gaussian",
    gap: float = DEFAULT_GAP,
    max_seconds: float | None = None,
    max_steps: int | None = None,
    family: str | None = None,
    seed: int = 0,
    start: Fit | RealVector | None = None,
    callback: Callback | None = None,
    devices: int | None = None,
    mesh: Mesh | None = None,
) -> Fit | ProductFit:
    """Find the strategy of least expected error for a workload under a policy, and certify it.

    Args:
        workload: a Workload, a spec string or path, a NumPy or scipy.sparse matrix.
        policy: a Policy, a spec string or path, a networkx graph.
        noise: "gaussian", where the best possible is reached with a proof, or "laplace", for pure epsilon.
        gap: stop when the error is proven to be within this share of the best possible.
        max_seconds: time limit of the search; the best strategy by then is returned. By default none for Gaussian
            noise, and `default_seconds` for Laplace noise.
        max_steps: limit on the steps of the search, which gives the same result on every run.
        family: for Laplace noise, search this family alone (the floors are kept): p-identity, cell-budgets, vertex,
            dictionary. For either noise, a structured family (marginals, sectors, kronecker, bases), which is what
            domains of more cells than `DENSE_CELLS` get anyway if policy and workload are products; grid, for products
            of trees; cells, for ordinary privacy and products of queries.
        seed: for families that draw random numbers.
        start: an earlier fit of the same policy to start from; for Gaussian noise also its edge weights. A Laplace fit
            is never worse than its start.
        callback: called with the error and bound after every step.
        devices: spread the search over so many of JAX's devices. For Gaussian noise matrices are spread by rows and
            edges by their ends, also those of the factors of a Kronecker product; for Laplace noise, where only
            p-identity is, the Gram matrix over the edges. The certificate is derived on the host.
        mesh: the same on the devices of a `jax.sharding.Mesh` with one axis. After `jax.distributed.initialize` every
            process calls `fit` with the same arguments and a mesh of all devices, and gets the same fit.

    Guarantees:
        The number of devices changes no number by more than 1e-8 of it.
        Without a time limit, the same inputs and seed give the same strategy on the same machine, bit by bit.
        Laplace fits are never worse than any of the paper's and the classical mechanisms in `reached`.
    """
    started = time.perf_counter()
    problem = as_problem(workload, policy)
    _check(noise, gap, max_seconds, family)
    whole_number("fit", "seed", seed, least=0, advice="Use a whole number from 0.")
    if max_steps is not None:
        whole_number("fit", "max_steps", max_steps, least=1, advice="Allow at least one step.")
    _check_grid(problem, family)
    on = as_mesh(devices, mesh)
    product = structured(problem, noise, family)
    if on is not None:
        _check_spread(problem, noise, family, product)
    if product is not None and noise == "laplace" and cells_apply(product, family):
        return fit_cells_dense(product, gap=gap, max_seconds=max_seconds, seed=seed, callback=callback, started=started)
    if product is not None:
        return fit_structured(
            product,
            noise=noise,
            gap=gap,
            max_seconds=max_seconds,
            family=family,
            seed=seed,
            callback=callback,
            mesh=on,
        )
    with threads_for(problem.policy.num_cells):
        if is_public(problem):
            found = _Found(nothing(problem), uniform(problem.policy.num_edges), "exact", (), {})
        elif noise == "gaussian":
            found = _gaussian(problem, gap, max_seconds, max_steps, start, callback, on)
        else:
            found = _laplace(problem, gap, max_seconds, max_steps, family, seed, start, callback, on)
        made = found.strategy
        certificate = certify(
            problem, noise=noise, kind=made.kind, integers=made.integers, bits=made.bits, weights=found.weights
        )
    seconds = time.perf_counter() - started
    return Fit(
        problem=problem,
        strategy=made,
        certificate=certificate,
        weights=found.weights,
        requested_gap=gap,
        seed=seed,
        status=found.status,
        seconds=seconds,
        trace=found.trace,
        reached=found.reached,
        why=found.why,
    )


def _gaussian(
    problem: Problem,
    gap: float,
    max_seconds: float | None,
    max_steps: int | None,
    start: Fit | RealVector | None,
    callback: Callback | None,
    mesh: Mesh | None,
) -> _Found:
    aim = _SEARCH_SHARE * gap
    initial = _start_weights(problem, start)
    kernel = None if mesh is None else gaussian.on_devices(problem, mesh, gap=aim)
    found = search(
        gaussian.steps(problem, gap=aim, start=initial, kernel=kernel),
        gap=aim,
        max_seconds=math.inf if max_seconds is None else max_seconds,
        max_iterations=max_steps,
        callback=callback,
        clock=clock(mesh),
    )
    X = found.best if kernel is None else kernel.to_host(found.best)
    strategy = from_gram(problem, X, gap=gap, family="gaussian")
    return _Found(strategy, found.proof, found.status, found.trace, {}, kernel.why if kernel else "")


def _laplace(
    problem: Problem,
    gap: float,
    max_seconds: float | None,
    max_steps: int | None,
    family: str | None,
    seed: int,
    start: Fit | RealVector | None,
    callback: Callback | None,
    mesh: Mesh | None,
) -> _Found:
    initial = _start_draft(problem, start)
    limit = default_seconds(problem) if max_seconds is None and max_steps is None else max_seconds
    kernel = None if mesh is None else gaussian.on_devices(problem, mesh, gap=_BOUND_GAP)
    lower = search(
        gaussian.steps(problem, gap=_BOUND_GAP, kernel=kernel),
        gap=_BOUND_GAP,
        max_seconds=math.inf if max_steps is not None or limit is None else limit / 4,
        max_iterations=_BOUND_STEPS,
        clock=clock(mesh),
    )
    if lower.status == "interrupted":
        max_steps = 1
    table = portfolio.Table()
    found = search(
        portfolio.steps(
            problem,
            bound=lower.bound,
            weights=lower.proof,
            seed=seed,
            table=table,
            family=family,
            initial=initial,
            mesh=mesh,
        ),
        gap=gap,
        max_seconds=math.inf if limit is None else limit,
        max_iterations=max_steps,
        callback=callback,
        clock=clock(mesh),
    )
    status: Status = "interrupted" if lower.status == "interrupted" else found.status
    why = kernel.why if kernel else ""
    return _Found(from_draft(problem, found.best), found.proof, status, found.trace, table.errors, why)


def structured(problem: Problem, noise: Noise, family: str | None) -> ProductProblem | None:
    """Return the product structure to search in, or None to search dense matrices.

    Structure is used when it is asked for by name, or when the domain has more cells than `DENSE_CELLS` for the noise.
    A large domain without it is refused, with the memory that dense matrices would take.
    """
    cells = problem.policy.num_cells
    if family not in PRODUCT_FAMILIES and (family is not None or cells <= DENSE_CELLS[noise]):
        return None
    product = as_product(problem)
    if product is None and family in PRODUCT_FAMILIES:
        advice = "Use a product policy and a workload of products, or leave the family out."
        raise fail("fit", f"family={family!r}", "needs a policy and a workload that are products", advice)
    if product is None:
        advice = "Use a smaller domain, or a policy and a workload that are products of one an attribute."
        fits("fit", f"{cells} cells", dense_bytes(cells), advice=advice, limit=MOST_MEMORY)
    return product


def dense_bytes(cells: int) -> int:
    """Predict the peak memory of a dense fit: about ten matrices over the cells, and the program itself."""
    return _PROGRAM_BYTES + _DENSE_MATRICES * 8 * cells**2


def default_seconds(problem: Problem) -> float:
    """Return the default time limit of a Laplace search: 90 s at 64 cells, growing a little faster, 20 s to 400 s."""
    cells = float(max(problem.grounding.kept.size, 4))
    return min(max(20.0, 90.0 * math.pow(cells / 64, 1.25)), 400.0)


def bound(
    workload: Any,
    policy: Any,
    *,
    gap: float = DEFAULT_GAP,
    max_seconds: float | None = None,
    callback: Callback | None = None,
) -> Bounds:
    """Return the SVD bound and the best proven bound on the unit error of any strategy, tight to `gap`.

    On domains too large for dense matrices it is the best bound that can be evaluated exactly from the factors; its gap
    is infinite where no strategy shows how tight it is, and a bound that cannot be evaluated is 0.
    """
    problem = as_problem(workload, policy)
    _check("gaussian", gap, max_seconds, None)
    product = structured(problem, "gaussian", None)
    if product is not None:
        return structured_bound(product, gap=gap, max_seconds=max_seconds, callback=callback)
    if is_public(problem):
        return Bounds(0.0, 0.0, uniform(problem.policy.num_edges), 0.0)
    limit = math.inf if max_seconds is None else max_seconds
    with threads_for(problem.policy.num_cells):
        found = search(gaussian.steps(problem, gap=gap), gap=gap, max_seconds=limit, callback=callback)
        svd = svd_bound(problem)
    return Bounds(svd, max(svd, found.bound), found.proof, float(found.error / found.bound - 1))


class Row(NamedTuple):
    """One mechanism of a comparison."""

    name: str
    unit_error: float
    ratio_to_lower: float
    kind: str


def compare(
    workload: Any,
    policy: Any,
    *,
    noise: Noise,
    max_seconds: float | None = None,
    max_steps: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
) -> tuple[list[Row], Fit | ProductFit]:
    """Return the paper's, the classical and our mechanisms, best first, and our fit with its bounds.

    On domains too large for dense matrices the others are left out.
    """
    made = fit(
        workload, policy, noise=noise, max_seconds=max_seconds, max_steps=max_steps, seed=seed, callback=callback
    )
    table, problem = portfolio.Table(), made.problem
    if made.status != "exact" and isinstance(made, Fit):
        with threads_for(problem.policy.num_cells):
            list(portfolio.floors(problem, table, "L1" if noise == "laplace" else "L2"))
    for name, error in {**made.reached, made.family: made.unit_error}.items():
        if name not in table.errors:
            table.note(name, error, "ours")
    lower = made.bounds.lower
    rows = [
        Row(name, error, error / lower if lower > 0 else 1.0, table.kinds[name]) for name, error in table.errors.items()
    ]
    return sorted(rows, key=lambda row: row.unit_error), made


def _check(noise: str, gap: float, max_seconds: float | None, family: str | None) -> None:
    if noise not in ("gaussian", "laplace"):
        raise fail("fit", f"noise={noise!r}", "is not a noise", "Use 'gaussian' or 'laplace'.")
    if not 0 < gap < math.inf or (max_seconds is not None and not max_seconds > 0):
        shown = f"gap={gap}, max_seconds={max_seconds}"
        raise fail("fit", shown, "both must be positive numbers", "Use for example gap=1e-3, max_seconds=60.")
    if family in PRODUCT_FAMILIES:
        return
    if family is None or (noise, family) == ("gaussian", "gaussian"):
        return
    if family not in portfolio.FAMILIES:
        advice = nearest(family, [*portfolio.FAMILIES, *PRODUCT_FAMILIES])
        raise fail("fit", f"family={family!r}", f"is not a family for {noise.capitalize()} noise", advice)
    if noise == "gaussian":
        advice = "Leave the family out: the Gaussian search is optimal."
        raise fail("fit", f"family={family!r}", "is for Laplace noise", advice)


def _check_grid(problem: Problem, family: str | None) -> None:
    if family == grids.NAME and grids.parts(problem) is None:
        needs = f"needs a product of trees with at most {grids.LARGEST_EDGES} edges and one product of workloads"
        raise fail("fit", f"family='grid' for {problem.policy.spec}", needs, "Leave the family out.")


def _check_spread(problem: Problem, noise: Noise, family: str | None, product: ProductProblem | None) -> None:
    """Refuse to spread what would not be spread."""
    if product is not None:
        name = family or choose(product)
        if noise == "gaussian" and name == "kronecker":
            return
        shown = f"devices for {problem.policy.num_cells} cells, {noise} noise, family={family!r}"
        advice = "Leave devices and mesh out: this search runs on the host and needs little memory."
        raise fail("fit", shown, "of the structured families only kronecker with Gaussian noise is spread", advice)
    if noise == "laplace" and family != p_identity.NAME and not (family is None and problem.policy.is_forest):
        shown = f"devices with noise='laplace', family={family!r}"
        advice = "Use family='p-identity', or leave devices and mesh out."
        problem_seen = f"of the families for {problem.policy.spec} only p-identity is spread over devices"
        raise fail("fit", shown, problem_seen, advice)


def _start_draft(problem: Problem, start: Fit | RealVector | None) -> Draft | None:
    """Return an earlier fit's strategy, measured for this problem."""
    if start is None:
        return None
    advice = "Start from a fit of the same policy."
    if not isinstance(start, Fit):
        raise fail("fit", f"start of type {type(start).__name__}", "must be a fit for Laplace noise", advice)
    old, policy = start.problem.policy, problem.policy
    if old.num_cells != policy.num_cells or not np.array_equal(old.edges, policy.edges):
        raise fail("fit", f"start for {old.spec}", f"is for another policy than {policy.spec}", advice)
    matrix = start.strategy.matrix()
    if start.strategy.kind == "vertex":
        matrix = problem.grounding.columns(matrix)
    return draft(problem, start.strategy.kind, matrix, norm="L1", origin=start.strategy.family)


def _start_weights(problem: Problem, start: Fit | RealVector | None) -> RealVector | None:
    if start is None:
        return None
    weights = start.weights if isinstance(start, Fit) else np.asarray(start, dtype=np.float64)
    edges = problem.policy.num_edges
    if weights.shape != (edges,) or not np.all(np.isfinite(weights)) or weights.min() < 0 or not weights.sum() > 0:
        advice = "Start from a fit of the same policy."
        shown = f"start with {weights.size} weights"
        raise fail("fit", shown, f"must be {edges} weights, none negative, not all zero", advice)
    return weights
