"""The exact sampler: its parts against arbitrary precision, its margins on many points, its numbers by chi-square."""

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from hdmm_bf.release import discrete_laplace, rounded_normal, staircase
from hdmm_bf.release.discrete_laplace import Exponential
from hdmm_bf.release.enclosures import exp_enclosure
from hdmm_bf.release.rounded_normal import HalfNormal
from hdmm_bf.release.staircase import CELLS, Uniform, boundaries, decide

FIVE_SIGMA = 2 * stats.norm.sf(5)
LAWS = {"normal": HalfNormal(), "exponential": Exponential()}
MP = mpmath.mp.clone()
MP.dps = 50
MANY = [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)]


def seeded(seed):
    """A stand-in for the system's generator."""
    return np.random.default_rng(seed).bytes


def repeated(byte):
    return lambda count: bytes([byte]) * count


def mp(fraction):
    return MP.mpf(fraction.numerator) / fraction.denominator


def energy(law, t):
    return t**2 / 2 if law.offset else t


# ---------------------------------------------------------------- enclosures


def test_the_exponential_is_enclosed_tightly():
    rng = np.random.default_rng(1)
    points = [Fraction(0), Fraction(1, 2), Fraction(1, 3), Fraction(700), Fraction(1, 2**200), Fraction(10**6, 7)]
    points += [Fraction(int(a), int(b)) for a, b in rng.integers(1, 2**40, (200, 2))]
    with mpmath.workdps(120):
        for t, bits in itertools.product(points, (1, 64, 200)):
            low, high = exp_enclosure(t, bits)
            truth = mpmath.ldexp(mpmath.exp(-mpmath.mpf(t.numerator) / t.denominator), bits)
            assert low <= truth <= high <= low + 2


@pytest.mark.parametrize("name", LAWS)
def test_cells_have_the_probabilities_of_the_stairs(name):
    """Sums of exp(-E(i/16)) over all cells, in 50 digits; bounds at 64 and 128 bits hold them and are tight."""
    law = LAWS[name]
    weights = [MP.exp(-energy(law, MP.mpf(i) / CELLS)) for i in range(2500)]
    total, sums = sum(weights), list(itertools.accumulate(weights))
    for bits in (64, 128):
        low, high = boundaries(law, bits)
        assert len(low) > (150 if name == "normal" else 1000)
        for i in range(0, len(low), 7):
            assert low[i] <= MP.ldexp(sums[i] / total, bits) <= high[i] <= low[i] + 2


@pytest.mark.parametrize("sigma", [0.75, 2.5])
def test_what_is_kept_in_the_cells_has_the_probabilities_of_rounded_normal_numbers(sigma):
    """The sum over cells of weight times the share of places that give k and are kept, in 50 digits."""
    law, half = HalfNormal(), MP.sqrt(MP.pi / 2)
    for k in range(3):
        start, end = (max(Fraction(0), (k + d) / Fraction(sigma) * CELLS) for d in (Fraction(-1, 2), Fraction(1, 2)))
        mass = MP.mpf(0)
        for cell in range(math.floor(start), min(math.ceil(end), 40 * CELLS)):
            ends = [mp(min(max(edge - cell, Fraction(0)), Fraction(1))) for edge in (start, end)]
            kept = MP.quad(lambda f, cell=cell: MP.exp(-mp(law.rise(cell, exactly(f)))), ends)
            mass += MP.exp(-mp(law.energy(cell))) * kept / CELLS
        truth = MP.ncdf((k + MP.mpf("0.5")) / sigma) - MP.ncdf((k - MP.mpf("0.5")) / sigma)
        assert MP.almosteq(mass / half, truth * (1 if k == 0 else 2), 1e-40)  # both signs


def exactly(number):
    sign, mantissa, exponent, _ = number._mpf_
    return Fraction(-mantissa if sign else mantissa) * Fraction(2) ** exponent


# ---------------------------------------------------------------- the margins of floating point


