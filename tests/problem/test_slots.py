"""Slots: what noise along a graph does to the cells, and queries of cells as queries of slots."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError
from hdmm_bf.matrix import Sparse
from hdmm_bf.problem.slots import (
    all_values,
    columns,
    folded_problem,
    is_small,
    moves_along,
    on_slots,
    slot_policy,
    steps,
)
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import TreePart
from tests.support.tree_sums import flow_of, spread_of
from tests.support.trees import star

PARTS = policies.from_edges([0, 1, 3], [1, 2, 4], 6)  # two public components and a value by itself
MIXED = policies.from_edges([0, 1, 3], [1, -1, 4], 5)  # presence hidden for some, a value by itself, a public pair
GRAPHS = {
    "a line, its own edges": (policies.line(4), policies.line(4).edges),
    "a line, every value": (policies.line(4), all_values(policies.line(4))),
    "a complete graph, every value": (policies.bounded(5), all_values(policies.bounded(5))),
    "a complete graph, a star": (policies.bounded(4), policies.star_tree(4).edges),
    "several components, every value": (PARTS, all_values(PARTS)),
    "hidden presence, its own edges": (MIXED, MIXED.edges),
    "hidden presence, every value": (MIXED, all_values(MIXED)),
    "a cycle, every value": (policies.cycle(5), all_values(policies.cycle(5))),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_columns_are_edges_less_what_they_do_to_public_totals(name):
    own, edges = GRAPHS[name]
    M = columns(own, edges)
    expected = flow_of(edges, own.edges, own.num_cells)
    for row, wanted in zip(M.integers.tolist(), expected, strict=True):
        assert list(row) == [M.denominator * value for value in wanted]
    np.testing.assert_allclose(M.square, M.matrix @ M.matrix.T)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_move_is_its_path_in_the_graph(name):
    """M y = p for a path y of p, by networkx; quotes steps: Every move is a path of at most so many edges [...]."""
    own, edges = GRAPHS[name]
    M = columns(own, edges)
    graph = nx.Graph()
    graph.add_nodes_from(range(-1, own.num_cells))
    for number, (u, v) in enumerate(edges.tolist()):
        graph.add_edge(u, v, number=number, head=u)
    lengths = []
    for u, v in own.edges.tolist():
        path, y = nx.shortest_path(graph, u, v), np.zeros(len(edges), dtype=np.int64)
        for a, b in zip(path, path[1:], strict=False):
            held = graph.edges[a, b]
            y[held["number"]] += 1 if held["head"] == a else -1
        p = np.array([int(k == u) - int(k == v) for k in range(own.num_cells)])
        assert np.array_equal(M.integers @ y, M.denominator * p)
        lengths.append(len(path) - 1)
    assert steps(own.edges, edges, own.num_cells) == max(lengths)


def test_a_move_that_is_no_path_is_refused():
    with pytest.raises(InputError, match="is no path in the graph"):
        steps(policies.line(4).edges, np.array([[0, 1], [2, 3]]), 4)
    assert steps(np.empty((0, 2), dtype=np.int64), np.array([[0, 1]]), 4) == 0


WORKLOADS = {
    "ranges": bf.workload.all_range,
    "tables": lambda sizes: bf.workload.union(bf.workload.identity(sizes), bf.workload.marginals(sizes, 1)),
    "boxes": lambda sizes: bf.workload.random_range(sizes, 30, seed=2),
    "boxes and tables": lambda sizes: bf.workload.union(
        bf.workload.random_range(sizes, 20, seed=2), bf.workload.marginals(sizes, 2)
    ),
    "weighted boxes": lambda sizes: bf.workload.weighted(
        bf.workload.random_range(sizes, 30, seed=2), np.linspace(1, 3, 30)
    ),
    "weighted tables": lambda sizes: bf.workload.weighted(
        bf.workload.marginals(sizes, 1), np.arange(1.0, sum(sizes) + 1)
    ),
    "any matrix": lambda sizes: bf.workload.from_matrix(
        np.random.default_rng(1).normal(size=(7, math.prod(sizes))), domain=sizes
    ),
}
DOMAINS = {
    "along the first": ((policies.bounded(4), policies.line(3), policies.empty(2)), 0, (1,)),
    "along the last": ((policies.line(3), policies.empty(2), MIXED), 2, (0,)),
    "along one in the middle": ((policies.line(2), PARTS, policies.line(2)), 1, (0, 2)),
}


@pytest.mark.parametrize("queries", WORKLOADS)
@pytest.mark.parametrize("name", DOMAINS)
def test_queries_of_slots_have_the_squares_of_queries_of_cells(name, queries):
    """Sums over slots of W (M (x) I), one value of the tree's attributes at a time, written out with fractions."""
    factors, along, axes = DOMAINS[name]
    sizes = tuple(own.num_cells for own in factors)
    problem = Problem(WORKLOADS[queries](sizes), policies.product(*factors))
    edges = all_values(factors[along])
    part = TreePart(star(math.prod(sizes[i] for i in axes), 0.5), axes, along, edges)
    spread = np.array(spread_of(part, problem.policy, sizes), dtype=np.float64)
    slots = tuple(len(edges) if i == along else n for i, n in enumerate(sizes))
    for weighted in (False, True):
        matrix = problem.workload.objective if weighted else problem.workload.matrix
        whole = (matrix.dense() @ spread).reshape(-1, *slots)
        found, shape = on_slots(matrix, sizes, along, columns(factors[along], edges))
        own = found.dense().reshape(-1, *shape)
        last = tuple(range(-len(axes), 0))
        whole, own = (np.moveaxis(T, [1 + i for i in axes], last) for T in (whole, own))
        cells = math.prod(sizes[i] for i in axes)
        whole, own = (T.reshape(len(T), -1, cells) for T in (whole, own))
        squares = [np.einsum("qgi,qgj->qij", T, T) for T in (whole, own)]
        np.testing.assert_allclose(*squares, atol=1e-9)
    slot = folded_problem(problem, along, axes, columns(factors[along], edges))
    assert slot.policy.domain.sizes == shape
    assert slot.workload.is_weighted == problem.workload.is_weighted


