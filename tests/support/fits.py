"""Fits put together from a strategy."""

import numpy as np

from hdmm_bf.certificate.dense import certify
from hdmm_bf.fit import Fit


def shipped(problem, strategy, noise="laplace"):
    """A fit that holds a strategy, certified as `fit` does."""
    weights = np.full(problem.policy.num_edges, 1.0)
    held = {"kind": strategy.kind, "integers": strategy.integers, "bits": strategy.bits, "weights": weights}
    return Fit(
        problem=problem,
        strategy=strategy,
        certificate=certify(problem, noise=noise, **held),
        weights=weights,
        requested_gap=1e-3,
        seed=0,
        status="interrupted",
        seconds=0.0,
    )
