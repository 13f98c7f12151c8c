"""What a workload is called where people read it: by its spec string if that makes it again, else in quotes."""

from __future__ import annotations

import re

from hdmm_bf import _display
from hdmm_bf._checks import InputError, fail
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Dense, Sparse
from hdmm_bf.workload.queries import Workload
from hdmm_bf.workload.spec import parse

SPEC = re.compile(r"[A-Za-z-]+:[A-Za-z0-9=,:-]+")
"""What a spec string looks like: no dot and no slash, so that it can never be a path."""

_OWN_WORDS = "custom matrix"


def title(workload: Workload) -> str:
    """Return the spec string of a workload that it makes, else the name in quotes and the number of queries."""
    if is_named(workload):
        return workload.spec
    if workload.spec == _OWN_WORDS:
        return _OWN_WORDS
    queries = f"{workload.num_queries} quer{'y' if workload.num_queries == 1 else 'ies'}"
    if workload.layout is not None and workload.layout.makes:
        return f"tables {_display.quoted(workload.spec)}, {queries}"
    return f"custom matrix {_display.quoted(workload.spec)}, {queries}"


def is_named(workload: Workload) -> bool:
    """Whether the spec string of a workload makes it again."""
    if not SPEC.fullmatch(workload.spec) or isinstance(workload.matrix, Dense | Sparse):
        return False  # no spec string makes a matrix that is written out, whatever that calls itself
    try:
        return alike(named(workload.spec, workload.domain), workload)
    except InputError:
        return False


def named(spec: str, domain: Domain) -> Workload:
    """Return the workload that a spec string names; no file is ever opened.

    Where it is on the sizes of the given domain, queries have the names and labels of that.
    """
    if not SPEC.fullmatch(spec):
        advice = "Use another name, or a spec string such as all-range:64."
        raise fail("workload", repr(spec), "looks like a spec string and is none", advice)
    made = parse(spec)
    return parse(made.spec, domain=domain) if made.domain.sizes == domain.sizes else made


def alike(made: Workload, given: Workload) -> bool:
    """Whether a workload of a spec string is the given one, judged by kind, name and shape."""
    kind = type(made.matrix) is type(given.matrix) and not given.is_weighted
    return kind and (made.spec, made.matrix.shape) == (given.spec, given.matrix.shape)