def test_a_query_that_no_noise_reaches_has_none():
    """Totals over a complete attribute are public: exactly zero, not 1e-16."""
    own = policies.bounded(7)
    found, _ = on_slots(bf.workload.marginals((7, 3), 1).matrix, (7, 3), 0, columns(own, all_values(own)))
    assert np.array_equal(np.any(found.dense() != 0, axis=1), [True] * 7 + [False] * 3)


def test_policies_of_slots_and_of_single_attributes_have_the_edges_that_they_say():
    """Quotes slot_policy: Its edges are from every slot to BOTTOM; moves_along: those that change one [...]."""
    assert slot_policy((2, 3, 2), (1, 2)).edges.tolist() == [[cell, -1] for cell in range(12)]
    policy = policies.product(policies.line(3), policies.bounded(2), policies.unbounded(2))
    along = moves_along(policy, (0, 2))
    changed = [edge for edge in policy.edges.tolist() if edge[1] < 0 or edge[0] // 4 != edge[1] // 4]
    assert sorted(along.edges.tolist()) == sorted(changed)


def test_queries_that_would_not_fit_when_written_out_for_slots_are_refused():
    row = sp.csr_array(([1.0, 1.0], ([0, 0], [0, 999_999])), shape=(1, 1_000_000))
    own = policies.bounded(1000)
    with pytest.raises(InputError, match="on slots.*would need"):
        on_slots(Sparse(row), (1000, 1000), 0, columns(own, all_values(own)))


def test_graphs_that_are_too_large_are_known():
    """At most 2^22 values times edges, and public totals over components with a small common multiple."""
    assert is_small(policies.line(2000), policies.line(2000).edges)
    assert not is_small(policies.line(3000), policies.line(3000).edges)
    assert not is_small(policies.line(3), np.empty((0, 2), dtype=np.int64))
    sizes = (29, 31, 37, 41, 43, 47, 53)
    starts = np.cumsum((0, *sizes[:-1]))
    heads = np.concatenate([start + np.arange(size - 1) for start, size in zip(starts, sizes, strict=True)])
    own = policies.from_edges(heads, heads + 1, sum(sizes))
    assert is_small(own, own.edges)
    assert not is_small(own, all_values(own))
