"""The certificate of sums of noise by factors: x + sum_b (G_b1 (x) ... (x) G_bd) noise_b.

A move along an attribute is taken up by the block that hides it: every factor R has full column rank, so G R = I, and
the noise of that block shifted by R p is the sum shifted by p. Nothing else needs to be true for the sum to be private
at the block's own sensitivity. An edge that changes several attributes is a move along each in turn, and what the
blocks that hide them lose adds up. A block that hides several attributes disturbs public totals C x, and these are put
right again: with Y = G G^T that takes tr((C Y C^T)^-1 C Y V Y C^T) off its error, by factors.
"""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import EPS, Noise, Proof
from hdmm_bf.certificate.certificate import Bounds, Certificate, certify, check_noise, scaled_sensitivity
from hdmm_bf.certificate.exact import GRID_BITS, exact_sensitivity, hidden_moves
from hdmm_bf.certificate.joined import check_joined, joined_trace
from hdmm_bf.certificate.products import bounded, check_block, trace
from hdmm_bf.problem.product import ProductProblem, product_view
from hdmm_bf.problem.public_totals import indicators
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import Block, NoiseSum

_AGAIN = "Fit the strategy again."


@certify.register
def _(
    strategy: NoiseSum, problem: Problem, *, noise: Noise, proof: Proof | None, bounds: Bounds | None = None
) -> Certificate:
    """Derive sensitivity and error from the integers; the bounds are those given.

    Guarantees:
        Every edge of the policy is hidden by exactly one block; factors have full column rank. The sensitivity is the
        largest over the blocks, each for the edges that it hides, in whole numbers and rounded up.
    """
    check_noise(noise, ("laplace",))
    product = product_view(problem, balls=True)
    _check_hides(product, strategy)
    for block, hides in zip(strategy.blocks, strategy.hides, strict=True):
        _check_noise_block(product, block, hides)
    for joined in strategy.joined:
        check_joined(product, joined)
    exact = exact_sensitivity(strategy, problem, noise)
    sensitivity = scaled_sensitivity(exact, GRID_BITS, noise)
    pairs = zip(strategy.blocks, strategy.hides, strict=True)
    known = sum(_known_totals(product, block) for block, hides in pairs if len(hides) > 1)
    carried = trace(product, strategy.blocks) + sum(joined_trace(product, block) for block in strategy.joined)
    unit_error = sensitivity**2 * max(carried - known, 0.0)
    return bounded(Certificate(noise, exact, GRID_BITS, sensitivity, 0.0, unit_error, 0.0, 0.0, math.inf), bounds)


def _check_hides(product: ProductProblem, strategy: NoiseSum) -> None:
    hidden = [*(i for hides in strategy.hides for i in hides), *(i for block in strategy.joined for i in block.hides)]
    moved = {i for i, edges in enumerate(product.edges) if len(edges)}
    once = len(hidden) == len(set(hidden)) and moved <= set(hidden) <= set(range(len(product.sizes)))
    joint = sum(len(hides) > 1 for hides in strategy.hides)
    if joint and strategy.joined:
        shown = f"blocks that hide {strategy.hides}, beside blocks that join attributes"
        raise fail("certificate", shown, "cannot hide several attributes: totals would be put right for both", _AGAIN)
    if not once or joint > 1 or not all(strategy.hides) or len(strategy.hides) != len(strategy.blocks):
        seen = "must hide the edges of every attribute once, and several attributes in one block at most"
        raise fail("certificate", f"blocks that hide {strategy.hides}", seen, _AGAIN)


def _check_noise_block(product: ProductProblem, block: Block, hides: tuple[int, ...]) -> None:
    sizes = list(product.sizes)
    if block.edges is not None:
        if hides != (block.edges,):
            seen = "must be that of the attribute that the block hides"
            raise fail("certificate", f"factor {block.edges} over edges", seen, _AGAIN)
        sizes[block.edges] = len(product.edges[block.edges])
    check_block(sizes, hidden_moves(product.edges, block, hides), block)
    if block.terms is not None or np.any(block.precisions == 0) or (len(hides) > 1 and block.precisions.size > 1):
        raise fail("certificate", "block of noise", "has no proper precisions, or answers single terms", _AGAIN)
    for i in range(len(sizes)):
        _check_rank(block, i)


def _check_rank(block: Block, attribute: int) -> None:
    """Refuse a factor whose least singular value could be zero."""
    R = block.integers[attribute].astype(np.float64)
    values = np.linalg.svd(R, compute_uv=False)
    if R.shape[0] < R.shape[1] or not values[-1] > 8 * EPS * max(R.shape) * values[0]:
        raise fail("certificate", f"factor {attribute} of a block", "has not full column rank", _AGAIN)


def _known_totals(product: ProductProblem, block: Block) -> float:
    """What the error of a block falls by when public totals are put right, at its own precision."""
    totals = [indicators(edges, n) for edges, n in zip(product.edges, product.sizes, strict=True)]
    if not all(map(len, totals)):
        return 0.0
    fall = 0.0
    for term in product.terms:
        share = term.weight**2 / float(block.precisions.item())
        for C, G, V in zip(totals, block.inverses, term.grams, strict=True):
            half = (C @ G) @ G.T
            share *= float(np.vdot(np.linalg.inv(half @ C.T), half @ V @ half.T))
        fall += share
    return fall
