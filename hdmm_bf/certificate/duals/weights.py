"""What a proof says of the edges, as a sum of products: L = sum_s scale_s M_s1 (x) ... (x) M_sd.

Every M is either the Laplacian of weighted edges between two values of an attribute, or a diagonal of weights on its
values. One Laplacian among diagonals are edges that change that attribute; diagonals alone are edges to BOTTOM. The sum
of all edge weights is sum_s scale_s prod_k (sum of the weights of M_sk).

Edges that change several attributes at once are pairs of values on each: with B the symmetric matrix of the weights of
an attribute's pairs, and D the diagonal of its row sums, they are D_1 (x) ... (x) D_d - B_1 (x) ... (x) B_d. Both signs
along every attribute that changes make 2^(number of these) of them at a cell, each seen from both of its ends.
`proof_weights` reads every kind of proof.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import AnyArray, EdgeArray, Proof, RealVector, SquareMatrix
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem


class Values(NamedTuple):
    """Weights on the values of an attribute: a diagonal matrix."""

    weights: RealVector

    def matrix(self) -> SquareMatrix:
        """Return the diagonal matrix."""
        return np.diag(self.weights)


class Moves(NamedTuple):
    """Weights on edges between values of an attribute: a Laplacian, which is zero on the ones vector."""

    ends: EdgeArray
    weights: RealVector
    n: int

    def matrix(self) -> SquareMatrix:
        """Return sum_e mu_e (e_u - e_v) (e_u - e_v)^T."""
        u, v = self.ends.T
        L = np.zeros((self.n, self.n))
        np.add.at(L, (u, v), -self.weights)
        L += L.T
        L[np.diag_indices(self.n)] = -L.sum(axis=1)
        return L

    @property
    def is_complete(self) -> bool:
        """Whether all pairs are tied by equal weights."""
        return len(self.ends) == self.n * (self.n - 1) // 2 and bool(np.ptp(self.weights) == 0)


class Pairs(NamedTuple):
    """Weights on pairs of values so far apart, or on values alone where `far` is 0: a symmetric matrix."""

    far: int
    weights: RealVector

    def matrix(self) -> SquareMatrix:
        """Return the weights between the values of every pair."""
        n = self.weights.size + self.far
        B = np.zeros((n, n))
        low = np.arange(self.weights.size)
        B[low, low + self.far] = B[low + self.far, low] = self.weights
        return B

    def ends(self) -> Values:
        """Return what every value has in its pairs."""
        n = self.weights.size + self.far
        found = np.zeros(n)
        found[: n - self.far] += self.weights
        if self.far:
            found[self.far :] += self.weights
        return Values(found)


Form = Values | Moves | Pairs


class Summand(NamedTuple):
    """scale times a product of forms, one an attribute."""

    scale: float
    forms: tuple[Form, ...]

    @property
    def is_bottom(self) -> bool:
        """Whether these edges lead to BOTTOM."""
        return all(isinstance(form, Values) for form in self.forms)

    @property
    def mass(self) -> float:
        """Sum of the weights of these edges."""
        found = self.scale * math.prod(float(form.weights.sum()) for form in self.forms)
        changed = sum(form.far > 0 for form in self.pairs)
        return found * 2.0 ** (changed - 1) if self.pairs else found

    @property
    def pairs(self) -> tuple[Pairs, ...]:
        """The forms, where they are pairs."""
        return tuple(form for form in self.forms if isinstance(form, Pairs))

    @property
    def products(self) -> list[Summand]:
        """Plain products whose sum this is: that of the ends of pairs less that of the pairs."""
        if not self.pairs:
            return [self]
        return [Summand(self.scale, tuple(pair.ends() for pair in self.pairs)), Summand(-self.scale, self.forms)]


def equal_weights(product: ProductProblem) -> list[Summand]:
    """Return weight 1 on every edge."""
    if product.threshold is not None:
        return [Summand(1.0, _pairs(own, [np.ones(n - s) for n, s in _spans(product, own)])) for own in _far(product)]
    plain = [Values(np.ones(n)) for n in product.sizes]
    return [s for i, e in enumerate(product.edges) for s in _along(product, i, np.ones(len(e)), 1.0, plain)]


def proof_weights(product: ProductProblem, proof: Proof) -> list[Summand]:
    """Return the edge weights of a proof; refused unless they fit, are finite, not negative and not all zero."""
    kind = proof.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        advice = f"Use {', '.join(sorted(_KINDS))}."
        raise fail("certificate", f"a proof of kind {kind!r}", "is not known", advice)
    made = _KINDS[kind](product, proof)
    if not all(0 <= s.mass < math.inf for s in made) or not sum(s.mass for s in made) > 0:
        raise fail("certificate", "edge weights", "must have a finite sum above zero", "Fit again.")
    return [s for s in made if s.mass > 0]


def _of_types(product: ProductProblem, proof: Proof) -> list[Summand]:
    """A total for every attribute with edges between values, spread evenly; then one for BOTTOM."""
    moved, bottom = _moved(product), _bottom(product)
    totals = _numbers(proof.get("weights"), len(moved) + len(bottom))
    even = [Values(np.full(n, 1.0 / n)) for n in product.sizes]
    made = [_moves(product, i, total, even) for i, total in zip(moved, totals[: len(moved)].tolist(), strict=True)]
    return made + [Summand(total, tuple(even)) for total in totals[len(moved) :].tolist()]


def _of_sectors(product: ProductProblem, proof: Proof) -> list[Summand]:
    """On the edges of one attribute; then, a vector over its values each, on moves along the others and to BOTTOM."""
    own = _attribute(product, proof)
    moved = [i for i in _moved(product) if i != own]
    away = [i for i in _bottom(product) if i != own]
    n, e = product.sizes[own], len(product.edges[own])
    mu = _numbers(proof.get("weights"), e + n * (len(moved) + len(away)))
    even: list[Form] = [Values(np.full(k, 1.0 / k)) for k in product.sizes]
    made = _along(product, own, mu[:e], 1.0, even)
    for i, cells in zip([*moved, *away], mu[e:].reshape(-1, n), strict=True):
        forms = [*even[:own], Values(cells), *even[own + 1 :]]
        made.append(_moves(product, i, 1.0, forms) if i in moved else Summand(1.0, tuple(forms)))
    return made


def _of_kronecker(product: ProductProblem, proof: Proof) -> list[Summand]:
    """On the edges of one attribute and on the values of all others."""
    own = _attribute(product, proof)
    counts = [len(product.edges[i]) if i == own else n for i, n in enumerate(product.sizes)]
    mu = _lists(proof.get("weights"), counts)
    return _along(product, own, mu[own], 1.0, [Values(d) for d in mu])


def _of_grid(product: ProductProblem, proof: Proof) -> list[Summand]:
    """Profiles over the values of two attributes, for the edges of the other; a weight for each."""
    if len(product.sizes) != 2:
        raise fail("certificate", "a proof for grids", "needs two attributes", "Fit again.")
    cells = [Values(d) for d in _lists(proof.get("cells"), product.sizes)]
    types = _numbers(proof.get("types"), 2)
    return [
        s
        for i, (e, w) in enumerate(zip(product.edges, types.tolist(), strict=True))
        for s in _along(product, i, np.ones(len(e)), w, cells)
    ]


def _of_folded(product: ProductProblem, proof: Proof) -> list[Summand]:
    """On the edges of every attribute, on its values for the edges of others, and on the attributes."""
    edges = _lists(proof.get("edges"), [len(e) for e in product.edges])
    cells = [Values(d) for d in _lists(proof.get("cells"), product.sizes)]
    types = _numbers(proof.get("types"), len(cells))
    pairs = enumerate(zip(edges, types.tolist(), strict=True))
    return [s for i, (mu, w) in pairs for s in _along(product, i, mu, w, cells)]


def _of_balls(product: ProductProblem, proof: Proof) -> list[Summand]:
    """On the pairs of values of every attribute, for every way in which an edge within the threshold can go."""
    if product.threshold is None:
        raise fail("certificate", "a proof for balls", "needs a distance threshold above 1", "Fit again.")
    far, d = _far(product), len(product.sizes)
    scales = _numbers(proof.get("scales"), len(far))
    pairs = _lists(proof.get("pairs"), [n - s for own in far for n, s in _spans(product, own)])
    return [
        Summand(scale, _pairs(own, pairs[k * d : (k + 1) * d]))
        for k, (own, scale) in enumerate(zip(far, scales.tolist(), strict=True))
    ]


_KINDS = {
    "types": _of_types,
    "sectors": _of_sectors,
    "kronecker": _of_kronecker,
    "grid": _of_grid,
    "folded": _of_folded,
    "balls": _of_balls,
}


def _far(product: ProductProblem) -> list[tuple[int, ...]]:
    """How far edges within the threshold can go along every attribute, in ascending order."""
    assert product.threshold is not None
    reach = [range(min(n - 1, product.threshold) + 1) for n in product.sizes]
    return [own for own in itertools.product(*reach) if 0 < sum(own) <= product.threshold]


def _spans(product: ProductProblem, far: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(product.sizes, far, strict=True))


def _pairs(far: tuple[int, ...], weights: Sequence[RealVector]) -> tuple[Form, ...]:
    return tuple(Pairs(s, b) for s, b in zip(far, weights, strict=True))


def _along(product: ProductProblem, i: int, mu: RealVector, scale: float, others: Sequence[Form]) -> list[Summand]:
    """Weights mu on the edges of attribute i, times those of the other forms: moves, and what leads to BOTTOM."""
    edges, n = product.edges[i], product.sizes[i]
    to_bottom = edges[:, 1] == BOTTOM
    own: list[Form] = []
    if not np.all(to_bottom):
        own.append(Moves(edges[~to_bottom], mu[~to_bottom], n))
    if np.any(to_bottom):
        own.append(Values(np.bincount(edges[to_bottom, 0], mu[to_bottom], n)))
    return [Summand(scale, (*others[:i], form, *others[i + 1 :])) for form in own]


def _moves(product: ProductProblem, i: int, total: float, others: Sequence[Form]) -> Summand:
    """A total on the edges between values of attribute i, spread evenly over them."""
    edges = product.edges[i]
    inner = edges[edges[:, 1] != BOTTOM]
    form = Moves(inner, np.full(len(inner), 1.0 / len(inner)), product.sizes[i])
    return Summand(total, (*others[:i], form, *others[i + 1 :]))


def _moved(product: ProductProblem) -> list[int]:
    return [i for i, edges in enumerate(product.edges) if np.any(edges[:, 1] != BOTTOM)]


def _bottom(product: ProductProblem) -> list[int]:
    """The attribute all of whose values are tied to BOTTOM, if there is one: every record's presence is hidden."""
    stars = [i for i, e in enumerate(product.edges) if np.count_nonzero(e[:, 1] == BOTTOM) == product.sizes[i]]
    return stars[:1]


def _attribute(product: ProductProblem, proof: Proof) -> int:
    number = proof.get("attribute")
    if isinstance(number, bool) or not isinstance(number, int | float) or number not in range(len(product.sizes)):
        raise fail("certificate", f"attribute {number!r} of a proof", "is none of the domain", "Fit again.")
    return int(number)


def _lists(given: object, sizes: Sequence[int]) -> list[RealVector]:
    if not isinstance(given, list | tuple) or len(given) != len(sizes):
        raise fail("certificate", "edge weights", f"must be {len(sizes)} lists", "Fit again.")
    return [_numbers(part, size) for part, size in zip(given, sizes, strict=True)]


def _numbers(given: object, size: int) -> RealVector:
    found: AnyArray = np.asarray(given)
    if found.dtype.kind not in "iuf" or found.shape != (size,):
        raise fail("certificate", f"edge weights of shape {found.shape}", f"must be {size} numbers", "Fit again.")
    mu = found.astype(np.float64)
    if not np.all(np.isfinite(mu)) or mu.min(initial=0.0) < 0:
        raise fail("certificate", "edge weights", "must be finite and not negative", "Fit again.")
    return mu
