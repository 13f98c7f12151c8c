"""X with X L X <= V by factors, and what pairs of edges prove with it (`certificate.pairs`).

With C = P^T X P and edge weights mu, unit error >= sum_e mu_e C_ee^2, or more where edges are paired. The weights are a
sum of products, L = sum_s scale_s M_s1 (x) ... (x) M_sd; in every summand edges go along one attribute, or to BOTTOM,
and are paired along one attribute, for all values of the others at once. X is, for G = V^(1/2) L V^(1/2),

    one product       V^(1/2) G^(-1/2) V^(1/2), a product as well
    sums, in parts    the same, a matrix for every choice of a part for every attribute, where that can be written out
    large sums        V^(1/2) H^(-1/2) V^(1/2), with H >= G a diagonal in a product of bases: X L X <= V all the same
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hdmm_bf._types import AGREEMENT, EPS, AnyArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.duals import vectors
from hdmm_bf.certificate.duals.parts import Attribute, Part, in_parts
from hdmm_bf.certificate.duals.roots import without
from hdmm_bf.certificate.duals.sums import seen, side, written_out
from hdmm_bf.certificate.duals.weights import Moves, Summand
from hdmm_bf.certificate.edge_bounds import semidefinite_factor
from hdmm_bf.certificate.pairs import block_values
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import indicators

_LARGEST, _LARGEST_ALONE = 1300, 2048
"""Side of the largest matrix in which several attributes, or one, are written out."""
_MOST_CHOICES, _MOST_WRITTEN, _MOST_CELLS = 4096, 20_000, 4_000_000
"""Choices of parts; cells of the attributes that are written out; cells where H is a diagonal."""
_MOST_ENTRIES = 2**26
"""Entries of the largest array: complete policies on many values have very many edges."""
_CLEAR = 1e3
"""Eigenvalues count if they are so many times what they may be wrong by, to the last cancellation."""


class Pairing(NamedTuple):
    """How the edges of one summand are paired.

    Attributes:
        along: the attribute.
        partners: pairs of its values, or of its edges where it is the one that moves.
        shares: how much of the weights of both they take.
    """

    along: int
    partners: AnyArray
    shares: RealVector


def left_over(weights: RealVector, pairing: Pairing) -> RealVector:
    """Return what pairs leave of the weights along their attribute."""
    first, second = (np.bincount(pairing.partners[:, j], pairing.shares, weights.size) for j in (0, 1))
    return np.asarray(weights - first - second)


class Metric:
    """X for the weights of a proof; make it with `metric`.

    X L X <= (1 + room) V; an entry of C for the edges of summand s may be wrong by `wrong(s)`.
    """

    def __init__(self, weights: Sequence[Summand], room: float) -> None:
        self.weights, self.room = list(weights), room

    def bound(self, pairings: Sequence[Pairing | None]) -> float:
        """Return the bound that the pairs of all summands prove, rounded down."""
        with np.errstate(over="ignore", invalid="ignore"):  # weights of 1e-300 have squares of 1e300
            found = sum(self.value(s, pairing) - self._rounding(s) for s, pairing in enumerate(pairings))
        return found * (1 - self.room) * (1 - AGREEMENT) if 0 < found < math.inf else 0.0

    def _rounding(self, summand: int) -> float:
        """What errors of the entries may add: the values of a pair change by at most 4 times an entry of C for each."""
        s = self.weights[summand]
        wrong = self.wrong(s)
        return 0.0 if wrong == 0 else 4 * s.mass * wrong * (self.largest(s) + wrong)

    def value(self, summand: int, pairing: Pairing | None) -> float:
        """Return what the edges of one summand prove, in pairs or by themselves."""
        s = self.weights[summand]
        weights = [form.weights for form in s.forms]
        d = self.entries(s, None)
        if pairing is None:
            return s.scale * vectors.contracted(d**2, weights)
        k, ends = pairing.along, pairing.partners
        left = np.maximum(left_over(weights[k], pairing), 0.0)
        e, f = (d if d.shape[k] == 1 else np.take(d, ends[:, j], axis=k) for j in (0, 1))
        values = block_values(*np.broadcast_arrays(e, self.entries(s, pairing), f))
        alone = vectors.contracted(d**2, [*weights[:k], left, *weights[k + 1 :]])
        return s.scale * (alone + vectors.contracted(values, [*weights[:k], pairing.shares, *weights[k + 1 :]]))

    def entries(self, s: Summand, pairing: Pairing | None) -> AnyArray:
        """Return C_ee, or C_ef of the pairs: an axis an attribute, of length one where nothing varies along it."""
        raise NotImplementedError

    def largest(self, s: Summand) -> float:
        """Return the largest C_ee."""
        return float(self.entries(s, None).max())

    def wrong(self, s: Summand) -> float:
        """Return what an entry of C may be wrong by."""
        raise NotImplementedError


def metric(product: ProductProblem, weights: Sequence[Summand]) -> Metric | None:
    """Return X for edge weights; None where it cannot be written out."""
    if product.threshold is not None or any(s.pairs for s in weights):
        return None
    if _is_one_product(weights) and len(product.terms) == 1:
        return _by_factors(product, weights)
    found = _in_parts(product, weights) or _on_diagonal(product, weights)
    return _by_factors(product, weights) if found is None and _is_one_product(weights) else found


def _is_one_product(weights: Sequence[Summand]) -> bool:
    """Whether only the forms of one attribute differ, those of its moves and of what leads to BOTTOM."""
    first = weights[0]
    same = [all(s.forms[i] is form and s.scale == first.scale for s in weights) for i, form in enumerate(first.forms)]
    return same.count(False) <= 1


def _polar(V: SquareMatrix, L: SquareMatrix) -> tuple[SquareMatrix, float]:
    """Return X with X L X <= (1 + room) V: F^T G^(-1/2) F for V = F^T F, G = F L F^T, on its larger eigenvalues."""
    if not np.any(V) or not np.any(L):
        return np.zeros_like(V), 0.0
    F = semidefinite_factor(V)
    values, U = np.linalg.eigh(F @ L @ F.T)
    wrong = _rounding(F, L)
    clear = values > _CLEAR * wrong
    half = (U[:, clear].T @ F) / np.sqrt(np.sqrt(values[clear]))[:, None]
    return np.asarray(half.T @ half), wrong / float(values[clear].min(initial=math.inf))


def _rounding(F: RealMatrix, L: SquareMatrix) -> float:
    """Return what eigenvalues of F L F^T may be wrong by, however much cancels: the sums without their signs."""
    return 4 * EPS * len(F) * float((np.abs(F) @ (np.abs(L) @ np.abs(F).T)).sum(axis=0).max())


class _Factors(Metric):
    """X = X_1 (x) ... (x) X_d, one such for every term: what edges prove is a product, times that of the pairs."""

    def __init__(self, weights: Sequence[Summand], room: float, terms: list[tuple[float, list[SquareMatrix]]]) -> None:
        super().__init__(weights, room)
        self.terms = terms

    def value(self, summand: int, pairing: Pairing | None) -> float:
        forms, total = self.weights[summand].forms, 0.0
        for square, parts in self.terms:
            own = square
            for k, (form, X) in enumerate(zip(forms, parts, strict=True)):
                d = vectors.squares(form, X)
                if pairing is None or pairing.along != k:
                    own *= float(form.weights @ d**2)
                else:
                    e, f = pairing.partners.T
                    across = vectors.across(form, X, pairing.partners)
                    left = np.maximum(left_over(form.weights, pairing), 0.0)
                    own *= float(left @ d**2 + pairing.shares @ block_values(d[e], across, d[f]))
            total += own
        return total

    def largest(self, s: Summand) -> float:
        return max(
            math.sqrt(square)
            * math.prod(float(vectors.squares(form, X).max()) for form, X in zip(s.forms, parts, strict=True))
            for square, parts in self.terms
        ) / math.sqrt(s.scale)

    def wrong(self, s: Summand) -> float:
        found = 0.0
        for square, parts in self.terms:
            sizes = [float(np.abs(X).max()) * vectors.num_ends(f) ** 2 for f, X in zip(s.forms, parts, strict=True)]
            found += 4 * EPS * sum(map(len, parts)) * math.sqrt(square) * math.prod(sizes)
        return found / math.sqrt(s.scale)


def _by_factors(product: ProductProblem, weights: Sequence[Summand]) -> Metric | None:
    if max(product.sizes) > _LARGEST_ALONE:
        return None
    forms = [list({id(s.forms[i]): s.forms[i] for s in weights}.values()) for i in range(len(product.sizes))]
    terms, room = [], 0.0
    for term in product.terms:
        parts = []
        for i, own in enumerate(forms):
            L = np.asarray(sum(form.matrix() for form in own))
            n = product.sizes[i]
            moved = any(isinstance(form, Moves) for form in own)
            still = indicators(product.edges[i], n) if moved else np.zeros((0, n))
            X, wrong = _polar(without(term.grams[i], still.T / np.linalg.norm(still, axis=1)), L)
            parts.append(X)
            room += wrong
        terms.append((term.weight**2, parts))
    return _Factors(weights, room, terms)


class _Parts(Metric):
    """X in parts: attributes of which only the ones vector and contrasts matter, times a matrix over the others."""

    def __init__(
        self, weights: Sequence[Summand], room: float, blocks: list[tuple[tuple[Part, ...], SquareMatrix]]
    ) -> None:
        super().__init__(weights, room)
        self.blocks = blocks

    def entries(self, s: Summand, pairing: Pairing | None) -> AnyArray:
        return np.asarray(sum(_entries(s, chosen, X, pairing) for chosen, X in self.blocks))

    def wrong(self, s: Summand) -> float:
        found = 0.0
        for chosen, X in self.blocks:
            flat = [
                2.0 if isinstance(f, Moves) else 1.0 for f, p in zip(s.forms, chosen, strict=True) if p.basis is None
            ]
            own = [vectors.absolute(f, p.basis) for f, p in zip(s.forms, chosen, strict=True) if p.basis is not None]
            found += (
                4
                * EPS
                * len(X)
                * float(np.abs(X).max())
                * math.prod([*flat, *(vectors.length(rows) ** 2 for rows in own)])
            )
        return found


def largest_matrices(product: ProductProblem, weights: Sequence[Summand]) -> float:
    """Return the sum of the cubes of the sides of all matrices that `metric` takes apart."""
    if product.threshold is not None or any(s.pairs for s in weights):
        return 0.0
    alone = float(sum(n**3 for n in product.sizes if n <= _LARGEST_ALONE))
    split = None if _is_one_product(weights) and len(product.terms) == 1 else _split(product, weights)
    return alone if split is None else alone + math.prod(len(a.parts) for a in split) * float(side(split)) ** 3


def _split(product: ProductProblem, weights: Sequence[Summand]) -> list[Attribute] | None:
    """Split every attribute into parts; None where the choices of them are too many or too large."""
    split = [in_parts(product, i, [s.forms[i] for s in weights], by_vectors=True) for i in range(len(product.sizes))]
    written = [n for n, a in zip(product.sizes, split, strict=True) if a.parts[0].basis is not None]
    largest = _LARGEST_ALONE if len(written) == 1 else _LARGEST
    choices = math.prod(len(a.parts) for a in split)
    if choices > _MOST_CHOICES or side(split) > largest or math.prod(written) > _MOST_WRITTEN:
        return None
    plain = [i for i, a in enumerate(split) if a.parts[0].basis is not None]
    sides = [max(part.side for part in split[i].parts) for i in plain]
    held = max(vectors.entries_held([s.forms[i].weights.size for i in plain], sides) for s in weights)
    return split if held <= _MOST_ENTRIES else None


def _in_parts(product: ProductProblem, weights: Sequence[Summand]) -> Metric | None:
    split = _split(product, weights)
    if split is None:
        return None
    squares = np.array([term.weight**2 for term in product.terms])
    blocks, room = [], 0.0
    for chosen in seen(split, squares != 0):
        V, L = written_out(chosen, (0,) * len(chosen), split, squares, weights)
        X, wrong = _polar(V, L)
        blocks.append((chosen, X))
        room = max(room, wrong)
    return _Parts(weights, room, blocks) if blocks else None


def _entries(s: Summand, chosen: tuple[Part, ...], X: SquareMatrix, pairing: Pairing | None) -> AnyArray:
    """Return what one choice of parts adds to the entries of C."""
    flat: AnyArray = np.ones(())
    shape, first, second = [], [], []
    for i, (form, part) in enumerate(zip(s.forms, chosen, strict=True)):
        ends = None if pairing is None or pairing.along != i else pairing.partners.T
        if part.basis is None:
            own = vectors.between(form, part.shares, ends)
            flat = flat * own.reshape([-1 if j == i else 1 for j in range(len(chosen))])
            shape.append(1)
        else:
            rows = vectors.rows(form, part.basis)
            first.append(rows if ends is None else rows[ends[0]])
            second.append(rows if ends is None else rows[ends[1]])
            shape.append(len(first[-1]))
    return np.asarray(flat * vectors.forms(X, first, second).reshape(shape))


class _Diagonal(Metric):
    """X = (x)_k U_k diag(h) (x)_k U_k^T: one row of every U_k a value."""

    def __init__(self, weights: Sequence[Summand], room: float, h: AnyArray, bases: list[RealMatrix]) -> None:
        super().__init__(weights, room)
        self.h, self.bases = h, bases

    def entries(self, s: Summand, pairing: Pairing | None) -> AnyArray:
        found = self.h
        for k, (form, U) in enumerate(zip(s.forms, self.bases, strict=True)):
            rows = vectors.rows(form, U)
            e, f = (slice(None),) * 2 if pairing is None or pairing.along != k else pairing.partners.T
            found = np.tensordot(found, rows[e] * rows[f], axes=(0, 1))  # the next attribute comes to the front
        return np.asarray(found)

    def wrong(self, s: Summand) -> float:
        sizes = [
            float((vectors.absolute(f, U) ** 2).sum(axis=1).max()) for f, U in zip(s.forms, self.bases, strict=True)
        ]
        return 4 * EPS * sum(self.h.shape) * float(self.h.max()) * math.prod(sizes)


def _on_diagonal(product: ProductProblem, weights: Sequence[Summand]) -> Metric | None:
    """One product of queries, V_k = F_k^T F_k; every attribute has one diagonal D_k wherever it does not move.

    With F_k D_k F_k^T = Q_k diag(b_k) Q_k^T and F_i M_i F_i^T <= a_i, G is at most the sum over the summands s, i being
    what moves, of scale_s a_i (x)_(k != i) Q_k diag(b_k) Q_k^T. On lines all eigenvalues of F_i M_i F_i^T but one are
    nearly the same.
    """
    each = [[s.forms[k] for s in weights if not isinstance(s.forms[k], Moves)] for k in range(len(product.sizes))]
    forms = [list({id(form): form for form in own}.values()) for own in each]
    if len(product.terms) > 1 or max(product.sizes) > _LARGEST_ALONE or math.prod(product.sizes) > _MOST_CELLS:
        return None
    most = max(form.weights.size * n for s in weights for form, n in zip(s.forms, product.sizes, strict=True))
    if any(len(own) != 1 for own in forms) or most > _MOST_ENTRIES:
        return None
    factors = [semidefinite_factor(V) for V in product.terms[0].grams]
    spectra = [np.linalg.eigh((F * own[0].weights) @ F.T) for F, own in zip(factors, forms, strict=True)]
    b = [np.maximum(values, 0.0) + 4 * EPS * values.size * float(values.max()) for values, _ in spectra]
    G = np.zeros([values.size for values in b])
    for s in weights:
        own = [
            _largest(F, form) if isinstance(form, Moves) else v for F, form, v in zip(factors, s.forms, b, strict=True)
        ]
        G += s.scale * np.asarray(_outer(own))
    weight = abs(product.terms[0].weight)
    bases = [F.T @ Q for F, (_, Q) in zip(factors, spectra, strict=True)]
    return _Diagonal(weights, AGREEMENT, weight / np.sqrt(G), bases)


def _largest(F: RealMatrix, form: Moves) -> RealVector:
    """Return the largest eigenvalue of F M F^T, rounded up, for every row of F."""
    M = form.matrix()
    return np.full(len(F), float(np.linalg.eigvalsh(F @ M @ F.T).max()) + _rounding(F, M))


def _outer(vectors: list[RealVector]) -> AnyArray:
    found = np.ones(())
    for vector in vectors:
        found = np.multiply.outer(found, vector)
    return found
