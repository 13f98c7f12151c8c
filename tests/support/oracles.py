"""Slow and obviously right: the definitions, written out. Imports nothing from the package but BOTTOM's value."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np

BOTTOM = -1


def neighbours(edges, x):
    """All databases one policy step away from the histogram x (Definition "Blowfish neighbors")."""
    found = []
    for u, v in edges:
        for a, b in ((u, v), (v, u)):
            y = list(x)
            if a != BOTTOM:
                y[a] -= 1
            if b != BOTTOM:
                y[b] += 1
            if min(y) >= 0:
                found.append(tuple(y))
    return found


def databases(num_cells, most_records):
    """All histograms with at most that many records."""
    return [x for x in itertools.product(range(most_records + 1), repeat=num_cells) if sum(x) <= most_records]


def sensitivity(W, edges, norm, most_records=2):
    """Largest change of W x over all neighbouring databases with few records."""
    order = {"L1": 1, "L2": 2}[norm]
    changes = [
        np.linalg.norm(W @ np.array(x) - W @ np.array(y), order)
        for x in databases(W.shape[1], most_records)
        for y in neighbours(edges, x)
    ]
    return max(changes, default=0.0)


def graph(num_cells, edges):
    """The policy as a networkx graph with BOTTOM as the node -1, present only if some edge needs it."""
    g = nx.Graph()
    g.add_nodes_from(range(num_cells))
    g.add_edges_from((int(u), int(v)) for u, v in edges)
    return g


def threshold_edges(sizes, limit):
    """Pairs of cells at L1 distance 1 to limit, by comparing all pairs."""
    cells = list(itertools.product(*(range(s) for s in sizes)))
    return {
        (i, j)
        for i, j in itertools.combinations(range(len(cells)), 2)
        if sum(abs(a - b) for a, b in zip(cells[i], cells[j], strict=True)) <= limit
    }


def all_range_rows(sizes):
    """Every box of the domain as a 0/1 row, first attribute slowest, lo before hi."""
    per_axis = [[(lo, hi) for lo in range(s) for hi in range(lo, s)] for s in sizes]
    rows = []
    for box in itertools.product(*per_axis):
        row = np.zeros(sizes)
        row[tuple(slice(lo, hi + 1) for lo, hi in box)] = 1
        rows.append(row.ravel())
    return np.array(rows)


def prefix_rows(sizes):
    """Every corner box as a 0/1 row."""
    rows = []
    for corner in itertools.product(*(range(s) for s in sizes)):
        row = np.zeros(sizes)
        row[tuple(slice(0, c + 1) for c in corner)] = 1
        rows.append(row.ravel())
    return np.array(rows)


def marginal_rows(sizes, ways):
    """All `ways`-way marginals as 0/1 rows."""
    rows = []
    for kept in itertools.combinations(range(len(sizes)), ways):
        for values in itertools.product(*(range(sizes[a]) for a in kept)):
            row = np.zeros(sizes)
            index = [slice(None)] * len(sizes)
            for a, value in zip(kept, values, strict=True):
                index[a] = value
            row[tuple(index)] = 1
            rows.append(row.ravel())
    return np.array(rows)
