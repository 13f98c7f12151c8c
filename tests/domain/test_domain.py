"""The domain: cells and their names."""

import itertools

import numpy as np
import pytest

from hdmm_bf import domain as domains
from hdmm_bf.domain import Domain

CENSUS = Domain((3, 2), names=("age", "sex"), labels=(("0-29", "30-59", "60+"), None))


@pytest.mark.parametrize("sizes", [(1,), (7,), (2, 3), (2, 1, 4)])
def test_ravel_and_unravel_are_inverse_and_follow_row_major_order(sizes):
    """Quotes Domain: `ravel` and `unravel` are inverse to each other and follow row-major order."""
    domain = Domain(sizes)
    for number, values in enumerate(itertools.product(*(range(s) for s in sizes))):
        assert domain.ravel(values) == number
        assert domain.unravel(number) == values


def test_arrays_of_cells_ravel_and_unravel_at_once():
    domain = Domain((4, 5))
    cells = np.arange(20)
    assert np.array_equal(domain.ravel(domain.unravel(cells)), cells)


def test_a_cell_is_found_by_label_or_number():
    assert CENSUS.cell(age="30-59", sex=1) == 3
    assert CENSUS.describe(3) == "age=30-59, sex=1"


def test_cells_without_labels_are_called_by_their_numbers():
    assert Domain((9,)).describe(4) == "cell 4"
    assert Domain((3, 3)).describe(4) == "(1, 1)"


def test_domains_beyond_64_bits_count_their_cells_exactly():
    assert Domain((10**6,) * 4).num_cells == 10**24


def test_sizes_can_be_given_in_every_form():
    forms = ["2x3", (2, 3), [2, 3], Domain((2, 3))]
    assert {domains.as_domain(form).sizes for form in forms} == {(2, 3)}
    assert domains.as_domain(6).sizes == (6,)
    assert domains.as_domain(np.int64(6)).sizes == (6,)
