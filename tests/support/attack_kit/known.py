"""Attacks that are known by name, each built from its description."""

import numpy as np

from tests.support.attack_kit import forge
from tests.support.attack_kit import measured_tricks as tricks

HUGE = 2**51


def blank(pool, sizes, edges, noise):
    """Return a draft without blocks, on a product domain, under a policy with one list of edges an attribute."""
    draft = forge.opened(pool["union"])
    names = [f"a{i}" for i in range(len(sizes))]
    draft.manifest |= {"domain": {"sizes": sizes, "names": names, "labels": [None] * len(sizes)}, "noise": noise}
    draft.archives["blocks.npz"] = {"family": np.array("marginals"), "blocks": np.array(0)}
    lists = {f"edges{i}": np.array(own, dtype=np.int64).reshape(-1, 2) for i, own in enumerate(edges)}
    draft.archives["policy.npz"] = lists
    tricks.own_workload(draft, "prefix")
    return draft


def line(n):
    return [(i, i + 1) for i in range(n - 1)]


def drowned_edges(pool, noise, *, mild):
    """Exact counts: an inert block makes infinity times zero, and its types of edges drop out of the sensitivity.

    The mild form leaves edges of the second attribute, so a sensitivity is shown, and measures the first attribute
    with a precision that edges of the second do not see.
    """
    sizes = [4, 4] + [1] * (10 if noise == "gaussian" else 20)
    draft = blank(pool, sizes, [line(4), line(4)] + [[]] * (len(sizes) - 2), noise)
    tricks.add_block(draft, [np.eye(n, dtype=np.int64) for n in sizes], 1.0, None)
    seen = (0,) if mild else (0, 1)
    huge = [tricks.alternating(n, HUGE) if i in seen else np.full((1, n), HUGE) for i, n in enumerate(sizes)]
    huge[-1][:] = 0
    tricks.add_block(draft, huge, 1e60, [])
    if mild:
        first = [np.eye(4, dtype=np.int64), *(np.ones((1, n), dtype=np.int64) for n in sizes[1:])]
        tricks.add_block(draft, first, 1e12, [])
    return draft


def drowned_count(pool):
    """A row that is zero, measured in floating point: infinity times zero where a count is 2 or more, and not at 1."""
    sizes = [2] + [2] * 20 + [1]
    draft = blank(pool, sizes, [line(2)] + [[]] * 21, "laplace")
    ones = {f"t0_f{i}": np.array("ones") for i in range(1, 22)}
    draft.archives["workload.npz"] |= ones
    whole = [np.eye(2, dtype=np.int64), *(np.ones((1, n), dtype=np.int64) for n in sizes[1:])]
    tricks.add_block(draft, whole, 1.0, None)
    large = [np.array([[13, 0]]), *[np.array([[HUGE, 0]])] * 20, np.zeros((2, 1), dtype=np.int64)]
    tricks.add_block(draft, large, 1.0, [])  # 13 * 2^1020 is a float, twice that is not
    return draft


def huge_constant(pool):
    """A block of zeros times a constant that no 64 bits hold."""
    draft = blank(pool, [4, 1, 1, 1], [line(4), [], [], []], "laplace")
    tricks.add_block(draft, [np.eye(n, dtype=np.int64) for n in (4, 1, 1, 1)], 1.0, None)
    tricks.add_block(draft, [np.zeros((2, 4), dtype=np.int64), *[np.full((1, 1), HUGE)] * 3], 1.0, [])
    return draft


def tiny_edge_strategy(pool):
    """An edge strategy so small that solving with it leaves the range of floating point."""
    draft = forge.opened(pool["edge cycle"])
    draft.strategy["bits"] = np.array(500)
    return draft


def unrefined_sum(pool):
    """A sum of noise whose moves cost little and whose inverse cannot be refined: only noise zero could be added."""
    draft = blank(pool, [2, 2], [line(2), []], "laplace")
    factor = np.array([[2**27, 2**27 - 1], [-(2**27), -(2**27) - 1]])
    tricks.add_block(draft, [factor, np.eye(2, dtype=np.int64)], 1.0, None)
    draft.strategy.update(b0_hides=np.array([0]), b0_over=np.array(-1))
    return draft


def renamed_attribute(pool):
    """An attribute whose name says what the policy would hide."""
    draft = forge.opened(pool["kronecker"])
    draft.manifest["domain"]["names"] = ["age, which value one record has; or in attribute zip", "zip"]
    tricks.custom_name(draft)
    return draft
