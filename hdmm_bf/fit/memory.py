"""Memory of a fit, predicted before it starts; the constants are fitted to measured peaks (benchmark `memory`)."""

from __future__ import annotations

import math
import os

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import Noise
from hdmm_bf.bounds.products.folded import LARGEST, side
from hdmm_bf.bounds.products.grid import as_grid
from hdmm_bf.domain import DomainLike
from hdmm_bf.parallel.workers import default_workers
from hdmm_bf.problem import inputs
from hdmm_bf.problem.product import ProductProblem, as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import registry
from hdmm_bf.strategies.gaussian import bases, sectors
from hdmm_bf.strategies.gaussian.choose import choose
from hdmm_bf.strategies.laplace import joined, p_identity, vertex
from hdmm_bf.strategies.laplace.structured import choose_laplace
from hdmm_bf.strategies.norm import flows
from hdmm_bf.strategies.norm.groups import searched
from hdmm_bf.strategies.norm.shapes import LARGEST_SEARCHED

DENSE_CELLS: dict[Noise, int] = {"gaussian": 4096, "laplace": 4096, "norm": LARGEST_SEARCHED}
"""Cells up to which dense matrices are searched when nothing else is asked for: beyond, a fit takes many minutes."""

PRODUCT_CELLS = 1100
"""The same for Laplace noise and several attributes, whose cells have no order to go from coarse to fine in."""

_USUAL_MEMORY = 16 * 2**30
"""Taken for the machine's memory where the system does not tell it."""

_PROGRAM, _JAX, _SIZE = 90 * 2**20, 310 * 2**20, 55 * 2**20
"""The program itself; JAX with its compiled programs, which Gaussian searches do not load; those of another size."""

_MATRICES = 11.5
"""Matrices over the cells that a dense search and its certificate hold at once."""

_EDGE_BYTES = 220
_FLOORS, _PAIRS = 6, 4
"""Laplace: matrices of cells by edges, and of edges by edges where p-identity is searched."""

_FREE, _MOVES = 50, 8
"""Laplace: matrices over the cells, and of cells by edges, where every entry is searched."""

_SMALL = 64
"""Cells of the coarsest level of p-identity."""

_MESSAGES = 12000
"""Tree norms: numbers a cell that messages and their gradients hold."""

_FACTORS, _BALLS, _PARTS, _LISTED = 2, 3, 7, 3
"""Structured: matrices an attribute, besides the tensors over the cells that the family keeps; how many times more
tensors there are where edges change several attributes; matrices of a part of the bound; numbers a query."""

_LOSSES, _PORTIONS = 10, 2**26
"""Structured: numbers for the loss of every edge in the certificate, and in all where there are portions of edges."""

MOST_LISTED = 2**22
"""Queries of a strategy by factors up to which each is looked at."""


def memory_needed(
    workload: object,
    policy: object,
    *,
    domain: DomainLike | None = None,
    noise: Noise = "gaussian",
    family: str | None = None,
    workers: int | None = None,
) -> int:
    """Predict the peak memory, in bytes, of the processes that run `fit` with the same arguments.

    Guarantees:
        Within 30 % of the peaks in the table of the benchmark `memory`.
    """
    problem = inputs.problem(workload, policy, domain=domain)
    if noise == "norm":
        return norm_bytes(problem)
    by_factors = family in registry.names(noise, structured=True)
    large = family is None and is_large(problem, noise)
    product = as_product(problem, balls=True) if by_factors or large else None
    if product is not None:
        return product_bytes(product, family or structured_family(product, noise), noise)
    edges = problem.policy.num_edges
    if noise == "gaussian":
        return dense_bytes(problem.policy.num_cells, edges)
    one = dense_bytes(problem.policy.num_cells, edges) + _laplace_bytes(problem)
    return one * (workers or default_workers())


def structured_family(product: ProductProblem, noise: Noise) -> str:
    """Return the family in which a product is searched when none is asked for."""
    return choose(product) if noise == "gaussian" else choose_laplace(product)


def is_large(problem: Problem, noise: Noise) -> bool:
    """Whether a domain is too large for dense matrices, unless they are asked for."""
    several = noise == "laplace" and problem.policy.domain.num_attributes > 1
    return problem.policy.num_cells > (PRODUCT_CELLS if several else DENSE_CELLS[noise])


