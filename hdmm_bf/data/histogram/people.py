"""At most so many records of one person: which are kept is a random choice that no value of a record has a part in.

A person's records have positions, first, second and so on, in the order of the table. Those are kept whose keyed hashes
BLAKE2b(key; person, position), the key being made of the seed, are least. Every choice of that many positions is as
likely as any other. It depends on the seed, the person, and how many records the person has, so that

* records that move along policy edges, in their places, leave every choice as it is: tables that differ in the records
  of one person are cut to tables that differ in at most k of them, move by move;
* a person who comes or goes changes nobody else's choice, and at most k records of the cut table;
* without a seed the choice is a fresh one that nobody knows, and the order of the table may depend on its values.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from hdmm_bf._checks import fail
from hdmm_bf.data.histogram.request import WHERE

_KEY_BYTES = 32
_HASH_BYTES = 16


def check_request(person: object, per_person: object, seed: object, weights: object = None) -> None:
    """Refuse a bound without the column that names people, or the other way round, and what is no bound or seed."""
    if person is None and per_person is None and seed is None:
        return
    if person is None or per_person is None:
        seen = f"person={person!r}, per_person={per_person!r}, seed={seed!r}"
        advice = "Give both, for example person='id', per_person=3."
        raise fail(WHERE, seen, "person and per_person go together, and a seed with them", advice)
    if not isinstance(person, str):
        raise fail(WHERE, f"person of type {type(person).__name__}", "must name a column", "Use person='id'.")
    if not _is_whole(per_person) or per_person < 1:  # type: ignore[operator]
        problem = "must be a whole number, at least 1"
        raise fail(WHERE, f"per_person={per_person!r}", problem, "Say how many records of a person are kept.")
    if seed is not None and not _is_whole(seed):
        raise fail(WHERE, f"seed={seed!r}", "must be a whole number", "Use for example seed=7, or leave it out.")
    if weights is not None:
        problem = "rows that stand for several records have no place for a choice among them"
        raise fail(WHERE, f"person beside weights={weights!r}", problem, "Give one row a record.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def kept(people: Sequence[Any], per_person: int, seed: int | None) -> Bool[np.ndarray, " records"]:
    """Say of every record whether it is kept: all of a person with at most so many, else a random choice of them.

    Args:
        people: whom each record is of, in the order of the table.
        per_person: how many records of one person are kept.
        seed: makes the choice repeatable; None draws a fresh one from the system's secure generator.

    Guarantees:
        The choice depends on the seed, the person and the person's number of records, on no other person and on no
        value of a record; every choice of so many positions is equally likely.
    """
    names = list(map(_text, people))
    codes = _codes(names)
    amounts = np.bincount(codes, minlength=1)
    key = hashlib.sha256(str(secrets.randbits(256) if seed is None else int(seed)).encode()).digest()[:_KEY_BYTES]
    keep = np.asarray(amounts[codes] <= per_person)
    crowded = np.flatnonzero(~keep)
    if crowded.size:
        order = crowded[np.argsort(codes[crowded], kind="stable")]  # person by person, in the order of the table
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            keep[rows[_chosen(names[rows[0]], rows.size, per_person, key)]] = True
    return keep


def _chosen(person: str, amount: int, per_person: int, key: bytes) -> list[int]:
    """Return the positions, of so many, with the least keyed hashes."""
    start = hashlib.blake2b(person.encode("utf-8", "surrogatepass") + b"\0", key=key, digest_size=_HASH_BYTES)

    def rank(position: int) -> bytes:
        own = start.copy()
        own.update(position.to_bytes(8, "little"))
        return own.digest()

    return sorted(range(amount), key=rank)[:per_person]


def _codes(names: list[str]) -> Int64[np.ndarray, " records"]:
    numbers: dict[str, int] = {}
    return np.fromiter((numbers.setdefault(name, len(numbers)) for name in names), dtype=np.int64, count=len(names))


def _text(person: Any) -> str:
    """Name a person the same way whatever holds the table: 7, 7.0 and "7" are one."""
    if isinstance(person, float | np.floating) and float(person).is_integer():
        return str(int(person))
    return str(person)


def check_named(missing: Bool[np.ndarray, " records"], people: Sequence[Any], column: str) -> None:
    """Refuse records that name nobody; how many there are is not told."""
    if missing.any() or any(person is None or person != person or person == "" for person in people):
        problem = "some records name no person"
        raise fail(WHERE, f"column {column!r}", problem, "Name a person in every record, or leave such records out.")
