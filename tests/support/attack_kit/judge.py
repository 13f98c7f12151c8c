"""The judgement on a bundle: refused, or released within what was asked for; anything else is a hole."""

import re
import signal
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

import hdmm_bf as bf
from tests.support.attack_kit import noise_oracle, oracle, tree_sum_oracle
from tests.support.attack_kit.marked import draw_shifts, layout, marked, row_scales

ASKED = {"laplace": {"epsilon": 0.1}, "gaussian": {"rho": 0.02}, "norm": {"epsilon": 0.1}}
SECONDS = 20
_EDGES_TRIED = 4


class HoleError(AssertionError):
    """What must not happen."""


@dataclass
class Verdict:
    """How it went: "refused" or "released", and the loss as a share of what was asked for."""

    outcome: str
    share: float = 0.0


class TooLongError(Exception):
    """The alarm went off."""


@contextmanager
def time_limit(seconds):
    def ring(*_):
        raise TooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def counts_of(num_cells):
    """Return counts without an empty cell, so that every neighbour exists."""
    return [1 + (3 * cell + 1) % 7 for cell in range(num_cells)]


def judge(folder, *, honesty=1.0):
    """Load, release and judge a bundle; holes are raised."""
    try:
        with time_limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _judge(folder, honesty)
    except (HoleError, AssertionError):
        raise
    except TooLongError:
        raise HoleError(f"took more than {SECONDS} s") from None


def _judge(folder, honesty):
    fit = allowed(lambda: bf.load(folder), "load")
    if fit is None:
        return Verdict("refused")
    bundle = tree_sum_oracle.read(folder) or noise_oracle.read(folder) or oracle.read(folder)
    check_name(fit, bundle)
    asked = ASKED[bundle.noise]
    x = counts_of(bundle.num_cells)
    with marked(honesty=honesty) as tape:
        out = allowed(lambda: bf.release(fit, np.array(x), **asked), "release")
        shown = None if out is None else published(out)
    if out is None:
        check_refusal(fit, x, asked)
        return Verdict("refused")
    places = layout(bundle, tape.draws)
    lost, edge = loss_of(bundle, tape, places)
    budget = Fraction(next(iter(asked.values())))
    if lost > budget:
        raise HoleError(f"edge {edge} loses {float(lost):.6g}, asked for {float(budget):.6g}")
    if bundle.kind == "tree sum":
        check_sum(bundle, x, shown, tape)
    check_neighbours(fit, bundle, x, shown, places, tape, asked)
    return Verdict("released", float(lost / budget))


def check_refusal(fit, x, asked):
    """A release that is refused must be refused whatever the noise: else what is published shows more than its sum."""
    with marked(still=True):
        out = allowed(lambda: bf.release(fit, np.array(x), **asked), "release without noise")
    if out is not None:
        raise HoleError("noise zero is published, and other noise is refused")


def loss_of(bundle, tape, places):
    """The loss of what was drawn, and the edge that loses most."""
    if bundle.kind == "tree":
        return tree_loss(bundle, tape)
    if bundle.kind == "tree sum":
        return tree_sum_oracle.loss(bundle, drawn_parts(bundle, tape))
    return (noise_oracle if bundle.kind == "noise" else oracle).loss(bundle, row_scales(places))


def tree_loss(bundle, tape):
    """The loss of the one draw of a tree norm; without one the counts themselves are published."""
    if not tape.trees:
        return oracle.loss(bundle, [oracle.EXACT] * bundle.num_cells)
    ((parents, ratios, fixed),) = tape.trees
    if parents != bundle.parents:
        raise HoleError("noise of another tree than that of the files")
    return oracle.tree_loss(bundle, ratios, fixed)


def drawn_parts(bundle, tape):
    """The ratios and fixed roots of the noise of every part, which was drawn once for each; nothing without noise."""
    if not tape.trees:
        return []
    if [parents for parents, *_ in tape.trees] != [part.parents for part in bundle.parts]:
        raise HoleError("noise of other trees than those of the files")
    if [draw.size for draw in tape.draws] != bundle.blocks:
        raise HoleError("parts have other numbers of slots than noise was drawn for")
    return [(ratios, fixed) for _, ratios, fixed in tape.trees]


