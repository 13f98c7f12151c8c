"""The bound for Laplace strategies by factors: neighbouring values, or edges, of one attribute in pairs.

With X L X <= V, C = P^T X P and edge weights mu,

    unit error >= sum_e mu_e C_ee^2,    or more where edges are paired (`certificate.pairs`).

Weights are sums of products, and so is X: one matrix for each choice of a part for every attribute. In every summand of
the weights the edges go along one attribute i, or to BOTTOM; they are paired along one attribute, for all values of the
others at once: two values of another attribute k, or two edges of i. A pair's share is one of that attribute's weights,
times the weights of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import AGREEMENT, EPS, AnyArray, Proof, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.duals.parts import Part, in_parts
from hdmm_bf.certificate.duals.roots import without
from hdmm_bf.certificate.duals.sums import seen, side, written_out
from hdmm_bf.certificate.duals.weights import Form, Moves, Summand, Values, proof_weights
from hdmm_bf.certificate.edge_bounds import semidefinite_factor
from hdmm_bf.certificate.pairs import block_values
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import indicators

_LARGEST, _LARGEST_ALONE = 1300, 2048
"""Side of the largest matrix in which several attributes, or one, are written out."""
_MOST_CHOICES, _MOST_CELLS = 4096, 20_000
"""Choices of parts, and cells of the attributes that are written out."""
_CLEAR = 1e6
"""Eigenvalues count if they are so many times what they may be wrong by."""


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


class Metric:
    """X by factors, and what pairs of edges prove with it; make it with `metric`."""

    def __init__(self, weights: Sequence[Summand], room: float) -> None:
        self.weights, self.room = list(weights), room

    def value(self, summand: int, pairing: Pairing | None) -> float:
        """Return what the edges of one summand prove, in pairs or by themselves."""
        raise NotImplementedError

    def bound(self, pairings: Sequence[Pairing | None]) -> float:
        """Return the bound that the pairs of all summands prove, rounded down."""
        found = sum(self.value(s, pairing) for s, pairing in enumerate(pairings))
        return found * (1 - self.room) * (1 - AGREEMENT)


def metric(product: ProductProblem, proof: Proof) -> Metric | None:
    """Return X for the weights of a proof; None where it cannot be written out."""
    weights = proof_weights(product, proof)
    if product.threshold is not None or any(s.pairs for s in weights):
        return None
    if len(product.terms) > 1 or not _is_one_product(weights):
        found = _in_parts(product, weights)
        if found is not None or not _is_one_product(weights):
            return found
    return _by_factors(product, weights)


def paired_bound(product: ProductProblem, proof: Proof) -> float | None:
    """Return the bound of a proof that has pairs of edges; None where it cannot be evaluated.

    Guarantees:
        No strategy of L1 sensitivity 1 has a smaller unit error, whatever the proof says: pairs that take more than
        there is are refused, all others prove what they prove.
    """
    found = metric(product, proof)
    return None if found is None else found.bound(_pairings(product, found.weights, proof))


def _pairings(product: ProductProblem, weights: Sequence[Summand], proof: Proof) -> list[Pairing | None]:
    """Return the pairs of a proof; refused unless they are of its weights and leave none below zero."""
    along, partners, shares = (proof.get(name) for name in ("along", "partners", "shares"))
    lists = [partners, shares]
    if not all(isinstance(given, list | tuple) and len(given) == len(weights) for given in lists):
        raise fail("certificate", "pairs of edges", f"must be lists of {len(weights)}", "Fit again.")
    axes = np.asarray(along)
    if (
        axes.dtype.kind not in "iuf"
        or axes.shape != (len(weights),)
        or not set(axes.tolist()) <= set(range(-1, len(product.sizes)))
    ):
        raise fail("certificate", f"pairs along {along!r}", f"must be {len(weights)} attributes", "Fit again.")
    assert partners is not None
    assert shares is not None
    return [
        None if k < 0 else _checked(Pairing(k, np.asarray(ends), np.asarray(taken)), summand)
        for summand, k, ends, taken in zip(weights, axes.astype(int).tolist(), partners, shares, strict=True)
    ]


def _checked(pairing: Pairing, summand: Summand) -> Pairing:
    ends, shares, mu = pairing.partners, pairing.shares, summand.forms[pairing.along].weights
    good = ends.ndim == 2 and ends.shape[1:] == (2,) and ends.dtype.kind in "iuf" and shares.shape == ends.shape[:1]
    if not good or shares.dtype.kind != "f" or not np.all(np.isin(ends, np.arange(mu.size))):
        raise fail("certificate", "pairs of edges", f"must be of {mu.size} values, with a share each", "Fit again.")
    ends = ends.astype(np.int64)
    if np.any(ends[:, 0] == ends[:, 1]) or not np.all(np.isfinite(shares)) or np.any(shares < 0):
        raise fail("certificate", "pairs of edges", "must have two ends, and finite shares above zero", "Fit again.")
    if np.any(_left(mu, ends, shares) < -AGREEMENT * mu.max()):
        raise fail("certificate", "shares of pairs", "take more than the weight of an edge", "Fit again.")
    return Pairing(pairing.along, ends, shares)


def _left(mu: RealVector, ends: AnyArray, shares: RealVector) -> RealVector:
    taken = np.bincount(ends[:, 0], shares, mu.size) + np.bincount(ends[:, 1], shares, mu.size)
    return np.asarray(mu - taken)


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
    wrong = 4 * EPS * values.size * float(values.max())
    clear = values > _CLEAR * wrong
    half = (U[:, clear].T @ F) / np.sqrt(np.sqrt(values[clear]))[:, None]
    return np.asarray(half.T @ half), wrong / float(values[clear].min(initial=math.inf))


def _vectors(form: Form) -> RealMatrix:
    """Return one row e_u - e_v an edge, or one row e_v a value."""
    if not isinstance(form, Moves):
        return np.eye(form.weights.size)
    rows, at = np.zeros((len(form.ends), form.n)), np.arange(len(form.ends))
    rows[at, form.ends[:, 0]], rows[at, form.ends[:, 1]] = 1.0, -1.0
    return rows


# One product of weights: X is a product, too.


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
                rows = _vectors(form)
                seen_by = rows @ X
                d = np.einsum("ij,ij->i", seen_by, rows)
                if pairing is None or pairing.along != k:
                    own *= float(form.weights @ d**2)
                else:
                    e, f = pairing.partners.T
                    across = np.einsum("ij,ij->i", seen_by[e], rows[f])
                    left = np.maximum(_left(form.weights, pairing.partners, pairing.shares), 0.0)
                    own *= float(left @ d**2 + pairing.shares @ block_values(d[e], across, d[f]))
            total += own
        return total


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
            moved = any(isinstance(form, Moves) for form in own) and not all(isinstance(form, Values) for form in own)
            still = indicators(product.edges[i], n) if moved else np.zeros((0, n))
            X, wrong = _polar(without(term.grams[i], still.T / np.linalg.norm(still, axis=1)), L)
            parts.append(X)
            room += wrong
        terms.append((term.weight**2, parts))
    return _Factors(weights, room, terms)


# Sums of products: one matrix for every choice of parts.


class _Parts(Metric):
    """X in parts: attributes of which only the ones vector and contrasts matter, times a matrix over the others."""

    def __init__(
        self, weights: Sequence[Summand], room: float, blocks: list[tuple[tuple[Part, ...], SquareMatrix]]
    ) -> None:
        super().__init__(weights, room)
        self.blocks = blocks

    def value(self, summand: int, pairing: Pairing | None) -> float:
        s = self.weights[summand]
        weights = [form.weights for form in s.forms]
        d = self._entries(s, None)
        if pairing is None:
            return s.scale * _contracted(d**2, weights)
        k, ends = pairing.along, pairing.partners
        left = np.maximum(_left(weights[k], ends, pairing.shares), 0.0)
        e, f = (d if d.shape[k] == 1 else np.take(d, ends[:, j], axis=k) for j in (0, 1))
        values = block_values(*np.broadcast_arrays(e, self._entries(s, pairing), f))
        alone = _contracted(d**2, [*weights[:k], left, *weights[k + 1 :]])
        return s.scale * (alone + _contracted(values, [*weights[:k], pairing.shares, *weights[k + 1 :]]))

    def _entries(self, s: Summand, pairing: Pairing | None) -> AnyArray:
        """C_ee, or C_ef of the pairs: one axis an attribute, of length one where nothing varies along it."""
        return np.asarray(sum(_entries(s, chosen, X, pairing) for chosen, X in self.blocks))


def _in_parts(product: ProductProblem, weights: Sequence[Summand]) -> Metric | None:
    split = [in_parts(product, i, [s.forms[i] for s in weights], by_vectors=True) for i in range(len(product.sizes))]
    written = [n for n, a in zip(product.sizes, split, strict=True) if a.parts[0].basis is not None]
    largest = _LARGEST_ALONE if len(written) == 1 else _LARGEST
    choices = math.prod(len(a.parts) for a in split)
    if choices > _MOST_CHOICES or side(split) > largest or math.prod(written) > _MOST_CELLS:
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
            own = _between(form, part.shares, ends)
            flat = flat * own.reshape([-1 if j == i else 1 for j in range(len(chosen))])
            shape.append(1)
        else:
            rows = _vectors(form) @ part.basis
            first.append(rows if ends is None else rows[ends[0]])
            second.append(rows if ends is None else rows[ends[1]])
            shape.append(len(first[-1]))
    return np.asarray(flat * _forms(X, first, second).reshape(shape))


def _between(form: Form, shares: tuple[float, float], ends: AnyArray | None) -> RealVector:
    """Return p^T (I or J in parts) q for the vectors of a form: one number for p = q, one a pair for others."""
    same, other = shares
    if not isinstance(form, Moves):
        return np.array([same if ends is None else other])
    if ends is None:
        return np.array([2 * (same - other)])
    rows = _vectors(form)
    return np.asarray((same - other) * np.einsum("ij,ij->i", rows[ends[0]], rows[ends[1]]))


def _forms(X: SquareMatrix, first: list[RealMatrix], second: list[RealMatrix]) -> AnyArray:
    """Return p^T X q, p and q being Kronecker products of one row each of `first` and `second`, in step."""
    if not first:
        return X.reshape(())
    own = first[0].shape[1]
    rest = len(X) // own
    outer = np.einsum("ai,aj->aij", first[0], second[0]).reshape(len(first[0]), own * own)
    flat = X.reshape(own, rest, own, rest).transpose(0, 2, 1, 3).reshape(own * own, rest * rest)
    T = (outer @ flat).reshape(-1, rest, rest)
    P, Q = _product(first[1:]), _product(second[1:])
    return np.asarray(np.einsum("aij,ij->ai", P @ T, Q))


def _product(rows: list[RealMatrix]) -> RealMatrix:
    """Return the Kronecker product."""
    product = np.ones((1, 1))
    for own in rows:
        product = np.kron(product, own)
    return product


def _contracted(tensor: AnyArray, vectors: Sequence[RealVector]) -> float:
    """Return sum_J tensor_J prod_i vectors_i[j_i]; along an axis of length one the sum of the vector."""
    for length, vector in zip(tensor.shape, vectors, strict=True):
        tensor = np.tensordot(vector if length > 1 else vector.sum(keepdims=True), tensor, axes=(0, 0))
    return float(tensor)
