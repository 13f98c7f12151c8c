"""Public queries: answers that see only what the policy makes public are exact whole numbers."""

from __future__ import annotations

import secrets

import numpy as np
from jaxtyping import Bool, Shaped

from hdmm_bf._types import RealVector
from hdmm_bf.matrix import Matrix
from hdmm_bf.problem.transform import Grounding

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
