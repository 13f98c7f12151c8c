"""Losses of strategies A = [I; R] diag(c) with their gradients written out, in NumPy: what descents on CPUs evaluate.

With C C^T = I + R R^T, U = C^-1 R, D = diag(c)^-2, Y = U diag(c)^-1 V diag(c)^-1 and H = Y U^T,

    t = tr(V (A^T A)^-1) = sum_i D_i V_ii - tr H
    dt/dR = 2 C^-T (H U - Y)
    dt/dc_i = -2 (D_i V_ii - sum_k U_ki Y_ki) / c_i

(with (I + R R^T)^-1 R instead of U there is a product less, and a hundred times the error where R is large)

and p-identities and cell budgets pass that on to their parameters. For any matrix A with columns of norm 1, with
X = (A^T A)^-1, t = tr(V X) and dt/dA = -2 A X V X. The same as what JAX derives, in a quarter (64
columns) to a half (1024) of the time and without a second of compiling for every shape: `minimise` takes it wherever it
applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce, singledispatch
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from hdmm_bf._linalg import in_float64
from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.objectives import grams
from hdmm_bf.objectives.measures import Composed, Total
from hdmm_bf.objectives.parametrisations import CellBudgets, PIdentity, Split, UnitColumns
from hdmm_bf.objectives.trees import TreeTotal, written_out

Evaluate: TypeAlias = Callable[[Any], tuple[float, Any]]
"""From parameters to the loss and its gradient; infinite, with the gradient zero, where it cannot be evaluated."""


Back: TypeAlias = Callable[[RealVector, RealMatrix], Any]
"""From the derivatives in c and R to those in the parameters."""

ThereAndBack: TypeAlias = Callable[[Any], tuple[RealVector, RealMatrix, Back]]

_LARGEST = 1e30
"""Larger parameters, of steps that are far too long, would overflow; no strategy of use has them."""


class Acting(NamedTuple):
    """A Gram matrix in NumPy.

    Attributes:
        rows: the function Y -> Y V.
        entries: the function i, j -> V_ij for arrays of columns.
    """

    rows: Callable[[AnyArray], AnyArray]
    entries: Callable[[IndexArray, IndexArray], AnyArray]


@in_float64
def evaluation(loss: Any) -> Evaluate | None:
    """Return a loss with its gradient written out; None for losses that JAX differentiates."""
    if isinstance(loss, TreeTotal):
        return written_out(loss)
    if not (isinstance(loss, Composed) and isinstance(loss.objective, Total)):
        return None
    total, strategy = loss.objective, there_and_back(loss.parametrisation)
    V, log = acting(total.gram), total.log
    if V is None or total.sensitivity is not None:
        return None
    if isinstance(loss.parametrisation, UnitColumns):
        return _of_unit_columns(V, log=log)
    if strategy is None:
        return None
    columns = np.arange(total.gram.n)
    diagonal = V.entries(columns, columns)

    def evaluate(parameters: Any) -> tuple[float, Any]:
        c, R, back = strategy(parameters)
        t, by_scale, by_rows = error_and_slopes(V, diagonal, c, R)
        if not log or math.isinf(t):
            return t, back(by_scale, by_rows)
        return math.log(t), back(by_scale / t, by_rows / t)

    return evaluate


def error_and_slopes(
    V: Acting, diagonal: RealVector, c: RealVector, R: RealMatrix
) -> tuple[float, RealVector, RealMatrix]:
    """Return t = tr(V (A^T A)^-1) for A = [I; R] diag(c), with dt/dc and dt/dR; infinite where it cannot be had."""
    inner = R @ R.T
    inner.flat[:: len(inner) + 1] += 1
    C_inverse = inverse_root(inner) if len(inner) else inner
    if C_inverse is None:  # a step of a line search that is far too long
        return math.inf, np.zeros_like(c), np.zeros_like(R)
    U = C_inverse @ R
    Y = V.rows(U / c)
    Y /= c
    H = Y @ U.T
    own = diagonal / c**2
    t = float(own.sum() - np.trace(H))
    if not 0 < t < math.inf:
        return math.inf, np.zeros_like(c), np.zeros_like(R)
    by_scale = (np.einsum("ki,ki->i", U, Y) - own) * 2 / c
    by_rows = H @ U
    by_rows -= Y
    by_rows = C_inverse.T @ by_rows
    by_rows *= 2
    return t, by_scale, by_rows


def inverse_root(X: SquareMatrix) -> SquareMatrix | None:
    """Return C^-1 with C C^T = X, None where X is not positive definite."""
    from scipy.linalg.lapack import dpotrf, dtrtri

    C, failed = dpotrf(X, lower=1, clean=1)
    if failed:
        return None
    C_inverse, failed = dtrtri(C, lower=1)
    return None if failed else np.asarray(C_inverse)


def _of_unit_columns(V: Acting, *, log: bool) -> Evaluate:
    """Any signed matrix with columns of L1 norm 1: X is written out, n x n."""

    def evaluate(parameters: Split) -> tuple[float, Split]:
        positive, negative = (np.minimum(part, _LARGEST) for part in parameters)
        sizes = (positive + negative).sum(axis=0)
        A = (positive - negative) / np.where(sizes > 0, sizes, 1.0)  # a column of zeros has no inverse
        root = inverse_root(A.T @ A)
        X = None if root is None else root.T @ root
        t = math.nan if X is None else float(np.trace(VX := V.rows(X)))
        if X is None or not 0 < t < math.inf:
            return math.inf, Split(np.zeros_like(positive), np.zeros_like(negative))
        by_entry = A @ (VX @ X)
        by_entry *= -(2 / t if log else 2.0)
        by_size = np.einsum("ki,ki->i", by_entry, A) / -sizes
        by_entry /= sizes
        return math.log(t) if log else t, Split(by_size + by_entry, by_size - by_entry)

    return evaluate


@singledispatch
def there_and_back(parametrisation: Any) -> ThereAndBack | None:
    """Return the function from parameters to c, R and the way back; None for strategies of another form."""
    return None


@there_and_back.register
def _(parametrisation: PIdentity) -> ThereAndBack | None:
    power = parametrisation.power

    def strategy(roots: RealMatrix) -> tuple[RealVector, RealMatrix, Back]:
        roots = np.clip(roots, -_LARGEST, _LARGEST)
        Theta = roots**power
        c = 1 / (1 + Theta.sum(axis=0))

        def back(by_scale: RealVector, by_rows: RealMatrix) -> RealMatrix:
            slope: RealMatrix = by_rows - by_scale * c**2
            if power != 1:
                slope *= power * roots ** (power - 1)
            return slope

        return c, Theta, back

    return strategy


@there_and_back.register
def _(parametrisation: CellBudgets) -> ThereAndBack | None:
    budgets, group = np.asarray(parametrisation.budgets), np.asarray(parametrisation.group)
    n, N = group.size, budgets.size
    own = (group == np.arange(N - n)[:, None]).astype(np.float64)  # which cells a ground stands for

    def strategy(parameters: Split) -> tuple[RealVector, RealMatrix, Back]:
        positive, negative = (np.minimum(part, _LARGEST) for part in parameters)
        Theta, sizes = positive - negative, 1 + (positive + negative).sum(axis=0)
        scale = budgets / sizes
        scaled, c = Theta * scale, scale[:n]
        R = np.vstack([own * scale[n:, None], scaled[:, :n] - scaled[:, n:] @ own]) / c

        def back(by_scale: RealVector, by_rows: RealMatrix) -> Split:
            by_scale = by_scale - np.einsum("ki,ki->i", by_rows, R) / c  # with R diag(c) held, instead of R
            by_rows = by_rows / c
            by_scale = np.concatenate([by_scale, (own * by_rows[: N - n]).sum(axis=1)])
            by_scaled = np.hstack([by_rows[N - n :], -(by_rows[N - n :] @ own.T)])
            by_sizes = -(by_scale + np.einsum("ki,ki->i", by_scaled, Theta)) * scale / sizes
            by_Theta = by_scaled * scale
            return Split(by_sizes + by_Theta, by_sizes - by_Theta)

        return c, R, back

    return strategy


@singledispatch
def acting(V: grams.Gram) -> Acting | None:
    """Return a Gram matrix in NumPy; None for those that live on devices."""
    return None


@acting.register
def _(V: grams.DenseGram) -> Acting | None:
    dense = np.asarray(V.V)
    return Acting(lambda Y: Y @ dense, lambda i, j: dense[i, j])


@acting.register
def _(V: grams.RangesGram) -> Acting | None:
    n = V.n

    def rows(Y: AnyArray) -> AnyArray:
        """(n + 1) (S - mean S), summed from the end: with S_0 = 0 it sums to zero, so minus the sums from the start."""
        S = np.cumsum(Y, axis=-1)
        mean = S.sum(axis=-1, keepdims=True) / (n + 1)
        centred = np.concatenate([-mean, S[..., :-1] - mean], axis=-1)
        found = np.cumsum(centred, axis=-1, out=centred)
        found *= -(n + 1)
        return found

    return Acting(rows, lambda i, j: (np.minimum(i, j) + 1.0) * (n - np.maximum(i, j)))


@acting.register
def _(V: grams.PrefixGram) -> Acting | None:
    n = V.n
    rows = lambda Y: np.cumsum(np.cumsum(Y, axis=-1)[..., ::-1], axis=-1)[..., ::-1]  # noqa: E731
    return Acting(rows, lambda i, j: n - np.maximum(i, j).astype(np.float64))


@acting.register
def _(V: grams.IdentityGram) -> Acting | None:
    return Acting(np.copy, lambda i, j: (i == j).astype(np.float64))


@acting.register
def _(V: grams.OnesGram) -> Acting | None:
    n = V.n
    return Acting(lambda Y: np.repeat(Y.sum(axis=-1, keepdims=True), n, axis=-1), lambda i, j: np.ones(np.shape(i)))


@acting.register
def _(V: grams.SumGram) -> Acting | None:
    parts = _all(V.parts)
    if parts is None:
        return None
    weighted = list(zip(np.asarray(V.weights).tolist(), parts, strict=True))

    def rows(Y: AnyArray) -> AnyArray:
        found = [part.rows(Y) for _, part in weighted]
        for own, (weight, _) in zip(found, weighted, strict=True):
            own *= weight
        return np.asarray(reduce(np.add, found))

    return Acting(rows, lambda i, j: np.asarray(sum(weight * part.entries(i, j) for weight, part in weighted)))


@acting.register
def _(V: grams.KroneckerGram) -> Acting | None:
    factors, sizes = _all(V.factors), tuple(factor.n for factor in V.factors)
    if factors is None:
        return None

    def rows(Y: AnyArray) -> AnyArray:
        tensor = Y.reshape(*Y.shape[:-1], *sizes)
        for axis, factor in enumerate(factors, start=Y.ndim - 1):
            tensor = np.moveaxis(factor.rows(np.moveaxis(tensor, axis, -1)), -1, axis)
        return tensor.reshape(Y.shape)

    def entries(i: IndexArray, j: IndexArray) -> AnyArray:
        ends = zip(factors, np.unravel_index(i, sizes), np.unravel_index(j, sizes), strict=True)
        return np.asarray(math.prod(factor.entries(*own) for factor, *own in ends))

    return Acting(rows, entries)


@acting.register
def _(V: grams.DifferencesGram) -> Acting | None:
    inner = acting(V.inner)
    if inner is None:
        return None
    head, tail = np.asarray(V.head), np.asarray(V.tail)
    ends, columns = np.flatnonzero(tail >= 0), np.arange(V.n)
    signs = np.concatenate([np.ones(V.n), -np.ones(ends.size)])
    places = np.concatenate([columns, ends]), np.concatenate([head, tail[ends]])
    M = sp.csr_array((signs, places), shape=(V.n, V.inner.n))  # one row for every column of V

    def at(a: IndexArray, b: IndexArray) -> AnyArray:
        there = (a >= 0) & (b >= 0)
        return np.asarray(inner.entries(np.maximum(a, 0), np.maximum(b, 0)) * there)

    def entries(i: IndexArray, j: IndexArray) -> AnyArray:
        h, t = (head[i], head[j]), (tail[i], tail[j])
        return np.asarray(at(*h) - at(h[0], t[1]) - at(t[0], h[1]) + at(*t))

    return Acting(lambda Y: np.asarray(inner.rows(Y @ M) @ M.T), entries)


def _all(parts: Iterable[grams.Gram]) -> list[Acting] | None:
    made = [acting(part) for part in parts]
    known = [part for part in made if part is not None]
    return known if len(known) == len(made) else None
