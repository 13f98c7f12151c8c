"""Data as tables over some attributes: what strategies on large domains ask of a histogram or of a list of records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail, fits, whole_numbers
from hdmm_bf._types import AnyArray
from hdmm_bf.domain import Domain


@runtime_checkable
class Tables(Protocol):
    """Something that can be counted over any attributes."""

    @property
    def num_records(self) -> int:
        """Number of records."""

    def table(self, attributes: Sequence[int]) -> AnyArray:
        """Return exact counts over some attributes, in order, summed over all others."""


@final
@dataclass(frozen=True, eq=False)
class Histogram:
    """One count a cell, as a tensor with one axis an attribute."""

    counts: Int64[np.ndarray, ...]

    @property
    def num_records(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    def table(self, attributes: Sequence[int]) -> AnyArray:
        """Return exact counts over some attributes."""
        others = tuple(i for i in range(self.counts.ndim) if i not in attributes)
        return np.asarray(self.counts.sum(axis=others))


@final
@dataclass(frozen=True, eq=False)
class Records:
    """A list of records, one value number for each attribute: for domains too large to write a histogram.

    Args:
        values: one row a record, one column an attribute; numbers from 0 to size - 1.
        domain: the attributes.
    """

    values: Int64[np.ndarray, "records d"]
    domain: Domain

    def __post_init__(self) -> None:
        rows = whole_numbers("records", "values", self.values)
        if rows.ndim != 2 or rows.shape[1] != self.domain.num_attributes:
            problem = f"the domain {self.domain} has {self.domain.num_attributes} attributes"
            raise fail("records", f"values of shape {rows.shape}", problem, "Give one column for each attribute.")
        if np.any(rows < 0) or np.any(rows >= np.array(self.domain.sizes)):
            advice = "Number the values of every attribute from 0."
            raise fail("records", "values", "hold a number outside the domain", advice)
        object.__setattr__(self, "values", rows)

    @property
    def num_records(self) -> int:
        """Number of records."""
        return len(self.values)

    def table(self, attributes: Sequence[int]) -> AnyArray:
        """Return exact counts over some attributes."""
        sizes = [self.domain.sizes[a] for a in attributes]
        fits("records.table", f"table over {len(sizes)} attributes", math.prod(sizes) * 8, advice="Use fewer.")
        if not sizes:
            return np.array(self.num_records, dtype=np.int64)
        cells = np.ravel_multi_index(tuple(self.values[:, a] for a in attributes), sizes)
        return np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes).astype(np.int64)
