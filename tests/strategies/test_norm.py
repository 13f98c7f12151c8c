"""Searches for tree norms: what they yield is valid, deterministic, and as good as what is known."""

import itertools

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate.trees import check_shape, free_nodes, longest_edge
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.tree_plans import Children, tree_plan
from hdmm_bf.objectives.trees_by_hand import fine_error
from hdmm_bf.strategies import registry
from hdmm_bf.strategies.norm import chain, clusters, hierarchy, moves, portfolio, shapes, weights
from hdmm_bf.strategies.norm.drafts import tree_draft, without_negligible

BOTTOM = bf.policy.BOTTOM
POLICIES = {
    "threshold": lambda: bf.problem("all-range:9", "threshold:9:3"),
    "two components, isolated cells": lambda: bf.problem(
        "prefix:8", bf.policy.from_edges([0, 1, 3, 4, 4], [1, 2, 4, 5, BOTTOM], 8)
    ),
    "a forest with bottom": lambda: bf.problem(
        "identity:7", bf.policy.from_edges([0, 0, 0, 3, 4], [1, 2, 3, 4, BOTTOM], 7)
    ),
    "one pair": lambda: bf.problem("all-range:5", bf.policy.from_edges([0], [1], 5)),
    "one cell": lambda: bf.problem("identity:1", "unbounded:1"),
    "a cycle": lambda: bf.problem("identity:8", "cycle:8"),
    "attributes": lambda: bf.problem(bf.workload.marginals((2, 3), "all"), bf.policy.unbounded((2, 3))),
    "any workload": lambda: bf.problem(
        bf.workload.from_matrix(np.random.default_rng(0).normal(size=(7, 6))), "bounded:6"
    ),
}


def is_valid(problem, draft):
    integers = np.round(draft.weights * 2**30).astype(np.int64)
    check_shape(draft.parents, integers, problem.policy)
    free_nodes(draft.parents, integers, problem.policy)
    length, _ = longest_edge(draft.parents, integers, problem.policy.edges)
    return abs(length / 2**30 - 1) < 1e-6


@pytest.mark.parametrize("name", POLICIES)
def test_every_draft_is_a_proper_tree_norm_with_a_longest_edge_of_one(name):
    problem = POLICIES[name]()
    drafts = list(itertools.islice(portfolio.steps(problem, seed=0, effort="quick"), 6))
    assert drafts
    assert all(is_valid(problem, draft) for draft in drafts)
    best = min(drafts, key=lambda draft: draft.error)
    again = fine_error(tree_plan(problem, best.parents), best.weights)
    assert best.error == pytest.approx(again, rel=1e-4)


@pytest.mark.parametrize("family", registry.families("norm", structured=False), ids=lambda family: family.name)
def test_every_family_yields_tree_norms_for_a_problem_it_applies_to(family):
    problem = bf.problem("all-range:12", "threshold:12:3")
    assert family.applies(problem)
    draft = next(family.search(problem, seed=0))
    assert draft.origin == family.name
    assert is_valid(problem, draft)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_tree_norms():
    problem = bf.problem("all-range:8", "unbounded:8")
    one, other = (list(itertools.islice(portfolio.steps(problem, seed=3), 9)) for _ in range(2))
    assert [draft.error for draft in one] == [draft.error for draft in other]


def test_the_portfolio_ends_by_itself():
    problem = bf.problem("identity:3", "unbounded:3")
    drafts = list(portfolio.steps(problem, seed=0))
    assert min(draft.error for draft in drafts) == pytest.approx(3.0, rel=1e-4)  # Laplace noise on every cell


def test_a_time_limit_that_has_passed_still_gives_a_first_answer():
    problem = bf.problem("all-range:16", "threshold:16:4")
    with limits.limited(limits.now()):
        drafts = list(portfolio.steps(problem, seed=0))
    assert len(drafts) == 1
    assert is_valid(problem, drafts[0])


@pytest.mark.slow
def test_chains_beat_the_best_known_laplace_strategy_under_a_threshold():
    problem = bf.problem("all-range:24", "threshold:24:4")
    drafts = list(itertools.islice(chain.steps(problem, seed=0), 2))
    bound = bf.bound("all-range:24", "threshold:24:4").lower
    assert drafts[-1].error < 2.5 * bound  # Laplace: 3.3


def test_hierarchies_reach_what_is_known_for_ordinary_privacy():
    problem = bf.problem("all-range:64", "unbounded:64")
    drafts = list(itertools.islice(hierarchy.steps(problem, seed=0), 2))
    assert drafts[-1].error < 2.615 * bf.bound("all-range:64", "unbounded:64").lower


def test_a_line_ends_with_laplace_noise_on_its_edges():
    problem = bf.problem("all-range:16", "line:16")
    drafts = list(itertools.islice(chain.steps(problem, seed=0), 2))
    assert drafts[-1].error == pytest.approx((problem.W_G() ** 2).sum(), rel=1e-3)


