"""Ascent on logarithms of weights that learns the curvature from its last steps: Anderson's method, with momentum.

    w_i <- w_i (excess_i)^power       raises f; excess is v_i or d_e against its average: a step along its logarithm

The last few steps tell how these logarithms answer to a change of log w. The combination of steps that would bring them
nearest to zero, each counted by its share, is added. Weights that should vanish have no such zero: for them there is
Nesterov's momentum, dropped when it points downhill. Light weights that must grow are raised by a larger power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from hdmm_bf._types import RealVector

_REMEMBERED = 8
"""Steps that are combined: 3 took a third more of them under a threshold, 12 no fewer."""

_POWER = 2.0
"""Length of the step outside of what is remembered."""

_LONGEST = 4.0
"""No weight changes by more than e^4 in a step."""

_MOST_RAISED = 10.0
"""Weights far below the average are raised by at most this many times the power."""

_DAMPING = 1e-8
"""Share of the trace that is added to the least squares: steps that repeat each other must not blow up."""


@final
class Secants:
    """The point of the ascent, and the last steps.

    No weight is less than `lightest` times the largest of its block.
    """

    def __init__(self, weights: RealVector, *, blocks: Sequence[slice], lightest: Sequence[float]) -> None:
        self.blocks, self.lowest = blocks, [math.log(least) for least in lightest]
        self.restart(weights)

    def restart(self, weights: RealVector) -> None:
        """Go on from these weights, and forget how they were found."""
        self.at = self._inside(np.log(np.maximum(weights, 1e-300)))
        self.stepped, self.age = self.at, 0
        self.last: tuple[RealVector, RealVector] | None = None
        self.moved, self.turned = np.empty((2, _REMEMBERED, weights.size))
        self.steps = 0

    def weights(self) -> RealVector:
        """Return the weights at the current point."""
        parts = [np.exp(self.at[block]) for block in self.blocks]
        return np.concatenate([part / part.sum() for part in parts])

    def advance(self, weights: RealVector, excess: RealVector) -> None:
        """Step along log(excess), as the last steps tell, and on with the momentum."""
        slope = np.log(np.maximum(excess, 1e-12))
        share = weights * excess  # sums to one in every block
        if self.last is not None:
            row = self.steps % _REMEMBERED  # the oldest is forgotten
            np.subtract(self.at, self.last[0], out=self.moved[row])
            np.subtract(slope, self.last[1], out=self.turned[row])
            self.steps += 1
        self.last = (self.at, slope)
        step = self.at + np.clip(self._step(weights, share, slope), -_LONGEST, _LONGEST)
        if (share - weights) @ (step - self.stepped) < 0:
            self.age = 0
        onward = self.age / (self.age + 3.0) * np.clip(step - self.stepped, -_LONGEST, _LONGEST)
        self.at, self.stepped, self.age = self._inside(step + onward), step, self.age + 1

    def _step(self, weights: RealVector, share: RealVector, slope: RealVector) -> RealVector:
        left, back = slope, np.zeros_like(slope)  # what the last steps do not explain, and the way back that they tell
        known = min(self.steps, _REMEMBERED)
        if known:
            turned = self.turned[:known]
            weighed = turned * share
            normal = weighed @ turned.T
            normal[np.diag_indices(known)] += _DAMPING * np.trace(normal) + 1e-300
            mix = np.linalg.solve(normal, weighed @ slope)
            left, back = slope - mix @ turned, mix @ self.moved[:known]
        return np.asarray(_POWER * np.where(left > 0, self._raising(weights) * left, left) - back)

    def _raising(self, weights: RealVector) -> RealVector:
        raised = np.empty_like(weights)
        for block in self.blocks:
            np.sqrt(np.sqrt(weights[block] * weights[block].size), out=raised[block])
        return np.asarray(np.clip(1.0 / raised, 1.0, _MOST_RAISED))

    def _inside(self, logs: RealVector) -> RealVector:
        parts = zip(self.blocks, self.lowest, strict=True)
        return np.concatenate([np.maximum(logs[block] - logs[block].max(), lowest) for block, lowest in parts])