def check_sum(bundle, x, shown, tape):
    """What is published must be the counts and all noise that was drawn, added up exactly and rounded once."""
    if shown["measured"] is None:
        return
    wanted = tree_sum_oracle.noisy_counts(bundle, x, tape.values or [0] * sum(bundle.blocks))
    if np.ravel(shown["measured"]).tolist() != [float(number) for number in wanted]:
        raise HoleError("what is published is not the counts and the noise that was drawn")


def allowed(act, what):
    """Run something that may refuse, in the way it should."""
    try:
        return act()
    except bf.InputError:
        return None
    except TooLongError:
        raise
    except Exception as error:
        raise HoleError(f"{what} raised {type(error).__name__}: {error}") from error


def published(out):
    """Return everything that a release shows."""
    names = ("answers", "estimate", "stddev", "totals", "measured")
    return {name: allowed(lambda name=name: getattr(out, name, None), name) for name in names}


def shifts_of(bundle, places, tape):
    """Every edge and how the noise that was drawn hides it."""
    if bundle.kind == "tree sum":
        return tree_sum_oracle.shifts(bundle, drawn_parts(bundle, tape))
    return noise_oracle.shifts(bundle, row_scales(places)) if bundle.kind == "noise" else oracle.shifts(bundle)


def check_neighbours(fit, bundle, x, shown, places, tape, asked):
    """A neighbour's release must be this one with the noise shifted: nothing else may show the record."""
    every = [(edge, shift) for edge, *_, shift in shifts_of(bundle, places, tape)]
    for edge, shift in every[:: max(1, len(every) // _EDGES_TRIED)]:
        moved = np.array(oracle.neighbour(x, edge))
        with marked():
            other = allowed(lambda moved=moved: published(bf.release(fit, moved, **asked)), "release of a neighbour")
        if other is None:
            continue  # a refusal of counts that do not fit is visible, as documented
        signs = (1, -1) if bundle.kind in ("edge", "noise") else (1,)  # edges are turned so that their head is kept
        if max(map(abs, shift), default=0) < 2**62 and not any(
            same(other, shifted_release(fit, x, places, [sign * s for s in shift], asked)) for sign in signs
        ):
            raise HoleError(f"a record moved along {edge} shows in more than the noise")


def shifted_release(fit, x, places, shift, asked):
    with marked(shifts=draw_shifts(places, shift)):
        return allowed(lambda: published(bf.release(fit, np.array(x), **asked)), "release with shifted noise")


def same(one, other):
    """Whether two releases show the same; one that was refused shows nothing."""
    return other is None or all(_same(one[name], other[name]) for name in one)


def _same(a, b):
    if a is None or b is None:
        return a is b
    if isinstance(a, tuple):
        return all(map(_same, a, b))
    return np.array_equal(a, b, equal_nan=True)


def check_name(fit, bundle):
    """A policy that a reader takes for one of a spec string must be that one, and must hide what it says."""
    policy = fit.problem.policy
    edges = {frozenset(edge) for edge in bundle.edges}
    if {frozenset(edge) for edge in policy.edges.tolist()} != edges:
        raise HoleError("the policy in use is not that of the files")
    name = oracle.folded(policy.title)  # what people are shown
    named = None
    if ":" in name:
        try:
            named = bf.policy.parse(name)
        except bf.InputError:
            named = None
    if named is not None and {frozenset(edge) for edge in named.edges.tolist()} != edges:
        raise HoleError(f"called {ascii(policy.title)}, and has other edges")
    sentence = r"Nobody can tell on which side of any of the graph's (\d+) edges one record is\."
    told = re.fullmatch(sentence, bf.policy.hides(policy))
    if told and int(told[1]) != len(edges):
        raise HoleError(f"says it has {told[1]} edges, has {len(edges)}")
