"""Exact noise of sums of tree norms: one sampler a part, each calibrated to what a move along its attributes changes.

A move along attribute i shifts the noise that flows along a graph H by one unit in as many slots as the move's path in
H has edges. Slots of several edges of H are drawn by themselves, so their losses add up; the loss of one unit is what
`tree_noise` derives for a slot and no slot. Nothing here sees data.

Guarantees:
    `sum_loss` of a sampler bounds |log P(N) - log P(N + p)| for every edge p of the policy, noise of other parts being
    whatever it is; it is infinite where no part hides an attribute with edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, final

from hdmm_bf._checks import fail
from hdmm_bf._types import EdgeArray
from hdmm_bf.policy import Policy
from hdmm_bf.problem.groups import policy_within
from hdmm_bf.problem.slots import moves_along, slot_policy, steps
from hdmm_bf.release import analytic, tree_noise
from hdmm_bf.release.tree_noise import TreeSampler
from hdmm_bf.strategies.records import TreePart, TreeSum


@final
@dataclass(frozen=True, eq=False)
class PartSampler:
    """The noise of one part, and where it flows.

    Attributes:
        tree: the noise of one slot of every value of its axes, drawn afresh for every other slot.
        along: the attribute whose moves it hides; None for those of the tree.
        edges: the graph along which it flows.
    """

    tree: TreeSampler
    along: int | None
    edges: EdgeArray

    def loss(self, policy: Policy, attribute: int) -> float:
        """Return what a move along an attribute loses at most; infinite where this part does not hide it."""
        axes = self.tree.axes or ()
        assert policy.factors is not None, "checked when it was calibrated"
        if self.along is None:
            own = policy_within(moves_along(policy, (attribute,)), axes) if attribute in axes else None
            return math.inf if own is None else tree_noise.privacy_loss(self.tree, own.edges)
        if attribute != self.along:
            return math.inf
        hidden = slot_policy(tuple(policy.domain.sizes[i] for i in axes), (0,))
        once = tree_noise.privacy_loss(self.tree, hidden.edges)
        count = steps(policy.factors[attribute].edges, self.edges, policy.domain.sizes[attribute])
        return once if math.isinf(once) else analytic.up(Fraction(once) * count)


@final
@dataclass(frozen=True, eq=False)
class TreeSumSampler:
    """Noise of several tree norms, added up.

    Attributes:
        parts: their samplers.
        loss: epsilon that was calibrated.
    """

    parts: tuple[PartSampler, ...]
    loss: float

    noise: ClassVar[Literal["norm"]] = "norm"

    def __repr__(self) -> str:
        return f"TreeSumSampler({len(self.parts)} parts, loss {self.loss:.6g})"


def sum_sampler(strategy: TreeSum, policy: Policy, epsilon: float) -> TreeSumSampler:
    """Return the least noise of every part that makes whole counts epsilon-private under the policy."""
    return TreeSumSampler(tuple(_part_sampler(part, policy, epsilon) for part in strategy.parts), epsilon)


def _part_sampler(part: TreePart, policy: Policy, epsilon: float) -> PartSampler:
    sizes = policy.domain.sizes
    if part.along is None:
        own, share = policy_within(moves_along(policy, part.axes), part.axes), epsilon
    else:
        assert policy.factors is not None, "checked by the certificate"
        own = slot_policy(tuple(sizes[i] for i in part.axes), (0,))
        count = steps(policy.factors[part.along].edges, part.edges, sizes[part.along])
        share = analytic.down(Fraction(epsilon) / count)
    made = tree_noise.tree_sampler(part.tree, own, share)
    if not made.loss <= share:
        raise fail("release", f"loss {made.loss}", f"is more than the {share} asked for", "Report this as a bug.")
    on_axes = TreeSampler(made.parents, made.ratios, made.fixed, made.roundings, made.loss, made.tail, part.axes)
    return PartSampler(on_axes, part.along, part.edges)


def sum_loss(sampler: TreeSumSampler, policy: Policy) -> float:
    """Return what the noise loses at most on any edge of a policy, from the ratios and tables of its samplers."""
    if policy.factors is None:
        return math.inf
    moved = [i for i, own in enumerate(policy.factors) if own.num_edges]
    return max((min(part.loss(policy, i) for part in sampler.parts) for i in moved), default=0.0)
