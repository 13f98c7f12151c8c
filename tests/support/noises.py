"""Sources of noise for tests: played back, recorded, or one unit at a time; and the linear map they reveal."""

import numpy as np
from scipy.optimize import linprog

from experiments.mechanisms.draws import Seeded


class Recorder:
    """Seeded noise that writes down the scale and the number of every draw."""

    def __init__(self, seed=0):
        self.inner = Seeded(np.random.default_rng(seed))
        self.calls = []

    def laplace(self, scale, size):
        self.calls.append((scale, size))
        return self.inner.laplace(scale, size)

    def scales(self):
        return np.concatenate([np.full(size, scale) for scale, size in self.calls])


class Played:
    """Noise given in advance, in the order in which it is asked for."""

    def __init__(self, values):
        self.values, self.used = np.asarray(values, dtype=float), 0

    def laplace(self, scale, size):
        self.used += size
        assert self.used <= self.values.size
        return self.values[self.used - size : self.used].copy()


def noise_map(mechanism, num_cells, epsilon=1.0):
    """Matrix B and scales s of a mechanism that returns x + B noise, noise_j of scale s_j."""
    zero = np.zeros(num_cells, dtype=int)
    recorder = Recorder()
    mechanism(zero, epsilon, recorder)
    units = np.eye(recorder.scales().size)
    return np.stack([mechanism(zero, epsilon, Played(unit)) for unit in units], axis=1), recorder.scales()


def covariance(B, scales):
    return 2 * (B * scales**2) @ B.T


def privacy_loss(B, scales, shift):
    """The least cost of hiding a shift of x in the noise: min sum |s_j| / scale_j with B s = shift."""
    r = B.shape[1]
    found = linprog(np.tile(1 / scales, 2), A_eq=np.hstack([B, -B]), b_eq=shift, bounds=(0, None), method="highs")
    assert found.status == 0, (found.message, r)
    return found.fun


def edge_shifts(policy):
    for u, v in policy.edges.tolist():
        shift = np.zeros(policy.num_cells)
        shift[u] = 1.0
        if v >= 0:
            shift[v] = -1.0
        yield shift


def mean_of(errors, expected, control=1.2):
    """Whether a sample mean is within five standard errors of what is expected, and not of `control` times that."""
    errors = np.asarray(errors)
    margin = 5 * errors.std(ddof=1) / np.sqrt(errors.size)
    return abs(errors.mean() - expected) < margin < abs(errors.mean() - control * expected)
