"""Arrays of records: copies that nobody can write to."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64


def owned(array: Int64[np.ndarray, ...]) -> Int64[np.ndarray, ...]:
    """Return a copy that cannot be written to: what was certified is what runs."""
    own = array.copy()
    own.setflags(write=False)
    return own
