"""Strategies by factors: measured and reconstructed without anything of the domain's size squared.

The estimate of a linear query w is sum_b <(x)_i G_i^T w, y_b>, so every query costs its own factors only; for a
workload of products whole tables of answers come from applying W_i G_i along every attribute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector
from hdmm_bf.certificate import Certificate
from hdmm_bf.data.checked import as_tables
from hdmm_bf.data.tables import Tables
from hdmm_bf.matrix import apply_factors
from hdmm_bf.problem.product import ProductProblem, Term, product_terms, product_view
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import intervals
from hdmm_bf.release.coverage import check_covered
from hdmm_bf.release.noise import LARGEST
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.postprocess import check_steps
from hdmm_bf.release.product_variances import carried, contracted, cumulative, maps_of, paired, unit_spread
from hdmm_bf.release.public import PROBES, flows_of, is_whole, public_rows
from hdmm_bf.release.reconstruction import Progress, Recovery, Weighing, recovery
from hdmm_bf.release.row_noise import draw_rows, row_scales, row_variances
from hdmm_bf.strategies.records import AnyTensor, Block, NoiseSum, ProductStrategy
from hdmm_bf.workload import Boxes, Workload, identity

_EXACT_FLOAT = 2**53
_BOX_BLOCK = 512
_UNSEEN = 1e-10
_MOST_PROCESSED = 2**20
"""Cells up to which a release by factors is post-processed: its histogram is written out, nothing larger is."""

_TAIL = 64
"""Scales that no sample exceeds in practice."""


Pairs = list[tuple[float, Sequence[RealMatrix], Sequence[RealMatrix]]]
"""A square of a sum of Kronecker products, multiplied out: numbers, and two products each."""


@dataclass(frozen=True, eq=False)
class ProductRecovery(Recovery):
    """Products of small factors: nothing of the domain's size squared.

    Row J carries integer noise of scale sigma 2^bits / sqrt(M_J) in units of its grid, independent of all others. An
    edge moves row J by an integer a_J, which costs a_J^2 / (2 scale_J^2) of rho (Gaussian) or |a_J| / scale_J of
    epsilon (Laplace); the certificate's sensitivity bounds the sum over rows for every edge, rounded up.
    """

    problem: Problem
    strategy: ProductStrategy | NoiseSum
    by_factors: ClassVar[bool] = True

    @property
    def product(self) -> ProductProblem:
        """The problem by its factors."""
        return product_view(self.problem, balls=True)

    def read(self, counts: object) -> Tables:
        """Accept a histogram, or records for domains too large for one."""
        return as_tables(self.problem, counts)

    def measure(self, data: Tables, settled: Plan) -> list[AnyArray]:
        """Return the exact integer answers of every block."""
        room = [math.ceil(_TAIL * float(np.max(row_scales(b, settled), initial=0.0))) for b in self.strategy.blocks]
        return self.exact_answers(data, room=room)

    def exact_answers(self, data: Tables, *, room: Sequence[int]) -> list[AnyArray]:
        """Return the exact integer answers of every block: in 64 bits where they and noise of size `room` fit."""
        total = data.num_records
        return [_measured(block, data, total, spare) for block, spare in zip(self.strategy.blocks, room, strict=True)]

    def add_noise(
        self, exact: Sequence[AnyArray], data: Tables, settled: Plan, callback: Progress
    ) -> tuple[AnyTensor, ...]:
        """Return the noisy answers of every block; rows of precision 0 are not measured."""
        measured, done = [], 0
        for block, answers in zip(self.strategy.blocks, exact, strict=True):
            noise = draw_rows(settled.row_sampler, row_scales(block, settled), _counting(callback, done))
            done += noise.size
            noisy = np.ldexp((answers + noise).astype(np.float64), -sum(block.bits))
            measured.append(np.where(block.full_precisions > 0, noisy, 0.0))
        return tuple(measured)

    def estimate(self, measured: Sequence[AnyTensor]) -> RealVector:
        """Return the estimate of every cell; refused when the domain is too large to write out."""
        return self._estimates([y[..., None] for y in measured])[:, 0]

    def _estimates(self, measured: Sequence[AnyTensor]) -> RealMatrix:
        """Return estimates from several measurements of every block, along its last axis; one column each."""
        self._check_complementary("an estimate of every cell")
        sizes, count = self.product.sizes, measured[0].shape[-1]
        needed = math.prod(sizes) * count * 8
        fits("release", f"an estimate of {math.prod(sizes)} cells", needed, advice="Ask for tables.")
        total = np.zeros((*sizes, count))
        for block, y in zip(self.strategy.blocks, measured, strict=True):
            total += apply_factors(block.inverses, y)
        return total.reshape(-1, count)

    def answers(self, workload: Workload, measured: Sequence[AnyTensor]) -> RealVector:
        """Return the answers of any workload on the same domain that the strategy supports."""
        found = self._answers(workload, [y[..., None] for y in measured])
        return self._whole_where_public(workload, found[:, 0])

    def _answers(self, workload: Workload, measured: Sequence[AnyTensor]) -> RealMatrix:
        """Return answers from several measurements of every block, along its last axis; one column each."""
        terms = self._terms(workload)
        if workload is not self.problem.workload:
            self._check_complementary(f"workload {workload.spec}")
        if terms is None:
            return np.asarray(workload.matrix.mv(self._estimates(measured)), dtype=np.float64)
        count, found = measured[0].shape[-1], []
        for number, term in enumerate(terms):
            total = np.zeros((*(f.shape[0] for f in term.factors), count))
            for block, y in zip(self.strategy.blocks, measured, strict=True):
                maps = maps_of(term, block.inverses) if block.answers(number) else None
                if maps is not None:
                    _check_measured(workload, maps, block)
                    total += term.weight * apply_factors(maps, y)
            found.append(total.reshape(-1, count))
        return np.concatenate(found)

    def _whole_where_public(self, workload: Workload, answers: RealVector) -> RealVector:
        """Round answers without noise that are whole but for the rounding of the inverses."""
        if not self._is_whole(workload):
            return answers
        whole = np.rint(answers)
        near = np.abs(answers - whole) <= _UNSEEN * np.maximum(np.abs(answers), 1.0)
        return np.where(near & self.public_queries(workload), whole, answers)

    def _is_whole(self, workload: Workload) -> bool:
        """Whether every coefficient of the queries is a whole number."""
        terms = product_terms(workload.matrix, self.product.sizes)
        if terms is None:
            return isinstance(workload.matrix, Boxes)
        return all(t.weight == np.rint(t.weight) and all(map(is_whole, t.factors)) for t in terms)

    def public_queries(self, workload: Workload) -> Bool[np.ndarray, " m"]:
        """Say which queries no edge of any attribute sees; others than products and boxes are taken for seen."""
        matrix, sizes = workload.matrix, self.product.sizes
        flows = [flows_of(edges, size) for edges, size in zip(self.product.edges, sizes, strict=True)]
        if isinstance(matrix, Boxes):
            sums = [np.concatenate([np.zeros((1, PROBES), dtype=np.int64), np.cumsum(flow, axis=0)]) for flow in flows]
            seen = [np.any(s[matrix.high[:, i] + 1] != s[matrix.low[:, i]], axis=1) for i, s in enumerate(sums)]
            return np.asarray(~np.any(seen, axis=0))
        terms = product_terms(matrix, sizes)
        if terms is None:
            return np.zeros(workload.num_queries, dtype=bool)
        return np.concatenate([public_rows(term, flows) for term in terms])

    def variances(self, workload: Workload, settled: Plan, chosen: IndexArray | None = None) -> RealVector:
        """Return the variance of every answer, or of chosen ones, with the noise of a plan."""
        return self.row_variances_carried(workload, [row_variances(b, settled) for b in self.strategy.blocks], chosen)

    def unit_variances(self) -> RealVector:
        """Return the variance of every answer at unit noise: 1 / precision on every row."""
        rows = [unit_spread(block) for block in self.strategy.blocks]
        return self.row_variances_carried(self.problem.workload, rows)

    def row_variances_carried(
        self, workload: Workload, rows: Sequence[AnyTensor], chosen: IndexArray | None = None
    ) -> RealVector:
        """Return the variances of answers, given that of every row."""
        matrix = workload.matrix
        if isinstance(matrix, Boxes):
            return self._box_variances(matrix, chosen, rows)
        terms = self._terms(workload)
        if terms is None:
            problem = "standard deviations need products, unions of products, or boxes"
            raise fail("release", f"workload {workload.spec}", problem, "Ask for such queries.")
        found = []
        for number, term in enumerate(terms):
            total = np.zeros(tuple(f.shape[0] for f in term.factors))
            for block, spread in zip(self.strategy.blocks, rows, strict=True):
                for factor, left, right in self.squares(block) if block.answers(number) else []:
                    first, second = maps_of(term, left), maps_of(term, right)
                    if first is not None and second is not None:
                        both = [a * b for a, b in zip(first, second, strict=True)]
                        total += factor * term.weight**2 * apply_factors(both, spread)
            found.append(total.ravel())
        every = np.where(self.public_queries(workload), 0.0, np.concatenate(found))
        return every if chosen is None else every[chosen]

    def total_variance(self, settled: Plan, certificate: Certificate) -> float:
        """Return the sum of the variances of all answers, with the noise of a plan: from the factors' Gram matrices."""
        terms = self._written()
        blocks = [(block, row_variances(block, settled)) for block in self.strategy.blocks]
        if terms is None:
            return float(sum(self.row_variances_carried(self.problem.workload, [s for _, s in blocks])))
        total = 0.0
        for number, term in enumerate(terms):
            for block, spread in blocks:
                for factor, left, right in self.squares(block) if block.answers(number) else []:
                    along = [carried(V, A, B) for V, A, B in zip(term.grams, left, right, strict=True)]
                    total += factor * term.weight**2 * contracted(spread, along)
        return total

    def squares(self, block: Block) -> Pairs:
        """Return the square of what a row of a block adds to the estimate, as products."""
        return [(1.0, block.inverses, block.inverses)]

    def _written(self) -> tuple[Term, ...] | None:
        """The fitted workload by its factors, as written."""
        workload = self.problem.workload
        return product_terms(workload.matrix, self.product.sizes) if workload.is_weighted else self.product.terms

    def _check_complementary(self, what: str) -> None:
        if any(block.terms is not None for block in self.strategy.blocks):
            problem = "this strategy measures every table of its workload by itself"
            raise fail("release", what, problem, "Ask for the fitted workload, or fit again with Gaussian noise.")

    def _terms(self, workload: Workload) -> tuple[Term, ...] | None:
        if workload.num_cells != math.prod(self.product.sizes):
            problem = f"the strategy is for {math.prod(self.product.sizes)} cells"
            raise fail("release", f"workload on {workload.num_cells} cells", problem, "Use the same domain.")
        fits("release", f"{workload.num_queries} answers", workload.num_queries * 8, advice="Ask for fewer queries.")
        return product_terms(workload.matrix, self.product.sizes)

    def _box_variances(self, boxes: Boxes, chosen: IndexArray | None, rows: Sequence[AnyTensor]) -> RealVector:
        """For boxes each factor of a query is a difference of two cumulative sums of G_i's rows."""
        picked = np.arange(len(boxes.low)) if chosen is None else chosen
        total = np.zeros(picked.size)
        squares = [(s, *p) for b, s in zip(self.strategy.blocks, rows, strict=True) for p in self.squares(b)]
        for spread, factor, left, right in squares:
            first, second = cumulative(left), cumulative(right)
            for start in range(0, picked.size, _BOX_BLOCK):
                queries = picked[start : start + _BOX_BLOCK]
                high, low = boxes.high[queries] + 1, boxes.low[queries]
                parts = [
                    (a[high[:, i]] - a[low[:, i]]) * (b[high[:, i]] - b[low[:, i]])
                    for i, (a, b) in enumerate(zip(first, second, strict=True))
                ]
                total[start : start + _BOX_BLOCK] += factor * paired(parts, spread)
        return total

    def half_widths(self, settled: Plan, level: float, chosen: Int[np.ndarray, " q"]) -> RealVector:
        """Return half widths from normal quantiles, or from a tail bound for sums of Laplace variables."""
        stddev = np.sqrt(self.variances(self.problem.workload, settled))[chosen]
        return np.asarray(intervals.half_width(settled.noise, level) * stddev)

    def interval_method(self, settled: Plan, num_queries: int) -> str:
        """Say how intervals are made."""
        return "normal" if settled.noise == "gaussian" else "tail bound"

    def least_scale(self, settled: Plan) -> float:
        """Return the least scale of Laplace noise on a row, in units of its integers."""
        scales = [row_scales(block, settled) for block in self.strategy.blocks]
        return min((float(own[own > 0].min()) for own in scales if np.any(own > 0)), default=math.inf)

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws: one a row of every block."""
        return sum(math.prod(block.shape) for block in self.strategy.blocks)

    def error_draws(self, workload: Workload, settled: Plan, count: int) -> RealMatrix:
        """Return errors of all answers in so many fresh draws of the noise, one column a draw."""
        errors = self._answers(workload, [self._row_errors(block, settled, count) for block in self.strategy.blocks])
        errors[self.public_queries(workload)] = 0.0
        return errors

    @staticmethod
    def _row_errors(block: Block, settled: Plan, count: int) -> AnyTensor:
        """Return draws of the noise of a block's rows, along the last axis."""
        scales = np.broadcast_to(row_scales(block, settled)[..., None], (*block.shape, count))
        return np.ldexp(draw_rows(settled.row_sampler, scales, None).astype(np.float64), -sum(block.bits))

    def totals(self, measured: Sequence[AnyTensor]) -> RealVector:
        """Return the totals of public components, whole numbers but for the rounding of the inverses."""
        return np.asarray(np.rint(self.problem.grounding.totals(self.estimate(measured))), dtype=np.float64)

    def precision(self) -> Weighing:
        """Return sum_b R^T diag(M) R by its factors; rows without noise hold through the totals."""
        blocks = [
            ([block.factor(i) for i in range(len(block.bits))], _finite(block.full_precisions))
            for block in self.strategy.blocks
        ]

        def apply(x: RealVector) -> RealVector:
            cells, total = x.reshape(self.product.sizes), np.zeros(self.product.sizes)
            for factors, M in blocks:
                total += apply_factors([f.T for f in factors], M * apply_factors(factors, cells))
            return total.ravel()

        sizes = [math.prod(float(np.linalg.norm(f, 2)) ** 2 for f in fs) * float(M.max()) for fs, M in blocks]
        return Weighing(apply, sum(sizes))

    def reconstruction(self) -> RealMatrix:
        """Refuse: a strategy by factors reconstructs by its factors."""
        advice = "Export the factors, or release and ask for answers."
        raise fail("fit.reconstruction", repr(self.strategy), "is not written out", advice)

    def check_covers(self, workload: Workload) -> None:
        """Refuse queries that the strategy does not measure: made-up data, measured without noise, must give the truth.

        Guarantees:
            A workload with a query whose answer would be biased is refused, but for a chance in which the bias vanishes
            on made-up random data.
        """
        if workload.num_cells != self.problem.policy.num_cells:
            self._terms(workload)  # refuses another domain
        check_covered(self.problem, workload, lambda data: self.answers(workload, self._without_noise(data)))

    def _without_noise(self, data: Tables) -> tuple[AnyTensor, ...]:
        exact = self.exact_answers(data, room=[0] * len(self.strategy.blocks))
        pairs = zip(self.strategy.blocks, exact, strict=True)
        scaled = [(block, np.ldexp(y.astype(np.float64), -sum(block.bits))) for block, y in pairs]
        return tuple(np.where(block.full_precisions > 0, y, 0.0) for block, y in scaled)

    def check_steps(self, steps: Sequence[str]) -> None:
        """Refuse steps that do not exist or apply, domains too large to write out, and public totals not measured."""
        if not steps:
            return
        check_steps(self.problem, steps)
        self._check_complementary("post-processing")
        n = self.problem.policy.num_cells
        if n > _MOST_PROCESSED:
            problem = f"is for domains of up to {_MOST_PROCESSED} cells, not {n}"
            raise fail("postprocess", ", ".join(steps), problem, "Leave it out.")
        made_up = np.random.default_rng(0).integers(0, 10, size=n)
        found = self.totals(self._without_noise(as_tables(self.problem, made_up)))
        if not np.array_equal(found, self.problem.grounding.totals(made_up)):
            advice = "Leave it out, or fit a workload that holds them."
            raise fail("postprocess", ", ".join(steps), "needs public totals that are not measured", advice)

    def check_estimate(self) -> None:
        """Refuse an estimate of a strategy that measures tables by themselves, or of too many cells."""
        zeros = tuple(np.broadcast_to(0.0, block.shape) for block in self.strategy.blocks)
        _ = self.estimate(zeros)
        self.check_covers(identity(self.problem.policy.domain))


