"""People, not records: what a promise about one person's records asks of the noise.

Somebody with at most k records can change k of them at once, each along an edge of the policy. By the triangle
inequality k moves change the answers of a strategy by at most k times what one move does, and by no less when k records
lie in one cell and all move along its worst edge. So noise is made for k times the sensitivity: at the same noise, mu
and a pure epsilon are k times and rho is k^2 times that of one record.
"""

from __future__ import annotations

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise

_MOST_RECORDS = 10**6


def checked_per_person(per_person: object, where: str = "release") -> int | None:
    """Return the most records of one person, None for a promise about one record; refused if it is no such number."""
    if per_person is None:
        return None
    if isinstance(per_person, bool) or not isinstance(per_person, int | np.integer) or per_person < 1:
        problem = "must be a whole number, at least 1"
        raise fail(where, f"per_person={per_person!r}", problem, "Say how many records one person has at most.")
    if per_person > _MOST_RECORDS:
        advice = "Leave out records beyond a smaller bound: histogram(..., person=..., per_person=...)."
        raise fail(where, f"per_person={per_person}", f"is more than {_MOST_RECORDS}", advice)
    return int(per_person)


def moved_together(noise: Noise, exact: int, records: int | None) -> int:
    """Return the sensitivity to that many moves along edges: k times as much, k^2 times where it is squared."""
    return exact * (records or 1) ** (2 if noise == "gaussian" else 1)


def for_people(records: int | None) -> str:
    """Say whom a promise is made to, after the promise itself; nothing where it is about one record."""
    if records is None:
        return ""
    return f", for people with at most {records} record{'' if records == 1 else 's'} each"
