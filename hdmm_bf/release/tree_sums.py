"""Sums of tree norms: x + sum_k (M_k (x) I) phi_k over the cells, the noise of every part drawn by itself.

All of it is in whole numbers over a common denominator, and the sum is rounded once, to the nearest number: a function
of counts and noise that is as private as the noise. Parts are independent, so variances of answers add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import final

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate import Certificate
from hdmm_bf.certificate.norms import fixed_roots
from hdmm_bf.certificate.tree_sums import part_problem, part_sensitivity, part_tree
from hdmm_bf.matrix import Matrix
from hdmm_bf.problem.slots import Columns, columns, on_slots
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.drawn_cells import DrawnCells
from hdmm_bf.release.groups import GroupedRecovery
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.public import with_public_answers
from hdmm_bf.release.reconstruction import recovery
from hdmm_bf.release.tree_sum_noise import PartSampler, TreeSumSampler
from hdmm_bf.strategies.records import TreePart, TreeSum
from hdmm_bf.workload import Workload

_MOST_PRECISION = 2048
"""Cells up to which post-processing weighs them by their covariance."""

_EXACT = 2**62
"""Whole numbers of noise from here on are Python's own."""

_STEP = 1e-6
"""Largest rate at which the limit of small epsilon is taken."""


@final
@dataclass(frozen=True, eq=False)
class PartRecovery:
    """What a release does with one part.

    Attributes:
        problem: the workload and the policy on the cells.
        part: the part.
    """

    problem: Problem
    part: TreePart

    @cached_property
    def slots(self) -> GroupedRecovery:
        """The tree on the queries of slots, whose variances are those of the queries."""
        own = part_problem(self.part, self.problem)
        return GroupedRecovery(own, part_tree(self.part, own))

    @cached_property
    def columns(self) -> Columns | None:
        """M, from the edges of the graph to the values of the attribute; None where noise is on the cells."""
        factors, along = self.problem.policy.factors, self.part.along
        assert factors is not None, "checked by the certificate"
        return None if along is None else columns(factors[along], self.part.edges)

    @property
    def denominator(self) -> int:
        """Of M."""
        return 1 if self.columns is None else self.columns.denominator

    @cached_property
    def longest(self) -> int:
        """The longest move, exactly."""
        return part_sensitivity(self.part, self.problem.policy, self.problem.policy.domain.sizes)

    def is_of(self, sampler: PartSampler) -> bool:
        """Whether noise is of this tree, on its attributes, along its graph."""
        own, tree = sampler.tree, self.part.tree
        fixed = np.flatnonzero(fixed_roots(tree.parents, self.slots.own.problem.policy))
        return (
            (own.axes, sampler.along) == (self.part.axes, self.part.along)
            and np.array_equal(own.parents, tree.parents)
            and np.array_equal(own.fixed, fixed)
            and np.array_equal(sampler.edges, self.part.edges)
        )

    def draw(self, sampler: PartSampler, count: int) -> AnyArray:
        """Return draws of the noise on all cells, times the denominator, one column each.

        Numbers that do not fit in 64 bits are Python's: whether noise is added never depends on the noise.
        """
        sizes = self.problem.policy.domain.sizes
        grouped = self.part.grouped(sizes)
        cells = grouped.cells
        drawn = sampler.tree.draw(len(cells) * count).reshape(count, *cells.shape)
        phi = np.empty((cells.size, count), dtype=np.int64)
        phi[cells] = np.moveaxis(drawn, 0, -1)
        M, along = self.columns, self.part.along
        if M is None or along is None:
            return phi
        largest = int(np.abs(phi).max(initial=0)) * int(np.abs(M.integers).sum(axis=1).max())
        kind = np.int64 if largest < _EXACT else object
        tensor = np.moveaxis(phi.reshape(*grouped.sizes, count), along, 0).astype(kind)
        moved = np.tensordot(M.integers.astype(kind), tensor, axes=1)
        return np.ascontiguousarray(np.moveaxis(moved, 0, along)).reshape(-1, count)

    def variances(self, matrix: Matrix, rates: RealVector, chosen: IndexArray | None) -> RealVector:
        """Return the variances of any queries at given rates of the tree, all or chosen ones."""
        sizes, along = self.problem.policy.domain.sizes, self.part.along
        if self.columns is None or along is None:
            return self.slots.variances_at(matrix, rates, chosen)
        queries, slots = on_slots(matrix, sizes, along, self.columns)
        own = self.slots
        if slots != own.strategy.sizes:  # other queries than the workload's need a slot for every edge
            own = GroupedRecovery(own.problem, replace(own.strategy, sizes=slots))
        return own.variances_at(queries, rates, chosen)

    def unit_rates(self, step: float) -> tuple[RealVector, float]:
        """Return small rates, and what variances at these are to be multiplied with: lim epsilon^2 Var / 2."""
        integers = self.part.tree.integers
        small = step / integers.max()
        return small * integers, (small * self.longest) ** 2 / 2

    def covariance(self, rates: RealVector) -> SquareMatrix:
        """Return the covariance of all cells at given rates, written out."""
        sizes = self.problem.policy.domain.sizes
        own, along = self.slots.own, self.part.along
        C = own.covariance_at(rates)
        order = [*self.part.axes, *(i for i in range(len(sizes)) if i not in self.part.axes)]
        M = self.columns
        others = [M.square if M is not None and i == along else np.eye(sizes[i]) for i in order[len(self.part.axes) :]]
        whole = reduce(np.kron, others, C)
        shape = [sizes[i] for i in order]
        back = np.argsort(order)
        tensor = whole.reshape(*shape, *shape).transpose(*back, *(back + len(shape)))
        return np.asarray(tensor.reshape(whole.shape))


