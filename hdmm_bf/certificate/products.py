"""The certificate of block strategies: error, support, sensitivity and bounds from the shipped integers.

Plain NumPy, apart from the search. Nothing of the size of the domain squared is made: an edge of attribute i at the
cells c of the others moves row J by (p_e R_i)_j prod_k R_k[j_k, c_k], so the loss of all edges of a type is a chain of
products, one an attribute. Axes along which the result does not vary are kept at length one, which is what lets tables
over 10^17 cells be certified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import BOUND_ROUNDING, NOTHING, SUPPORT_TOLERANCE, EdgeArray, Noise, Proof, RealMatrix, RealVector
from hdmm_bf.certificate.certificate import Bounds, Certificate, certify, check_noise, scaled_sensitivity
from hdmm_bf.certificate.edge_bounds import semidefinite_factor
from hdmm_bf.certificate.exact import GRID_BITS, differences, exact_sensitivity, within_limit
from hdmm_bf.problem.product import ProductProblem, product_view
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import AnyTensor, Block, ProductStrategy

_LIGHTEST, _MOST_BITS = 1e-60, 62
"""Precisions, and binary places of a block, outside which no search goes; sums in digits stay short."""

_LARGEST_ROW = 2**900
"""Size of the entries of a row: times any number of records they are floats."""


@certify.register
def _(
    strategy: ProductStrategy, problem: Problem, *, noise: Noise, proof: Proof | None, bounds: Bounds | None = None
) -> Certificate:
    """Derive sensitivity, support and error from the integers; the bounds are those given.

    Guarantees:
        The sensitivity is derived in whole numbers and rounded up; it is 0 only if no edge moves any noisy row. Rows of
        infinite precision are invisible to every edge, exactly, in integers. Every block answers some term.
        The gap is infinite when no bound is given.
    """
    check_noise(noise, ("gaussian", "laplace"))
    product = product_view(problem, balls=True)
    for block in strategy.blocks:
        check_block(product.sizes, product.edges, block)
        _check_terms(product, block)
    exact = exact_sensitivity(strategy, problem, noise)
    sensitivity = scaled_sensitivity(exact, GRID_BITS, noise)
    support = _support(product, strategy)
    if not support <= SUPPORT_TOLERANCE:
        seen = f"a share {support:.2g} of some queries lies outside the strategy"
        raise fail("certificate", repr(strategy), seen, "Fit the strategy again for this workload.")
    unit_error = sensitivity**2 * trace(product, strategy.blocks)
    return bounded(Certificate(noise, exact, GRID_BITS, sensitivity, support, unit_error, 0.0, 0.0, math.inf), bounds)


def bounded(derived: Certificate, bounds: Bounds | None) -> Certificate:
    """Return a certificate with the bounds given, which its error must not be below."""
    unit_error = derived.unit_error
    svd, lower = (0.0, 0.0) if bounds is None else (bounds.svd or 0.0, bounds.lower or 0.0)
    lower = float(np.maximum(svd, lower))  # not max(), which drops what is not a number
    matrix, paired = lower, None if bounds is None else bounds.paired
    if paired is not None and derived.noise != "laplace":
        shown = f"pairs of edges for {derived.noise} noise"
        raise fail("certificate", shown, "prove nothing: they are of Laplace noise", "Fit again.")
    lower = lower if paired is None else float(np.maximum(lower, paired))
    if not unit_error >= lower * (1 - BOUND_ROUNDING):
        raise fail("certificate", f"unit error {unit_error}", f"is below the bound {lower}", "Report this as a bug.")
    gap = unit_error / lower - 1 if lower > 0 else (0.0 if unit_error == 0 else math.inf)
    return replace(derived, svd_bound=svd, lower_bound=lower, gap=gap, matrix_bound=None if paired is None else matrix)


def check_block(sizes: Sequence[int], edges: Sequence[EdgeArray], block: Block) -> None:
    """Refuse factors that do not fit, numbers out of reach, and rows without noise that an edge sees.

    Args:
        sizes: columns of every factor.
        edges: for every attribute, pairs of columns between which records may move unseen.
        block: the block.
    """
    shapes = [factor.shape for factor in block.integers]
    fine = len(shapes) == len(sizes) and all(shape[1] == size for shape, size in zip(shapes, sizes, strict=True))
    small = all(within_limit(factor) for factor in block.integers)
    if small:
        small = math.prod(max(1, int(np.abs(factor).max())) for factor in block.integers) < _LARGEST_ROW
    noisy = block.precisions[(block.precisions != 0) & ~np.isposinf(block.precisions)]
    known = bool(np.all((noisy >= _LIGHTEST) & (noisy <= 1 / _LIGHTEST))) and sum(block.bits) <= _MOST_BITS
    if not (fine and small and known) or np.broadcast_shapes(block.precisions.shape, block.shape) != block.shape:
        raise fail("certificate", f"block of shapes {shapes}", "does not fit the domain", "Fit the strategy again.")
    public = np.isinf(block.full_precisions)
    if public.any() and not _invisible(edges, block, public):
        advice = "Publishing it would break the policy. Fit the strategy again."
        raise fail("certificate", "a row without noise", "is seen by an edge of the policy", advice)


def _check_terms(product: ProductProblem, block: Block) -> None:
    if block.terms is not None and not (block.terms and set(block.terms) <= set(range(len(product.terms)))):
        problem = f"must be some of the {len(product.terms)} terms of the workload"
        raise fail("certificate", f"block for terms {block.terms}", problem, "Fit the strategy again.")


def _invisible(edges: Sequence[EdgeArray], block: Block, public: np.ndarray) -> bool:
    """Whether no edge sees the rows without noise: each is constant along every attribute that has edges."""
    for axis, own in enumerate(edges):
        if not len(own):
            continue
        others = tuple(i for i in range(public.ndim) if i != axis)
        rows = block.integers[axis][public.any(axis=others)]
        if any(np.any(differences(row[None], own)) for row in rows):
            return False
    return True


def trace(product: ProductProblem, blocks: Sequence[Block]) -> float:
    """||W A^+||_F^2: every row's noise, carried through the inverses into every term of the workload."""
    total = 0.0
    known: dict[tuple[bytes, bytes], RealVector] = {}

    def carried(V: RealMatrix, G: RealMatrix, name: bytes) -> RealVector:
        """Squared size, in the queries, of what each row of a factor adds; zero where it is only rounding."""
        key = V.tobytes(), name
        if key not in known:
            sizes = np.maximum(np.einsum("ij,ij->j", G, V @ G), 0.0)
            room = NOTHING * float(np.abs(V).max()) * len(V) ** 2
            known[key] = np.where(sizes > room * np.abs(G).max(axis=0) ** 2, sizes, 0.0)
        return known[key]

    for block in blocks:
        with np.errstate(divide="ignore"):
            variances = np.where(np.isinf(block.precisions), 0.0, 1.0 / block.precisions)
        # of inverses: factors over edges may have the integers of others
        names = [f"{G.shape} ".encode() + G.tobytes() for G in block.inverses]
        for number, term in enumerate(product.terms):
            if not block.answers(number):
                continue
            parts = [carried(V, G, name) for V, G, name in zip(term.grams, block.inverses, names, strict=True)]
            if all(np.any(q > 0) for q in parts):
                total += term.weight**2 * _contract(np.broadcast_to(variances, block.shape), parts)
    return total


