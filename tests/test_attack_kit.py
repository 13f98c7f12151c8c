"""Forged bundles are refused or released within what was asked for, judged by an oracle of its own."""

import copy
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import hdmm_bf as bf
from tests.attack_kit import forge, oracle, tricks
from tests.attack_kit.judge import HoleError, judge

DEFAULT, MANY = 300, 5000
BATCH = 25


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    return forge.honest_pool(tmp_path_factory.mktemp("honest"))


def holes(seeds, pool, folder):
    """Judge forged bundles; return how they went and what was found."""
    went, found = Counter(), []
    for seed in seeds:
        forged = forge.forge(seed, pool, folder)
        try:
            went[judge(forged.folder).outcome] += 1
        except HoleError as hole:
            found.append(f"{forged}: {hole}")
    return went, found


@pytest.mark.parametrize("start", range(0, DEFAULT, BATCH))
def test_no_forged_bundle_loses_more_than_was_asked_for(pool, tmp_path, start):
    went, found = holes(range(start, start + BATCH), pool, tmp_path)
    assert not found, "\n".join([str(went), *found])


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10_000, 10_000 + MANY, 10 * BATCH))
def test_no_forged_bundle_of_many_loses_more_than_was_asked_for(pool, tmp_path, start):
    went, found = holes(range(start, start + 10 * BATCH), pool, tmp_path)
    assert not found, "\n".join([str(went), *found])
    assert went["released"] > BATCH and went["refused"] > BATCH  # the forger is neither too clumsy nor too tame
