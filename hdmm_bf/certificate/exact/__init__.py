"""Exact sensitivities: how far the shipped integers can move between neighbours, in whole numbers.

Noise is scaled to what this file returns, so no result in it hangs on rounding. Floating point appears in two roles
only: to leave out edges that are certainly smaller than the largest (`dense_sensitivity`, with a proven margin on
finite numbers), and as a container of digits, whole numbers below 2^53 whose sums and products are exact.

Guarantees:
    `dense_sensitivity` is exact. `block_sensitivity` is an upper bound in whole numbers, exact up to its last binary
    place where no axis is narrowed; it is 0 only if no edge moves any row that carries noise. `ball_sensitivity` is an
    upper bound over all edges of a distance threshold, exact up to its last binary place for normal noise.
    `joined_sensitivity` is exact.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise
from hdmm_bf.certificate.exact.balls import ball_sensitivity
from hdmm_bf.certificate.exact.blocks import GRID_BITS, block_sensitivity, differences, hidden_moves, row_weight
from hdmm_bf.certificate.exact.dense import INTEGER_LIMIT, dense_sensitivity, within_limit
from hdmm_bf.certificate.exact.joined import fits_in_words, joined_sensitivity
from hdmm_bf.problem.product import product_view
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy, MatrixStrategy, NoiseSum, ProductStrategy

__all__ = [
    "GRID_BITS",
    "INTEGER_LIMIT",
    "ball_sensitivity",
    "block_sensitivity",
    "dense_sensitivity",
    "differences",
    "exact_sensitivity",
    "fits_in_words",
    "grid_bits",
    "hidden_moves",
    "joined_sensitivity",
    "row_weight",
    "within_limit",
]


@singledispatch
def exact_sensitivity(strategy: object, problem: Problem, noise: Noise) -> int:
    """Return max_e of ||A p_e||_1 (Laplace) or ||A p_e||_2^2 (Gaussian) of a strategy's integers, a whole number.

    It is over 2^grid_bits (Laplace) or 4^grid_bits (Gaussian).
    """
    raise TypeError(f"no sensitivity of {type(strategy).__name__}")


@exact_sensitivity.register
def _(strategy: CellStrategy, problem: Problem, noise: Noise) -> int:
    return dense_sensitivity(strategy.integers, *problem.oriented, noise)


@exact_sensitivity.register
def _(strategy: EdgeStrategy, problem: Problem, noise: Noise) -> int:
    """A p_e is the column of the edge."""
    columns = strategy.integers.shape[1]
    return dense_sensitivity(strategy.integers, np.arange(columns), np.full(columns, -1), noise)


@exact_sensitivity.register
def _(strategy: ProductStrategy, problem: Problem, noise: Noise) -> int:
    product = product_view(problem, balls=True)
    if product.threshold is not None:
        every = tuple(range(len(product.sizes)))
        return ball_sensitivity(product, strategy.blocks, [every] * len(strategy.blocks), noise)
    return block_sensitivity(product.edges, strategy.blocks, noise)


@exact_sensitivity.register
def _(strategy: NoiseSum, problem: Problem, noise: Noise) -> int:
    """The largest over the blocks, each for the moves that it hides: the others' noise does not depend on them."""
    product = product_view(problem, balls=True)
    hidden = {i for hides in strategy.hides for i in hides} | {i for block in strategy.joined for i in block.hides}
    left = [i for i, own in enumerate(product.edges) if len(own) and i not in hidden]
    if left:
        shown = f"moves along attribute {left[0]}"
        raise fail("certificate", shown, "are hidden by no block", "Fit the strategy again.")
    if product.threshold is not None:
        if strategy.joined:
            shown = "a block that joins attributes"
            raise fail("certificate", shown, "hides edges that change one attribute only", "Fit the strategy again.")
        return ball_sensitivity(product, strategy.blocks, strategy.hides, noise)
    pairs = zip(strategy.blocks, strategy.hides, strict=True)
    losses = [block_sensitivity(hidden_moves(product.edges, *pair), pair[:1], noise) for pair in pairs]
    for block in strategy.joined:
        loss = joined_sensitivity(product.sizes, product.edges, block)
        losses.append(-(-(loss << GRID_BITS) >> block.bits))
    return max(losses)


@singledispatch
def grid_bits(strategy: object) -> int:
    """Return the binary places of a strategy's sensitivity."""
    raise TypeError(f"no grid of {type(strategy).__name__}")


@grid_bits.register
def _(strategy: MatrixStrategy) -> int:
    return strategy.bits


@grid_bits.register(ProductStrategy)
@grid_bits.register(NoiseSum)
def _(_: ProductStrategy | NoiseSum) -> int:
    return GRID_BITS