@final
@dataclass(frozen=True, eq=False)
class TreeSumRecovery(DrawnCells):
    """x + N, with the noise of several tree norms added up."""

    problem: Problem
    strategy: TreeSum

    @cached_property
    def parts(self) -> list[PartRecovery]:
        """What is added up."""
        return [PartRecovery(self.problem, part) for part in self.strategy.parts]

    @property
    def denominator(self) -> int:  # type: ignore[override]
        """Common to all parts."""
        return math.lcm(*(part.denominator for part in self.parts))

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws: one a slot."""
        return sum(math.prod(part.grouped(self.strategy.sizes).sizes) for part in self.strategy.parts)

    def check_made(self, settled: Plan) -> None:
        """Refuse noise that is not of these parts."""
        self._samplers(settled)

    def _samplers(self, settled: Plan) -> tuple[PartSampler, ...]:
        """The noise of the parts, which must be that of their trees along their graphs, for which it was checked."""
        sampler = settled.sampler
        count = len(self.parts)
        if not (
            isinstance(sampler, TreeSumSampler)
            and len(sampler.parts) == count
            and all(part.is_of(own) for part, own in zip(self.parts, sampler.parts, strict=True))
        ):
            raise fail("release", "plan", "has noise of other trees", "Make a plan for these.")
        return sampler.parts

    def noise(self, settled: Plan, count: int) -> AnyArray:
        """Return draws of the noise on all cells times the denominator, one column each, as `PartRecovery.draw`."""
        pairs = zip(self.parts, self._samplers(settled), strict=True)
        drawn = [(part.draw(own, count), self.denominator // part.denominator) for part, own in pairs]
        largest = sum(times * int(np.abs(own).max(initial=0)) for own, times in drawn)
        kind = np.int64 if largest < _EXACT else object
        return np.asarray(sum(times * own.astype(kind) for own, times in drawn))

    def answers(self, workload: Workload, measured: tuple[RealVector]) -> RealVector:
        """Return the answers of a workload; those of public queries come from the totals alone."""
        answers = super().answers(workload, measured)
        if self.denominator == 1:
            return answers  # public totals are sums of whole numbers
        return with_public_answers(workload.matrix, self.problem.grounding, answers, self.totals(measured))

    def matrix_variances(self, matrix: Matrix, settled: Plan, chosen: IndexArray | None) -> RealVector:
        """Return the variances of any queries on the domain, all or chosen ones."""
        pairs = zip(self.parts, self._samplers(settled), strict=True)
        return np.asarray(sum(part.variances(matrix, own.tree.rates, chosen) for part, own in pairs))

    def unit_variances(self) -> RealVector:
        """Return lim epsilon^2 Var / 2 of every answer of the fitted workload."""
        found = np.zeros(self.problem.workload.num_queries)
        for part in self.parts:
            rates, times = part.unit_rates(_STEP)
            found += times * part.variances(self.problem.workload.matrix, rates, None)
        return found

    def total_variance(self, settled: Plan, certificate: Certificate) -> float:
        """Return the sum of the variances of all answers as written."""
        pairs = zip(self.parts, self._samplers(settled), strict=True)
        return sum(part.slots.total_variance(replace(settled, sampler=own.tree), certificate) for part, own in pairs)

    def check_steps(self, steps: Sequence[str]) -> None:
        """Refuse steps that do not exist or apply, and domains whose covariance is not written out."""
        n = self.problem.policy.num_cells
        if steps and n > _MOST_PRECISION:
            problem = f"weighs cells by their covariance, up to {_MOST_PRECISION} of them, and there are {n}"
            raise fail("postprocess", ", ".join(steps), problem, "Leave it out, or use Gaussian noise.")
        super().check_steps(steps)

    def precision(self) -> SquareMatrix:
        """Return the inverse of the covariance of the kept cells, as epsilon goes to 0, for 2 / epsilon^2 = 1."""
        n, kept = self.problem.policy.num_cells, self.problem.grounding.kept
        C = np.zeros((n, n))
        for part in self.parts:
            rates, times = part.unit_rates(_STEP)
            C += times * part.covariance(rates)
        return np.asarray(np.linalg.inv(C[np.ix_(kept, kept)]))

    def reconstruction(self) -> RealMatrix:
        """Refuse: answers are the queries of the noisy counts."""
        advice = "Export the trees, or release and ask for answers."
        raise fail("fit.reconstruction", repr(self.strategy), "is not written out", advice)


@recovery.register
def _(strategy: TreeSum, problem: Problem) -> TreeSumRecovery:
    return TreeSumRecovery(problem, strategy)
