"""Public groups: policies and queries within a group, against columns of the matrix written out."""

import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.problem.groups import (
    are_alike,
    column_squares,
    hidden_axes,
    policy_within,
    problem_within,
    queries_within,
    row_squares,
    slices,
)
from tests.support.groups import cells_of_groups

RNG = np.random.default_rng(4)
CASES = {
    "ranges": ("all-range:4x3x2", (0,)),
    "prefixes": ("prefix:4x3x2", (1,)),
    "marginals": ("marginals:4x3x2:2", (0, 2)),
    "tables": ("marginals:4x3x2:all", (2,)),
    "random boxes": ("random-range:4x3x2:40:seed=3", (0,)),
    "random boxes, two attributes": ("random-range:4x3x2:40:seed=3", (0, 2)),
    "any matrix": (RNG.normal(size=(9, 24)), (1,)),
    "a sparse matrix with an empty query": (sp.csr_array(np.where(RNG.random((6, 24)) < 0.2, 1.0, 0.0)), (0, 1)),
}


def whole(matrix):
    return bf.workload.parse(matrix) if isinstance(matrix, str) else bf.workload.from_matrix(matrix, domain=(4, 3, 2))


@pytest.mark.parametrize("case", CASES)
def test_the_form_within_a_group_is_the_sum_over_the_groups(case):
    made, axes = whole(CASES[case][0]), CASES[case][1]
    W = made.matrix.dense()
    V = sum(W[:, cells].T @ W[:, cells] for cells in cells_of_groups((4, 3, 2), axes))
    U = queries_within(made.matrix, (4, 3, 2), axes)
    np.testing.assert_allclose(U.gram(), V, rtol=1e-12, atol=1e-12)


def test_weights_of_queries_are_in_the_form():
    made = bf.workload.weighted(whole("random-range:4x3x2:40:seed=3"), np.linspace(1, 2, 40))
    both = bf.workload.union(whole("all-range:4x3x2"), made)
    for each in (made, both):
        W = each.objective.dense()
        V = sum(W[:, cells].T @ W[:, cells] for cells in cells_of_groups((4, 3, 2), (1,)))
        np.testing.assert_allclose(queries_within(each.objective, (4, 3, 2), (1,)).gram(), V, rtol=1e-12)


def test_equal_queries_of_several_terms_are_one_block():
    """So that prefixes and ranges stay what closed forms know."""
    U = queries_within(whole("marginals:4x3x2:all").matrix, (4, 3, 2), (0,))
    assert len(U.blocks) == 2  # all values, and their total


def test_edges_of_the_whole_are_those_of_every_group():
    """Quotes policy_within: Every edge of the policy is an edge of the result, within one group."""
    policy = bf.policy.parse("product:line:4,empty:3,bounded:2")
    own, groups = policy_within(policy, (0, 2)), cells_of_groups((4, 3, 2), (0, 2))
    expected = {frozenset((cells[u], cells[v])) for cells in groups for u, v in own.edges.tolist()}
    assert expected == {frozenset(edge) for edge in policy.edges.tolist()}
    assert own.domain.names == ("a0", "a2")


def test_axes_are_the_attributes_with_edges():
    assert hidden_axes(bf.policy.parse("product:empty:3,line:4,empty:2")) == (1,)
    assert hidden_axes(bf.policy.parse("sensitive:2x5x7:1,2")) == (1, 2)
    assert hidden_axes(bf.policy.parse("product:empty:3,empty:4")) == (0,)
    for spec in ("line:4", "threshold:4x4:2", "product:line:3,line:4", "product:line:3,empty:1"):
        assert hidden_axes(bf.policy.parse(spec)) is None


@pytest.mark.parametrize(
    ("spec", "axes", "words"),
    [
        ("product:line:3,bounded:4", (0,), "has edges, and tells groups apart"),
        ("line:4", (0,), "is no product with these attributes"),
        ("threshold:4x4:2", (0,), "is no product with these attributes"),
        ("product:line:3,empty:4", (), "is no product with these attributes"),
        ("product:line:3,empty:4", (0, 0), "is no product with these attributes"),
        ("product:line:3,empty:4", (2,), "is no product with these attributes"),
        ("product:line:3,empty:4", (-2,), "is no product with these attributes"),
    ],
)
def test_other_attributes_are_refused(spec, axes, words):
    with pytest.raises(InputError, match=words):
        policy_within(bf.policy.parse(spec), axes)


def test_names_and_labels_stay_with_their_attributes():
    domain = bf.Domain((3, 2), ("age", "place"), (("young", "middle", "old"), None))
    policy = bf.policy.product(bf.policy.line(3), bf.policy.empty(2), domain=domain)
    own = problem_within(bf.problem(bf.workload.all_range(domain), policy), (0,))
    assert own.policy.domain.names == ("age",)
    assert own.policy.domain.labels == (("young", "middle", "old"),)


def test_squares_of_columns_and_rows_are_those_of_the_matrix():
    factors = list(bf.workload.parse("all-range:5x4").matrix.factors)
    factors += [bf.workload.prefix(6).matrix, bf.workload.from_matrix(RNG.normal(size=(3, 4))).matrix]
    for factor in factors:
        W = factor.dense()
        np.testing.assert_allclose(column_squares(factor), (W**2).sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(row_squares(factor), (W**2).sum(axis=1), rtol=1e-12)


def test_groups_are_alike_where_every_group_is_asked_the_same():
    policy = "product:line:4,empty:3,empty:2"
    for workload, alike in {
        "all-range:4x3x2": True,
        "marginals:4x3x2:all": True,
        "random-range:4x3x2:40:seed=3": False,
    }.items():
        assert are_alike(bf.problem(workload, policy), (0,)) == alike
    mixed = bf.workload.union(bf.workload.parse("all-range:4x3x2"), bf.workload.parse("identity:4x3x2"))
    assert not are_alike(bf.problem(mixed, policy), (0,))  # the middle of three is asked for more often by ranges


def test_a_query_is_cut_into_what_it_asks_in_each_group():
    W = np.array([[1.0, 0, 2, 0, 0, 3], [0, 0, 0, 1, 0, 0]])
    cut = slices(bf.workload.from_matrix(W, domain=(2, 3)).matrix, (2, 3), (0,))
    assert cut.query.tolist() == [0, 0, 1]
    assert cut.own.dense().tolist() == [[1, 0], [2, 3], [0, 1]]
