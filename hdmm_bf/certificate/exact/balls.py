"""Sensitivity under distance thresholds above 1, whose edges change several attributes at once."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._types import Noise
from hdmm_bf.certificate.exact.blocks import (
    GRID_BITS,
    block_sensitivity,
    hidden_moves,
    lowest_power,
    row_levels,
    row_weight,
)
from hdmm_bf.certificate.exact.dense import within_limit
from hdmm_bf.certificate.exact.digits import Digits, added, contracted, digits, float_digits, largest_number, multiplied
from hdmm_bf.policy import BOTTOM
from hdmm_bf.policy.constructors import offset_windows, offsets
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.records import Block

_FEW, _MOST_PAIRS = 32, 2**20
"""Different entries of a factor, and pairs of pairs of them, up to which diagonal moves are counted out."""


def ball_sensitivity(
    product: ProductProblem, blocks: Sequence[Block], hides: Sequence[tuple[int, ...]], noise: Noise
) -> int:
    """Return `block_sensitivity` over all edges of a distance threshold, which may change several attributes at once.

    For Laplace noise, the loss of an offset is the sum over blocks of what each loses by the part of the offset along
    the attributes that it hides: exactly where a block has one precision and few different entries, else at most what
    the moves along one attribute after the other lose together, or what a record that goes and one that comes lose.

    Args:
        product: a problem with a threshold.
        blocks: what is measured, or noise that is added up.
        hides: for every block the attributes whose moves it takes up; all of them for rows that are measured.
        noise: "gaussian" or "laplace".
    """
    assert noise != "norm", "the noise of tree norms is not drawn on rows"
    assert product.threshold is not None, "a Cartesian product has no balls"
    every = list(offsets(product.sizes, product.threshold))
    if noise == "gaussian":
        assert all(len(hidden) == len(product.sizes) for hidden in hides), "normal noise is measured, not added up"
        return _ball_squares(product.sizes, every, blocks)
    losses = [_BallLosses(product, *pair) for pair in zip(blocks, hides, strict=True)]
    return max(sum(loss.of(offset) for loss in losses) for offset in every)


def _ball_squares(sizes: tuple[int, ...], every: Sequence[tuple[int, ...]], blocks: Sequence[Block]) -> int:
    """The largest over a and o of sum_J M_J (R_J a - R_J (a + o))^2, multiplied out; rounded up once, at the end."""
    levels = [row_levels(block, "gaussian") for block in blocks]
    places = [2 * sum(block.bits) for block in blocks]
    lowest = min(lowest_power(level) - place for level, place in zip(levels, places, strict=True))
    tensors = [float_digits(level, lowest + place) for level, place in zip(levels, places, strict=True)]

    def products(lengths: tuple[int, ...]) -> Digits:
        """sum_J M_J R_J[a] R_J[a + lengths] for all cells."""
        return added([_products(block, tensor, lengths) for block, tensor in zip(blocks, tensors, strict=True)])

    own, largest = products((0,) * len(sizes)), 0
    for lengths, same in itertools.groupby(sorted(every, key=_lengths), key=_lengths):
        both = products(lengths)
        for offset in same:
            near, far = offset_windows(sizes, offset)
            loss = added([own[:, *near], own[:, *far], both], times=[1, 1, -2])
            largest = max(largest, largest_number(loss))
    shift = lowest + 2 * GRID_BITS
    return largest << shift if shift >= 0 else -(-largest >> -shift)


def _lengths(offset: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(abs, offset))


def _products(block: Block, tensor: Digits, lengths: Sequence[int]) -> Digits:
    for axis, (integers, length) in enumerate(zip(block.integers, lengths, strict=True)):
        assert within_limit(integers), "digits are of numbers below 2^63"
        low, high = integers[:, : integers.shape[1] - length].T, integers[:, length:].T
        signs = np.sign(low) * np.sign(high)
        tensor = contracted(signs * multiplied(digits(np.abs(low)), digits(np.abs(high))), tensor, axis)
    return tensor


@final
class _BallLosses:
    """Upper bounds on what a block of Laplace noise loses by every offset, times 2^GRID_BITS."""

    def __init__(self, product: ProductProblem, block: Block, hides: tuple[int, ...]) -> None:
        self.product, self.block, self.hides = product, block, hides
        self.straight: dict[tuple[int, int], int] = {}

    def of(self, offset: tuple[int, ...]) -> int:
        """The part of the offset that the block takes up: at once if that can be derived, else step by step."""
        own = tuple(o if i in self.hides else 0 for i, o in enumerate(offset))
        moved = [(i, abs(o)) for i, o in enumerate(own) if o != 0]
        in_turn = sum(self._along(*step) for step in moved)
        if len(moved) < 2:
            return in_turn
        at_once = self._at_once(own)
        return min(in_turn, 2 * self._gone if at_once is None else at_once)

    @cached_property
    def _gone(self) -> int:
        """A record that is taken away; two such moves, one back, lead from any cell to any other."""
        assert self.block.edges is None, "columns are cells"
        moves = [own[:0] for own in self.product.edges]
        cells = np.arange(self.product.sizes[0])
        moves[0] = np.stack([cells, np.full(cells.size, BOTTOM)], axis=1)
        return block_sensitivity(moves, (self.block,), "laplace")

    def _along(self, attribute: int, length: int) -> int:
        """Moves of one length along one attribute, whatever the others are."""
        if (attribute, length) not in self.straight:
            pairs = self.product.edges[attribute]
            far = pairs[:, 1] - pairs[:, 0] == length
            moves = [own[:0] for own in self.product.edges]
            moves[attribute] = hidden_moves(self.product.edges, self.block, (attribute,))[attribute][far]
            self.straight[attribute, length] = block_sensitivity(moves, (self.block,), "laplace")
        return self.straight[attribute, length]

    def _at_once(self, offset: tuple[int, ...]) -> int | None:
        """The largest over a of sum_J w |R_J[a] - R_J[a + o]|, from how often pairs of entries occur."""
        few = all(np.unique(integers).size <= _FEW for integers in self.block.integers)
        if self.block.precisions.size > 1 or not few:
            return None
        kinds = [_pair_counts(*pair) for pair in zip(self.block.integers, offset, strict=True)]
        if math.prod(sum(map(len, counts)) for counts in kinds) > _MOST_PAIRS:
            return None
        largest = max(sum(n * abs(u - v) for (u, v), n in _joined(chosen)) for chosen in itertools.product(*kinds))
        precision = float(self.block.precisions.item())
        weight = Fraction(0 if math.isinf(precision) else row_weight(precision))
        return math.ceil(weight * largest * Fraction(2) ** (GRID_BITS - sum(self.block.bits)))


_Counts = tuple[tuple[tuple[int, int], int], ...]
"""Pairs of entries that rows have in two columns, and how many rows have them."""


def _pair_counts(integers: Int64[np.ndarray, "r c"], offset: int) -> set[_Counts]:
    """The different counts of pairs (R[:, a], R[:, a + offset]) over all a."""
    columns = integers.T.tolist()
    pairs = zip(columns, columns[abs(offset) :], strict=False)
    ordered = (zip(far, near, strict=True) if offset < 0 else zip(near, far, strict=True) for near, far in pairs)
    return {tuple(sorted(Counter(pair).items())) for pair in ordered}


def _joined(chosen: Sequence[_Counts]) -> Iterable[tuple[tuple[int, int], int]]:
    """Pairs of entries of the rows that are products of rows."""
    found = Counter({(1, 1): 1})
    for counts in chosen:
        wider: Counter[tuple[int, int]] = Counter()
        for ((a, b), m), ((u, v), n) in itertools.product(found.items(), counts):
            wider[a * u, b * v] += m * n
        found = wider
    return found.items()
