"""Shared by the tests of bad input: how a refusal must look."""

import re

import jaxtyping
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError

THREE_PARTS = re.compile(r"[\w.: /-]+\(.+\): .+[.?`)] .+[.?]", re.DOTALL)
PEOPLE = bf.Domain((2, 3), ("sex", "age"), (("F", "M"), None))
SIZES = "Give one size for each attribute, for example 64 or 32x32."
FINITE = "Remove NaN and infinite entries."
SMALLER = "Use a smaller domain or a sparser policy."
IMPLICIT = "Use mv, rmv or gram, which do not write the matrix out"


@pytest.fixture(autouse=True)
def _as_users_run_it():
    """Users have no jaxtyping hook: mistakes in types must be caught by the package itself."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def only_text(value):
    """Name a test by its words, not by the bytes of its file."""
    return value if isinstance(value, str) and len(value) < 40 else ""


def assert_refused(mistake, seen, advice=""):
    """The mistake raises an InputError with the value seen and, where the message is fixed, the advice."""
    with pytest.raises(InputError) as caught:
        mistake()
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert seen in message
    assert advice in message
    assert THREE_PARTS.fullmatch(message), message


def table(*cases):
    """Parametrise over (mistake, value seen, advice), or only (mistake, value seen)."""
    return pytest.mark.parametrize("case", cases, ids=[f"{i}-{case[1]}"[:40] for i, case in enumerate(cases)])


def problem(cells=3):
    return bf.Problem(workload.identity(cells), policy.line(cells))


# Domains
