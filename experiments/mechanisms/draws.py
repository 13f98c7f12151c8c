"""Where noise comes from: mechanisms ask a `Draw` for Laplace noise and never make any themselves.

A mechanism adds each draw to a whole-number combination of whole counts (unless its docstring says otherwise), so
an exact discrete sampler can take the place of the floating-point one without a change to the mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np

from experiments.mechanisms.checks import RealVector


@runtime_checkable
class Draw(Protocol):
    """A source of independent Laplace noise."""

    def laplace(self, scale: float, size: int) -> RealVector:
        """Return `size` independent draws with density proportional to exp(-|z| / scale)."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Seeded:
    """Floating-point noise from a NumPy generator: for experiments only, never for publication.

    Floating-point Laplace noise leaks low-order bits of what it is added to, and NumPy's generators can be predicted.
    """

    generator: np.random.Generator

    def laplace(self, scale: float, size: int) -> RealVector:
        """Return `size` independent draws."""
        return self.generator.laplace(0.0, scale, size)
