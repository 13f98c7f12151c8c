"""The exact law of a sampler, by running it once for every sequence of choices that it could make."""

from collections import Counter
from fractions import Fraction

import numpy as np

from hdmm_bf.release import tree_noise, tree_tail

LEAST = Fraction(1, 2**26)
"""Sequences of choices that are less likely are not followed further."""


class _StartAgain(Exception):  # noqa: N818
    pass


class _TooRare(Exception):  # noqa: N818
    pass


class _Run:
    """One run: the choices of a script, then the first option each time; the other options are put on the stack."""

    def __init__(self, script, stack):
        self.script, self.stack, self.taken, self.chance = script, stack, [], Fraction(1)

    def pick(self, weights):
        total = sum(weights)
        options = [k for k, weight in enumerate(weights) if weight]
        if len(self.taken) < len(self.script):
            option = self.script[len(self.taken)]
        else:
            option = options[0]
            self.stack.extend((*self.taken, k) for k in options[1:])
        self.taken.append(option)
        self.chance *= weights[option] / total
        if self.chance < LEAST:
            raise _TooRare
        return option


def law(sampler, monkeypatch):
    """Probabilities of outcomes in one attempt, and those of starting again and of what was not followed."""
    found, again, rare = Counter(), Fraction(0), Fraction(0)
    stack = [()]
    original = tree_noise.draw_outside

    def one_attempt(*arguments):
        drawn = original(*arguments)
        if drawn is None:
            raise _StartAgain
        return drawn

    with monkeypatch.context() as patch:
        patch.setattr(tree_noise, "draw_outside", one_attempt)
        while stack:
            run = _Run(stack.pop(), stack)

            def choose(weights, count, source, run=run):
                assert count <= 1
                return np.array([run.pick([Fraction(w) for w in weights.tolist()])][:count], dtype=np.int64)

            patch.setattr(tree_noise, "choose", choose)
            patch.setattr(tree_tail, "choose_fraction", lambda weights, source, run=run: run.pick(weights))
            try:
                z = sampler.draw(1)[0]
                found[tuple(z.tolist())] += run.chance
            except _StartAgain:
                again += run.chance
            except _TooRare:
                rare += run.chance
    return found, again, rare
