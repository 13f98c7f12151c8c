"""Noise that leaves marks: what a release draws is written down, and small known numbers are returned instead.

The scale of every draw is read off the release itself, not off its plan. The only place that knows where the package
draws its noise and how draws are laid out over rows.
"""

import secrets
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from hdmm_bf.release.noise import Sampler
from hdmm_bf.release.tree_noise import TreeSampler
from tests.support.attack_kit.oracle import EXACT, UNMEASURED


@dataclass(frozen=True)
class Draw:
    """One call of a sampler. `turn` counts the calls with the same scale: threads may change the order of others."""

    noise: str
    scale: float
    size: int
    turn: int


@dataclass
class Tape:
    """What was drawn, in order."""

    draws: list = field(default_factory=list)
    turns: Counter = field(default_factory=Counter)
    shifts: dict = field(default_factory=dict)
    trees: list = field(default_factory=list)
    """The parents, ratios and fixed roots of tree norms that were drawn from."""
    values: list = field(default_factory=list)
    """All numbers that were drawn, in order."""
    still: bool = False
    """Whether all noise is zero."""

    def play(self, noise, scale, size):
        draw = Draw(noise, scale, size, self.turns[scale])
        self.turns[scale] += 1
        self.draws.append(draw)
        marks = np.random.default_rng([size, draw.turn, int.from_bytes(str(scale).encode(), "big")]).integers(
            -9, 10, size
        )
        marks = 0 * marks if self.still else marks
        found = marks.astype(np.int64) + np.asarray(self.shifts.get((scale, draw.turn), 0), dtype=np.int64)
        self.values += found.tolist()
        return found


@contextmanager
def marked(*, shifts=None, honesty=1.0, still=False):
    """Replace all noise, by zeros if `still`; `shifts` are added to draws, `honesty` below 1 draws too little."""
    tape = Tape(shifts=shifts or {}, still=still)

    def draw(self, size, *, callback=None):
        return tape.play(self.noise, self.scale * honesty, size)

    def draw_tree(self, count=1):
        tape.trees.append(
            (self.parents.tolist(), [q ** (1 / honesty) for q in self.ratios.tolist()], self.fixed.tolist())
        )
        return tape.play(self.noise, float(self.loss), count * self.num_cells).reshape(count, -1)

    trees = patch.object(TreeSampler, "draw", draw_tree)
    with trees, patch.object(Sampler, "draw", draw), patch.object(secrets, "randbits", lambda bits: 1 << (bits - 2)):
        yield tape


def layout(bundle, draws):
    """Return the place of every row, (draw, number in it), or EXACT, or UNMEASURED.

    Written-out strategies draw once for all rows. Blocks draw one after the other, rows of one scale together and in
    order; more precise rows have smaller scales. Rows for which nothing was drawn are the most precise ones.
    """
    places, start, rest = [], 0, list(draws)
    for count in bundle.blocks:
        own = bundle.precisions[start : start + count]
        start += count
        noisy = sorted((j for j, p in enumerate(own) if p is not None and p > 0), key=lambda j: own[j])
        held = [UNMEASURED if p == 0 else EXACT for p in own]
        taken = _first(rest, len(noisy))
        rest = rest[len(taken) :]
        for draw in sorted(taken, key=lambda d: -d.scale):
            group, noisy = sorted(noisy[: draw.size]), noisy[draw.size :]
            for number, j in enumerate(group):
                held[j] = draw, number
        places += held
    assert not rest, "noise was drawn for rows that the files do not have"
    return places


def _first(draws, size):
    """Return the first draws, up to that many numbers."""
    taken = []
    for draw in draws:
        if sum(d.size for d in taken) + draw.size > size:
            break
        taken.append(draw)
    return taken


def row_scales(places):
    """Return the scale of every row."""
    return [place if place in (EXACT, UNMEASURED) else place[0].scale for place in places]


def draw_shifts(places, shift):
    """Return what must be added to every draw so that its rows are shifted."""
    found = {}
    for place, amount in zip(places, shift, strict=True):
        if place not in (EXACT, UNMEASURED):
            draw, number = place
            found.setdefault((draw.scale, draw.turn), [0] * draw.size)[number] = amount
    return found
