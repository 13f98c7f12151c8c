"""Public queries: answers that see only what the policy makes public are exact whole numbers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from hdmm_bf._types import EdgeArray, RealVector
from hdmm_bf.matrix import Dense, Identity, Incidence, Matrix, Ones, Sparse
from hdmm_bf.problem.product import Term
from hdmm_bf.problem.transform import Grounding
from hdmm_bf.workload import AllRange, Boxes, Prefix

PROBE = 2**20
PROBES = 3
"""Whole numbers that a query must not see, in so many draws, to be taken for public: all miss it once in 2^60."""

SEED = secrets.randbits(128)
"""Of the draws: one a process, so that nobody can write a query that they miss and that is not public."""


def public_queries(matrix: Matrix, grounding: Grounding) -> Bool[np.ndarray, " m"]:
    """Say which queries see only public totals: they do not change when records move along the policy's edges.

    Judged in whole numbers: queries with other coefficients may be called not public, never the other way round.
    """
    rng = np.random.default_rng(SEED)
    public = np.ones(matrix.shape[0], dtype=bool)
    for _ in range(PROBES):
        public &= np.asarray(matrix.mv(grounding.expand(rng.integers(1, PROBE, size=grounding.kept.size)))) == 0
    return public


def with_public_answers(
    matrix: Matrix, grounding: Grounding, answers: RealVector, totals: Shaped[np.ndarray, " c"]
) -> RealVector:
    """Return answers with those of public queries computed from the totals alone, in whole numbers where these are."""
    public = public_queries(matrix, grounding)
    if not public.any():
        return answers
    full = np.zeros(grounding.position.size, dtype=np.int64)
    full[grounding.given_up] = np.rint(totals).astype(np.int64)
    return np.asarray(np.where(public, matrix.mv(full), answers), dtype=np.float64)


def flows_of(edges: EdgeArray, size: int) -> Int64[np.ndarray, "_ _"]:
    """Random whole numbers of records moved along every edge of an attribute: what they do to its values."""
    moves = np.random.default_rng(SEED).integers(1, PROBE, size=(len(edges), PROBES))
    return np.asarray(Incidence(edges[:, 0], edges[:, 1], size).mv(moves))


def public_rows(term: Term, flows: Sequence[Int64[np.ndarray, "_ _"]]) -> Bool[np.ndarray, " m"]:
    """Rows of a product that are the same along every edge: those of each factor are."""
    public = np.ones(1, dtype=bool)
    for factor, flow in zip(term.factors, flows, strict=True):
        unseen = ~np.any(np.asarray(factor.mv(flow)), axis=1)
        public = np.logical_and.outer(public, unseen).ravel()
    return public


def is_whole(factor: Matrix) -> bool:
    """Whether a factor counts whole records: the named ones do, others say it by their entries."""
    if isinstance(factor, Dense):
        return bool(np.all(factor.array == np.rint(factor.array)))
    if isinstance(factor, Sparse):
        data = factor.sparse().data
        return bool(np.all(data == np.rint(data)))
    return isinstance(factor, Identity | Ones | Prefix | AllRange | Boxes)
