"""Rows in several tables, written out: what `layers` finds by factors, for domains small enough for matrices.

There other families continue from it, and every entry of the rows can be changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import reduce

import numpy as np

from hdmm_bf._types import RealMatrix
from hdmm_bf.problem.product import ProductProblem, as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch
from hdmm_bf.strategies.laplace import layers
from hdmm_bf.strategies.registry import Family, Turns

NAME = "tables"
LARGEST_CELLS = 1200
"""Cells up to which rows are written out."""

_TOGETHER = 12
"""Steps of `layers` in one of this family: what is half-way is no start for others."""


def applies(problem: Problem) -> bool:
    """Whether the queries are several products, and rows in tables can be searched."""
    if problem.policy.num_cells > LARGEST_CELLS:
        return False
    product = as_product(problem)
    return product is not None and len(product.terms) > 1 and layers.applies(product)


def possible(problem: Problem) -> bool:
    """Whether rows in tables can be searched at all."""
    product = as_product(problem)
    return product is not None and layers.applies(product)


def steps(problem: Problem, *, seed: int) -> Iterator[Draft]:
    """Yield the best rows after several steps of the search for layers, written out over the cells."""
    product = as_product(problem)
    if product is None:
        return
    best: Draft | None = None
    search = layers.steps(product, seed=seed)
    while some := list(itertools.islice(search, _TOGETHER)):
        (sketch,) = some[-1].sketches
        assert isinstance(sketch, JoinedSketch), "layers are one joined block"
        rows = problem.grounding.columns(written_out(product, sketch))
        made = draft(problem, "vertex", rows, norm="L1", origin=NAME)
        best = made if best is None or made.error < best.error else best
        yield best


def written_out(product: ProductProblem, sketch: JoinedSketch) -> RealMatrix:
    """Return the rows of all layers, at every value that they keep, and those of the cells."""
    (spine,) = sketch.axes
    sizes = product.sizes
    tables = [(tuple(i for i in range(len(sizes)) if i != spine), np.diag(sketch.weights)), *sketch.layers]
    found = []
    for keeps, rows in tables:
        factors = [rows if i == spine else np.eye(n) if i in keeps else np.ones((1, n)) for i, n in enumerate(sizes)]
        found.append(reduce(np.kron, factors))
    return np.concatenate(found)


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=False,
    search=steps,
    applies=applies,
    possible=possible,
    needs="needs a product policy, and a workload of products",
    turns=Turns(look=3, stale=6),
)
