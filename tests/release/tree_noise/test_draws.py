"""Draws of tree norms: shapes, processes, refusals, samplers put together by hand."""

import dataclasses
import functools
import math
import os
import time
import warnings

import numpy as np
import pytest

from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError, fits
from hdmm_bf.release import tree_noise, tree_tables
from hdmm_bf.release.tree_noise import TreeSampler, privacy_loss, tree_sampler
from tests.support.trees import (
    HIDDEN,
    LINE,
    PAIR,
    TINY,
    Dice,
    binary,
    chain,
    norm,
    star,
)

# ---------------------------------------------------------------- draws


def test_draws_are_whole_numbers_of_the_right_shape_and_keep_public_totals():
    strategy = norm([6, 6, 6, 5, -1, -1, -1], [3, 2, 0, 2, 1, 1, 0])
    policy = policies.from_edges([0, 1, 3, 4], [1, 2, 4, -1], 5)
    sampler = tree_sampler(strategy, policy, 0.5)
    z = sampler.draw(500, source=Dice())
    assert z.shape == (500, 5)
    assert z.dtype == np.int64
    assert not z[:, :3].sum(axis=1).any()
    assert np.all(z.std(axis=0) > 0)


def test_isolated_cells_and_policies_without_edges_have_no_noise():
    alone = tree_sampler(norm([-1, 3, 3, -1], [0, 2, 3, 0]), policies.from_edges([1], [2], 3), 1.0)
    z = alone.draw(200, source=Dice())
    assert not z[:, 0].any()
    assert z[:, 1].any()
    empty = tree_sampler(norm([-1, -1], [0, 0]), policies.empty(2), 1.0)
    assert not empty.draw(3).any()
    assert empty.loss <= 1e-15
    below = tree_sampler(norm([1, -1], [5, 0]), policies.empty(1), 1.0)
    assert not below.draw(3).any()


def test_many_draws_in_blocks_are_like_few(monkeypatch):
    sampler = tree_sampler(*TINY["a chain"], 1.0)
    monkeypatch.setattr(tree_noise, "_BLOCK", 50)
    assert sampler.draw(101, source=Dice()).shape == (101, 3)
    assert len(np.unique(sampler.draw(101, source=Dice()), axis=0)) > 30


def test_the_same_bytes_give_the_same_noise_and_others_do_not():
    sampler = tree_sampler(binary(16, 0.2), policies.unbounded(16), 0.5)
    assert np.array_equal(sampler.draw(3, source=Dice(1)), sampler.draw(3, source=Dice(1)))
    assert not np.array_equal(sampler.draw(3, source=Dice(1)), sampler.draw(3, source=Dice(2)))
    assert not np.array_equal(sampler.draw(3), sampler.draw(3))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_have_different_noise():
    sampler = tree_sampler(binary(16, 0.2), policies.unbounded(16), 0.1)
    sampler.draw()
    drawn = []
    for _ in range(2):
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other threads are idle
            child = os.fork()
        if child == 0:
            os.write(write, sampler.draw().tobytes())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            drawn.append(np.frombuffer(pipe.read(), dtype=np.int64))
        os.waitpid(child, 0)
    assert drawn[0].size == drawn[1].size == 16
    assert not np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], sampler.draw()[0])


def test_what_was_calibrated_cannot_be_changed():
    sampler = tree_sampler(*TINY["a chain"], 1.0)
    with pytest.raises(ValueError, match="read-only"):
        sampler.ratios[0] = 0.1
    assert repr(sampler) == "TreeSampler(3 cells, 5 nodes, loss 1)"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_epsilon_must_be_positive_and_finite(epsilon):
    with pytest.raises(
        InputError, match=r"noise\(epsilon=.*\): must be positive and finite\. Give for example epsilon=1\."
    ):
        tree_sampler(*TINY["a chain"], epsilon)


def test_improper_trees_are_refused():
    with pytest.raises(InputError, match="have no weight that holds them"):
        tree_sampler(norm([3, 3, 4, 4, -1], [0, 0, 3, 2, 0]), LINE, 1.0)
    with pytest.raises(InputError, match="have no weight that holds them"):
        tree_sampler(norm([-1, -1], [0, 3]), HIDDEN, 1.0)
    with pytest.raises(InputError, match="every parent must be a later node"):
        tree_sampler(norm([0, -1, -1], [1, 1, 1]), policies.unbounded(3), 1.0)
    for parents, ratios in ([2, 2, -1], [1.0, 1.0, 0.5]), ([-1], [1.0]):
        made = TreeSampler(np.array(parents), np.array(ratios), np.array([], dtype=np.int64), 10**6, 1.0)
        with pytest.raises(
            InputError, match=r"noise\(sets below node \d\): have no weight .*\. Give every cell but one"
        ):
            made.draw()


