"""The strategies X = S diag(M) S^T, S = S_1 (x) ... (x) S_d, with one precision M_J for every product of columns.

    error   sum_J v_J / M_J,    v_J = sum_t w_t^2 prod_i g_{i t j_i}
    d of an edge e:    p_e^T X p_e

(g: see `attribute`; d: see `moves`). Products of pinned columns on all attributes are public totals: no error, no
sensitivity. For given bases the best precisions are a convex problem with a dual: M_J = sqrt(v_J / q_J), q_J = sum_e
mu_e dd_e / dM_J. The bases are found by descent on log error + log ||d||_p over bases and log precisions together:
alternating between them diverges. Contractions run axis by axis, so that nothing is larger than the domain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool

from hdmm_bf._types import IndexArray, RealMatrix, RealVector
from hdmm_bf.objectives.descent import HOPELESS
from hdmm_bf.strategies.gaussian.ascent import Point, ascent
from hdmm_bf.strategies.gaussian.attribute import Blocks
from hdmm_bf.strategies.gaussian.moves import Moves, Tensor, unfold
from hdmm_bf.strategies.gaussian.sketch import Sketch
from hdmm_bf.strategies.search import search


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
        moves: the edges, with one basis an attribute; the same object twice where two attributes are equal.
        numbers: for every attribute and term, which of the attribute's Gram matrices the term has.
        squares: w_t^2.
        public: which products are public.
    """

    def __init__(
        self,
        moves: Moves,
        numbers: Sequence[IndexArray],
        squares: RealVector,
        public: Bool[np.ndarray, ...],
    ) -> None:
        self.moves, self.numbers, self.squares, self.public = moves, numbers, squares, public
        self.attributes = moves.attributes
        self.same = len(self.attributes) == 2 and self.attributes[0] is self.attributes[1]
        self.own = self.attributes[:1] if self.same else self.attributes
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
        self.set_bases(self.unpack(flat))

    def set_bases(self, bases: Sequence[Blocks]) -> None:
        """Evaluate the bases, one an own attribute, and v."""
        for a, blocks in zip(self.own, bases, strict=True):
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

    def pull(self, weights: Sequence[Tensor]) -> Tensor:
        """Return q = sum_e weight_e dd_e / dM."""
        return self._symmetric(self.moves.pull(weights))

    def _symmetric(self, tensor: Tensor) -> Tensor:
        return (tensor + tensor.T) / 2 if self.same else tensor

    def split(self, mu: RealVector) -> list[Tensor]:
        """Cut a vector of edge weights into one tensor a group of edges."""
        cuts = np.cumsum([math.prod(s) for s in self.moves.shapes])[:-1]
        return [part.reshape(s) for part, s in zip(np.split(mu, cuts), self.moves.shapes, strict=True)]

    @property
    def uniform(self) -> RealVector:
        """Equal weights on all kept edges."""
        size = sum(math.prod(s) for s in self.moves.shapes)
        return np.full(size, 1.0 / size)

    def evaluate(self, mu: RealVector) -> Point[Tensor]:
        """Return the best precisions for given edge weights and the bases last set."""
        root = np.sqrt(self.v * self.pull(self.split(mu)))
        M = np.divide(self.v, root, out=np.zeros_like(root), where=root > 0)
        f = float(root.sum())
        return Point(f, f, joined(self.moves.distances(M)), M)

    def sketch(self, M: Tensor) -> Sketch:
        """Return precisions, with the bases last set, as rows with largest entry 1."""
        M = np.where(self.public, math.inf, M)
        factors = []
        for axis, a in enumerate(self.attributes):
            heights = np.abs(a.S).max(axis=0)
            factors.append(np.ascontiguousarray((a.S / heights).T))
            M = M * (heights**2).reshape([-1 if k == axis else 1 for k in range(M.ndim)])
        return Sketch(tuple(factors), np.ascontiguousarray(M))

    def best_precisions(self, flat: RealVector, mu: RealVector, *, gap: float, steps: int) -> Member:
        """Return the best member with given bases, to a gap inside the family."""
        self.set(flat)
        found = search(ascent(self.evaluate, mu / mu.max()), gap=gap, max_iterations=steps)
        largest = max(d.max() for d in self.moves.distances(found.best))
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
        d = self.moves.distances(M)
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
        slopes, q = self.moves.slopes(weights, M)
        grams = [self._gram_gradient(axis, dv) for axis in range(len(self.attributes))]
        if self.same:
            (a,) = self.own
            return a.gradient(slopes[0] + slopes[1], grams[0] + grams[1]), self._symmetric(q)
        found = [a.gradient(dS, dg) for a, dS, dg in zip(self.own, slopes, grams, strict=True)]
        return np.concatenate(found), q

    def _gram_gradient(self, axis: int, dv: Tensor) -> RealMatrix:
        """dloss/dg for every Gram matrix of one attribute."""
        rows = unfold(np.where(self.public, 0.0, dv), axis)
        found = np.zeros_like(self.attributes[axis].g)
        for t in range(self.squares.size):
            found[self.numbers[axis][t]] += rows @ self._outer(t, leave_out=axis).ravel()
        return found


def joined(parts: Sequence[Tensor]) -> RealVector:
    """Return tensors as one vector."""
    return np.concatenate([part.ravel() for part in parts])
