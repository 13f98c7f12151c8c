"""Real random numbers drawn bit by bit, and rounded to whole ones as soon as their bits decide.

A law on t >= 0 has a density proportional to exp(-E(t)), with E convex and rising from E(0) = 0. The half line is cut
into cells of width 1/16. Cell i is drawn with a probability proportional to exp(-E(i/16)) and a place f in it evenly;
both are kept with probability exp(-(E((i + f)/16) - E(i/16))), and drawn again otherwise: what is kept has exactly the
law. Users get the whole number floor(scale (i + f)/16 + offset). Uniform numbers are made of bits of the system's own
secure generator, and more bits can be added without end: with some bits drawn, a number is known to lie in an interval,
and a choice is made when every number of the interval makes it.

Most rows are decided by their first 64 bits in floating point, with a margin over all that rounding can do; a row in
doubt is decided by `decide`, in whole numbers and with more bits. `docs/explanation/rounded_normal.md` has the proof of
every margin.

Guarantees:
    `draw` returns independent whole numbers with exactly the stated probabilities, if the bits of `source` are
    independent and fair. No floating-point operation decides what its proven error leaves open.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt64

from hdmm_bf._types import AnyArray
from hdmm_bf.release.choice import Source
from hdmm_bf.release.enclosures import exp_enclosure

CELLS = 16
"""Cells in a unit of t."""

WORD = 64
_GUARD = 32
"""Binary places beyond those asked for in sums of weights."""

_TERMS = 12
LONGEST_RISE = 0.625
"""Degree of the polynomial for exp(-y), and the largest y that it is used for: 0.625^13 / 13! is below 2^-41."""

EXP_MARGIN = 2.0**-34
"""Room for the polynomial (2^-41), and for its rounding, that of y and of V, and bits not yet drawn (2^-47)."""

ROUND_MARGIN = 2.0**-49
"""Room for the rounding of scale (i + f)/16 + offset and bits not yet drawn, over its own size plus scale plus 1."""

LARGEST_FAST = 2.0**24
"""Scales up to which floating point rounds; beyond, whole numbers do, with 128 bits of f."""

Words = UInt64[np.ndarray, " k"]


@dataclass(frozen=True)
class Staircase(ABC):
    """A law on t >= 0 in cells of 1/16; `offset` is added before rounding down."""

    offset: Fraction

    @abstractmethod
    def rise(self, cell: int, place: Fraction) -> Fraction:
        """E((i + f)/16) - E(i/16), which rises with f."""

    @abstractmethod
    def rises(self, cells: Int64[np.ndarray, " k"], places: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
        """The same in floating point, with a relative error of at most 2^-50."""

    @abstractmethod
    def energy(self, cell: int) -> Fraction:
        """E(i/16)."""


@functools.lru_cache(maxsize=16)
def boundaries(law: Staircase, bits: int) -> tuple[list[int], list[int]]:
    """Return bounds of 2^bits times the probability of cells 0 to i, from below and from above, for i = 0, 1, ...

    Cells are counted until a weight is at most 2^-(bits + 32). E is convex, so no ratio of neighbouring weights is
    larger than the first, r, and all that follows a weight w is at most w r / (1 - r).
    """
    one = 1 << (bits + _GUARD)
    lows, highs, cell = [0], [0], 0
    while True:
        low, high = exp_enclosure(law.energy(cell), bits + _GUARD)
        lows.append(lows[-1] + low)
        highs.append(highs[-1] + high)
        if high <= 1:
            break
        cell += 1
    _, ratio = exp_enclosure(law.energy(1), bits + _GUARD)
    at_least, at_most = lows[-1], highs[-1] + high * ratio // (one - ratio) + 1
    return [(s << bits) // at_most for s in lows[1:]], [-((-s << bits) // at_least) for s in highs[1:]]


@functools.lru_cache(maxsize=16)
def _first_boundaries(law: Staircase) -> tuple[UInt64[np.ndarray, " c"], UInt64[np.ndarray, " _"]]:
    """Bounds for 64 bits, of the cells before which no rise is too long for the polynomial."""
    low, high = boundaries(law, WORD)
    kept = [i for i in range(len(low)) if high[i] < 2**WORD and law.rise(i, Fraction(1)) <= LONGEST_RISE]
    assert kept == list(range(len(kept))), "bounds and rises grow with the cell"
    return np.array(low[: len(kept)], dtype=np.uint64), np.array([0, *high[: len(kept)]], dtype=np.uint64)


# ---------------------------------------------------------------- one number, in whole numbers


@final
class Uniform:
    """A uniform number in [0, 1) of which some bits are known: it lies in [word, word + 1) / 2^bits."""

    def __init__(self, word: int, bits: int, source: Source) -> None:
        self.word, self.bits, self._source = word, bits, source

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        """The interval that it lies in, without its upper end."""
        return Fraction(self.word, 1 << self.bits), Fraction(self.word + 1, 1 << self.bits)

    def extend(self) -> None:
        """Draw 64 bits more."""
        self.word = self.word << WORD | int.from_bytes(self._source(WORD // 8), "little")
        self.bits += WORD


def decide(law: Staircase, scale: Fraction, which: Uniform, place: Uniform, keep: Uniform) -> int | None:
    """Return floor(scale (i + f)/16 + offset) of the cell and the place that uniform numbers name, or None: again."""
    cell = _cell(law, which)
    if not _is_kept(law, cell, place, keep):
        return None
    while True:
        low, high = (scale * (cell + end) / CELLS + law.offset for end in place.ends)
        if math.floor(low) == math.ceil(high) - 1:  # the upper end is not reached
            return math.floor(low)
        place.extend()


def _cell(law: Staircase, which: Uniform) -> int:
    """Return the cell i with P(cells before i) <= U < P(cells to i)."""
    while True:
        low, high = boundaries(law, which.bits)
        for cell, (before, to) in enumerate(zip([0, *high], low, strict=False)):
            if before <= which.word < to:
                return cell
        which.extend()


def _is_kept(law: Staircase, cell: int, place: Uniform, keep: Uniform) -> bool:
    """Whether V < exp(-rise), both being known to an interval."""
    while True:
        near, far = (law.rise(cell, end) for end in place.ends)
        bits = keep.bits
        if keep.word + 1 <= exp_enclosure(far, bits)[0]:
            return True
        if keep.word >= exp_enclosure(near, bits)[1]:
            return False
        place.extend()
        keep.extend()


# ---------------------------------------------------------------- many numbers


def draw(law: Staircase, scale: float, size: int, source: Source) -> AnyArray:
    """Draw floor(scale t + offset) of that many independent t; 64-bit integers, or whole numbers of any size."""
    assert 0 < scale < math.inf, "a scale is a positive number"
    parts: list[AnyArray] = []
    missing = size
    while missing:
        parts.append(_kept(law, scale, missing, source))
        missing -= parts[-1].size
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _kept(law: Staircase, scale: float, count: int, source: Source) -> AnyArray:
    """Draw that many candidates once, and return those that are kept."""
    which, place, keep = (words(source, count) for _ in range(3))
    cells, doubtful = _cells(law, which)
    kept, more = _keeps(law, cells, place, keep)
    doubtful |= more
    if scale <= LARGEST_FAST:
        extra, (found, more) = None, _rounded(law, scale, cells, place)
    else:
        extra = words(source, count)
        found, more = _rounded_whole(law, scale, cells, place, extra)
    doubtful |= more
    rows = np.flatnonzero(doubtful)
    for row in rows.tolist():
        first = [Uniform(int(w[row]), WORD, source) for w in (which, place, keep)]
        if extra is not None:
            first[1] = Uniform(int(place[row]) << WORD | int(extra[row]), 2 * WORD, source)
        decided = decide(law, Fraction(scale), *first)
        kept[row] = decided is not None
        found = _put(found, row, decided or 0)
    return np.asarray(found[kept])


def words(source: Source, count: int) -> Words:
    """Return that many words of 64 random bits."""
    return np.frombuffer(source(WORD // 8 * count), dtype="<u8").astype(np.uint64, copy=False)


def _cells(law: Staircase, which: Words) -> tuple[Int64[np.ndarray, " k"], Bool[np.ndarray, " k"]]:
    """Return the cells that words name, and which of them more bits could change."""
    low, before = _first_boundaries(law)
    cells = np.searchsorted(low, which, side="right")
    doubtful = (cells == low.size) | (which < before[cells])
    return np.minimum(cells, low.size - 1), doubtful


def _keeps(
    law: Staircase, cells: Int64[np.ndarray, " k"], place: Words, keep: Words
) -> tuple[Bool[np.ndarray, " k"], Bool[np.ndarray, " k"]]:
    """Whether V < exp(-rise), and where floating point must not say so."""
    y = law.rises(cells, place.astype(np.float64) * 2.0**-WORD)
    excess = exp_polynomial(y) - keep.astype(np.float64) * 2.0**-WORD
    return excess > 0, np.abs(excess) <= EXP_MARGIN


def exp_polynomial(y: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    """The first terms of exp(-y), within 2^-40 of it for 0 <= y <= 0.625."""
    total = np.full_like(y, 1.0)
    for k in range(_TERMS, 0, -1):  # 1 - y/1 (1 - y/2 (1 - ...))
        total *= y
        total *= -1.0 / k
        total += 1.0
    return total


def _rounded(
    law: Staircase, scale: float, cells: Int64[np.ndarray, " k"], place: Words
) -> tuple[Int64[np.ndarray, " k"], Bool[np.ndarray, " k"]]:
    """floor(scale (i + f)/16 + offset), and where floating point leaves it open."""
    value = (place.astype(np.float64) * 2.0**-WORD + cells) * (scale / CELLS) + float(law.offset)
    margin = ROUND_MARGIN * (value + (scale + 1.0))
    low = np.floor(value - margin)
    return low.astype(np.int64), low != np.floor(value + margin)


def _rounded_whole(
    law: Staircase, scale: float, cells: Int64[np.ndarray, " k"], place: Words, extra: Words
) -> tuple[AnyArray, Bool[np.ndarray, " k"]]:
    """The same in whole numbers, with 128 bits of f."""
    top, below = (Fraction(scale) / CELLS).as_integer_ratio()
    unit = 2 * below << 2 * WORD  # of numbers that are counted in halves over the denominator
    offset = int(2 * law.offset) * below << 2 * WORD
    whole = (cells.astype(object) << 2 * WORD) + (place.astype(object) << WORD) + extra.astype(object)
    low = (whole * (2 * top) + offset) // unit
    high = ((whole + 1) * (2 * top) + offset - 1) // unit
    return _fitting(low), np.asarray(low != high, dtype=bool)


def _fitting(values: AnyArray) -> AnyArray:
    """Return whole numbers in 64 bits, if they and their negatives fit."""
    return values.astype(np.int64) if max(values.tolist(), default=0) < 2 ** (WORD - 1) else values


def _put(values: AnyArray, row: int, value: int) -> AnyArray:
    wide = values if values.dtype == object or abs(value) < 2 ** (WORD - 1) else values.astype(object)
    wide[row] = value
    return wide
