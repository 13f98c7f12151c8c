"""Settings for all tests: hypothesis without randomness between runs and without deadlines; where types are checked."""

import copy
import zlib

import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")

from tests.support.by_default import leave_to_slow  # noqa: E402
from tests.support.mutations import honest  # noqa: E402, F401


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    leave_to_slow(items)


MANY_CALLS = {
    "tests/release/test_audit.py": ("test_releases_of_neighbours_are_as_hard_to_tell_apart_as_claimed",),
    "tests/release/test_release_privacy.py": (
        "test_gaussian_releases_are_private_under_random_policies",
        "test_published_totals_are_the_same_on_all_neighbours",
    ),
    "tests/certificate/test_blocks.py": ("test_releases_have_the_stated_error",),
    "tests/release/test_intervals.py": ("test_intervals_cover_the_truth_as_often_as_they_say",),
    "tests/release/test_simultaneous.py": (
        "test_all_answers_are_inside_as_often_as_the_level_says",
        "test_too_many_answers_get_the_union_bound_and_say_so",
    ),
    "tests/release/test_processed_blocks.py": ("test_intervals_of_processed_answers_cover_about_as_often_as_they_say",),
    "tests/data/test_people.py": (
        "test_other_people_and_values_have_no_part_in_the_choice",
        "test_cut_tables_of_neighbours_are_at_most_k_moves_apart",
        "test_every_choice_of_positions_is_equally_likely",
    ),
    "tests/bundle/test_foreign_text.py": (
        "test_a_weak_policy_is_never_shown_under_the_name_of_a_strong_one",
        "test_text_in_a_bundle_cannot_forge_a_line_on_the_terminal_or_leave_its_place_on_a_page",
    ),
}
"""Tests that call the same functions hundreds of times: as users run them, without checks of every shape.

The checks would be most of their time; other tests have the same functions checked."""


@pytest.fixture(autouse=True)
def _types_unchecked_where_calls_are_many(request, monkeypatch):
    name = request.node.originalname if hasattr(request.node, "originalname") else request.node.name
    if name in MANY_CALLS.get(request.node.nodeid.partition("::")[0], ()):
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(autouse=True)
def _same_random_numbers_in_any_order(request):
    """Begin a module's generator anew for each test, so that no test hangs on which ones ran before it."""
    generator = getattr(request.module, "RNG", None)
    if isinstance(generator, np.random.Generator):
        begin = np.random.default_rng(zlib.crc32(request.node.nodeid.encode())).bit_generator.state
        generator.bit_generator.state = copy.deepcopy(begin)
