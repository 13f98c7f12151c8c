"""Exact sensitivities: how far the shipped integers can move between neighbours, in whole numbers.

Noise is scaled to what this file returns, so no result in it hangs on rounding. Floating point appears in two roles
only: to leave out edges that are certainly smaller than the largest (`dense_sensitivity`, with a proven margin on
finite numbers), and as a container of digits, whole numbers below 2^53 whose sums and products are exact.

Guarantees:
    `dense_sensitivity` is exact. `block_sensitivity` is an upper bound in whole numbers, exact up to its last binary
    place where no axis is narrowed; it is 0 only if no edge moves any row that carries noise. `ball_sensitivity` is an
    upper bound over all edges of a distance threshold, exact up to its last binary place for normal noise.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property, singledispatch
from typing import final

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._checks import fail
from hdmm_bf._types import EPS, EdgeArray, IndexArray, Noise, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.digits import (
    Digits,
    added,
    carried,
    contracted,
    digits,
    float_digits,
    largest_number,
    multiplied,
    narrowed,
)
from hdmm_bf.policy import BOTTOM
from hdmm_bf.policy.constructors import offset_windows, offsets
from hdmm_bf.problem.product import ProductProblem, product_view
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import Block, CellStrategy, EdgeStrategy, MatrixStrategy, NoiseSum, ProductStrategy

INTEGER_LIMIT = 2**52
"""Size that the integers of a strategy stay below: differences of two are exact in float64."""

GRID_BITS = 30
"""Binary places to which the sensitivity of blocks is rounded up."""

_EXACT_FLOAT = 2**52
_CHUNK_ENTRIES = 2**22

_FEW, _MOST_PAIRS = 32, 2**20
"""Different entries of a factor, and pairs of pairs of them, up to which diagonal moves are counted out."""


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
    hidden = {i for hides in strategy.hides for i in hides}
    left = [i for i, own in enumerate(product.edges) if len(own) and i not in hidden]
    if left:
        shown = f"moves along attribute {left[0]}"
        raise fail("certificate", shown, "are hidden by no block", "Fit the strategy again.")
    if product.threshold is not None:
        return ball_sensitivity(product, strategy.blocks, strategy.hides, noise)
    pairs = zip(strategy.blocks, strategy.hides, strict=True)
    return max(block_sensitivity(hidden_moves(product.edges, *pair), pair[:1], noise) for pair in pairs)


def hidden_moves(edges: Sequence[EdgeArray], block: Block, hides: Sequence[int]) -> list[EdgeArray]:
    """Return, for every attribute, between which columns of its factor the moves go that a block hides.

    A factor over edges has a column for each: that column alone moves.
    """
    found = [own if i in hides else own[:0] for i, own in enumerate(edges)]
    if block.edges is not None:
        every = np.arange(block.integers[block.edges].shape[1])
        found[block.edges] = np.stack([every, np.full(every.size, BOTTOM)], axis=1)
    return found


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


def within_limit(integers: Int64[np.ndarray, ...]) -> bool:
    """Whether all integers are smaller than 2^52 in size; not by their absolute values: -2^63 has none."""
    return bool(np.all((integers < INTEGER_LIMIT) & (integers > -INTEGER_LIMIT)))


def dense_sensitivity(integers: Int64[np.ndarray, "r c"], head: IndexArray, tail: IndexArray, noise: Noise) -> int:
    """Return max over pairs of ||A[:, head] - A[:, tail]||_1 (Laplace) or its squared L2 norm (Gaussian), exactly.

    A tail of -1 is a column of zeros.
    """
    assert within_limit(integers), "differences must be exact in float64"
    assert noise != "norm", "the noise of tree norms is not drawn on rows"
    if head.size == 0 or len(integers) == 0:
        return 0
    A = integers.astype(np.float64)
    candidates = np.arange(head.size)
    if noise == "gaussian":  # from the Gram matrix first: O(n^3 + e) instead of O(r e)
        X = A.T @ A
        candidates = _largest(_gram_distances(X, head, tail), 16 * len(A) * EPS * float(np.diag(X).max()))
    powers = _edge_powers(A, head[candidates], tail[candidates], noise)
    if float(powers.max()) < _EXACT_FLOAT:  # every partial sum is a whole number that float64 holds
        return int(powers.max())
    candidates = candidates[_largest(powers, 8 * EPS * (len(A) + 8) * float(powers.max()))]
    columns = np.concatenate([integers, np.zeros((len(integers), 1), dtype=np.int64)], axis=1)
    step = max(1, _CHUNK_ENTRIES // len(integers))
    parts = [candidates[start : start + step] for start in range(0, candidates.size, step)]
    return max(_exact_power(columns[:, head[part]] - columns[:, tail[part]], noise) for part in parts)


def _exact_power(moves: Int64[np.ndarray, "r q"], noise: Noise) -> int:
    """Largest L1 norm, or squared L2 norm, of the columns, from digits whose sums fit in 64 bits."""
    parts = digits(np.abs(moves)).astype(np.int64)
    if noise == "laplace":
        return largest_number(carried(parts.sum(axis=1)))
    products = np.einsum("irq,jrq->ijq", parts, parts)
    sums = np.zeros((2 * len(parts) - 1, moves.shape[1]), dtype=np.int64)
    for i, j in np.ndindex(len(parts), len(parts)):
        sums[i + j] += products[i, j]
    return largest_number(carried(sums))


def _largest(values: RealVector, slack: float) -> IndexArray:
    """Positions that may hold the largest value, each value being known up to half the slack."""
    assert math.isfinite(slack), "sums of squares of integers below 2^53 are finite"
    assert np.all(np.isfinite(values)), "sums of squares of integers below 2^53 are finite"
    return np.flatnonzero(values >= values.max() - slack)


def _gram_distances(X: SquareMatrix, head: IndexArray, tail: IndexArray) -> RealVector:
    """||A p_e||_2^2 from X = A^T A; the column of BOTTOM is zero."""
    diagonal = np.append(np.diag(X), 0.0)
    cross = np.where(tail < 0, 0.0, X[head, tail])
    return np.asarray(diagonal[head] + diagonal[tail] - 2 * cross)


def _edge_powers(A: RealMatrix, head: IndexArray, tail: IndexArray, noise: Noise) -> RealVector:
    """||A p_e||_1 or ||A p_e||_2^2 in floating point, with a relative error of a few eps a row."""
    columns = np.ascontiguousarray(np.concatenate([A, np.zeros((len(A), 1))], axis=1).T)
    step = max(1, _CHUNK_ENTRIES // len(A))
    found = []
    for start in range(0, head.size, step):
        block = columns[head[start : start + step]] - columns[tail[start : start + step]]
        found.append(np.abs(block).sum(axis=1) if noise == "laplace" else np.einsum("er,er->e", block, block))
    return np.concatenate(found)


def block_sensitivity(edges: Sequence[EdgeArray], blocks: Sequence[Block], noise: Noise) -> int:
    """Return max over edges of sum_J M_J (R p_e)_J^2 times 4^GRID_BITS (Gaussian), rounded up to a whole number.

    For Laplace noise it is sum_J w_J |(R p_e)_J| times 2^GRID_BITS, w_J = `row_weight(M_J)`. An edge of attribute i at
    the cells c of the others moves row J by (p_e R_i)_j prod_k R_k[j_k, c_k].

    Args:
        edges: the edges of every attribute's policy, BOTTOM being -1 and second.
        blocks: what is measured; rows of infinite precision carry no noise and are not counted here.
    """
    assert noise != "norm", "the noise of tree norms is not drawn on rows"
    squares = 2 if noise == "gaussian" else 1
    levels = [row_levels(block, noise) for block in blocks]
    places = [squares * sum(block.bits) for block in blocks]
    lowest = min((lowest_power(level) - place for level, place in zip(levels, places, strict=True)), default=0)
    largest = 0
    for axis, pairs in enumerate(edges):
        if len(pairs):
            losses = []
            for block, level, place in zip(blocks, levels, places, strict=True):
                tensor = float_digits(level, lowest + place)
                losses.append(_losses(block, tensor, axis, pairs, squares))
            largest = max(largest, largest_number(added(losses)))
    shift = lowest + squares * GRID_BITS
    return largest << shift if shift >= 0 else -(-largest >> -shift)


def row_weight(precision: float) -> float:
    """Return the least float whose square is at least a precision: what Laplace noise on such a row is divided by."""
    weight = math.sqrt(precision)
    while Fraction(weight) ** 2 < Fraction(precision):
        weight = math.nextafter(weight, math.inf)
    return weight


def row_levels(block: Block, noise: Noise) -> Float64[np.ndarray, ...]:
    """What multiplies the loss of every row: its precision, or its weight; 0 for rows without noise."""
    noisy = np.where(np.isposinf(block.precisions), 0.0, block.precisions)
    if noise == "laplace":
        values, place = np.unique(noisy, return_inverse=True)
        noisy = np.array([row_weight(value) for value in values.tolist()])[place].reshape(noisy.shape)
    return np.broadcast_to(noisy, block.shape)


def lowest_power(values: Float64[np.ndarray, ...]) -> int:
    """The power of two of which all values are whole multiples."""
    positive = values[values > 0]
    return int(np.frexp(positive)[1].min()) - 53 if positive.size else 0


def _losses(block: Block, tensor: Digits, axis: int, edges: EdgeArray, squares: int) -> Digits:
    """The loss of every edge of one type in one block, cells of the other attributes on the other axes."""
    for i, integers in enumerate(block.integers):
        assert within_limit(integers), "differences must be exact in 64 bits"
        moves = np.abs(differences(integers, edges) if i == axis else integers.T)
        parts = digits(moves)
        if squares == 2:
            parts = multiplied(parts, parts)
        tensor = narrowed(contracted(parts, tensor, i), i)
    return tensor


def differences(factor: Int64[np.ndarray, "r c"], edges: EdgeArray) -> Int64[np.ndarray, "e r"]:
    """(R p_e)^T for every edge."""
    head, tail = edges.T
    moves = factor[:, head].T.copy()
    inner = tail != BOTTOM
    moves[inner] -= factor[:, tail[inner]].T
    return moves


# ---------------------------------------------------------------- distance thresholds above 1


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
