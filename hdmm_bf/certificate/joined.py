"""The certificate of blocks that join attributes: they are checked, and their error derived, from the integers.

N = y + sum_l K_l (z_l - T_l y) - K S y for noise y and z of variances w^-2 and 1. Outside the block everything is a sum
over, or the same for, all values of an attribute, so that it is one thing on what is even over them, E = J / n, and
another on what is left, I - E. In every *sector*, a choice of one of the two for each such attribute,

    covariance = F diag(w)^-2 F^T + L L^T,    F = I - L M

over the joined attributes, M being rows and totals and L their gains, both with what sums and copies bring; in L L^T
are the gains of rows alone, as totals have no noise. The trace is that with V, times tr(V_k E) or tr(V_k (I - E)).
Attributes that all layers, gains and totals keep have noise of their own at each value: there it is tr V_k.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import RealMatrix
from hdmm_bf.certificate.exact import GRID_BITS, fits_in_words
from hdmm_bf.matrix import apply_factors
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.problem.public_totals import component_rows, has_public_totals, kept_totals
from hdmm_bf.strategies.records import Gains, JoinedBlock

_AGAIN = "Fit the strategy again."
_MOST_GAIN_BITS = 52
_MOST = 2**16
"""Values, and rows with totals: sums of so many products are exact when noise is added up."""

_MOST_MIXED = 8
"""Attributes outside a block that some layer sums over: there are 2^8 sectors."""

MOST_UNEVEN, _MOST_WRITTEN_OUT = 2**14, 2**22
"""How uneven a block may be: beyond, variances would drown in the rounding of larger ones. Where covariances are
written out, with F over all values, it is the deviations, the roots of variances, that would."""

_MOST_GAIN = 2**14
_LARGEST_WRITTEN_OUT = 2048
"""Values up to which covariances are written out where a block is uneven."""

_ROUNDING_OF_TOTALS = 1e-4
"""Variance of a total, at a scale of 1, that is rounding of gains."""

_COLUMNS = 256
"""Columns of F that are carried through the queries at a time."""


def check_joined(product: ProductProblem, block: JoinedBlock) -> None:
    """Refuse a block that does not fit the domain, or whose numbers are out of reach."""
    d, axes, hides = len(product.sizes), block.axes, block.hides
    fine = all(own == tuple(sorted(set(own))) and own and own[0] >= 0 and own[-1] < d for own in (axes, hides))
    longest = max((len(layer.rows) for layer in block.layers), default=0)
    if fine and max(math.prod(product.sizes[i] for i in axes), longest) > _MOST:
        shown = f"a block of {block.weights.size} values and {longest} rows"
        raise fail("certificate", shown, "is too large to be run exactly", "Join fewer attributes.")
    fine = fine and _layers_fit(product, block)
    fine = fine and 0 <= block.bits <= GRID_BITS and 0 <= block.gain_bits <= _MOST_GAIN_BITS
    if not fine or not int(block.weights.min()) >= 1 or not fits_in_words(block):
        shown = f"a block that joins attributes {axes} and hides {hides}"
        raise fail("certificate", shown, "does not fit the domain", _AGAIN)
    _check_sizes(product, block)


def _layers_fit(product: ProductProblem, block: JoinedBlock) -> bool:
    """Whether all arrays have the shapes that the attributes ask for."""
    outside = block.outside(len(product.sizes))
    n = math.prod(product.sizes[i] for i in block.axes)
    S, kept = kept_totals(product, block.axes, block.hides)
    found = block.weights.shape == (n,) and _gains_fit(block.totals, n, S.shape[0], kept)
    for layer in block.layers:
        own = layer.keeps == tuple(sorted(set(layer.keeps))) and set(layer.keeps) <= set(outside)
        found = found and own and layer.rows.shape[1:] == (n,)
        found = found and _gains_fit(layer.gains, n, len(layer.rows), layer.keeps)
    return found


def _gains_fit(gains: tuple[Gains, ...], n: int, rows: int, kept: tuple[int, ...]) -> bool:
    """Whether gains are for so many rows, each on another subset of what these keep."""
    subsets = [own.keeps for own in gains]
    sorted_ = all(keeps == tuple(sorted(set(keeps))) and set(keeps) <= set(kept) for keeps in subsets)
    return sorted_ and len(set(subsets)) == len(subsets) and all(own.integers.shape == (n, rows) for own in gains)


def _every_gain(block: JoinedBlock) -> list[Gains]:
    return [*(own for layer in block.layers for own in layer.gains), *block.totals]


def _check_sizes(product: ProductProblem, block: JoinedBlock) -> None:
    """Refuse a block too large to be added up exactly, or too uneven for its error to be known."""
    n, rows = block.weights.size, sum(len(layer.rows) for layer in block.layers)
    told = rows + kept_totals(product, block.axes, block.hides)[0].shape[0]
    shown = f"a block of {n} values, {rows} rows and {told - rows} totals"
    between = len(mixed(product, block))
    if between > _MOST_MIXED or max(n, told) > _MOST:
        raise fail("certificate", shown, "is too large to be run exactly", "Join fewer attributes.")
    held = 8 * max(2 * n * told, 4 * told**2) + (8 * n * min(n, 2 * told) << between)
    fits("certificate", shown, held, advice="Join fewer attributes.")
    gains = max((int(np.abs(own.integers.astype(object)).max(initial=0)) for own in _every_gain(block)), default=0)
    limit = _MOST_WRITTEN_OUT if n <= _LARGEST_WRITTEN_OUT else MOST_UNEVEN
    if unevenness(block) > limit or gains > _MOST_GAIN << block.gain_bits:
        raise fail("certificate", shown, "is too uneven for its error to be known", _AGAIN)


def unevenness(block: JoinedBlock) -> float:
    """Return the largest weight with the sizes of all rows at its value, over the least weight."""
    sizes = sum(np.abs(layer.rows).sum(axis=0) for layer in block.layers)
    return int(np.max(block.weights + sizes)) / int(block.weights.min())


def mixed(product: ProductProblem, block: JoinedBlock) -> tuple[int, ...]:
    """Return the attributes outside a block whose values do not all have noise of their own."""
    subsets = [layer.keeps for layer in block.layers] + [own.keeps for own in _every_gain(block)]
    several = [i for i in block.outside(len(product.sizes)) if product.sizes[i] > 1]
    return tuple(i for i in several if any(i not in keeps for keeps in subsets))


class Sector(NamedTuple):
    """What a block does on one sector.

    Attributes:
        uneven: the mixed attributes of which it has what is left, I - E; of the others it has E.
        told: M, r x n: rows, then totals.
        gains: L, n x r.
        num_rows: how many of the r have noise.
    """

    uneven: tuple[int, ...]
    told: RealMatrix
    gains: RealMatrix
    num_rows: int


def sectors(product: ProductProblem, block: JoinedBlock) -> Iterator[Sector]:
    """Yield all sectors of a block."""
    yield from (sector(product, block, uneven) for uneven in _choices(mixed(product, block)))


def _choices(between: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(between, k) for k in range(len(between) + 1))


def sector(product: ProductProblem, block: JoinedBlock, uneven: tuple[int, ...]) -> Sector:
    """Return what a block does on one sector.

    A number that is even over n_k values is sqrt(n_k) times a unit of E: sums over k and copies to all its values bring
    a factor of sqrt(n_k) each.
    """
    S, kept = kept_totals(product, block.axes, block.hides)
    unit, between = 2.0**-block.bits, mixed(product, block)
    parts = [(layer.keeps, layer.rows * unit, layer.gains, len(layer.rows)) for layer in block.layers]
    parts.append((kept, S.toarray(), block.totals, 0))
    told, gains, noisy = [np.empty((0, block.weights.size))], [np.empty((block.weights.size, 0))], 0
    for keeps, rows, own, with_noise in parts:
        if not set(uneven) <= set(keeps):
            continue  # summed over
        summed = math.sqrt(math.prod(product.sizes[i] for i in between if i not in keeps))
        told.append(summed * rows)
        gain = np.zeros((rows.shape[1], len(rows)))
        for part in own:
            if set(uneven) <= set(part.keeps):
                again = math.prod(product.sizes[i] for i in keeps if i not in part.keeps)
                gain += summed * again * np.ldexp(part.integers.astype(np.float64), -block.gain_bits)
        gains.append(gain)
        noisy += with_noise
    return Sector(uneven, np.concatenate(told), np.concatenate(gains, axis=1), noisy)


def keeps_totals(product: ProductProblem, block: JoinedBlock) -> bool:
    """Whether the noise changes public totals by no more than rounding of the gains, if there are any.

    At a scale of 1 the deviation of every total that the moves leave alone is then below a hundredth of a record. Where
    an attribute outside that is hidden has several components, or records come and go in some of them, its noise does
    not know them apart.
    """
    if not has_public_totals(product):
        return True
    apart = [i for i in block.hides if i not in block.axes]
    if any(component_rows(product.edges[i], product.sizes[i]).nnz < product.sizes[i] for i in apart):
        return False
    if any(component_rows(product.edges[i], product.sizes[i]).shape[0] != 1 for i in apart):
        return False
    S, kept = kept_totals(product, block.axes, block.hides)
    w = np.ldexp(block.weights.astype(np.float64), -block.bits)
    between, largest = mixed(product, block), 0.0
    copies = math.prod(product.sizes[i] for i in between if i not in kept)
    for uneven in _choices(tuple(i for i in between if i in kept)):
        own = sector(product, block, uneven)
        ends = S @ own.gains  # S F = S - (S L) M, F being square and perhaps large
        left = (S.toarray() - ends @ own.told) / w
        spread = (left**2).sum(axis=1) + (ends[:, : own.num_rows] ** 2).sum(axis=1)
        largest = max(largest, copies * float(spread.max(initial=0.0)))
    return largest <= _ROUNDING_OF_TOTALS


def outside_share(product: ProductProblem, block: JoinedBlock, term: Term, uneven: tuple[int, ...]) -> float:
    """Return the weight of a term, squared, times what its factors outside the block see of a sector."""
    between, share = mixed(product, block), term.weight**2
    for i in block.outside(len(product.sizes)):
        V = term.grams[i]
        even = float(V.sum()) / len(V) if i in between else 0.0
        share *= even if i in between and i not in uneven else max(float(np.trace(V)) - even, 0.0)
    return share


def joined_trace(product: ProductProblem, block: JoinedBlock) -> float:
    """Return what the noise of a block adds to the queries, at a scale of 1."""
    w = np.ldexp(block.weights.astype(np.float64), -block.bits)
    total = 0.0
    for uneven in _choices(mixed(product, block)):
        shares = [outside_share(product, block, term, uneven) for term in product.terms]
        if not any(shares):
            continue
        own = sector(product, block, uneven)
        total += _carried(product, block, shares, own.gains[:, : own.num_rows])
        for start in range(0, w.size, _COLUMNS):
            columns = slice(start, min(start + _COLUMNS, w.size))
            F = -own.gains @ own.told[:, columns]
            F[np.arange(columns.start, columns.stop), np.arange(F.shape[1])] += 1.0
            total += _carried(product, block, shares, F / w[columns])
    return total


def _carried(product: ProductProblem, block: JoinedBlock, shares: list[float], columns: RealMatrix) -> float:
    """Squared size, in all queries, of vectors over the joined attributes."""
    tensor = columns.reshape(*(product.sizes[i] for i in block.axes), -1)
    total = 0.0
    for share, term in zip(shares, product.terms, strict=True):
        through = apply_factors([term.grams[i] for i in block.axes], tensor)
        total += share * float(np.vdot(tensor, through))
    return total