def test_long_chains_are_made_of_short_ones():
    problem = bf.problem("all-range:300", "threshold:300:4")
    draft = next(chain.steps(problem, seed=0))
    assert is_valid(problem, draft)
    assert np.ptp(draft.weights[100:200]) < 1e-3
    assert draft.error < 2.6 * bf.bound("all-range:300", "threshold:300:4").lower


def test_nested_attributes_have_one_weight_a_level():
    sizes, n = (4, 3, 5), 60
    sets = [np.kron(np.eye(n // width), np.ones(width)) for width in (1, 5, 15, 60)]
    problem = bf.problem(bf.workload.from_matrix(np.vstack(sets), domain=sizes), bf.policy.unbounded(sizes))
    draft = next(clusters.steps(problem, seed=0))
    assert np.unique(draft.weights.round(6)).size <= 4
    assert draft.error < 2 * bf.bound(problem.workload, problem.policy).lower


def test_moves_keep_trees_valid_and_intervals_intervals():
    problem = bf.problem("all-range:10", "bounded:10")
    parents = shapes.planted(problem.policy, shapes.hierarchy((3, 2)))
    rng = np.random.default_rng(0)
    for _ in range(60):
        tree = moves.Pruned(problem, parents, shapes.equal_weights(parents))
        tree.move(rng)
        parents, changed = tree.arrays()
        assert Children(parents, 10).are_intervals
        assert changed.size == parents.size
        tree_plan(problem, parents)  # refuses what is no tree


def test_moves_never_yield_anything_worse():
    problem = bf.problem("all-range:10", "unbounded:10")
    first = next(hierarchy.steps(problem, seed=0))
    found = list(itertools.islice(moves.improved(problem, first, seed=0), 2))
    assert found[0].error <= first.error
    assert found[1].error <= found[0].error


def test_shares_give_every_cell_its_budget_and_have_the_right_gradient():
    problem = bf.problem("all-range:9", "unbounded:9")
    parents = shapes.planted(problem.policy, shapes.hierarchy((3,)))
    shares = weights.Shares(problem, parents, np.ones(9))
    logits = np.random.default_rng(0).normal(size=parents.size - 9)
    found = shares.weights(logits)[0]
    assert np.allclose(bf.objectives.tree_length(problem, parents)(found), 1.0)
    assert np.allclose(shares.logits(found), logits)
    slope = shares._loss(logits, 40.0, 48)[1]
    for k, step in enumerate(1e-5 * np.eye(logits.size)):
        up, down = (shares._loss(logits + sign * step, 40.0, 48)[0] for sign in (1, -1))
        assert slope[k] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-8)


def test_smooth_lengths_have_the_right_gradient():
    problem = bf.problem("all-range:8", "threshold:8:2")
    parents = shapes.planted(problem.policy, shapes.chain)
    lengths = weights.Lengths(problem, parents)
    start = np.random.default_rng(0).uniform(0.1, 0.3, parents.size)
    slope = lengths._loss(start, 20.0, 60.0, 200)[1]
    for k, step in enumerate(1e-6 * np.eye(start.size)):
        up, down = (lengths._loss(start + sign * step, 20.0, 60.0, 200)[0] for sign in (1, -1))
        assert slope[k] == pytest.approx((up - down) / 2e-6, rel=1e-3, abs=1e-4)


def test_budgets_are_known_for_stars_and_complete_components_only():
    assert weights.cell_budgets(bf.policy.unbounded(3)).tolist() == [1.0] * 3
    assert weights.cell_budgets(bf.policy.bounded(3)).tolist() == [0.5] * 3
    assert weights.cell_budgets(bf.policy.line(4)) is None
    both = bf.policy.from_edges([0, 1, 2, 2, 3], [BOTTOM, BOTTOM, 3, 4, 4], 5)
    assert weights.cell_budgets(both).tolist() == [1.0, 1.0, 0.5, 0.5, 0.5]


def test_sets_without_weight_are_left_out():
    problem = bf.problem("identity:4", "unbounded:4")
    parents, found = without_negligible(
        problem, np.array([4, 4, 5, 5, 6, 6, -1]), np.array([0.5, 0.5, 0.5, 0.5, 0.0, 0.2, 0.3])
    )
    assert parents.tolist() == [5, 5, 4, 4, 5, -1]
    assert found.tolist() == [0.5, 0.5, 0.5, 0.5, 0.2, 0.3]
    assert tree_draft(problem, parents, np.full(6, np.nan), origin="none").error == np.inf


def test_complements_are_one_set_where_the_total_is_public():
    parents = shapes.planted(bf.policy.bounded(4), shapes.hierarchy((2,)))
    assert parents.tolist() == [5, 5, 4, 4, 5, -1]
    assert shapes.planted(bf.policy.unbounded(4), shapes.hierarchy((2,))).tolist() == [4, 4, 5, 5, 6, 6, -1]
