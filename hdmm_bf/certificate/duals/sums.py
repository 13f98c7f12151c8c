"""f = tr (V^(1/2) L V^(1/2))^(1/2), rounded down, for sums of products V and L: part by part, or factor by factor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from hdmm_bf._types import ROUNDING, AnyArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.duals.parts import Attribute, Part, in_parts
from hdmm_bf.certificate.duals.roots import root_sum, without
from hdmm_bf.certificate.duals.weights import Moves, Summand, Values
from hdmm_bf.matrix import Identity, Ones
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.problem.public_totals import indicators

_MOST_PARTS = 200_000
_MOST_NUMBERS = 4_000_000


def attributes(product: ProductProblem, weights: Sequence[Summand]) -> list[Attribute]:
    """Split every attribute into parts that neither queries nor weights mix."""
    plain = [p for s in weights for p in s.products]
    return [in_parts(product, i, [p.forms[i] for p in plain]) for i in range(len(product.sizes))]


def by_parts(
    product: ProductProblem, weights: Sequence[Summand], split: Sequence[Attribute], largest: int
) -> float | None:
    """Return f, the sum over all choices of a part for every attribute; None where they are too many or too large.

    A choice that no query sees is not looked at. Sides are limited where several attributes are written out together.
    """
    if sum(not a.is_scalar for a in split) > 1 and side(split) > largest:
        return None
    squares = np.array([term.weight**2 for term in product.terms])
    total, looked_at = 0.0, 0
    for chosen in seen(split, squares != 0):
        counts = [part.counts.size for part in chosen]
        looked_at += 1 if all(part.side == 1 for part in chosen) else math.prod(counts)
        if looked_at > _MOST_PARTS or math.prod(counts) > _MOST_NUMBERS:
            return None
        total += _root_trace(chosen, split, squares, weights)
    return total


def side(split: Sequence[Attribute]) -> int:
    """Return the number of dimensions of the largest choice."""
    return math.prod(max(part.side for part in a.parts) for a in split)


def seen(split: Sequence[Attribute], alive: AnyArray) -> Iterator[tuple[Part, ...]]:
    """Choices of a part for every attribute that some term sees."""
    if not split:
        yield ()
        return
    first, *others = split
    for part in first.parts:
        sees = np.array([bool(np.any(part.grams[k])) for k in first.numbers]) & alive
        if sees.any():
            yield from ((part, *rest) for rest in seen(others, sees))


def _root_trace(
    chosen: tuple[Part, ...], split: Sequence[Attribute], squares: RealVector, weights: Sequence[Summand]
) -> float:
    if all(part.side == 1 for part in chosen):
        return _of_numbers(chosen, split, squares, weights)
    total = 0.0
    for place in itertools.product(*(range(part.counts.size) for part in chosen)):
        count = math.prod(float(part.counts[j]) for part, j in zip(chosen, place, strict=True))
        total += count * root_sum(*written_out(chosen, place, split, squares, weights))
    return total


def written_out(
    chosen: tuple[Part, ...],
    place: tuple[int, ...],
    split: Sequence[Attribute],
    squares: RealVector,
    weights: Sequence[Summand],
) -> tuple[SquareMatrix, SquareMatrix]:
    """Return V and L between the vectors of one part an attribute, V without those that no edge moves."""
    pairs = list(zip(chosen, place, strict=True))
    still = _product([part.still[j] for part, j in pairs])
    if any(s.is_bottom for s in weights):
        still = still[:, :0]
    plain = [p for s in weights for p in s.products]
    L = sum(p.scale * _product([part.forms[s][j] for part, j in pairs]) for s, p in enumerate(plain))
    V = sum(
        square * without(_product([p.grams[a.numbers[t]] for p, a in zip(chosen, split, strict=True)]), still)
        for t, square in enumerate(squares.tolist())
    )
    return np.asarray(V), np.asarray(L)


def _of_numbers(
    chosen: tuple[Part, ...], split: Sequence[Attribute], squares: RealVector, weights: Sequence[Summand]
) -> float:
    """Parts of one dimension: sum_j count_j sqrt(v l_j)."""
    V = squares.copy()
    for part, own in zip(chosen, split, strict=True):
        V = V * np.concatenate(part.grams).ravel()[list(own.numbers)]
    plain = [p for s in weights for p in s.products]
    L = sum(p.scale * _outer([part.forms[s].ravel() for part in chosen]) for s, p in enumerate(plain))
    counts = _outer([part.counts for part in chosen])
    return float((counts * np.sqrt(np.maximum(L, 0.0))).sum()) * math.sqrt(float(V.sum())) * (1 - ROUNDING)


def _product(matrices: Sequence[RealMatrix]) -> RealMatrix:
    """Kronecker product; matrices of one entry first become a number."""
    number = math.prod(float(M[0, 0]) for M in matrices if M.shape == (1, 1))
    others = [M for M in matrices if M.shape != (1, 1)]
    return np.asarray(number * reduce(np.kron, others)) if others else np.full((1, 1), number)


def _outer(vectors: Sequence[RealVector]) -> RealVector:
    return np.asarray(reduce(np.multiply.outer, vectors)).ravel()


def by_factors(product: ProductProblem, weights: Sequence[Summand]) -> float:
    """Return sum_t (w_t f_t)^2 for weights that are one product: f_t is a product, one factor an attribute.

    The square of f is at least that, (tr (A + B)^(1/2))^2 >= (tr A^(1/2))^2 + (tr B^(1/2))^2, and equal for one term.
    """
    total, scale = 0.0, weights[0].scale
    known: dict[tuple[int, object], float] = {}
    for term in product.terms:
        f = abs(term.weight)
        for i, factor in enumerate(term.factors):
            key = i, (type(factor) if isinstance(factor, Identity | Ones) else id(factor))
            if key not in known:
                known[key] = _factor_root_sum(product, term, i, weights)
            f *= known[key]
        total += scale * f * f
    return total * (1 - ROUNDING)


def _factor_root_sum(product: ProductProblem, term: Term, i: int, weights: Sequence[Summand]) -> float:
    factor = term.factors[i]
    forms = list({id(s.forms[i]): s.forms[i] for s in weights}.values())
    if len(forms) == 1 and isinstance(forms[0], Values) and isinstance(factor, Identity | Ones):
        d = forms[0].weights
        return float(np.sqrt(d).sum()) if isinstance(factor, Identity) else math.sqrt(float(d.sum()))
    L = sum(form.matrix() for form in forms)
    moved = any(isinstance(form, Moves) for form in forms)
    n = product.sizes[i]
    own = indicators(product.edges[i], n) if moved else np.zeros((0, n))
    still = own.T / np.linalg.norm(own, axis=1)
    return root_sum(without(term.grams[i], still), np.asarray(L))
