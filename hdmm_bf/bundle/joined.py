"""Files of blocks that join attributes: weights, rows and gains of each, as whole numbers."""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import AnyArray
from hdmm_bf.bundle import checks
from hdmm_bf.bundle.arrays import array, whole
from hdmm_bf.bundle.checks import BLOCKS, WRITE_AGAIN
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.records import JoinedBlock

_MOST_JOINED = 64
_MOST_BITS = 62


def joined_arrays(blocks: tuple[JoinedBlock, ...]) -> dict[str, AnyArray]:
    """Return the arrays of joined blocks; none where there are none."""
    if not blocks:
        return {}
    arrays: dict[str, AnyArray] = {"joined": np.array(len(blocks))}
    for j, block in enumerate(blocks):
        arrays[f"j{j}_axes"] = np.array(block.axes, dtype=np.int64)
        arrays[f"j{j}_places"] = np.array([block.hides, block.bits, block.gain_bits], dtype=np.int64)
        arrays |= {f"j{j}_weights": block.weights, f"j{j}_rows": block.rows, f"j{j}_gains": block.gains}
    return arrays


def stored_joined(arrays: dict[str, AnyArray], product: ProductProblem) -> tuple[JoinedBlock, ...]:
    """Return the joined blocks that a file holds; what they mean is checked by the certificate."""
    if "joined" not in arrays:
        return ()
    count = whole("joined", arrays["joined"], 1, _MOST_JOINED)
    return tuple(_stored(arrays, j, product) for j in range(count))


def _stored(arrays: dict[str, AnyArray], j: int, product: ProductProblem) -> JoinedBlock:
    d = len(product.sizes)
    axes, places = array(arrays, f"j{j}_axes", "i", 1), array(arrays, f"j{j}_places", "i", 1)
    weights, rows, gains = (
        array(arrays, f"j{j}_{name}", "i", ndim) for name, ndim in (("weights", 1), ("rows", 2), ("gains", 2))
    )
    good = 0 < axes.size <= d and bool(np.all((axes >= 0) & (axes < d)))
    good = good and places.shape == (3,) and bool(np.all((places >= 0) & (places <= max(d, _MOST_BITS))))
    n = math.prod(product.sizes[i] for i in axes.tolist()) if good else 0
    good = good and weights.shape == (n,) and rows.shape[1:] == (n,) and len(gains) == n
    if not good or not all(map(checks.in_range, (weights, rows, gains))):
        raise fail(BLOCKS, f"joined block {j}", "does not fit the domain", WRITE_AGAIN)
    fits(BLOCKS, f"joined block {j}", 8 * (rows.size + gains.size), advice=WRITE_AGAIN)
    hides, bits, gain_bits = places.tolist()
    w, T, K = (numbers.astype(np.int64) for numbers in (weights, rows, gains))
    return JoinedBlock(tuple(axes.tolist()), hides, w, T, bits, K, gain_bits)
