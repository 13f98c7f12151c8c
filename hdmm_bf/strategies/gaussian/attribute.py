"""One attribute's basis S, square and not orthogonal, with everything the product formulas need of it and its gradient.

With T = S^-T: g_tj = (T^T V_t T)_jj for every Gram matrix, A_ej = (p_e^T S)_j^2 for every edge (p_e = e_u for an edge
to BOTTOM), C_cj = S_cj^2 for every cell. The first columns of S may be pinned: indicators of public components, or
the ones. Where the attribute reads the same backwards, S has an even and an odd block, and one cell and edge of each
pair are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float64

from hdmm_bf import _linalg as la
from hdmm_bf._linalg import EPS
from hdmm_bf._types import EdgeArray, IndexArray, RealMatrix, RealVector, SparseMatrix, SquareMatrix
from hdmm_bf.bounds.products.folding import folds, is_reflected, mirrored, ordered
from hdmm_bf.matrix import Incidence

Blocks = list[RealMatrix]

_SAME_LEVEL = 1e-7
_SOFTEST = 1e-10


@final
class Attribute:
    """A basis in blocks; `set` evaluates it, `gradient` pulls derivatives back to the free columns."""

    def __init__(
        self,
        grams: Sequence[SquareMatrix],
        edges: EdgeArray,
        pinned: Float64[np.ndarray, "p n"],
        *,
        fold: bool = True,
    ) -> None:
        self.n = n = len(grams[0])
        fold = fold and len(pinned) <= 1 and all(is_reflected(V, edges) for V in grams)
        self.folds = folds(n, symmetric=fold)
        self.grams = [[U.T @ V @ U for V in grams] for U in self.folds]
        self.roots = [[_root(V) for V in own] for own in self.grams]
        self.noise = (n * EPS) ** 2 * np.array([float(np.trace(V)) for V in grams])  # of |R t|^2
        self.sizes = [U.shape[1] for U in self.folds]
        self.pinned = [(pinned @ self.folds[0]).T, *(np.zeros((s, 0)) for s in self.sizes[1:])]
        self.cells = np.arange(n - n // 2) if fold else np.arange(n)
        self.incidence = _incidence(edges, n)
        self.moves = _incidence(edges[_representatives(edges, n)] if fold else edges, n)

    @property
    def num_free(self) -> int:
        """Number of variables."""
        return sum(s * (s - p.shape[1]) for s, p in zip(self.sizes, self.pinned, strict=True))

    @property
    def has_edges(self) -> bool:
        """Whether any edge moves a record along the attribute."""
        return bool(self.moves.shape[1])

    def unpack(self, flat: RealVector) -> Blocks:
        """Return the blocks, pinned columns first."""
        blocks, at = [], 0
        for s, p in zip(self.sizes, self.pinned, strict=True):
            free = s - p.shape[1]
            blocks.append(np.concatenate([p, flat[at : at + s * free].reshape(s, free)], axis=1))
            at += s * free
        return blocks

    def pack(self, blocks: Blocks) -> RealVector:
        """Return the free columns as one vector."""
        return np.concatenate([B[:, p.shape[1] :].ravel() for B, p in zip(blocks, self.pinned, strict=True)])

    def set(self, blocks: Blocks) -> None:
        """Evaluate S, T, g, A and C; raises LinAlgError where a block is singular."""
        self.blocks = blocks
        self.S = np.concatenate(
            [U @ B if len(blocks) > 1 else B for U, B in zip(self.folds, blocks, strict=True)], axis=1
        )
        self.T = [np.linalg.inv(B).T for B in blocks]
        self.RT = [[R @ T for R in roots] for roots, T in zip(self.roots, self.T, strict=True)]
        g = np.concatenate([np.array([(half**2).sum(axis=0) for half in halves]) for halves in self.RT], axis=1)
        lengths = np.concatenate([(T**2).sum(axis=0) for T in self.T])
        self.g = np.where(g > self.noise[:, None] * lengths, g, 0.0)
        self.C = self.S[self.cells] ** 2
        self.E = self.moves.T @ self.S
        self.A = self.E**2

    def gradient(self, dS: RealMatrix, dg: RealMatrix) -> RealVector:
        """Return the gradient for the free columns from those for S and g."""
        found, at = [], 0
        for U, T, roots, halves, s in zip(self.folds, self.T, self.roots, self.RT, self.sizes, strict=True):
            own = dS[:, at : at + s]
            dT = sum(2 * R.T @ (half * row[at : at + s]) for R, half, row in zip(roots, halves, dg, strict=True))
            found.append((U.T @ own if len(self.folds) > 1 else own) - T @ (dT.T @ T))
            at += s
        return self.pack(found)

    def start(self, weights: RealVector) -> Blocks:
        """Return the basis that diagonalises sum_t weight_t V_t and the policy's Laplacian.

        For all ranges on a line these are 1, the linear function and sines that vanish on the end cells. Columns are in
        the order of their roughness, with mean square 1 and a positive first entry: the same functions at every size.
        """
        L = (self.incidence @ self.incidence.T).toarray()
        blocks = []
        for U, grams, pinned in zip(self.folds, self.grams, self.pinned, strict=True):
            V = sum((w * G for w, G in zip(weights, grams, strict=True)), start=np.zeros_like(grams[0]))
            blocks.append(np.concatenate([pinned, _ordered_columns(_diagonalise(V, U.T @ L @ U, pinned), U)], axis=1))
        return blocks


def _incidence(edges: EdgeArray, n: int) -> SparseMatrix:
    return sp.csr_array(Incidence(edges[:, 0], edges[:, 1], n).sparse().astype(np.float64))


def _root(V: SquareMatrix) -> RealMatrix:
    """R with R^T R = V, rank x n: |R t|^2 is exact to the last digit where t^T V t is only rounding."""
    values, U = la.eigen(V)
    kept = values > la.RANK_TOLERANCE * len(V) * values[-1]
    return np.asarray((U[:, kept] * np.sqrt(values[kept])).T)


def _representatives(edges: EdgeArray, n: int) -> IndexArray:
    """One edge of every reflected pair."""
    own, other = ordered(edges).tolist(), ordered(mirrored(edges, n)).tolist()
    return np.flatnonzero([a <= b for a, b in zip(own, other, strict=True)])


def _diagonalise(V: SquareMatrix, L: SquareMatrix, pinned: RealMatrix) -> RealMatrix:
    """Columns R^T q, V = R^T R, with q orthonormal, orthogonal to R^-T pinned, and eigenvectors of R L R^T."""
    values, U = la.eigen(V)
    sizes = np.sqrt(np.maximum(values, _SOFTEST * values[-1] if values[-1] > 0 else 1.0))
    R = (U * sizes).T
    Z = np.eye(len(V))
    if pinned.shape[1]:
        Z = np.linalg.qr((U / sizes).T @ pinned, mode="complete")[0][:, pinned.shape[1] :]
    levels, Q = la.eigen(Z.T @ R @ L @ R.T @ Z)
    S = R.T @ (Z @ Q)
    cuts = np.flatnonzero(np.diff(levels) > _SAME_LEVEL * max(float(np.abs(levels).max(initial=0.0)), 1e-300)) + 1
    groups = np.split(np.arange(levels.size), cuts)
    return np.concatenate([S[:, g] @ la.eigen(S[:, g].T @ S[:, g])[1] for g in groups if g.size] or [S], axis=1)


def _ordered_columns(S: RealMatrix, U: RealMatrix) -> RealMatrix:
    """Sort by roughness |differences|^2 / |values|^2, scale to mean square 1, make the first entry positive."""
    full = U @ S
    roughness = (np.diff(full, axis=0) ** 2).sum(axis=0) / (full**2).sum(axis=0)
    S, full = S[:, np.argsort(roughness, kind="stable")], full[:, np.argsort(roughness, kind="stable")]
    first = np.argmax(np.abs(full) > 1e-6 * np.abs(full).max(axis=0), axis=0)
    signs = np.sign(full[first, np.arange(full.shape[1])])
    return np.asarray(S * (signs / np.sqrt((full**2).mean(axis=0))))