def _contract(tensor: AnyTensor, vectors: list[RealVector]) -> float:
    """sum_J tensor_J prod_i vectors_i[j_i], rows that no query needs left out: their variance may be infinite."""
    needed = [q > 0 for q in vectors]
    tensor = tensor[np.ix_(*needed)]
    for q, keep in zip(vectors, needed, strict=True):
        tensor = np.tensordot(q[keep], tensor, axes=(0, 0))
    return float(tensor)


def _support(product: ProductProblem, strategy: ProductStrategy) -> float:
    """Largest share of a term of the workload that the estimate does not bring back.

    ||W - sum_b W (x)(G R)|| in coordinates: for every attribute the few different maps W_i G_i R_i are written in an
    orthonormal basis of their span, so the difference is a small tensor and nothing cancels in its norm.
    """
    seen: list[dict[bytes, int]] = [{} for _ in product.sizes]
    maps: list[list[RealMatrix]] = [[np.eye(size)] for size in product.sizes]
    places = []
    for block in strategy.blocks:
        place = []
        for i, integers in enumerate(block.integers):
            key = integers.tobytes()
            if key not in seen[i]:
                seen[i][key] = len(maps[i])
                maps[i].append(block.inverses[i] @ block.factor(i))
            place.append(seen[i][key])
        places.append(place)
    known: dict[tuple[int, bytes], RealMatrix] = {}
    worst = 0.0
    for number, term in enumerate(product.terms):
        for i, V in enumerate(term.grams):
            if (i, V.tobytes()) not in known:
                known[i, V.tobytes()] = _coordinates(V, maps[i])
        own = [place for place, block in zip(places, strategy.blocks, strict=True) if block.answers(number)]
        worst = max(worst, _missing([known[i, V.tobytes()] for i, V in enumerate(term.grams)], own))
    return worst


def _coordinates(V: RealMatrix, maps: list[RealMatrix]) -> RealMatrix:
    """The maps, seen through the queries of one attribute, in an orthonormal basis of their span; one column a map."""
    F = semidefinite_factor(V)
    R = np.linalg.qr(np.stack([(F @ m).ravel() for m in maps], axis=1), mode="r")
    _, sizes, directions = np.linalg.svd(R)
    rank = int(np.count_nonzero(sizes > NOTHING * sizes[0])) or 1
    return np.asarray(sizes[:rank, None] * directions[:rank])


def _missing(coordinates: list[RealMatrix], places: list[list[int]]) -> float:
    size = math.prod(len(R) for R in coordinates)
    fits("certificate", f"{len(places)} blocks", size * 8, advice="Use fewer different factors.")
    whole = _outer([R[:, 0] for R in coordinates])
    left = whole.copy()
    for place in places:
        left -= _outer([R[:, k] for R, k in zip(coordinates, place, strict=True)])
    norm = float(np.linalg.norm(whole))
    return float(np.linalg.norm(left)) / norm if norm > 0 else 0.0


def _outer(vectors: list[RealVector]) -> RealVector:
    product = np.ones(1)
    for vector in vectors:
        product = np.multiply.outer(product, vector).ravel()
    return product
