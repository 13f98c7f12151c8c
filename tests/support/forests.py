"""Random trees over cells, and what holds for them by brute force over the definition."""

from __future__ import annotations

import itertools
from fractions import Fraction

import networkx as nx
import numpy as np


def random_forest(rng, cells, *, one_root=True, most_children=3):
    """Return parents of a random forest over the cells: groups of roots get a parent until one, or some, are left."""
    parents, roots = [-1] * cells, list(range(cells))
    while len(roots) > 1 and (one_root or rng.uniform() < 0.85):
        count = int(rng.integers(2, min(most_children, len(roots)) + 1))
        chosen = rng.choice(roots, size=count, replace=False).tolist()
        parents.append(-1)
        for child in chosen:
            parents[child] = len(parents) - 1
            roots.remove(child)
        roots.append(len(parents) - 1)
    return np.array(parents, dtype=np.int64)


def sums(parents, z):
    """Return z(v) for every node, one row for each vector z."""
    every = np.zeros((len(z), len(parents)), dtype=np.int64)
    every[:, : z.shape[1]] = z
    for node, parent in enumerate(parents):
        if parent >= 0:
            every[:, parent] += every[:, node]
    return every


def lengths(parents, weights, edges):
    """Return the length of every policy edge in the tree with a vertex above all roots, by Dijkstra's algorithm."""
    top, graph = len(parents), nx.Graph()
    graph.add_node(top)
    for node, parent in enumerate(parents):
        graph.add_edge(node, parent if parent >= 0 else top, weight=int(weights[node]))
    ends = [(u, v if v >= 0 else top) for u, v in edges.tolist()]
    return [nx.shortest_path_length(graph, u, v, weight="weight") for u, v in ends]


def box(cells, reach):
    """Return all integer vectors with entries up to a size."""
    return np.array(list(itertools.product(range(-reach, reach + 1), repeat=cells)), dtype=np.int64)


def brute_covariance(parents, rates, fixed, cells, reach):
    """Return the covariance of the law exp(-sum a_v |z(v)|) over a box, root sums zero where they are fixed."""
    z = box(cells, reach)
    every = sums(parents, z)
    weights = np.exp(-np.abs(every) @ rates) * np.all(every[:, fixed] == 0, axis=1)
    return np.asarray((z * (weights / weights.sum())[:, None]).T @ z)


def exact_norm(parents, integers, z):
    """Return sum_v w_v |z(v)| of one vector, as a fraction."""
    return sum(Fraction(int(w)) * abs(int(s)) for w, s in zip(integers, sums(parents, z[None])[0], strict=True))
