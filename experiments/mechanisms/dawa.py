"""DAWA: partition the histogram into nearly flat buckets, measure the buckets for the workload, spread them evenly.

Stage 1, `partition`, spends a share of epsilon on the buckets. Stage 2 measures the bucket totals through a binary
hierarchy whose levels are weighted for the workload's queries on the buckets, makes it consistent, and gives every
cell of a bucket the same part. The weights depend on the data through the private partition only. Histograms over two
attributes are first put in the order of a Hilbert curve.

Reference: Li, Hay, Miklau, "A data- and workload-aware algorithm for range queries under differential privacy", 2014.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from experiments.mechanisms import hierarchy
from experiments.mechanisms.checks import Columns, IndexArray, RealMatrix, RealVector, fail, nearest, whole_numbers
from experiments.mechanisms.draws import Draw
from experiments.mechanisms.mechanism import Mechanism, Stage
from experiments.mechanisms.partition import private_partition, published_partition
from hdmm_bf.workload import AllRange, Boxes, Workload

_SAMPLED_QUERIES = 200
"""Queries looked at for the weights of the levels: these go by cube roots, so a sample is as good as all."""

_SHARES = {"proven": 0.5, "published": 0.25}
_CAVEAT = "the published noise for the partition does not prove its share of epsilon"


def dawa(
    workload: Workload | None = None,
    *,
    order: IndexArray | None = None,
    noise: Literal["proven", "published"] = "proven",
    share: float | None = None,
) -> Mechanism:
    """Return DAWA for a workload (the histogram itself when left out).

    Args:
        workload: the queries that the estimate is for.
        order: cells in the order in which they make buckets, for example `hilbert_order("64x64")`.
        noise: for the partition; "published" is for comparison with the paper only, and is not proven private.
        share: the share of epsilon for the partition, between 0 and 1.

    Guarantees:
        epsilon-private between counts that differ by 1 in one cell, with noise="proven": the stages add up.
    """
    if noise not in _SHARES:
        raise fail("dawa", f"noise={noise!r}", "is not known", nearest(str(noise), _SHARES))
    first = _SHARES[noise] if share is None else share
    if not 0 < first < 1:
        raise fail("dawa", f"share={share}", "must be between 0 and 1", "Use for example 0.25.")
    cells = None if order is None else _permutation(order)
    sample = None if workload is None else sample_rows(workload)
    if sample is not None and cells is not None:
        sample = _reordered(sample, cells)
    partition = private_partition if noise == "proven" else published_partition

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        along = counts if cells is None else counts[cells]
        rest = (1.0 - first) * epsilon
        starts = partition(along, first * epsilon, 1.0 / rest, draw)
        return _in_place(_measured(along, starts, sample, rest, draw), cells)

    stages = (Stage("partition", first), Stage("bucket totals", 1.0 - first))
    name, caveat = ("DAWA", "") if noise == "proven" else ("DAWA, published noise", _CAVEAT)
    return Mechanism(name, stages, estimate, _length(workload, cells), caveat)


def _measured(counts: Columns, starts: IndexArray, rows: RealMatrix | None, epsilon: float, draw: Draw) -> RealVector:
    """Stage 2: noisy bucket totals through the weighted hierarchy, spread evenly over their cells."""
    lengths = np.diff(np.append(starts, counts.size))
    weights = level_weights(rows, starts, lengths)
    totals = np.add.reduceat(counts, starts)
    noisy, variances = hierarchy.measure(totals, weights, epsilon, draw, branching=2)
    return np.asarray(np.repeat(hierarchy.consistent(noisy, variances, branching=2) / lengths, lengths))


def level_weights(rows: RealMatrix | None, starts: IndexArray, lengths: IndexArray) -> RealVector:
    """Return the weights of the hierarchy's levels for queries on buckets; for the histogram, all on the buckets."""
    if rows is None:
        levels = hierarchy.num_levels(starts.size, 2)
        return np.asarray(np.eye(levels)[0])
    on_buckets = np.add.reduceat(rows, starts, axis=1) / lengths
    return hierarchy.optimal_weights(hierarchy.usage(on_buckets))


def sample_rows(workload: Workload) -> RealMatrix:
    """Return evenly chosen queries of a workload, written out."""
    matrix, m = workload.matrix, workload.num_queries
    picks = np.unique(np.linspace(0, m - 1, min(m, _SAMPLED_QUERIES)).round().astype(np.int64))
    if isinstance(matrix, AllRange):
        ends = np.array([matrix.bounds(i) for i in picks.tolist()])
        return Boxes((matrix.n,), ends[:, :1], ends[:, 1:]).dense()
    if isinstance(matrix, Boxes):
        return Boxes(matrix.sizes, matrix.low[picks], matrix.high[picks]).dense()
    return np.stack([matrix.row(i) for i in picks.tolist()])


def _permutation(order: IndexArray) -> IndexArray:
    cells = whole_numbers("dawa", "order", order)
    if cells.ndim != 1 or not np.array_equal(np.sort(cells), np.arange(cells.size)):
        raise fail("dawa", f"order of shape {cells.shape}", "must name every cell once", "Use hilbert_order(domain).")
    return cells


def _reordered(rows: RealMatrix, cells: IndexArray) -> RealMatrix:
    if rows.shape[1] != cells.size:
        seen = f"a workload on {rows.shape[1]} cells and an order of {cells.size}"
        raise fail("dawa", seen, "must be about the same cells", "Make both for one domain.")
    return rows[:, cells]


def _length(workload: Workload | None, cells: IndexArray | None) -> int | None:
    if workload is not None:
        return workload.num_cells
    return None if cells is None else int(cells.size)


def _in_place(values: RealVector, cells: IndexArray | None) -> RealVector:
    """Put values along the order back into the cells."""
    if cells is None:
        return values
    placed = np.empty_like(values)
    placed[cells] = values
    return placed