@recovery.register
def _(strategy: ProductStrategy, problem: Problem) -> ProductRecovery:
    return ProductRecovery(problem, strategy)


def _finite(precisions: AnyTensor) -> AnyTensor:
    return np.where(np.isinf(precisions), 0.0, precisions)


def _counting(callback: Progress, before: int) -> Progress:
    return None if callback is None else lambda done: callback(before + done)


def _check_measured(workload: Workload, maps: list[RealMatrix], block: Block) -> None:
    """Refuse queries that see rows which were not measured because no query of the fitted workload does."""
    missing = block.full_precisions == 0
    if not missing.any():
        return
    seen = [np.abs(m).max(axis=0) > _UNSEEN * float(np.abs(m).max()) for m in maps]
    if missing[np.ix_(*seen)].any():
        problem = "asks what the strategy does not measure"
        raise fail("release", f"workload {workload.spec}", problem, "Fit a strategy for it.")


def _measured(block: Block, data: Tables, total: int, room: int) -> AnyArray:
    """(R_1 (x) ... (x) R_d) x in integers; attributes that the block only sums over are left to the data.

    No counts are refused: where a refusal begins, a strategy made for it would show a count that nobody paid for.
    """
    sizes = [max(1, int(np.abs(factor).max())) for factor in block.integers]  # 1: what is summed before a zero counts
    reach = math.prod(sizes) * max(total, 1)
    summed = [len(factor) == 1 and bool(np.all(factor == factor[0, 0])) for factor in block.integers]
    kept = [i for i, gone in enumerate(summed) if not gone]
    constant = math.prod(int(block.integers[i][0, 0]) for i, gone in enumerate(summed) if gone)
    table, factors = data.table(kept), [block.integers[i] for i in kept]
    if reach < _EXACT_FLOAT:  # every partial sum is a whole number that float64 holds
        exact = apply_factors([f.astype(np.float64) for f in factors], table.astype(np.float64))
        answers = np.rint(exact).astype(np.int64)
    elif reach + room < LARGEST:
        answers = apply_factors(factors, table)
    else:  # whole numbers of any size
        answers = apply_factors([f.astype(object) for f in factors], table.astype(object))
    return np.asarray(constant * answers).reshape(block.shape)
