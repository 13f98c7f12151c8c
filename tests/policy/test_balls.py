"""Distance thresholds over several attributes: known by their edges, taken apart by their offsets."""

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.policy.constructors import ball_threshold, offset_windows, offsets
from hdmm_bf.problem.product import as_product, product_view


def distances(sizes, edges):
    ends = np.stack(np.unravel_index(edges, sizes))
    return np.abs(ends[..., 0] - ends[..., 1]).sum(axis=0)


@pytest.mark.parametrize(("sizes", "limit"), [((6, 5), 2), ((5, 4, 3), 3), ((2, 7), 4), ((1, 6, 2), 2), ((3, 3), 9)])
def test_the_edges_are_all_pairs_at_the_distance_and_no_others(sizes, limit):
    made = bf.policy.threshold(bf.domain.Domain(sizes), limit)
    cells = np.arange(made.num_cells)
    pairs = np.stack(np.meshgrid(cells, cells, indexing="ij"), axis=-1).reshape(-1, 2)
    near = pairs[(pairs[:, 0] < pairs[:, 1]) & (distances(sizes, pairs) <= limit)]
    assert {tuple(sorted(e)) for e in made.edges.tolist()} == set(map(tuple, near.tolist()))
    assert made.num_edges == len(near)
    assert ball_threshold(made) == min(limit, sum(n - 1 for n in sizes))


def test_a_graph_with_an_edge_more_or_less_is_no_ball():
    made = bf.policy.parse("threshold:4x4:2")
    u, v = made.edges.T
    assert ball_threshold(bf.policy.from_edges(v[::-1], u[::-1], "4x4")) == 2
    assert ball_threshold(bf.policy.from_edges(u[1:], v[1:], "4x4")) is None
    assert ball_threshold(bf.policy.from_edges(np.append(u, 0), np.append(v, 15), "4x4")) is None
    assert ball_threshold(bf.policy.from_edges(np.append(u[1:], 0), np.append(v[1:], -1), "4x4")) is None
    assert ball_threshold(bf.policy.parse("threshold:16:2")) is None
    assert ball_threshold(bf.policy.parse("threshold:4x4:1")) is None
    assert ball_threshold(bf.policy.parse("product:threshold:4:2,threshold:4:2")) is None


def test_offsets_come_once_and_their_windows_hold_the_two_ends():
    sizes = (4, 3, 2)
    every = list(offsets(sizes, 3))
    assert len({*every, *(tuple(-o for o in offset) for offset in every)}) == 2 * len(every)
    cells = np.arange(24).reshape(sizes)
    for offset in every:
        near, far = (np.stack(np.unravel_index(cells[w].ravel(), sizes)) for w in offset_windows(sizes, offset))
        np.testing.assert_array_equal(far - near, np.broadcast_to(np.array(offset)[:, None], near.shape))


def test_only_those_who_ask_for_balls_see_them():
    """A code that knows edges along one attribute alone would take a part of the policy for the whole."""
    problem = bf.problem("all-range:4x3", "threshold:4x3:2")
    assert as_product(problem) is None
    with pytest.raises(ValueError, match="has no product structure"):
        product_view(problem)
    seen = product_view(problem, balls=True)
    assert seen.threshold == 2
    assert [len(edges) for edges in seen.edges] == [5, 3]
    assert product_view(bf.problem("all-range:4x3", "threshold:4x3:1"), balls=True).threshold is None
