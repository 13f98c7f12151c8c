"""The error of layers on a spine and what they lose, with gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import scipy.linalg

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import kept_totals
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch
from hdmm_bf.strategies.laplace.directions import SumDraft
from hdmm_bf.strategies.laplace.factors import own_policy, tree_rows
from hdmm_bf.strategies.laplace.joined import bumps
from hdmm_bf.strategies.laplace.layers.tables import is_even, is_total, kept_by_layers

NAME = "layers"

_NEGLIGIBLE = 1e-12
"""Share of the queries below which a sector is left out."""

_UNSEEN = 2.0**-22
"""Entries below which a row is left out: they would be zero on the grid."""


@final
@dataclass(frozen=True)
class Schedule:
    """How a search goes; tuned on tables of 3 to 4 attributes, 20 to 100 values of the spine.

    Attributes:
        floor: the least weight of a cell: it costs next to nothing, and every query can be answered.
        cells: weights of cells at the start.
        bumps: values of the spine for each bump, one number after the other.
        bump, whole: shares of a layer's budget at the start, for bumps and for the sum of all.
        powers: of the norms that smooth the largest loss.
        smooth: how far |.| is rounded at zero, of the budget, for each power.
        parts: steps between two drafts at each power.
        least_gain: share of the error that a part must gain for the descent to go on with the power.
        rough: of what is added to every start.
    """

    floor: float = 2.0**-12
    cells: float = 0.05
    bumps: tuple[int, ...] = (12, 6)
    bump: float = 0.3
    whole: float = 0.2
    powers: tuple[float, ...] = (20.0, 60.0, 200.0, 1000.0, 5000.0)
    smooth: tuple[float, ...] = (1e-2, 3e-3, 1e-3, 1e-4, 1e-5)
    parts: tuple[int, ...] = (40,) * 10
    least_gain: float = 1e-3
    rough: float = 1e-3


SCHEDULE = Schedule()


class Layer(NamedTuple):
    """The rows that a layer may have: templates with weights, and bumps.

    Attributes:
        keeps: the attributes outside that it keeps.
        copies: c_L.
        templates: rows on the spine, each of which gets a weight.
        bumps: free rows, as they start.
    """

    keeps: tuple[int, ...]
    copies: float
    templates: RealMatrix
    bumps: RealMatrix


@final
class Layers:
    """The error of layers on a spine, with the largest loss smoothed, and its gradient."""

    def __init__(self, product: ProductProblem, spine: int, schedule: Schedule = SCHEDULE, *, bump: int) -> None:
        self.product, self.spine, self.schedule = product, spine, schedule
        self.n = product.sizes[spine]
        self.moved = tuple(i for i, edges in enumerate(product.edges) if len(edges))
        self.outside = tuple(i for i in range(len(product.sizes)) if i != spine)
        self.across = [(i, product.edges[i][:, 1] == BOTTOM) for i in self.moved if i != spine]
        self.layers = [self._layer(keeps, bump) for keeps in kept_by_layers(product, spine)]
        self.grams = self._grams()
        S, self._kept = kept_totals(product, (spine,), self.moved)
        self._free = scipy.linalg.null_space(S.toarray()) if S.shape[0] else None
        edges = product.edges[spine]
        self._tail, self._head = edges[:, 0], np.where(edges[:, 1] == BOTTOM, edges[:, 0], edges[:, 1])
        self._stays = edges[:, 1] != BOTTOM

    def _grams(self) -> dict[tuple[int, ...], RealMatrix]:
        """V_A for every sector A that some query sees."""
        found = {}
        for count in range(len(self.outside) + 1):
            for sector in itertools.combinations(self.outside, count):
                V = np.zeros((self.n, self.n))
                for term in self.product.terms:
                    share = term.weight**2
                    for i in self.outside:
                        even = float(term.grams[i].sum()) / len(term.grams[i])
                        share *= max(float(np.trace(term.grams[i])) - even, 0.0) if i in sector else even
                    V += share * term.grams[self.spine]
                found[sector] = V
        largest = max(float(np.trace(V)) for V in found.values())
        return {sector: V for sector, V in found.items() if np.trace(V) > _NEGLIGIBLE * largest}

    def _layer(self, keeps: tuple[int, ...], bump: int) -> Layer:
        """Weights for the sum of all, for values, or for edges of a tree; bumps where queries are no counts."""
        product, n = self.product, self.n
        own = [t for t in product.terms if all(i in keeps or is_total(t.grams[i]) for i in self.outside)]
        copies = math.prod(product.sizes[i] for i in self.outside if i not in keeps)
        plain = not any(i in keeps for i in self.moved) and not any(np.any(gone) for _, gone in self.across)
        policy = own_policy(product.edges[self.spine], n)
        templates, free = [np.ones((1, n))], np.empty((0, n))
        if not all(is_total(term.grams[self.spine]) for term in own):
            if plain and policy.num_edges and policy.is_forest:
                templates.append(tree_rows(policy))
            elif keeps != self.outside:  # cells have noise of their own
                templates.append(np.eye(n))
        if n >= 2 * bump and not all(is_even(term.grams[self.spine]) for term in own):
            free = bumps((n,), np.array([float(bump)]))
        return Layer(keeps, float(copies), np.vstack(templates), free)

    # ------------------------------------------------------------ parameters: roots of weights, templates and bumps

    def start(self, rng: np.random.Generator) -> RealVector:
        """Return parameters to start from: budgets as if every layer were alone, cube roots of its cells."""
        schedule = self.schedule
        found = [np.full(self.n, schedule.cells)]
        for layer in self.layers:
            weights = np.full(len(layer.templates), 1.0 / np.cbrt(layer.copies))
            weights[0] *= schedule.whole if len(weights) > 1 else 1.0
            found += [weights, (schedule.bump / np.cbrt(layer.copies) * layer.bumps).ravel()]
        start = np.concatenate(found)
        return np.asarray(np.sqrt(start + schedule.rough * rng.random(start.size)))

    def _unpacked(self, roots: RealVector) -> tuple[RealVector, list[tuple[RealVector, RealMatrix]]]:
        """Weights of the cells, and for every layer the weights of its templates and its bumps."""
        squares, at, found = roots**2, self.n, []
        for layer in self.layers:
            middle = at + len(layer.templates)
            end = middle + layer.bumps.size
            found.append((squares[at:middle], squares[middle:end].reshape(layer.bumps.shape)))
            at = end
        return squares[: self.n] + self.schedule.floor, found

    # ------------------------------------------------------------ error and losses

    def value_and_slope(self, roots: RealVector, power: float, smooth: float) -> tuple[float, RealVector]:
        """Return log(error) + 2 log ||losses||_power and its gradient; a huge number where it cannot be had."""
        w, found = self._unpacked(roots)
        grams = [layer.copies * _gram(layer, *own) for layer, own in zip(self.layers, found, strict=True)]
        error, slopes = self._error(w, grams)
        if not 0 < error < math.inf:
            return 1e30, np.zeros_like(roots)
        norm, by_cells, by_found = self._norm(w, found, power, smooth)
        parts = [2 * w * np.diag(slopes[-1]) / error + 2 * by_cells / norm]
        for layer, (own, B), slope, (own_loss, B_loss) in zip(self.layers, found, slopes[:-1], by_found, strict=True):
            Q = layer.copies * slope / error
            parts.append(2 * own * ((layer.templates @ Q) * layer.templates).sum(axis=1) + 2 * own_loss / norm)
            parts.append((2 * B @ Q + 2 * B_loss / norm).ravel())
        return math.log(error) + 2 * math.log(norm), 2 * roots * np.concatenate(parts)

    def _error(self, w: RealVector, grams: Sequence[RealMatrix]) -> tuple[float, list[RealMatrix]]:
        """Return the error and its gradients in c_L T_L^T T_L, for every layer and for the cells."""
        error, slopes = 0.0, [np.zeros((self.n, self.n)) for _ in range(len(grams) + 1)]
        for sector, V in self.grams.items():
            inside = [k for k, layer in enumerate(self.layers) if set(sector) <= set(layer.keeps)]
            M = np.diag(w**2) + sum((grams[k] for k in inside), start=np.zeros((self.n, self.n)))
            free = self._free if self._free is not None and set(sector) <= set(self._kept) else None
            C = _inverse(M, free)
            if C is None:
                return math.inf, slopes
            CV = C @ V
            error += float(np.trace(CV))
            H = CV @ C
            for k in [*inside, -1]:
                slopes[k] -= H
        return error, slopes

    def _norm(
        self, w: RealVector, found: Sequence[tuple[RealVector, RealMatrix]], power: float, smooth: float
    ) -> tuple[float, RealVector, list[tuple[RealVector, RealMatrix]]]:
        """Return the p-norm of all losses, and its gradients in the weights of cells, templates and bumps."""
        u, v, stays = self._tail, self._head, self._stays
        along = w[u] + stays * w[v]
        steps, rounded = [], []
        for layer, (own, B) in zip(self.layers, found, strict=True):
            changed = np.abs(layer.templates[:, u] - stays * layer.templates[:, v])
            step = B[:, u] - stays * B[:, v]
            length = np.sqrt(step**2 + smooth**2)
            along = along + own @ changed + length.sum(axis=0)
            steps.append(changed)
            rounded.append(step / length)
        columns = [
            own @ np.abs(layer.templates) + B.sum(axis=0) for layer, (own, B) in zip(self.layers, found, strict=True)
        ]
        losses, tables = [along], []
        for i, gone in self.across:
            kept = np.array([i in layer.keeps for layer in self.layers], dtype=np.float64)
            if not np.all(gone):
                losses.append(2 * w + 2 * (kept @ np.array(columns)))
                tables.append((2.0, 2 * kept))
            if np.any(gone):
                losses.append(w + np.sum(columns, axis=0))
                tables.append((1.0, np.ones(len(columns))))
        every = np.concatenate(losses)
        largest = float(every.max())
        norm = largest * float(((every / largest) ** power).sum()) ** (1 / power)
        first, *others = np.split((every / norm) ** (power - 1), np.cumsum([len(own) for own in losses])[:-1])
        by_cells: RealVector = np.bincount(u, first, self.n) + np.bincount(v, first * stays, self.n)
        slopes = []
        for k, (layer, changed, sign) in enumerate(zip(self.layers, steps, rounded, strict=True)):
            by_weight, by_bump = changed @ first, np.zeros_like(layer.bumps)
            for b, row in enumerate(sign):
                by_bump[b] = np.bincount(u, row * first, self.n) - np.bincount(v, row * first * stays, self.n)
            for (_, shares), own in zip(tables, others, strict=True):
                by_weight = by_weight + shares[k] * (np.abs(layer.templates) @ own)
                by_bump = by_bump + shares[k] * own
            slopes.append((by_weight, by_bump))
        for (cells, _), own in zip(tables, others, strict=True):
            by_cells = by_cells + cells * own
        return norm, by_cells, slopes

    def loss(self, roots: RealVector) -> float:
        """Return the largest loss."""
        return self._largest(*self._unpacked(roots))

    def draft(self, roots: RealVector) -> SumDraft:
        """Return the rows at a loss of exactly 1, and their error."""
        w, found = self._unpacked(roots)
        error, _ = self._error(w, [c.copies * _gram(c, *own) for c, own in zip(self.layers, found, strict=True)])
        loss = self._largest(w, found)
        layers = []
        for layer, (own, B) in zip(self.layers, found, strict=True):
            rows = np.vstack([own[:, None] * layer.templates, B]) / loss
            layers.append((layer.keeps, rows[np.abs(rows).max(axis=1) > _UNSEEN]))
        sketch = JoinedSketch((self.spine,), self.moved, w / loss, tuple(layers))
        return SumDraft((sketch,), loss**2 * error, NAME)

    def _largest(self, w: RealVector, found: Sequence[tuple[RealVector, RealMatrix]]) -> float:
        """The largest loss, not smoothed."""
        rows = [np.vstack([own[:, None] * c.templates, B]) for c, (own, B) in zip(self.layers, found, strict=True)]
        u, v, stays = self._tail, self._head, self._stays
        along: RealVector = w[u] + stays * w[v]
        for T in rows:
            along = along + np.abs(T[:, u] - stays * T[:, v]).sum(axis=0)
        losses = [float(along.max(initial=0.0))]
        columns = [np.abs(T).sum(axis=0) for T in rows]
        for i, gone in self.across:
            kept = [own for own, layer in zip(columns, self.layers, strict=True) if i in layer.keeps]
            losses.append(0.0 if np.all(gone) else 2 * float(np.max(w + sum(kept))))
            losses.append(float(np.max(w + sum(columns))) if np.any(gone) else 0.0)
        return max(losses)


def _gram(layer: Layer, own: RealVector, B: RealMatrix) -> RealMatrix:
    return np.asarray((layer.templates.T * own**2) @ layer.templates + B.T @ B)


def _inverse(M: RealMatrix, free: RealMatrix | None) -> RealMatrix | None:
    """M^-1, on the free directions where totals are known; None where it cannot be had."""
    if free is not None and not free.shape[1]:  # all is known
        return np.zeros_like(M)
    lower = la.inverse(M if free is None else free.T @ M @ free)
    if lower is None:
        return None
    whole = la.symmetric(lower)
    return whole if free is None else np.asarray(free @ whole @ free.T)