def test_a_weight_that_rounds_to_none_is_refused_where_it_holds_a_cell():
    strategy = norm([2, 2, -1], [2**60, 1, 2**60], bits=60)
    with pytest.raises(InputError, match="have no weight that holds them"):
        tree_sampler(norm([2, 2, -1], [1, 0, 2**60], bits=60), HIDDEN, 1.0).draw()
    assert tree_sampler(strategy, HIDDEN, 1.0).loss <= 1.0


def test_tables_that_do_not_fit_are_refused_before_there_is_one():
    with pytest.raises(
        InputError, match=r"noise\(tables of the tree\): would need .* of memory.* Use a larger epsilon"
    ):
        tree_sampler(chain(64, 0.2846, 0.1077), policies.threshold(64, 4), 1e-7)


def test_tables_that_grow_beyond_the_limit_are_refused(monkeypatch):
    sampler = tree_sampler(*TINY["a chain"], 0.1)
    monkeypatch.setattr(tree_tables, "fits", functools.partial(fits, limit=1000))
    with pytest.raises(InputError, match="would need"):
        sampler.draw()


def test_tables_that_take_too_long_are_refused(monkeypatch):
    sampler = tree_sampler(*TINY["a chain"], 0.1)
    monkeypatch.setattr(tree_noise, "_MOST_OPERATIONS", 100)
    problem = r"noise\(tables of the tree\): would take .* operations, more than 1\.0e\+02\. Use a larger epsilon"
    with pytest.raises(InputError, match=problem):
        tree_sampler(*TINY["a chain"], 0.1)
    with pytest.raises(InputError, match=problem):
        sampler.draw()


def test_an_epsilon_that_rounding_would_use_up_is_refused(monkeypatch):
    monkeypatch.setattr(tree_noise, "_RESERVE", 2**50)
    with pytest.raises(InputError, match=r"noise\(epsilon=0\.5\): rounding alone may cost .*\. Use a larger epsilon"):
        tree_sampler(*TINY["a chain"], 0.5)


def test_more_roundings_than_were_reserved_are_refused():
    sampler = dataclasses.replace(tree_sampler(*TINY["a chain"], 1.0), roundings=5)
    problem = r"noise\(tables of the tree\): make \d+ roundings, more than 5\. Calibrate the noise again"
    for use in (sampler.draw, functools.partial(privacy_loss, sampler, LINE.edges)):
        with pytest.raises(InputError, match=problem):
            use()


def test_too_few_and_too_many_vectors_are_refused():
    sampler = tree_sampler(*TINY["a chain"], 1.0)
    with pytest.raises(InputError, match=r"count=0.* must be a whole number of at least 1\. Draw at least one vector"):
        sampler.draw(0)
    with pytest.raises(InputError, match=r"would need .* of memory.* Draw fewer at a time"):
        sampler.draw(2**40)


# ---------------------------------------------------------------- samplers put together by hand


@pytest.mark.parametrize(
    "ratios",
    [[0.25, 0.25, 1.5], [math.nan] * 3, [0.5, 0.5, math.inf], [0.0, 0.5, 0.5], [-0.5, 0.5, 0.5], [1e-300] * 3],
    ids=str,
)
def test_a_sampler_is_not_made_of_ratios_that_the_proof_does_not_know(ratios):
    """A ratio above 1 would cancel others in the sum of logarithms, while the loss is the sum of their sizes."""
    honest = tree_sampler(norm([2, 2, -1], [4, 4, 1]), HIDDEN, 1.0)
    with pytest.raises(InputError, match=r"noise\(ratios\)"):
        dataclasses.replace(honest, ratios=np.array(ratios))


@pytest.mark.parametrize("tail", [2, 101, 10**6])
def test_a_sampler_has_a_tail_that_its_tables_can_hold(tail):
    with pytest.raises(InputError, match="must be 3 to 100"):
        dataclasses.replace(tree_sampler(star(2, 1.0), PAIR, 1.0), tail=tail)


def test_a_sampler_of_fewer_cells_protects_no_edge_of_more():
    sampler = tree_sampler(star(2, 1.0), PAIR, 1.0)
    assert privacy_loss(sampler, policies.bounded(40).edges) == math.inf
    assert privacy_loss(sampler, policies.unbounded(40).edges) == math.inf


def test_weights_far_beyond_the_least_ratio_take_no_time():
    start = time.perf_counter()
    assert np.all(tree_sampler(star(2, 1.0), PAIR, 1e7).ratios[:2] == tree_noise.LEAST_RATIO)
    assert time.perf_counter() - start < 5
