"""Spanners, and their stretch by breadth-first search in networkx."""

import networkx as nx
import numpy as np
import pytest

from hdmm_bf import policy
from hdmm_bf.policy import BOTTOM
from tests.support import instances, oracles


def oracle_stretch(p, spanner):
    g = oracles.graph(p.num_cells, spanner.edges)
    return max((nx.shortest_path_length(g, int(u), int(v)) for u, v in p.edges), default=0)


@pytest.mark.parametrize(("n", "threshold"), [(8, 1), (8, 2), (9, 4), (16, 4), (17, 5), (4, 9)])
def test_h_theta_on_a_line_is_a_tree_inside_the_threshold_policy_with_stretch_at_most_three(n, threshold):
    spanner, whole = policy.h_theta(n, threshold), policy.threshold(n, threshold)
    assert spanner.is_tree
    assert {frozenset(e) for e in spanner.edges.tolist()} <= {frozenset(e) for e in whole.edges.tolist()}
    assert policy.stretch(whole, spanner) == oracle_stretch(whole, spanner) <= 3


@pytest.mark.parametrize(("sizes", "threshold"), [((4, 4), 1), ((6, 6), 2), ((5, 7), 4), ((9, 8), 6), ((4, 4, 4), 3)])
def test_h_theta_in_more_dimensions_is_a_connected_subgraph_and_its_stretch_is_computed(sizes, threshold):
    spanner, whole = policy.h_theta(sizes, threshold), policy.threshold(sizes, threshold)
    assert spanner.components.count == 1
    assert {frozenset(e) for e in spanner.edges.tolist()} <= {frozenset(e) for e in whole.edges.tolist()}
    assert policy.stretch(whole, spanner) == oracle_stretch(whole, spanner)


@instances.given_policies()
def test_spanning_trees_span_and_their_stretch_is_the_longest_detour(p):
    tree = policy.spanning_tree(p)
    edges = {frozenset(e) for e in p.edges.tolist()}
    assert tree.is_forest
    assert {frozenset(e) for e in tree.edges.tolist()} <= edges
    assert np.array_equal(tree.components.labels, p.components.labels)
    assert policy.stretch(p, tree) == oracle_stretch(p, tree)


@instances.given_policies()
def test_stretch_through_a_graph_with_cycles_agrees_with_networkx(p):
    denser = policy.union(p, policy.spanning_tree(p), policy.cycle(p.num_cells)) if p.num_cells > 2 else p
    assert policy.stretch(p, denser) == oracle_stretch(p, denser)


def test_the_root_of_a_spanning_tree_can_be_chosen():
    star = policy.spanning_tree(policy.bounded(6), root=2)
    assert sorted(np.unique(star.edges, return_counts=True)[1]) == [1, 1, 1, 1, 1, 5]
    both = policy.union(policy.line(4), policy.unbounded(4))
    assert policy.stretch(both, policy.spanning_tree(both, root=BOTTOM)) == 2
    from_cell = policy.spanning_tree(both, root=0)
    assert {(0, 1), (0, BOTTOM)} <= {tuple(e) for e in from_cell.edges.tolist()}
    assert policy.stretch(both, from_cell) == oracle_stretch(both, from_cell)


def test_any_spanning_tree_of_a_cycle_has_a_detour_around_it():
    cycle = policy.cycle(9)
    assert policy.stretch(cycle, policy.spanning_tree(cycle)) == 8
