"""Damaged CSV files: each ends in counts or in one sentence, and counts agree with Python's own CSV reader."""

import csv
import io
import random

import numpy as np
import pytest

from hdmm_bf._checks import InputError
from hdmm_bf.data.histogram import histogram
from tests.support.mistakes import THREE_PARTS
from tests.support.records import BINS, DOMAIN, EDGES, TOWNS, good, write_csv

pytest.importorskip("duckdb", reason="needs the extra `data`")
pytest.importorskip("narwhals", reason="needs the extra `data`")

INSERTED = [
    b'"',
    b"\0",
    b"\xff",
    b"\xc3",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b",",
    b";",
    b"\t",
    b"\\",
    b"'",
    b"--",
    b"nan",
]
INSERTED += [b"inf", b"-1", b"1e999", b"NULL", b"9" * 30, b"9" * 70_000, b"9" * 3_000_000]
SEEDS = range(210)


def damaged(seed):
    """Bytes of a CSV file of good records after one to four accidents."""
    draw = random.Random(seed)
    text = io.StringIO(newline="")
    write_csv(good(seed, draw.randrange(1, 25)), text)
    content = bytearray(text.getvalue().encode(draw.choice(["utf-8", "utf-8-sig"])))
    for _ in range(draw.randrange(1, 5)):
        content = bytearray(accident(draw, content, draw.randrange(len(content) + 1)))
    return bytes(content)


def accident(draw, content, place):
    kind = draw.choice(["flip", "flip", "cut", "insert", "insert", "insert", "lose", "repeat", "encode"])
    end = place + draw.randrange(40)
    if kind == "flip" and place < len(content):
        content[place] ^= 1 << draw.randrange(8)
    if kind == "encode" and draw.random() < 0.3:
        return bytes(content).decode(errors="replace").encode(draw.choice(["utf-16", "latin-1"]), "replace")
    inserted = draw.choice(INSERTED[:-1] if draw.random() < 0.9 else INSERTED)
    middle = {"cut": None, "insert": inserted, "lose": b"", "repeat": content[place:end] * 2}.get(kind, b"same")
    if middle == b"same":
        return content
    return (
        content[:place] if middle is None else content[:place] + middle + content[end if kind != "insert" else place :]
    )


def counted(content):
    """Count with Python's reader; None where it cannot read the file, or a line has too many or too few fields."""
    try:
        head, *rows = (
            row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True) if row
        )
    except (ValueError, csv.Error):
        return None
    if any(head.count(name) != 1 for name in DOMAIN.names) or any(len(row) != len(head) for row in rows):
        return None
    counts = np.zeros(DOMAIN.sizes, dtype=np.int64)
    for row in rows:
        town, rooms, age = (row[head.index(name)] for name in DOMAIN.names)
        try:
            rooms, age = float(rooms), float(age)
        except ValueError:
            continue
        if town in TOWNS and rooms in (0, 1, 2, 3) and EDGES[0] <= age <= EDGES[-1]:
            counts[TOWNS.index(town), int(rooms), (age >= EDGES[1]) + (age >= EDGES[2])] += 1
    return counts.ravel()


def outcome(seed, folder):
    """Return our counts, or None after a refusal, beside the reader's."""
    content = damaged(seed)
    (folder / "t.csv").write_bytes(content)
    refusal = None
    try:
        ours = histogram(folder / "t.csv", DOMAIN, bins=BINS, outside="drop")
    except InputError as error:
        ours, refusal = None, error
    assert refusal is None or THREE_PARTS.fullmatch(str(refusal)), (seed, str(refusal))
    assert refusal is None or refusal.__suppress_context__ or refusal.__context__ is None
    return ours, counted(content)


@pytest.mark.parametrize("part", range(3))
def test_a_damaged_file_gives_counts_or_one_sentence(part, tmp_path, capfd):
    same = refused = 0
    for seed in SEEDS[part::3]:
        ours, readers = outcome(seed, tmp_path)
        refused += ours is None
        same += ours is not None and readers is not None
        if ours is not None and readers is not None:
            assert np.array_equal(ours, readers), seed
    assert same > 5
    assert refused > 30
    assert capfd.readouterr() == ("", "")
