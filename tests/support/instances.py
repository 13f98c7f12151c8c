"""Policies and workloads that the tests run over, and hypothesis strategies for random ones."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.problem.product import as_product

BOTTOM = -1

SMALL_SPECS = [
    "unbounded:4",
    "bounded:4",
    "line:5",
    "cycle:4",
    "star-tree:4",
    "threshold:5:2",
    "threshold:2x3:1",
    "h-theta:5:2",
    "sensitive:2x2x2:1,2",
    "product:line:2,bounded:3",
    "product:line:2,unbounded:2",
    "empty:3",
]


@st.composite
def random_graphs(draw, most_cells, forest):
    """Number of cells and edges of a random graph: some components, some with BOTTOM, some cells isolated."""
    n = draw(st.sampled_from([1, 2, 3, 5, most_cells]))
    vertices = [*range(n), BOTTOM]
    pairs = [(u, v) for u in vertices for v in vertices if v != BOTTOM and (u == BOTTOM or u < v)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * n))
    if forest:
        g = nx.Graph()
        g.add_nodes_from(vertices)
        for u, v in chosen:
            if not nx.has_path(g, u, v):
                g.add_edge(u, v)
        chosen = list(g.edges)
    return n, chosen


def given_policies(*, most_cells=7, forest=False):
    """Run a test on random policies, built outside the strategy: the type checker draws random numbers of its own."""

    def decorate(test):
        @given(random_graphs(most_cells, forest))
        def run(graph):
            n, edges = graph
            ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
            test(policy.from_edges(ends[:, 0], ends[:, 1], n))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def real_matrices(num_columns, seed):
    """A few real matrices of that width: not 0/1, with negative and repeated entries."""
    rng = np.random.default_rng(seed)
    return rng.integers(-3, 4, size=(3, num_columns)) + 0.25 * rng.integers(0, 4, size=(3, num_columns))


def random_tree(num_cells, seed):
    """A random recursive tree on the cells."""
    rng = np.random.default_rng(seed)
    parents = [int(rng.integers(0, i)) for i in range(1, num_cells)]
    return policy.from_edges(parents, list(range(1, num_cells)), num_cells, spec=f"random tree {seed}")


def random_regular(num_cells, seed):
    """A random 3-regular graph on the cells."""
    g = nx.random_regular_graph(3, num_cells, seed=seed)
    u, v = np.array(sorted(tuple(sorted(e)) for e in g.edges)).T
    return policy.from_edges(u, v, num_cells, spec=f"random 3-regular graph {seed}")


def halves(num_cells, seed):
    """Two components: a threshold graph on the first half, a path with BOTTOM on the second."""
    half = num_cells // 2
    first = policy.threshold(half, 3).edges
    second = policy.line(num_cells - half).edges + half
    bottom = np.array([[num_cells - 1, BOTTOM]])
    u, v = np.concatenate([first, second, bottom]).T
    return policy.from_edges(u, v, num_cells, spec="two components")


def random_workload(num_cells, seed):
    """Random 0/1 queries, twice as many as cells."""
    rng = np.random.default_rng(seed)
    return workload.from_matrix(rng.integers(0, 2, size=(2 * num_cells, num_cells)), spec=f"random 0/1 {seed}")


def product(queries, graph):
    queries = workload.parse(queries) if isinstance(queries, str) else queries
    graph = policy.parse(graph) if isinstance(graph, str) else graph
    made = as_product(bf.Problem(queries, graph))
    assert made is not None
    return made
