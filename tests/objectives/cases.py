"""Pairs of a workload and a policy for the tests of objectives: all kinds of components, of queries and of products."""

import numpy as np

import hdmm_bf as bf
from hdmm_bf import policy
from tests.objectives import oracle
from tests.support.instances import halves

SPECS = [
    ("all-range:7", "threshold:7:2"),
    ("prefix:6", "unbounded:6"),
    ("identity:5", "bounded:5"),
    ("all-range:3x4", "threshold:3x4:1"),
    ("marginals:2x3:1", "sensitive:2x3:1"),
    ("prefix:8", halves(8, 0)),
    ("prefix:5", policy.from_edges([0, 3], [1, -1], 5)),
]
"""The last but two have public components among others, the last cells that no edge moves as well."""

PRODUCTS = [
    ("all-range:3x4", "threshold:3x4:1"),
    ("prefix:3x4", "unbounded:3x4"),
    ("all-range:3x2", "product:unbounded:3,line:2"),
    ("marginals:2x3x2:2", "sensitive:2x3x2:0,1"),
]


def names(cases):
    return [f"{W} {G if isinstance(G, str) else G.spec or 'edges'}" for W, G in cases]


def made(W, G):
    """The problem, and what the oracles need: the rows of W, the number of cells, the edges."""
    found = bf.problem(W, G)
    return found, oracle.queries(W), found.policy.num_cells, found.policy.edges.tolist()


def strategy(n, seed=0):
    """A random strategy of full rank over all cells."""
    return np.random.default_rng(seed).normal(size=(n + 2, n))