@pytest.mark.parametrize("count", MANY)
def test_the_polynomial_is_within_a_sixty_fourth_of_its_margin(count):
    """Quotes exp_polynomial: within 2^-40 of exp(-y) for 0 <= y <= 0.625; the control is a longer y."""
    y = np.concatenate([np.linspace(0, staircase.LONGEST_RISE, count), np.logspace(-18, -1, 100)])
    found = staircase.exp_polynomial(y)
    for value, point in zip(found.tolist(), y.tolist(), strict=True):
        low, high = exp_enclosure(Fraction(point), 80)
        assert (
            Fraction(low, 2**80) - Fraction(1, 2**40) <= Fraction(value) <= Fraction(high, 2**80) + Fraction(1, 2**40)
        )
    assert abs(staircase.exp_polynomial(np.array([2.0]))[0] - math.exp(-2)) > staircase.EXP_MARGIN


def candidates(law, count, seed):
    """Words of random cells, of the far tail as often as of the middle, and of random places and decisions."""
    rng = np.random.default_rng(seed)
    which, place, keep = rng.integers(0, 2**64, (3, count), dtype=np.uint64)
    low, _ = staircase._first_boundaries(law)
    far = rng.integers(0, low.size, count // 2)
    return np.concatenate([which[: count - far.size], low[far] - np.uint64(1)]), place, keep


@pytest.mark.parametrize("count", [2_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LAWS)
def test_floating_point_decides_as_whole_numbers_do(name, count):
    """Wherever there is no doubt the answer is that of `decide`, whose every step is enclosed; and doubt is rare."""
    law, scale, doubts = LAWS[name], 3.3 * 2**18, 0
    which, place, keep = candidates(law, count, 3)
    cells, unsure = staircase._cells(law, which)
    kept, more = staircase._keeps(law, cells, place, keep)
    found, most = staircase._rounded(law, scale, cells, place)
    whole, wide = staircase._rounded_whole(law, scale, cells, place, np.zeros_like(place))
    np.testing.assert_array_equal(found[~most & ~wide], whole[~most & ~wide])
    for row in range(count):
        words = [Uniform(int(w[row]), 64, repeated(0x5A)) for w in (which, place, keep)]
        truth = decide(law, Fraction(scale), *words)
        if unsure[row] or more[row] or most[row]:
            doubts += row < count // 2  # the last cells are not wider than their bounds
        else:
            assert truth == (int(found[row]) if kept[row] else None)
    assert doubts < 5 + count * 1e-4


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize("scale", [0.125, 3.7, 1e5, staircase.LARGEST_FAST])
def test_floating_point_rounds_as_arbitrary_precision_does(scale, count):
    """Places from both ends of the bits not yet drawn, cells to the end of the tables: the same whole number."""
    law = HalfNormal()
    which, place, _ = candidates(law, count, 4)
    cells, _ = staircase._cells(law, which)
    found, doubtful = staircase._rounded(law, scale, cells, place)
    for extra in (0, 2**64 - 1):
        whole, _ = staircase._rounded_whole(law, scale, cells, place, np.full_like(place, extra))
        np.testing.assert_array_equal(found[~doubtful], whole[~doubtful])
    assert doubtful.mean() < 1e-3


def test_places_next_to_a_half_are_left_to_whole_numbers():
    """A place at which sigma (i + f)/16 + 1/2 is whole, from both sides: further bits decide, and so floats do not."""
    law, scale = HalfNormal(), 24.0
    border = np.array([2**64 // 3], dtype=np.uint64)  # sigma / 16 f = 1/2: 64 bits of 1/3 are not enough
    assert staircase._rounded(law, scale, np.array([0]), border)[1].all()
    answers = {
        byte: decide(law, Fraction(scale), *(Uniform(w, 64, repeated(byte)) for w in (0, int(border[0]), 0)))
        for byte in (0x00, 0xFF)
    }
    assert answers == {0x00: 0, 0xFF: 1}
    for step in (-(2**20), 2**20):
        assert not staircase._rounded(law, scale, np.array([0]), border + np.int64(step).astype(np.uint64))[1].any()


def test_words_next_to_the_probability_of_keeping_are_left_to_whole_numbers():
    law, cell, place = HalfNormal(), 40, 2**63
    low, high = exp_enclosure(law.rise(cell, Fraction(1, 2)), 64)
    which = boundaries(law, 64)[0][cell] - 1
    decided = set()
    for word in (low - 1, low, high):
        row = [np.array([w], dtype=np.uint64) for w in (which, place, word)]
        cells, _ = staircase._cells(law, row[0])
        assert cells.tolist() == [cell]
        assert staircase._keeps(law, cells, row[1], row[2])[1].all()
        made = decide(law, Fraction(1), *(Uniform(w, 64, seeded(1)) for w in (which, place, word)))
        decided.add(made is None)
    assert decided == {True, False}
    clear = [np.array([w], dtype=np.uint64) for w in (place, low - 2**40)]
    kept, doubtful = staircase._keeps(law, np.array([cell]), *clear)
    assert kept.all()
    assert not doubtful.any()


@pytest.mark.parametrize("name", LAWS)
def test_words_between_the_bounds_of_a_cell_and_beyond_all_cells_are_left_to_whole_numbers(name):
    law = LAWS[name]
    low, high = boundaries(law, 64)
    for cell in (0, 7, 90):
        between = np.arange(low[cell], high[cell], dtype=np.uint64)
        assert staircase._cells(law, between)[1].all()
        assert not staircase._cells(law, np.array([low[cell] - 1, high[cell]], dtype=np.uint64))[1].any()
        for word in between.tolist():
            assert staircase._cell(law, Uniform(word, 64, repeated(0))) == cell
            assert staircase._cell(law, Uniform(word, 64, repeated(0xFF))) == cell + 1
    last = np.array([2**64 - 1], dtype=np.uint64)
    assert staircase._cells(law, last)[1].all()
    near, far = (staircase._cell(law, Uniform(2**64 - 1, 64, repeated(byte))) for byte in (0x80, 0xFE))
    assert far > near >= staircase._first_boundaries(law)[0].size - 1


def test_rows_in_doubt_are_drawn_by_whole_numbers(monkeypatch):
    """With margins of 1 every row is in doubt, and the numbers are the same as with the real ones."""
    few = [rounded_normal.draw(5.0, 300, source=Counted(1)).tolist()]
    monkeypatch.setattr(staircase, "EXP_MARGIN", 1.0)
    few.append(rounded_normal.draw(5.0, 300, source=Counted(1)).tolist())
    assert few[0] == few[1]


class Counted:
    """Seeded bytes of whole blocks, and others for the words that are asked for one at a time."""

    def __init__(self, seed):
        self.blocks, self.words = np.random.default_rng(seed), np.random.default_rng(seed + 1)

    def __call__(self, count):
        return (self.words if count == 8 else self.blocks).bytes(count)


# ---------------------------------------------------------------- the numbers


def normal_mass(sigma, reach):
    k = np.arange(reach + 1)
    upper = stats.norm.sf((k - 0.5) / sigma) - stats.norm.sf((k + 0.5) / sigma)
    return np.concatenate([upper[:0:-1], upper])


def laplace_mass(scale, reach):
    w = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return w / w.sum()


def statistic(samples, mass):
    """Pearson's, over values expected at least 20 times and the others as one, and its degrees of freedom."""
    reach = len(mass) // 2
    expected = mass * samples.size
    seen = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=len(mass))
    common = expected >= 20
    expected, seen = (np.append(v[common], v[~common].sum()) for v in (expected, seen))
    return float(((seen - expected) ** 2 / expected).sum()), expected.size - 1


@pytest.mark.parametrize("scale", [0.25, 1.0, 6.0])
@pytest.mark.parametrize(
    ("draw", "mass"),
    [(rounded_normal.draw, normal_mass), (discrete_laplace.draw, laplace_mass)],
    ids=["normal", "laplace"],
)
def test_numbers_have_the_stated_probabilities(draw, mass, scale):
    """Quotes rounded_normal and discrete_laplace: exactly these probabilities; a scale wrong by 3 % must fail."""
    samples = draw(scale, 400_000, source=seeded(5))
    found, freedom = statistic(samples, mass(scale, 200))
    assert found < stats.chi2.isf(FIVE_SIGMA, freedom)
    found, freedom = statistic(samples, mass(1.03 * scale, 200))
    assert found > stats.chi2.isf(FIVE_SIGMA, freedom)


def test_rounded_normal_numbers_are_not_discrete_gaussian_ones():
    """The test above tells the laws apart: exp(-k^2 / (2 sigma^2)) at sigma 1 has other probabilities."""
    samples = rounded_normal.draw(1.0, 400_000, source=seeded(6))
    w = np.exp(-(np.arange(-200, 201) ** 2) / 2)
    found, freedom = statistic(samples, w / w.sum())
    assert found > stats.chi2.isf(FIVE_SIGMA, freedom)


@pytest.mark.parametrize("scale", [2.0**20, 2.0**40 * 1.3, 2.0**60, 2.0**100])
@pytest.mark.parametrize("draw", [rounded_normal.draw, discrete_laplace.draw], ids=["normal", "laplace"])
def test_numbers_of_large_scales_have_the_law_in_their_first_and_last_digits(draw, scale):
    """Kolmogorov's distance of k / scale from the law, and evenness of the last eight binary digits."""
    samples = draw(scale, 10_000, source=seeded(7))
    law = stats.norm if draw is rounded_normal.draw else stats.laplace
    assert stats.kstest((samples / scale).astype(float), law.cdf).pvalue > FIVE_SIGMA
    assert stats.kstest((1.2 * samples / scale).astype(float), law.cdf).pvalue < FIVE_SIGMA
    digits = np.array([int(k) & 255 for k in samples])
    assert stats.chisquare(np.bincount(digits, minlength=256)).pvalue > FIVE_SIGMA
    assert samples.dtype == (np.int64 if max(map(abs, samples.tolist())) < 2**63 else object)


@pytest.mark.parametrize("draw", [rounded_normal.draw, discrete_laplace.draw])
def test_numbers_are_independent_and_repeat_with_their_bytes_only(draw):
    samples = draw(40.0, 50_000, source=seeded(8)).astype(float)
    for lag in (1, 2, 1000):
        assert abs(np.corrcoef(samples[lag:], samples[:-lag])[0, 1]) < 5 / math.sqrt(samples.size - lag)
    assert abs(np.corrcoef(np.abs(samples), np.sign(samples))[0, 1]) < 5 / math.sqrt(samples.size)
    np.testing.assert_array_equal(draw(40.0, 50_000, source=seeded(8)), samples)
    assert not np.array_equal(draw(40.0, 50_000), draw(40.0, 50_000))
    assert draw(3.0, 0).shape == (0,)


@pytest.mark.parametrize("sigma", [0.05, 0.125, 0.5, 1.0, 1.9, 2.0, 2.1, 30.0])
def test_the_variance_is_that_of_rounded_numbers(sigma):
    reach = math.ceil(45 * sigma) + 2
    k = np.arange(-reach, reach + 1)
    truth = math.fsum(k**2 * normal_mass(sigma, reach))
    assert rounded_normal.variance(sigma) == pytest.approx(truth, rel=1e-12)


def test_forked_processes_draw_different_numbers():
    """The generator has no state that a fork could copy; a seeded one has, and repeats itself."""
    code = """
import os, sys
from hdmm_bf.release import rounded_normal
import numpy as np
seeded = np.random.default_rng(1)
rounded_normal.draw(1e6, 3)
child = os.fork()
mine = rounded_normal.draw(1e6, 3).tolist(), rounded_normal.draw(1e6, 3, source=seeded.bytes).tolist()
sys.stdout.write(repr(mine) + "\\n")
sys.stdout.flush()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    (first, copied), (second, same) = (eval(line) for line in made.stdout.splitlines())
    assert first != second
    assert copied == same
