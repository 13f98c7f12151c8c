"""Tree norms lose no more than epsilon on any edge, in fractions."""

import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm_bf import policy as policies
from hdmm_bf.certificate.trees import longest_edge
from hdmm_bf.release import tree_noise
from hdmm_bf.release.tree_noise import privacy_loss, tree_sampler
from tests.support.trees import (
    Dice,
    Stated,
    chain,
    instances,
    log_weight,
    norm,
    star,
    vectors,
    worst_loss,
)


def outcomes(sampler, generator):
    """Small vectors, all of them, and some at the edges of the box and beyond."""
    n = sampler.num_cells
    small = list(vectors(sampler, {1: 40, 2: 12, 3: 4, 4: 2}.get(n, 1)))
    chosen = generator.permutation(len(small))[:15]
    far = generator.integers(-60, 61, (6, n))
    for root in sampler.fixed.tolist():
        cells = [cell for cell in range(n) if _root(sampler.parents, cell) == root]
        far[:, cells[-1]] -= far[:, cells].sum(axis=1)
    return [small[k] for k in chosen] + [tuple(z) for z in far.tolist()]


def _root(parents, node):
    while parents[node] >= 0:
        node = parents[node]
    return node


@pytest.mark.parametrize("place", range(32))
def test_no_policy_edge_loses_more_than_epsilon_by_the_floats_that_are_drawn_with(place):
    """Quotes tree_noise: makes whole counts epsilon-private under the policy, with no delta.

    Also quotes `privacy_loss`: P(z) <= exp(loss) P(z + p) and P(z) <= exp(loss) P(z - p).
    """
    strategy, policy = instances(40)[place]
    epsilon = (0.3, 1.0, 2.5)[place % 3]
    sampler = tree_sampler(strategy, policy, epsilon)
    shown = outcomes(sampler, np.random.default_rng(place))
    stated = worst_loss(policy, shown, functools.cache(Stated(sampler).log))
    assert stated <= privacy_loss(sampler, policy.edges) <= sampler.loss <= epsilon
    assert worst_loss(policy, shown, functools.partial(log_weight, sampler)) <= epsilon


@pytest.mark.parametrize("place", range(0, 40, 5))
def test_stated_probabilities_are_those_of_the_law_but_for_the_slack(place):
    """Quotes TreeSampler.draw: has probability proportional to prod_v q_v^|z(v)|, up to a factor between [...]."""
    strategy, policy = instances(40)[place]
    sampler = tree_sampler(strategy, policy, 0.8)
    stated, differences = Stated(sampler), []
    with mpmath.workdps(50):
        for z in outcomes(sampler, np.random.default_rng(place)):
            chance = stated.log(z)
            if chance is not None:
                differences.append(chance - log_weight(sampler, z))
        assert len(differences) > 5
        assert max(differences) - min(differences) <= sampler.slack
    assert sampler.slack < 1e-9


def heavier(strategy, policy):
    """The strategy with one grid step more on a node of its longest edge."""
    length, edge = longest_edge(strategy.parents, strategy.integers, policy.edges)
    for node in range(strategy.parents.size):
        raised = strategy.integers.copy()
        raised[node] += strategy.integers[node] > 0
        if longest_edge(strategy.parents, raised, policy.edges[edge : edge + 1])[0] > length:
            return raised
    raise AssertionError("no node of the longest edge has a weight")


@pytest.mark.parametrize("place", [0, 3, 7, 11])
def test_a_weight_one_grid_step_too_large_is_caught(place):
    """The control: noise for the length before the step loses more than epsilon, in fractions and by privacy_loss."""
    strategy, policy = instances(40)[place]
    epsilon = 1.0
    honest = tree_sampler(strategy, policy, epsilon)
    length, _ = longest_edge(strategy.parents, strategy.integers, policy.edges)
    ratios = tree_noise._ratios(heavier(strategy, policy), length, Fraction(epsilon))
    wrong = dataclasses.replace(honest, ratios=ratios)
    shown = list(itertools.islice(vectors(wrong, 2), 200))
    assert worst_loss(policy, shown, functools.partial(log_weight, wrong)) > epsilon
    assert worst_loss(policy, shown, functools.cache(Stated(wrong).log)) > epsilon
    assert privacy_loss(wrong, policy.edges) > epsilon


def test_an_edge_that_the_tree_makes_longer_than_claimed_is_caught():
    """Quotes `privacy_loss`: It is infinite where an edge changes a total that the sampler keeps."""
    sampler = tree_sampler(chain(4, 0.3, 0.2), policies.line(4), 1.0)
    assert privacy_loss(sampler, policies.line(4).edges) <= 1.0
    assert privacy_loss(sampler, policies.threshold(4, 2).edges) > 1.1
    assert privacy_loss(sampler, policies.unbounded(4).edges) == math.inf
    apart = tree_sampler(norm([4, 4, 5, 5, -1, -1], [1, 1, 1, 1, 0, 0]), policies.from_edges([0, 2], [1, 3], 4), 1.0)
    assert privacy_loss(apart, policies.from_edges([0, 2], [1, 3], 4).edges) <= 1.0
    assert privacy_loss(apart, policies.line(4).edges) == math.inf
    assert privacy_loss(apart, np.zeros((0, 2), dtype=np.int64)) <= 1e-9


@given(st.floats(1e-3, 50.0), st.integers(0, 39))
def test_the_calibrated_loss_is_proven_and_hardly_less_than_epsilon(epsilon, place):
    """Quotes tree_sampler: `loss` is at most epsilon, in exact arithmetic."""
    strategy, policy = instances(40)[place]
    sampler = tree_sampler(strategy, policy, epsilon)
    assert sampler.loss <= epsilon
    if sampler.ratios.min() > tree_noise.LEAST_RATIO:
        assert sampler.loss >= epsilon * (1 - 1e-6)
    with mpmath.workdps(50):
        logs = [-mpmath.log(mpmath.mpf(q)) for q in sampler.ratios.tolist()]
        paths = [
            sum((logs[v] for v in path(sampler.parents.tolist(), *edge)), mpmath.mpf(0))
            for edge in policy.edges.tolist()
        ]
        assert max(paths) + mpmath.mpf(2 * (sampler.roundings + 1)) / mpmath.mpf(2**53 - 1) <= sampler.loss


def path(parents, u, v):
    """Nodes whose sums change when a record moves from u to v: those above one end alone."""
    ups = []
    for node in (u, v):
        up = set()
        while node >= 0:
            up.add(node)
            node = parents[node]
        ups.append(up)
    return ups[0] ^ ups[1]


def test_very_large_epsilon_still_has_noise_that_can_be_told_from_none():
    sampler = tree_sampler(star(3, 0.5), policies.bounded(3), 1e6)
    assert sampler.ratios.min() == tree_noise.LEAST_RATIO
    assert sampler.loss < 1e6
    assert not sampler.draw(100, source=Dice()).any()
