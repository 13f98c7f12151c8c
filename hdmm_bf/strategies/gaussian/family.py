"""The strategies X = S diag(M) S^T, S = S_1 (x) ... (x) S_d, with one precision M_J for every product of columns.

    error   sum_J v_J / M_J,    v_J = sum_t w_t^2 prod_i g_{i t j_i}
    d of an edge e of attribute i at the cells c of the others:    sum_J M_J A_{i e j_i} prod_{k != i} C_{k c_k j_k}

(A, C, g: see `attribute`). Products of pinned columns on all attributes are public totals: no error, no sensitivity.
For given bases the best precisions are a convex problem with a dual: M_J = sqrt(v_J / q_J), q_J = sum_e mu_e dd_e /
dM_J. The bases are found by descent on log error + log ||d||_p over bases and log precisions together: alternating
between them diverges. Contractions run axis by axis, so that nothing is larger than the domain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float64

from hdmm_bf._types import IndexArray, RealMatrix, RealVector
from hdmm_bf.matrix import apply_factors
from hdmm_bf.objectives.descent import HOPELESS
from hdmm_bf.strategies.gaussian.ascent import Point, ascent
from hdmm_bf.strategies.gaussian.attribute import Attribute, Blocks
from hdmm_bf.strategies.search import search

Tensor = Float64[np.ndarray, "..."]


class Member(NamedTuple):
    """Bases and precisions, scaled to sensitivity 1, with their error and the edge weights they came from."""

    error: float
    flat: RealVector
    M: Tensor
    mu: RealVector


@final
class Bases:
    """All members for one problem.

    Args:
        attributes: one an attribute; the same object twice where two attributes are equal.
        numbers: for every attribute and term, which of the attribute's Gram matrices the term has.
        squares: w_t^2.
        public: which products are public.
    """

    def __init__(
        self,
        attributes: Sequence[Attribute],
        numbers: Sequence[IndexArray],
        squares: RealVector,
        public: Bool[np.ndarray, ...],
    ) -> None:
        self.attributes, self.numbers, self.squares, self.public = tuple(attributes), numbers, squares, public
        self.same = len(self.attributes) == 2 and self.attributes[0] is self.attributes[1]
        self.own = self.attributes[:1] if self.same else self.attributes
        self.types = [i for i, a in enumerate(self.own) if a.has_edges]
        self.shape = tuple(a.n for a in self.attributes)
        self.num_free = sum(a.num_free for a in self.own)

    def pack(self, blocks: Sequence[Blocks]) -> RealVector:
        """Return the free columns of all bases as one vector."""
        return np.concatenate([a.pack(b) for a, b in zip(self.own, blocks, strict=True)])

    def unpack(self, flat: RealVector) -> list[Blocks]:
        """Return the bases of a vector, one an own attribute."""
        found, at = [], 0
        for a in self.own:
            found.append(a.unpack(flat[at : at + a.num_free]))
            at += a.num_free
        return found

    def set(self, flat: RealVector) -> None:
        """Evaluate the bases and v."""
        for a, blocks in zip(self.own, self.unpack(flat), strict=True):
            a.set(blocks)
        v = sum(self._outer(t) for t in range(self.squares.size))
        self.v = np.where(self.public, 0.0, v)

    def _outer(self, t: int, leave_out: int = -1) -> Tensor:
        """w_t^2 prod_i g_i as a tensor; one attribute can be left out."""
        found: Tensor = np.asarray(self.squares[t])
        for i, (a, which) in enumerate(zip(self.attributes, self.numbers, strict=True)):
            if i != leave_out:
                found = np.multiply.outer(found, a.g[which[t]])
        return found

    def _matrices(self, kind: int) -> list[RealMatrix]:
        return [a.A if i == kind else a.C for i, a in enumerate(self.attributes)]

    def distances(self, M: Tensor) -> list[Tensor]:
        """Return d for every type of edge."""
        return [apply_factors(self._matrices(kind), M) for kind in self.types]

    def pull(self, weights: Sequence[Tensor]) -> Tensor:
        """Return q = sum_e weight_e dd_e / dM."""
        q: Tensor = np.zeros(self.shape)
        for kind, w in zip(self.types, weights, strict=True):
            q = q + apply_factors([m.T for m in self._matrices(kind)], w)
        return self._symmetric(q)

    def _symmetric(self, tensor: Tensor) -> Tensor:
        return (tensor + tensor.T) / 2 if self.same else tensor

    def split(self, mu: RealVector) -> list[Tensor]:
        """Cut a vector of edge weights into one tensor a type."""
        shapes = [tuple(len(m) for m in self._matrices(kind)) for kind in self.types]
        cuts = np.cumsum([math.prod(s) for s in shapes])[:-1]
        return [part.reshape(s) for part, s in zip(np.split(mu, cuts), shapes, strict=True)]

    @property
    def uniform(self) -> RealVector:
        """Equal weights on all kept edges."""
        size = sum(math.prod(len(m) for m in self._matrices(kind)) for kind in self.types)
        return np.full(size, 1.0 / size)

    def evaluate(self, mu: RealVector) -> Point[Tensor]:
        """Return the best precisions for given edge weights and the bases last set."""
        root = np.sqrt(self.v * self.pull(self.split(mu)))
        M = np.divide(self.v, root, out=np.zeros_like(root), where=root > 0)
        f = float(root.sum())
        return Point(f, f, joined(self.distances(M)), M)

    def best_precisions(self, flat: RealVector, mu: RealVector, *, gap: float, steps: int) -> Member:
        """Return the best member with given bases, to a gap inside the family."""
        self.set(flat)
        found = search(ascent(self.evaluate, mu / mu.max()), gap=gap, max_iterations=steps)
        largest = max(d.max() for d in self.distances(found.best))
        return Member(found.error, flat.copy(), found.best / largest, found.proof)

    def loss(self, both: RealVector, power: float) -> tuple[float, RealVector]:
        """Return log error + log of the p-mean of d, with its gradient, over bases and log precisions."""
        k = self.num_free
        try:
            self.set(both[:k])
        except np.linalg.LinAlgError:
            return HOPELESS, np.zeros_like(both)
        M, W = self.precisions(both)
        error = float((self.v * W).sum())
        d = self.distances(M)
        top = max(float(part.max()) for part in d)
        if not (math.isfinite(error) and math.isfinite(top)):
            return HOPELESS, np.zeros_like(both)
        powers = [(part / top) ** (power - 1) for part in d]
        mass = sum(float((w * part).sum()) for w, part in zip(powers, d, strict=True)) / top
        value = math.log(error) + math.log(top) + math.log(mass / sum(part.size for part in d)) / power
        slope, q = self._basis_gradient([w / (mass * top) for w in powers], M, W / error)
        dM = M * (q - self.v * W * W / error)
        return value, np.concatenate([slope, self._symmetric(dM).ravel()])

    def precisions(self, both: RealVector) -> tuple[Tensor, Tensor]:
        """Return M and 1 / M, zero where a product is public or not seen by any query."""
        logs = self._symmetric(both[self.num_free :].reshape(self.shape))
        seen = self.v > 0
        with np.errstate(over="ignore"):
            return np.where(seen, np.exp(logs), 0.0), np.where(seen, np.exp(-logs), 0.0)

    def _basis_gradient(self, weights: Sequence[Tensor], M: Tensor, dv: Tensor) -> tuple[RealVector, Tensor]:
        """Gradient for the bases, and q, from dloss/dd (the weights) and dloss/dv."""
        d = len(self.attributes)
        dA: list[RealMatrix | None] = [None] * d
        dC: list[RealMatrix | None] = [None] * d
        q: Tensor = np.zeros(self.shape)
        for kind, w in zip(self.types, weights, strict=True):
            transposed = [m.T for m in self._matrices(kind)]
            for axis in range(d):
                left = apply_factors([None if i == axis else m for i, m in enumerate(transposed)], w)
                slope = unfold(left, axis) @ unfold(M, axis).T
                if axis == kind:
                    dA[axis] = slope
                    q = q + apply_factors([m if i == axis else None for i, m in enumerate(transposed)], left)
                else:
                    before = dC[axis]
                    dC[axis] = slope if before is None else before + slope
        slopes = [self._gram_gradient(axis, dv) for axis in range(d)]
        if self.same:
            (a,) = self.own
            return a.gradient(dA[0], dC[1], slopes[0] + slopes[1]), self._symmetric(q)
        found = [a.gradient(dA[i], dC[i], slopes[i]) for i, a in enumerate(self.own)]
        return np.concatenate(found), q

    def _gram_gradient(self, axis: int, dv: Tensor) -> RealMatrix:
        """dloss/dg for every Gram matrix of one attribute."""
        rows = unfold(np.where(self.public, 0.0, dv), axis)
        found = np.zeros_like(self.attributes[axis].g)
        for t in range(self.squares.size):
            found[self.numbers[axis][t]] += rows @ self._outer(t, leave_out=axis).ravel()
        return found


def unfold(tensor: Tensor, axis: int) -> RealMatrix:
    """Return a tensor as a matrix with one row an index of the axis."""
    return np.moveaxis(tensor, axis, 0).reshape(tensor.shape[axis], -1)


def joined(parts: Sequence[Tensor]) -> RealVector:
    """Return tensors as one vector."""
    return np.concatenate([part.ravel() for part in parts])
