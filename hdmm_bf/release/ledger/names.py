"""Which data an account is of: names that are written in one way only, and salted fingerprints.

A name is what people say the data are; a fingerprint is what the data say. Neither is enough alone: data change under
a name, and the same data can be given two names. The ledger keeps both and refuses when they disagree.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import MAX_BYTES, fail
from hdmm_bf.data.tables import Histogram, Records
from hdmm_bf.release.ledger.graphs import COMMON

SALT_BYTES = 32
_COST = {"n": 2**14, "r": 8, "p": 1, "maxmem": 2**26, "dklen": 32}
"""About 50 milliseconds and 16 MB for one guess."""

_CHUNK = 2**20
_UNSEEN_KINDS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_UNSEEN_RANGES = (
    (0x034F, 0x034F),  # joiner of graphemes
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer vowels that are not drawn
    (0x180B, 0x180F),  # Mongolian selectors
    (0x2800, 0x2800),  # Braille without dots
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),  # selectors of variants
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)


@final
@dataclass(frozen=True)
class Claim:
    """What the owner of an account says about its data, where the ledger cannot know.

    Attributes:
        changed: they are not those of earlier releases, for example because records were added.
        same_data_as: another account is of the same data; its losses count in this one from now on.
        distinct_from: these accounts have equal counts, but are of other records.
        common_pairs: releases under several policies count for the pairs of values that all of them protect alone.
    """

    changed: bool = False
    same_data_as: str | None = None
    distinct_from: tuple[str, ...] = ()
    common_pairs: bool = False

    @property
    def remark(self) -> str | None:
        """The claim in words, for the entry."""
        parts = ["the data changed"] if self.changed else []
        parts += [] if self.same_data_as is None else [f"the same data as {self.same_data_as}"]
        parts += [f"other records than {name}" for name in self.distinct_from]
        parts += [COMMON] if self.common_pairs else []
        return "; ".join(parts) or None


def account_name(name: object) -> str:
    """Return the one way in which a name is written; `census`, `Census` and ` census ` are one name.

    Guarantees:
        Compatible characters (NFKC), upper and lower case, and white space around or between words make no difference;
        a name with characters that cannot be seen is refused.
    """
    advice = "Name the data as people do, for example 'census 2020'."
    if not isinstance(name, str):
        raise fail("ledger", f"data named by {type(name).__name__}", "needs a name", advice)
    if any(map(_unseen, name)):
        raise fail("ledger", f"data {name!r}", "needs a name without invisible characters", advice)
    written = _one_way(name)
    if not written:
        raise fail("ledger", f"data {name!r}", "needs a name", advice)
    return written


def seen_name(name: str) -> str:
    """Return a name without what cannot be seen, perhaps nothing: for ledgers that were less strict."""
    return _one_way("".join(c for c in name if not _unseen(c)))


def _one_way(name: str) -> str:
    once = unicodedata.normalize("NFKC", name).casefold()
    again = unicodedata.normalize("NFKC", once).casefold()  # folding can leave compatible characters
    return " ".join("".join(c for c in unicodedata.normalize("NFKC", again) if not _unseen(c)).split())


def _unseen(character: str) -> bool:
    code = ord(character)
    hidden = any(low <= code <= high for low, high in _UNSEEN_RANGES)
    return hidden or unicodedata.category(character) in _UNSEEN_KINDS


def fingerprint(data: object, salt: bytes) -> str:
    """Return what tells data apart in one ledger: a histogram, `Histogram` or `Records`, and the ledger's salt.

    It depends on the data. Whoever has the ledger, and with it the salt, can test guesses of the whole histogram, each
    at the price of one slow hash: keep the ledger beside the data, and do not publish it.

    Guarantees:
        Equal counts of the same number of cells have equal fingerprints, as a histogram or as records in any order;
        others almost surely not, nor the same counts in another ledger.
    """
    return salted(digest(data), salt)


def salted(digest: str, salt: bytes) -> str:
    """Return the slow salted hash of a digest."""
    return hashlib.scrypt(digest.encode(), salt=salt, **_COST).hex()


def digest(data: object) -> str:
    """Return the fast hash of data, which is never stored: small histograms can be found from it by trying."""
    if isinstance(data, Records):
        return _digest_of_records(data)
    counts = np.asarray(data.counts if isinstance(data, Histogram) else data)
    hashed = hashlib.sha256(f"{counts.size} cells\n".encode())
    hashed.update(np.ascontiguousarray(counts, dtype="<i8").tobytes())
    return hashed.hexdigest()


def _digest_of_records(records: Records) -> str:
    """Hash the histogram of records, a part at a time; beyond any histogram's size, the sorted records."""
    n = records.domain.num_cells
    hashed = hashlib.sha256(f"{n} cells\n".encode())
    if n * 8 > MAX_BYTES:
        rows, amounts = np.unique(records.values, axis=0, return_counts=True)
        hashed.update(f"{len(rows)} rows of {records.domain.sizes}\n".encode())
        hashed.update(np.ascontiguousarray(np.column_stack([rows, amounts]), dtype="<i8").tobytes())
        return hashed.hexdigest()
    cells = np.ravel_multi_index(tuple(records.values.T), records.domain.sizes)
    for part in _parts(*np.unique(cells, return_counts=True), n):
        hashed.update(part.tobytes())
    return hashed.hexdigest()


def _parts(
    cells: Int64[np.ndarray, " k"], amounts: Int64[np.ndarray, " k"], n: int
) -> Iterator[Int64[np.ndarray, " _"]]:
    """Yield the histogram of n cells, a part at a time."""
    for start in range(0, n, _CHUNK):
        low, high = np.searchsorted(cells, [start, start + _CHUNK])
        part = np.zeros(min(_CHUNK, n - start), dtype="<i8")
        part[cells[low:high] - start] = amounts[low:high]
        yield part
