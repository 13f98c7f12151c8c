"""At most so many records of a person: any choice is as likely as another, and no value has a part in it."""

import collections
import itertools
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.data.histogram import records
from hdmm_bf.data.histogram.people import check_request, kept
from hdmm_bf.data.sources import read_data
from tests.support.ledgers import refused

pl = pytest.importorskip("polars", reason="needs the extra `data`")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

DAYS = bf.Domain((6,), ("day",))


def visits(seed, number=120, people=15):
    """Whom every record is of and its day; some people have many records, some few."""
    rng = np.random.default_rng(seed)
    who = (people * rng.random(number) ** 2).astype(int)
    return [f"p{k}" for k in who], rng.integers(0, 6, number)


def counted(who, days, most, **asked):
    return bf.histogram(pl.DataFrame({"who": who, "day": days}), DAYS, person="who", per_person=most, **asked)


# ---------------------------------------------------------------- the bound


@pytest.mark.parametrize("most", [1, 2, 5, 200])
def test_nobody_is_counted_more_often_than_the_bound(most):
    """Quotes histogram: at most per_person records of anybody are counted. People with fewer keep all."""
    who, days = visits(1)
    keep = kept(who, most, 7)
    before, after = collections.Counter(who), collections.Counter(itertools.compress(who, keep))
    assert all(after[name] == min(before[name], most) for name in before)
    assert np.array_equal(counted(who, days, most, seed=7), np.bincount(days[keep], minlength=6))
    assert counted(who, days, most).sum() == sum(min(amount, most) for amount in before.values())


def test_all_engines_and_files_keep_the_same_records(tmp_path):
    who, days = visits(2)
    rows = {"who": who, "day": days}
    numbered = {"who": [int(name[1:]) for name in who], "day": days}
    pd.DataFrame(rows).to_csv(tmp_path / "v.csv", index=False)
    pd.DataFrame(rows).to_parquet(tmp_path / "v.parquet")
    pd.DataFrame(numbered).to_csv(tmp_path / "n.csv", index=False)
    sources = [pl.DataFrame(rows), pl.DataFrame(rows).lazy(), pd.DataFrame(rows), pa.table(rows)]
    sources += [tmp_path / "v.csv", tmp_path / "v.parquet"]
    found = [bf.histogram(s, DAYS, person="who", per_person=3, seed=5).tolist() for s in sources]
    assert all(counts == found[0] for counts in found)
    floats = pd.DataFrame(numbered).astype({"who": float})
    found = [bf.histogram(s, DAYS, person="who", per_person=3, seed=5).tolist() for s in (tmp_path / "n.csv", floats)]
    assert found[0] == found[1]
    listed = records(tmp_path / "v.csv", DAYS, person="who", per_person=3, seed=5)
    assert np.bincount(listed.values[:, 0], minlength=6).tolist() == counted(who, days, 3, seed=5).tolist()
    assert read_data(tmp_path / "v.csv", DAYS, person="who", per_person=3, seed=5).tolist() == (
        counted(who, days, 3, seed=5).tolist()
    )


# ---------------------------------------------------------------- neighbours stay neighbours


def test_other_people_and_values_have_no_part_in_the_choice():
    """Quotes kept: depends on the seed, the person and the number of records, on no other person and on no value.

    A choice drawn from one stream of random numbers, person after person, fails the same test.
    """

    def streamed(who, most, seed):
        rng = np.random.default_rng(seed)
        keep = np.zeros(len(who), dtype=bool)
        for name in dict.fromkeys(who):
            rows = np.flatnonzero(np.array(who) == name)
            keep[rng.permutation(rows)[:most]] = True
        return keep

    def positions(choose, who, seed):
        keep, found = choose(who, 2, seed), collections.defaultdict(list)
        seen = collections.Counter()
        for name, is_kept in zip(who, keep, strict=True):
            if is_kept:
                found[name].append(seen[name])
            seen[name] += 1
        return found

    changed = {"ours": 0, "streamed": 0}
    for seed in range(10):
        who, _ = visits(seed)
        gone = who[seed]
        others = [name for name in who if name != gone]
        mixed = [who[k] for k in np.random.default_rng(seed).permutation(len(who))]
        for name, choose in (("ours", kept), ("streamed", streamed)):
            whole = positions(choose, who, seed)
            without, turned = positions(choose, others, seed), positions(choose, mixed, seed)
            assert set(without) == set(whole) - {gone}
            changed[name] += any(without[p] != whole[p] or turned[p] != whole[p] for p in without)
    assert changed["ours"] == 0
    assert changed["streamed"] > 5


