"""What may be asked for: goals as they are read, and mistakes in words."""

import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.problem.goal import UNASKED, goal, is_public_query
from hdmm_bf.problem.inputs import problem
from hdmm_bf.problem.query_forms import query_forms
from tests.support import goals
from tests.support.mistakes import _as_users_run_it, assert_refused, table  # noqa: F401

W, G = bf.workload.prefix(4), bf.policy.unbounded(4)
BOUNDED = bf.policy.bounded(4)
HALVES = list("aabb")


def asked(**arguments):
    return lambda: goal(W, G, **arguments)


def test_targets_are_read_for_all_queries_for_each_and_by_group():
    np.testing.assert_array_equal(goal(W, G, targets=3).targets, [3, 3, 3, 3])
    np.testing.assert_array_equal(goal(W, G, targets=[1, 2, math.nan, 4]).targets, [1, 2, math.nan, 4])
    by_group = goal(W, G, targets={"b": 2.0}, groups=HALVES)
    np.testing.assert_array_equal(by_group.targets, [math.nan, math.nan, 2, 2])
    assert by_group.kind == "targets"


def test_a_query_without_a_target_may_be_a_hundred_times_worse():
    made = goal(W, G, targets=[1, 2, math.nan, 4])
    assert UNASKED == 100
    np.testing.assert_allclose(made.scales(W), [1, 1 / 4, 1 / 400**2, 1 / 16])


def test_public_queries_need_no_target():
    np.testing.assert_array_equal(goal(W, BOUNDED, targets=3).targets, [3, 3, 3, math.nan])
    np.testing.assert_array_equal(goal(W, bf.policy.empty(4), targets=3).targets, np.full(4, math.nan))


def test_groups_keep_their_numbers_when_they_are_read_from_numbers():
    """A bundle stores numbers; weights of groups would be of others if "10" came before "2"."""
    queries, graph = bf.workload.prefix(12), bf.policy.unbounded(12)
    numbers = goal(queries, graph, objective="largest", groups=list("lkjihgfedcba")).groups
    np.testing.assert_array_equal(numbers, np.arange(12))
    again = goal(queries, graph, objective="largest", groups=numbers).groups
    np.testing.assert_array_equal(again, numbers)


@pytest.mark.parametrize("seed", range(9))
def test_a_query_is_public_if_no_edge_changes_its_answer(seed):
    rng = np.random.default_rng(seed)
    n, edges = goals.random_edges(rng, ("connected", "parts", "bottom")[seed % 3])
    rows = np.vstack([rng.integers(0, 3, size=(5, n)), np.ones((1, n)), np.arange(n) < n // 2])
    changes = [[row[u] - (0 if v == goals.BOTTOM else row[v]) for u, v in edges] for row in rows]
    graph = bf.policy.from_edges(*np.array(edges).T, n)
    found = is_public_query(bf.workload.from_matrix(rows), graph)
    np.testing.assert_array_equal(found, [not np.any(change) for change in changes])


@pytest.mark.parametrize("groups", [None, [0, 1, 0, 2, 1, 2, 2]])
def test_the_two_forms_are_each_others_derivative(groups):
    """tr(V(lam) Y) = lam . v(Y), and v are means of scaled variances by group."""
    rng = np.random.default_rng(1)
    rows = rng.integers(-1, 3, size=(7, 4))
    queries = bf.workload.weighted(bf.workload.from_matrix(rows), 3.0)
    forms = query_forms(problem(queries, BOUNDED, objective="largest", groups=groups))
    A = rng.standard_normal((5, 3))
    Y, lam = A.T @ A, rng.exponential(size=forms.count)
    v = forms.variances(Y)
    assert np.trace(forms.gram(lam) @ Y) == pytest.approx(lam @ v)
    kept, given_up = [0, 1, 2], 3
    D = rows[:, kept] - rows[:, [given_up]]
    each = 9 * np.einsum("ij,jk,ik->i", D, Y, D)
    if groups is not None:
        each = np.array([each[np.array(groups) == g].mean() for g in range(3)])
    if np.array_equal(problem(queries, BOUNDED).grounding.kept, kept):
        np.testing.assert_allclose(v, each, atol=1e-12)
    else:
        pytest.fail("another cell is given up: write the test for it")


@table(
    (asked(targets=0), "target 0 of query 0 (a0=0)", "Use for example 5; NaN asks for none."),
    (asked(targets=-1), "target -1 of query 0", "Use for example 5"),
    (asked(targets=[1, 1, -2, 1]), "target -2 of query 2 (a0=0..2)", "Use for example 5"),
    (asked(targets=math.inf), "target inf", "Use for example 5"),
    (asked(targets=math.nan), "targets", "Give at least one standard deviation."),
    (asked(targets=[math.nan] * 4), "targets", "Give at least one standard deviation."),
    (asked(targets=[1, 2]), "2 targets): there are 4 queries", "Give one for each query, or one for all."),
    (asked(targets=[1] * 5), "5 targets): there are 4 queries", "Give one for each query, or one for all."),
    (asked(targets=[]), "0 targets", "Give one for each query, or one for all."),
    (asked(targets=np.ones((4, 1))), "targets of shape 4 x 1", "Give one for each query, or one for all."),
    (asked(targets="five"), "targets of type <U4", "Convert it to float64 first."),
    (asked(targets=["a", "b", "c", "d"]), "targets of type <U1", "Convert it to float64 first."),
    (asked(targets=1j), "targets of type complex128", "Convert it to float64 first."),
    (asked(targets=[[1], [1, 2]]), "is not an array", "Give numbers, in rows of one length."),
    (asked(targets=[1] * 4, groups=HALVES), "groups with one target per query", "Give {group: target}."),
    (asked(targets={"a": 1}), "targets by group", "Give groups=[...], one name a query."),
    (asked(targets={"a": 1}, groups=["a"]), "groups of 1 queries): there are 4", "Name the group of every query."),
    (asked(targets={"c": 1}, groups=HALVES), "group 'c'): no query is in it", "Known: a, b."),
    (asked(targets={"a": -1}, groups=HALVES), "target -1 of query 0", "Use for example 5"),
    (asked(targets={"a": "x"}, groups=HALVES), "targets by group of type <U1", "Convert it to float64 first."),
    (asked(targets={}, groups=HALVES), "targets", "Give at least one standard deviation."),
    (asked(objective="largest", groups=["a", "b"]), "groups of 2 queries", "Name the group of every query."),
    (asked(objective="largest", groups=5), "groups=5): must be a list", "Name the group of every query."),
    (asked(groups=HALVES), "groups): the total needs none", 'Use objective="largest" for the worst group.'),
    (asked(objective="largest", targets=1), "objective='largest' with targets", 'Use objective="targets"'),
    (asked(objective="targets"), "objective='targets'): needs targets", "Give one standard deviation for each query."),
    (asked(objective="larges"), "objective='larges'", "Did you mean 'largest'?"),
    (asked(objective="own"), "objective='own'", "Known: largest, targets, total."),
    (asked(objective=None), "objective=None", "Known: largest, targets, total."),
    (asked(objective=lambda v: v.sum(), targets=1), "objective of one's own", "Leave them out."),
    (asked(objective=lambda v: v.sum(), groups=HALVES), "objective of one's own", "Leave them out."),
    (lambda: goal(W, BOUNDED, targets=[1] * 4), "a target for query 3 (total)", "Put NaN there: it needs none."),
    (lambda: goal(W, BOUNDED, objective="largest", groups=list("aaab")), "group 'b'", "Leave its queries out."),
)
def test_mistakes_are_told_in_words(case):
    assert_refused(*case)
