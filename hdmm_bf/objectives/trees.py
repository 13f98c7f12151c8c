"""The error and the length of tree norms, as differentiable functions of their weights.

A tree norm is ||z|| = sum_v w_v |z(v)| over the nodes of rooted trees whose leaves are the cells; noise on the cells
has probabilities proportional to exp(-epsilon ||z|| / L), L the longest policy edge. As epsilon tends to zero the total
squared error of the answers is 2 / epsilon^2 times

    tree_total    L(w)^2 E[z^T V z] / 2        the unit error
    tree_error    E[z^T V z] / 2               z with density proportional to exp(-||z||)
    tree_length   L(w) = max over edges (u, v) of the sum of w on the path from u to v

    problem = bf.problem("all-range:64", "unbounded:64")
    parents = ...                                          # for every node a later one, or -1; the cells come first
    loss = bf.objectives.tree_total(problem, parents, power=1000.0, log=True)
    found = bf.objectives.minimise(loss, weights, nonnegative=True)

Each is a frozen record: `jax.grad`, `jax.jit` and `jax.vmap` work on it. What it computes is described in `tree_plans`,
and how in `trees_by_hand`, where the same is written out with its gradient; `minimise` takes that for `tree_total`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from hdmm_bf._checks import fail, positive_int
from hdmm_bf._linalg import in_float64
from hdmm_bf._types import AnyArray, Number
from hdmm_bf.objectives.operators import UNSUPPORTED
from hdmm_bf.objectives.pytrees import Array, double, pytree
from hdmm_bf.objectives.tree_plans import Plan, edge_paths, tree_plan
from hdmm_bf.objectives.trees_by_hand import FINE, SEARCH, Grid, Messages, reach, transforms
from hdmm_bf.problem.transform import Problem

_POINTS, _FINE_POINTS = 48, 64
"""Points of half a line of sums: 1e-4 of the error on chains and hierarchies; the fine ones twice, for two steps."""

_MOST_LOOPS, _PADDING, _MANY_LEVELS = 3, 3, 40
"""Compiled loops at most, padded merges for one that counts, and levels from which one loop is made of all."""


@pytree()
class Stage:
    """Levels of equally many merges, one after the other, levels x merges; padding writes to the last slot."""

    left: Array
    right: Array
    out: Array


@pytree("points", "fine", "num_weights")
class TreeError:
    """E[z^T V z] / 2 as a function of the weights; made by `tree_error`."""

    group: Array
    linear: Array
    charges: Array
    form: Array
    leaves: Array
    stages: tuple[Stage, ...]
    roots: Array
    public: Array
    times: Array
    points: int
    fine: bool
    num_weights: int

    @double
    def __call__(self, weights: Any) -> Array:
        """Return the expected error; 1e250 where the law is improper."""
        w = jnp.asarray(weights, jnp.float64)
        if w.shape != (self.num_weights,):
            advice = f"Give {self.num_weights}, one for each node (or group of nodes)."
            raise fail("objectives.tree_error", f"weights of shape {w.shape}", "do not fit the tree", advice)
        if self.roots.shape[0] == 0:
            return 0.0 * w.sum()
        own = jnp.append(jnp.maximum(w, 0.0), jnp.zeros(2))[jnp.where(self.group >= 0, self.group, self.num_weights)]
        radius = self._reach(jax.lax.stop_gradient(own), FINE if self.fine else SEARCH)
        proper = jnp.isfinite(radius)
        own, radius = jnp.where(proper, own, 1.0), jnp.where(proper, radius, 1.0)
        found = self._messages(own, radius, self.points)
        if self.fine:  # errors of order h^4 taken out
            found = (16 * self._messages(own, radius, 2 * self.points) - found) / 15
        return jnp.where(proper, found, UNSUPPORTED)

    def _reach(self, w: Array, grid: Grid) -> Array:
        """Return the largest sum that the messages must hold, as `trees_by_hand.reach` does."""
        rate = w**2 / 2

        def up(state: Any, level: Any) -> Any:
            (down, precision, shortest), (a, b, out) = state, level
            both = jnp.where(out < w.shape[0] - 1, down[a] + down[b], jnp.inf)
            down = down.at[out].set(w[out] + jnp.minimum(down[a], down[b]))
            precision = precision.at[out].set(rate[out] + _in_series(precision[a], precision[b]))
            return (down, precision, jnp.minimum(shortest, jnp.min(both))), None

        def back(outside: Any, level: Any) -> Any:
            a, b, out = level
            above = outside[out] + rate[out]
            return outside.at[a].set(_in_series(above, precision[b])).at[b].set(_in_series(above, precision[a])), None

        state = w, rate, jnp.array(jnp.inf)
        for stage in self.stages:
            state, _ = jax.lax.scan(up, state, (stage.left, stage.right, stage.out))
        down, precision, shortest = state
        shortest = jnp.minimum(shortest, jnp.min(jnp.where(self.public, jnp.inf, down[self.roots])))
        outside = jnp.zeros_like(w).at[self.roots].set(jnp.where(self.public, jnp.inf, 0.0))
        for stage in self.stages[::-1]:
            outside, _ = jax.lax.scan(back, outside, (stage.left, stage.right, stage.out), reverse=True)
        least = jnp.min((precision + outside)[:-1])
        return jnp.where(shortest > 0, jnp.maximum(grid.tail / shortest, grid.spread / jnp.sqrt(least)), jnp.inf)

    def _messages(self, w: Array, radius: Array, points: int) -> Array:
        tables = tuple(jnp.asarray(table) for table in transforms(points))
        h = radius / points
        s = h * jnp.arange(points + 1)
        slots = w.shape[0]
        even = jnp.zeros((slots, 2, points + 1))
        odd = jnp.zeros((slots, self.linear.shape[1] + 1, points + 1))
        zero = jnp.ones((slots, 2))
        flat = jnp.ones((self.leaves.shape[0], 1, points + 1))
        moments = self.linear[self.leaves][:, :, None] * s
        carry = self._stored((even, odd, zero), self.leaves, jnp.concatenate([flat, 0 * flat], 1), moments, w, s, h)
        for stage in self.stages:
            carry, _ = jax.lax.scan(
                lambda state, level: (self._merged(state, level, w, s, h, tables), None),
                carry,
                (stage.left, stage.right, stage.out),
            )
        even, _, zero = carry
        over_all = 2 * even[self.roots].sum(axis=2) - even[self.roots, :, 0]
        at = jnp.where(self.public[:, None], zero[self.roots], over_all)
        return jnp.sum(self.times * at[:, 1] / at[:, 0]) / 2

    def _merged(self, state: Any, level: Any, w: Array, s: Array, h: Array, tables: tuple[Array, ...]) -> Any:
        """Merge the messages of two children each: convolutions, by cosines and sines there and back."""
        even, odd, _ = state
        a, b, out = level
        C, S, C_back, S_back = tables
        even_a, even_b, odd_a, odd_b = even[a] @ C, even[b] @ C, odd[a] @ S, odd[b] @ S
        m = even_a[:, 0] * even_b[:, 0]
        q = even_a[:, 1] * even_b[:, 0] + even_a[:, 0] * even_b[:, 1] - 2 * (odd_a * (self.form @ odd_b)).sum(axis=1)
        moments = (odd_a[:, 1:] * even_b[:, :1] + even_a[:, :1] * odd_b[:, 1:]) @ S_back
        both = jnp.stack([m, q], axis=1) @ C_back
        scale = jax.lax.stop_gradient(1 / both[:, :1, :1])  # ratios are all that counts
        return self._stored(state, out, both * scale, moments * scale, w, s, h)

    def _stored(self, state: Any, out: Array, both: Array, moments: Array, w: Array, s: Array, h: Array) -> Any:
        """Add what the nodes themselves add, charges and weights, and put the messages into their slots."""
        even, odd, zero = state
        fall = jnp.exp(-w[out][:, None] * s)[:, None]
        both = both.at[:, 1].add(self.charges[out][:, None] * s**2 * both[:, 0])
        zero = zero.at[out].set(both[:, :, 0])
        both = both * fall
        odd = odd.at[out].set(jnp.concatenate([s * both[:, :1], moments * fall], axis=1))
        both = both.at[:, :, 0].multiply(_kink(w[out] * h)[:, None])
        return even.at[out].set(both), odd, zero


def _in_series(p: Array, q: Array) -> Array:
    return 1 / (1 / p + 1 / q)


def _kink(t: Array) -> Array:
    """Return 2 / t - 2 / (exp(t) - 1), which is 1 - t / 6 near zero."""
    small = t < 1e-3
    safe = jnp.where(small, 1.0, t)
    return jnp.where(small, 1 - t / 6, 2 / safe - 2 / jnp.expm1(safe))


@pytree("num_weights")
class TreeLength:
    """The longest policy edge as a function of the weights, or a q-norm of all lengths; made by `tree_length`.

    Attributes:
        edge, weight, times: entries of the incidence of edges and weights.
        lengths: one entry per edge, for their number.
        power: q, or None.
        num_weights: how many weights there are.
    """

    edge: Array
    weight: Array
    times: Array
    lengths: Array
    power: Array | None
    num_weights: int

    @double
    def __call__(self, weights: Any) -> Array:
        """Return the length of the longest edge, or its smooth stand-in."""
        w = jnp.asarray(weights, jnp.float64)
        lengths = self.lengths.at[self.edge].add(self.times * w[self.weight])
        top = jnp.max(lengths, initial=0.0)
        if self.power is None:
            return top
        top = jax.lax.stop_gradient(jnp.where(top > 0, top, 1.0))
        lengths = jnp.where(lengths > 0, lengths, 1e-300)
        return top * jnp.sum((lengths / top) ** self.power) ** (1 / self.power)


@pytree("log")
class TreeTotal:
    """L(w)^2 E[z^T V z] / 2, or its logarithm; made by `tree_total`. It does not change with the scale of w."""

    error: TreeError
    length: TreeLength
    log: bool

    @double
    def __call__(self, weights: Any) -> Array:
        """Return the unit error, or its logarithm."""
        w = jnp.asarray(weights, jnp.float64)
        length = self.length(w)
        scaled = self.error(w / jax.lax.stop_gradient(length)) * (length / jax.lax.stop_gradient(length)) ** 2
        return jnp.log(scaled) if self.log else scaled


@in_float64
def tree_error(
    problem: Problem,
    parents: AnyArray | Sequence[int],
    *,
    groups: AnyArray | None = None,
    points: Number | None = None,
    fine: bool = False,
) -> TreeError:
    """Return the expected error of tree norms as a function of their weights: E[z^T V z] / 2 at rate 1.

    Args:
        problem: from `bf.problem(workload, policy)`.
        parents: for every node its parent, a later node, or -1; the first nodes are the cells. A component whose total
            is public has one tree, and z sums to zero there, whatever weight its root is given.
        groups: for every node the number of its weight, where nodes share weights, or -1 for none; one each if not
            given. Equal subtrees are computed once.
        points: of half a line of sums; 48 if not given, which is right to about 1e-4.
        fine: compute with two steps and take the leading error out: right to about 1e-5, in three times the time.

    Example:
        >>> import hdmm_bf as bf, numpy as np
        >>> error = bf.objectives.tree_error(bf.problem("identity:2", "unbounded:2"), [-1, -1], fine=True)
        >>> round(float(error(np.array([1.0, 2.0]))), 4)  # two Laplace variables
        1.25
    """
    plan = tree_plan(problem, np.asarray(parents), groups)
    count = _FINE_POINTS if fine else _POINTS
    if points is not None:
        count = positive_int("objectives.tree_error", "points", points, advice="Use for example points=48.")
    return error_of(plan, points=count, fine=bool(fine))


@in_float64
def error_of(plan: Plan, *, points: int, fine: bool) -> TreeError:
    """Return the expected error of a plan."""
    return TreeError(
        group=jnp.asarray(np.append(plan.group, -1)),  # one slot more, for padding
        linear=jnp.asarray(np.vstack([plan.linear, np.zeros((1, plan.linear.shape[1]))])),
        charges=jnp.asarray(np.append(plan.charges, 0.0)),
        form=jnp.asarray(plan.form),
        leaves=jnp.asarray(plan.levels[0]),
        stages=tuple(_stages(plan, plan.group.size)),
        roots=jnp.asarray(plan.roots),
        public=jnp.asarray(plan.public),
        times=jnp.asarray(plan.times),
        points=points,
        fine=fine,
        num_weights=plan.num_weights,
    )


def _stages(plan: Plan, spare: int) -> list[Stage]:
    """Group levels: each group is one compiled loop over levels of equal width, the spare slot being the padding."""
    levels = plan.levels[1:]
    stages = []
    for begin, end in _cuts([len(level) for level in levels]):
        parts = [np.full((end - begin, max(map(len, levels[begin:end]))), spare) for _ in range(3)]
        for row, level in enumerate(levels[begin:end]):
            for part, values in zip(parts, (plan.left[level], plan.right[level], level), strict=True):
                part[row, : len(level)] = values
        stages.append(Stage(*map(jnp.asarray, parts)))
    return stages


def _cuts(widths: list[int]) -> list[tuple[int, int]]:
    """Return few ranges of levels whose padding is not too much: every loop takes seconds to compile."""
    count = len(widths)
    best: list[tuple[int, int]] = []
    for groups in range(1, _MOST_LOOPS + 1):
        least = math.inf
        for inner in itertools.combinations(range(1, count), groups - 1):
            ranges = list(itertools.pairwise((0, *inner, count)))
            padded = sum((end - begin) * max(widths[begin:end]) for begin, end in ranges if end > begin)
            if padded < least:
                best, least = ranges, padded
        if least <= _PADDING * sum(widths) or count > _MANY_LEVELS:
            break
    return [(begin, end) for begin, end in best if end > begin]


def plan_of(error: TreeError) -> Plan:
    """Return the plan that an expected error was made of."""
    slots = error.group.shape[0] - 1
    left, right = np.full(slots, -1), np.full(slots, -1)
    levels = [np.asarray(error.leaves)]
    for stage in error.stages:
        for a, b, out in zip(*(np.asarray(part) for part in (stage.left, stage.right, stage.out)), strict=True):
            real = out < slots
            left[out[real]], right[out[real]] = a[real], b[real]
            levels.append(out[real])
    group, linear, charges = (np.asarray(part)[:slots] for part in (error.group, error.linear, error.charges))
    roots, public, times = (np.asarray(part) for part in (error.roots, error.public, error.times))
    form, merged = np.asarray(error.form), tuple(levels)
    return Plan(left, right, group, linear, charges, form, merged, roots, public, times, error.num_weights)


def written_out(total: TreeTotal) -> Callable[[Any], tuple[float, Any]] | None:
    """Return the loss with its gradient in NumPy; None for fine errors and for lengths that are not smooth."""
    if total.error.fine or total.length.power is None or total.error.roots.shape[0] == 0:
        return None
    plan, power = plan_of(total.error), float(total.length.power)
    entries = (np.asarray(part) for part in (total.length.times, total.length.edge, total.length.weight))
    data, row, column = entries
    paths = sp.csr_array((data, (row, column)), shape=(total.length.lengths.shape[0], plan.num_weights))

    def evaluate(weights: Any) -> tuple[float, Any]:
        w = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
        lengths = paths @ w
        top = float(lengths.max(initial=0.0))
        radius = reach(plan, w / top, SEARCH) if top > 0 else math.inf
        if not math.isfinite(radius):
            return math.inf, np.zeros_like(w)
        messages = Messages(plan, w / top, radius, total.error.points)
        powered = (lengths / top) ** (power - 1)
        norm = float(powered @ lengths) / top
        slope = (messages.slope() / messages.error + 2 * (paths.T @ powered) / norm) / top
        value = messages.error * norm ** (2 / power)
        return (math.log(value), slope) if total.log else (value, slope * value)

    return evaluate


@in_float64
def tree_length(
    problem: Problem, parents: AnyArray | Sequence[int], *, groups: AnyArray | None = None, power: Number | None = None
) -> TreeLength:
    """Return the longest policy edge of tree norms as a function of their weights: what noise is scaled to.

    Args:
        problem: from `bf.problem(workload, policy)`.
        parents: see `tree_error`.
        groups: see `tree_error`.
        power: of a q-norm over the edges, which is smooth and never less; None for the longest itself.

    Example:
        >>> import hdmm_bf as bf, numpy as np
        >>> length = bf.objectives.tree_length(bf.problem("identity:3", "line:3"), [3, 3, 3, -1])
        >>> float(length(np.array([0.5, 0.25, 1.0, 0.0])))
        1.25
    """
    paths = edge_paths(problem.policy, np.asarray(parents), groups).tocoo()
    smooth = None if power is None else jnp.asarray(float(power))
    entries = (jnp.asarray(paths.row), jnp.asarray(paths.col), jnp.asarray(paths.data))
    return TreeLength(*entries, jnp.zeros(paths.shape[0]), smooth, paths.shape[1])


@in_float64
def tree_total(
    problem: Problem,
    parents: AnyArray | Sequence[int],
    *,
    groups: AnyArray | None = None,
    power: Number | None = None,
    points: Number | None = None,
    fine: bool = False,
    log: bool = False,
) -> TreeTotal:
    """Return the unit error of tree norms as a function of their weights: L(w)^2 E[z^T V z] / 2.

    For the arguments see `tree_error` and `tree_length`; log=True is what is best minimised.

    Example:
        >>> import hdmm_bf as bf, numpy as np
        >>> total = bf.objectives.tree_total(bf.problem("identity:2", "unbounded:2"), [-1, -1], fine=True)
        >>> round(float(total(np.array([3.0, 3.0]))), 4)  # Laplace noise on two counts
        2.0
    """
    error = tree_error(problem, parents, groups=groups, points=points, fine=fine)
    return TreeTotal(error, tree_length(problem, parents, groups=groups, power=power), bool(log))
