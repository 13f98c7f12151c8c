"""Memory of a fit, predicted before it starts; the constants are fitted to measured peaks (benchmark `memory`)."""

from __future__ import annotations

import math
import os
from typing import Any

from hdmm_bf._types import Noise
from hdmm_bf.fit.inputs import as_problem
from hdmm_bf.parallel.workers import default_workers
from hdmm_bf.problem.product import ProductProblem, as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import registry
from hdmm_bf.strategies.gaussian.choose import choose
from hdmm_bf.strategies.laplace import grid as grids
from hdmm_bf.strategies.laplace import p_identity

DENSE_CELLS: dict[Noise, int] = {"gaussian": 4096, "laplace": 1100}
"""Cells up to which dense matrices are searched when nothing else is asked for: beyond, a fit takes many minutes."""

_USUAL_MEMORY = 16 * 2**30
"""Taken for the machine's memory where the system does not tell it."""

_PROGRAM, _JAX = 90 * 2**20, 220 * 2**20
"""The program itself, and JAX with its compiled programs, which Gaussian searches do not load."""

_MATRICES = 11.5
"""Matrices over the cells that a dense search and its certificate hold at once."""

_EDGE_BYTES = 220
_OVER_EDGES, _PAIRS = 18, 4
"""Laplace: matrices of cells by edges, and of edges by edges where p-identity is searched."""

_FACTORS = 2
"""Structured: matrices an attribute, besides the tensors over the cells that the family keeps."""


def memory_needed(
    workload: Any,
    policy: Any,
    *,
    noise: Noise = "gaussian",
    family: str | None = None,
    workers: int | None = None,
) -> int:
    """Predict the peak memory, in bytes, of the processes that run `fit` with the same arguments.

    Guarantees:
        Within 30 % of the peaks in the table of the benchmark `memory`.
    """
    problem = as_problem(workload, policy)
    product = as_product(problem) if family is not None or problem.policy.num_cells > DENSE_CELLS[noise] else None
    if product is not None and family != grids.NAME:
        return product_bytes(product, family or (choose(product) if noise == "gaussian" else "kronecker"))
    edges = problem.policy.num_edges
    if noise == "gaussian":
        return dense_bytes(problem.policy.num_cells, edges)
    one = dense_bytes(problem.policy.num_cells, edges) + _laplace_bytes(problem)
    return one * (workers or default_workers())


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
    """Predict what a Laplace search adds: JAX, and matrices over edges."""
    cells, edges = problem.policy.num_cells, problem.policy.num_edges
    paired = problem.policy.is_forest or edges <= min(p_identity.LARGEST_EDGES, p_identity.MOST_EDGES_A_CELL * cells)
    wide = 0 if problem.policy.is_forest else _OVER_EDGES * cells * edges
    return _JAX + 8 * (wide + (_PAIRS * edges**2 if paired else 0))


def product_bytes(product: ProductProblem, family: str) -> int:
    """Predict the peak of a structured fit, from measurements on grids of side 64 to 1000.

    Bases hold a tensor over the cells for every correction of the search; the others only factors.
    """
    factors = sum(size**2 for size in product.sizes) * 8
    tensors = max(known.tensors for known in registry.families() if known.name == family) * math.prod(product.sizes) * 8
    return _PROGRAM + _FACTORS * factors + tensors
