"""Data that fit a problem: a histogram or records, checked before anything is spent; refusals show no count."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf.data.tables import Histogram, Records, Tables
from hdmm_bf.domain import Domain
from hdmm_bf.problem.transform import Problem

_LARGEST_COUNT = 2**53
_LARGEST_TOTAL = 2**62


def checked_counts(problem: Problem, counts: object) -> Int64[np.ndarray, " n"]:
    """Return the histogram as int64, one entry a cell; refusals say what is wrong but show no count."""
    if isinstance(counts, np.ma.MaskedArray):
        raise fail("release", "counts", "are a masked array", "Fill the masked cells, for example with 0.")
    try:
        array = np.asarray(counts)
    except (ValueError, TypeError):  # the usual message would show the counts
        raise fail("release", "counts", "are not an array", "Give one whole number for each cell.") from None
    sizes, n = problem.policy.domain.sizes, problem.policy.num_cells
    if array.shape not in ((n,), sizes, problem.workload.domain.sizes):
        advice = f"Give one count for each of the {n} cells, in row-major order."
        raise fail("release", f"counts of shape {array.shape}", f"the domain is {problem.policy.domain}", advice)
    if array.dtype.kind not in "biuf":
        raise fail("release", f"counts of type {array.dtype}", "must be whole numbers", "Convert them to int64.")
    advice = "Correct the histogram; counts are whole numbers from 0 to 2^53."
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
    if array.dtype.kind == "f" and not np.all(np.isfinite(array) & (array == np.rint(array))):
        raise fail("release", "counts", "hold a number that is not whole", advice)
    if np.any(array < 0) or np.any(array > _LARGEST_COUNT):
        raise fail("release", "counts", "hold a number that is negative or too large", advice)
    x = array.ravel().astype(np.int64)
    if float(x.sum(dtype=np.float64)) >= _LARGEST_TOTAL:
        raise fail("release", "counts", "have a total that does not fit in 64 bits", "Use a share of the data.")
    return x


def as_tables(problem: Problem, counts: object) -> Tables:
    """Accept a histogram or records."""
    if isinstance(counts, Records):
        if not _same_attributes(counts.domain, problem.policy.domain):
            wanted = problem.policy.domain
            problem_seen = f"the policy is on {', '.join(wanted.names)} with sizes {wanted}"
            shown = f"records on {', '.join(counts.domain.names)} with sizes {counts.domain}"
            raise fail("release", shown, problem_seen, "Make the records on the same domain.")
        return counts
    fits("release", f"a histogram of {problem.policy.domain}", problem.policy.num_cells * 8, advice="Use bf.Records.")
    return Histogram(checked_counts(problem, counts).reshape(problem.policy.domain.sizes))


def _same_attributes(given: Domain, wanted: Domain) -> bool:
    """Whether domains agree on sizes and on what both name: a policy may protect one of two attributes of a size."""
    unnamed = Domain(wanted.sizes).names
    swapped = any(a != b and a in wanted.names for a, b in zip(given.names, wanted.names, strict=False))
    named = given.names == wanted.names or (not swapped and unnamed in (given.names, wanted.names))
    labels = all(a is None or b is None or a == b for a, b in zip(given.labels, wanted.labels, strict=False))
    return given.sizes == wanted.sizes and named and labels
