"""Blocks that join attributes, on a grid: weights, rows, and the gains of least squares for them.

Whatever the gains are, the noise is private (see `records.JoinedBlock`); these make its error least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hdmm_bf._types import RealMatrix
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import kept_totals
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch
from hdmm_bf.strategies.records import Gains, JoinedBlock, Layer

_JOINED_BITS, _WEIGHT_BITS, _GAIN_BITS = 20, 12, 40
"""Binary places of the rows, the weights and the gains of blocks whose loss is 1."""


def joined_block(product: ProductProblem, sketch: JoinedSketch) -> JoinedBlock:
    """Put a block that joins attributes on a grid, with the gains that are best for it: least squares in every sector.

    Guarantees:
        Weights are on a coarser grid than rows, so that few scales of noise serve them, and none is zero.
    """
    step = 2 ** (_JOINED_BITS - _WEIGHT_BITS)
    w = step * np.maximum(np.rint(np.ldexp(sketch.weights, _WEIGHT_BITS)), 1.0).astype(np.int64)
    layers = []
    for keeps, rows in sketch.layers:
        T = np.rint(np.ldexp(rows, _JOINED_BITS)).astype(np.int64)
        layers.append(Layer(keeps, T[np.any(T != 0, axis=1)], ()))
    layers = [layer for layer in layers if len(layer.rows)]
    plain = JoinedBlock(sketch.axes, sketch.hides, w, tuple(layers), (), _JOINED_BITS, _GAIN_BITS)
    gains, totals = joined_gains(product, plain)
    with_gains = (replace(layer, gains=own) for layer, own in zip(layers, gains, strict=True))
    return replace(plain, layers=tuple(with_gains), totals=totals)


def joined_gains(product: ProductProblem, block: JoinedBlock) -> tuple[list[tuple[Gains, ...]], tuple[Gains, ...]]:
    """Return the gains of least squares for the layers of a block, and for its totals.

    On a sector (what is even over some attributes outside, E, and what is left over others) least squares have gains
    K = D M^T (M D M^T + R)^-1, D and R being the variances of cells and rows. Numbers that are summed over all
    attributes outside A bring E there and nothing else, so gains for the subsets follow by inclusion and exclusion.
    """
    S, kept = kept_totals(product, block.axes, block.hides)
    unit = 2.0**-block.bits
    tables = [(layer.keeps, layer.rows * unit, 1.0) for layer in block.layers]
    tables += [(kept, S.toarray(), 0.0)] if S.shape[0] else []
    between = [i for i in block.outside(len(product.sizes)) if any(i not in keeps for keeps, _, _ in tables)]
    D = (block.weights * unit) ** -2
    found: list[dict[tuple[int, ...], RealMatrix]] = [{} for _ in tables]
    for uneven in _subsets(between):
        seen = [k for k, (keeps, _, _) in enumerate(tables) if set(uneven) <= set(keeps)]
        if not seen:
            continue
        copies = [math.sqrt(math.prod(product.sizes[i] for i in between if i not in tables[k][0])) for k in seen]
        M = np.vstack([c * tables[k][1] for c, k in zip(copies, seen, strict=True)])
        own = np.concatenate([np.full(len(tables[k][1]), tables[k][2]) for k in seen])
        K = np.linalg.solve((M * D) @ M.T + np.diag(own), M * D).T
        for c, k, part in zip(
            copies, seen, np.split(K, np.cumsum([len(tables[k][1]) for k in seen])[:-1], 1), strict=True
        ):
            found[k][uneven] = part / c
    gains = []
    for (keeps, _, _), by_sector in zip(tables, found, strict=True):
        always, between_kept = [i for i in keeps if i not in between], [i for i in keeps if i in between]
        own_gains = []
        for subset in _subsets(between_kept):
            more = [u for u in by_sector if set(subset) <= set(u)]
            signed = sum((-1.0) ** (len(u) - len(subset)) * by_sector[u] for u in more)
            again = math.prod(product.sizes[i] for i in between_kept if i not in subset)
            integers = np.rint(np.ldexp(np.asarray(signed) / again, block.gain_bits)).astype(np.int64)
            own_gains.append(Gains(tuple(sorted([*always, *subset])), integers))
        gains.append(tuple(own for own in own_gains if np.any(own.integers)))
    return gains[: len(block.layers)], gains[-1] if S.shape[0] else ()


def _subsets(attributes: Sequence[int]) -> Iterable[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(attributes, k) for k in range(len(attributes) + 1))