def test_cut_tables_of_neighbours_are_at_most_k_moves_apart():
    """All records of one person move to a neighbouring day: the counts differ by at most k moves, one for each kept."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        who, days = visits(seed)
        own = np.array(who) == who[seed]
        moved = np.where(own, np.clip(days + rng.choice([-1, 1], days.size), 0, 5), days)
        change = counted(who, moved, 3, seed=seed) - counted(who, days, 3, seed=seed)
        needed = np.abs(np.cumsum(change)).sum()  # moves along a line: what passes each of its edges
        assert change.sum() == 0
        assert needed <= 3
        gone = counted(list(np.array(who)[~own]), days[~own], 3, seed=seed)
        lost = counted(who, days, 3, seed=seed) - gone
        assert lost.min() >= 0
        assert lost.sum() <= 3


def test_every_choice_of_positions_is_equally_likely():
    """Two of five records: ten choices, within five standard errors; keeping the first two must fail."""
    number, choices = 1000, list(itertools.combinations(range(5), 2))
    rows = [f"p{k}" for _ in range(5) for k in range(number)]
    room = 5 * math.sqrt(0.1 * 0.9 / number)

    def farthest(keep):
        seen = collections.Counter(tuple(np.flatnonzero(own).tolist()) for own in keep.reshape(5, number).T)
        return max(abs(seen[choice] / number - 0.1) for choice in choices)

    assert farthest(kept(rows, 2, 3)) <= room
    assert farthest(kept(rows, 2, None)) <= room
    assert not np.array_equal(kept(rows, 2, None), kept(rows, 2, None))
    assert farthest(np.arange(5 * number) < 2 * number) > room


# ---------------------------------------------------------------- records outside, and mistakes


def test_records_left_out_for_their_values_take_nobodys_place():
    who, days = ["a"] * 6, np.array([7, 1, 8, 2, 9, 3])
    assert counted(who, days, 3, seed=1, outside="drop").tolist() == [0, 1, 1, 1, 0, 0]
    with pytest.raises(InputError, match="3 records have values outside"):
        counted(who, days, 3, seed=1)


@pytest.mark.parametrize("who", [["a", None], ["a", ""], [1.0, math.nan], [1, None]], ids=str)
def test_records_of_nobody_are_refused(who, tmp_path):
    frame = {"who": who, "day": [1, 2]}
    for source in (pl.DataFrame(frame, strict=False), pd.DataFrame(frame), pa.table(frame)):
        refused(lambda s=source: bf.histogram(s, DAYS, person="who", per_person=1), "name no person", "'who'")
    pd.DataFrame(frame).to_csv(tmp_path / "v.csv", index=False)
    refused(lambda: bf.histogram(tmp_path / "v.csv", DAYS, person="who", per_person=1), "name no person")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("who", None, None), "go together"),
        ((None, 3, None), "go together"),
        ((None, None, 7), "go together"),
        ((7, 3, None), "must name a column"),
        (("who", 0, None), "at least 1"),
        (("who", 1.5, None), "at least 1"),
        (("who", True, None), "at least 1"),
        (("who", 3, "x"), "seed='x'"),
        (("who", 3, None, "times"), "weights='times'"),
    ],
    ids=str,
)
def test_requests_that_make_no_sense_are_refused(asked, words):
    refused(lambda: check_request(*asked), words)
