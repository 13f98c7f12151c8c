"""Problems by spec, and the error of a Laplace strategy from its definition."""

import numpy as np

from hdmm_bf import policy, workload
from hdmm_bf.problem.transform import Problem


def problem(W, G):
    """The problem of two specs, or of what they stand for."""
    return Problem(workload.parse(W) if isinstance(W, str) else W, policy.parse(G) if isinstance(G, str) else G)


def exact_error(made, kind, matrix):
    """sensitivity^2 ||W A^+||_F^2 by pseudo-inverse, from the definition."""
    moved, queries = (matrix @ made.P.dense(), made.W_D()) if kind == "vertex" else (matrix, made.W_G())
    return np.abs(moved).sum(axis=0).max() ** 2 * np.linalg.norm(queries @ np.linalg.pinv(matrix)) ** 2
