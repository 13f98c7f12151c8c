"""Joined blocks of any kind, under any policy by attributes, are released within what was asked for."""

import pytest

import hdmm_bf as bf
from tests.support.attack_kit import random_joined
from tests.support.attack_kit.judge import judge

BATCH, MORE = 15, 300


@pytest.fixture(scope="module")
def fit():
    return bf.fit("all-range:3x3x2", "product:line:3,bounded:3,empty:2", noise="laplace", max_steps=1)


@pytest.mark.parametrize("start", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(BATCH, MORE, BATCH))])
def test_joined_blocks_of_any_kind_lose_no_more_than_was_asked_for(fit, tmp_path, start):
    """And nothing but the noise shows a record; without an edge that another block can take up, all of it is lost."""
    shares = []
    for seed in range(start, start + BATCH):
        verdict = judge(random_joined.random_fit(fit, seed).save(tmp_path / f"{seed}.bf"))
        assert verdict.outcome == "released", seed
        shares.append(verdict.share)
    assert max(shares) <= 1
    assert sum(share > 0.999 for share in shares) > BATCH / 2
