"""Small fits that releases are made with."""

import pytest

import hdmm_bf as bf


@pytest.fixture(scope="module")
def laplace():
    """The noisy prefix sums on a line: three rows, a public total."""
    return bf.fit("all-range:4", "line:4", noise="laplace", max_steps=1)


@pytest.fixture(scope="module")
def gaussian():
    return bf.fit("all-range:4", "threshold:4:2")


@pytest.fixture(scope="module")
def on_edges():
    return bf.fit("all-range:4", "cycle:4", noise="laplace", max_steps=1)


@pytest.fixture(scope="module")
def public():
    return bf.fit("identity:4", "empty:4", noise="laplace")