def norm_bytes(problem: Problem) -> int:
    """Predict the peak of a fit of tree norms: JAX, the yardstick up to 4096 cells, messages of every set.

    Within public groups, of the sets of one.
    """
    if flows.applies(problem):
        return _flows_bytes(problem)
    own = searched(problem)
    cells, edges = own.policy.num_cells, own.policy.num_edges
    yardstick = dense_bytes(cells, edges) if cells <= DENSE_CELLS["gaussian"] else _PROGRAM + _EDGE_BYTES * edges
    m = problem.workload.num_queries
    listed = _LISTED * m if own is not problem and m <= MOST_LISTED else 0
    return _JAX + yardstick + 8 * (_MESSAGES * cells + listed)


def _flows_bytes(problem: Problem) -> int:
    """Predict the peak of a search for sums of tree norms: trees over single attributes, and what the bound takes."""
    sizes, m = problem.policy.domain.sizes, problem.workload.num_queries
    listed = _LISTED * m if m <= MOST_LISTED else 0
    squares = sum(n**2 for n in sizes)
    return _JAX + _PROGRAM + 8 * (_MESSAGES * min(max(sizes), flows.LARGEST_TREE) + listed + _PARTS * squares)


def check_norm_size(problem: Problem, family: str | None = None) -> None:
    """Refuse more cells than trees are searched for, and more than fit in memory."""
    if family in (None, flows.NAME) and flows.applies(problem):
        needed, cells = _flows_bytes(problem), problem.policy.num_cells
        fits("fit", f"{cells} cells", needed, advice="Use a smaller domain, or another noise.", limit=most_memory())
        return
    cells, most = searched(problem).policy.num_cells, DENSE_CELLS["norm"]
    advice = "Use a smaller domain, or another noise."
    if cells > most:
        told = f"are more than the {most} that tree norms are searched for without public attributes"
        raise fail("fit", f"{cells} cells", told, advice)
    fits("fit", f"{cells} cells", norm_bytes(problem), advice=advice, limit=most_memory())


def most_memory() -> int:
    """Return the memory of this machine, beyond which no fit is begun."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _USUAL_MEMORY


def dense_bytes(cells: int, edges: int = 0) -> int:
    """Predict the peak of a dense Gaussian fit."""
    return int(_PROGRAM + _MATRICES * 8 * cells**2 + _EDGE_BYTES * edges)


def _laplace_bytes(problem: Problem) -> int:
    """Predict what a Laplace search adds: JAX, a program for every size, and matrices over edges."""
    cells, edges = problem.policy.num_cells, problem.policy.num_edges
    sizes = math.ceil(math.log2(max(edges / _SMALL, 1.0))) if p_identity.applies(problem) else 0
    entries = _FLOORS * cells * edges + (_PAIRS * edges**2 if p_identity.applies(problem) else 0)
    if not p_identity.alone(problem) and vertex.applies(problem):
        entries += _FREE * cells**2 + _MOVES * cells * edges
    return _JAX + _SIZE * sizes + 8 * entries


def product_bytes(product: ProductProblem, family: str, noise: Noise = "gaussian") -> int:
    """Predict the peak of a structured fit, from measurements on grids of side 64 to 1000 and on tables.

    Bases hold a tensor over the cells for every correction of the search, more where edges change several attributes,
    and write the parts of their bound out; the others hold only factors. The certificate holds the losses of all edges.
    Laplace searches load JAX, and hold what descents over joined attributes remember. Variances of queries are listed
    unless they are too many.
    """
    kept = max(known.tensors for known in registry.families() if known.name == family)
    factors = _FACTORS * sum(size**2 for size in product.sizes)
    tensors = kept * math.prod(product.sizes) * (1 if product.threshold is None else _BALLS)
    m = product.problem.workload.num_queries
    listed = _LISTED * m if m <= MOST_LISTED else 0
    programs = _JAX + _SIZE if noise == "laplace" else 0
    search = factors + tensors + _part_entries(product, family)
    search += joined.most_entries(product) if noise == "laplace" and product.threshold is None else 0
    return (
        _PROGRAM + programs + 8 * (max(search, min(_LOSSES * num_losses(product, family, noise), _PORTIONS)) + listed)
    )


def num_losses(product: ProductProblem, family: str, noise: Noise) -> int:
    """Return how many edges of one kind the certificate looks at; optima of tables and products have few losses."""
    if noise == "gaussian" and family not in (sectors.FAMILY.name, bases.FAMILY.name):
        return 0
    cells = math.prod(product.sizes)
    return max(len(edges) * (cells // n) for edges, n in zip(product.edges, product.sizes, strict=True))


def _part_entries(product: ProductProblem, family: str) -> int:
    """Entries of the matrices in which a bound is written out, where it is."""
    if family != bases.FAMILY.name or (product.threshold is None and as_grid(product) is not None):
        return 0
    part = side(product)
    return _PARTS * part**2 if part <= LARGEST else 0
