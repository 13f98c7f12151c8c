"""The certificate of tree norms within public groups: that of the one tree, on the values of the attributes with edges.

Every edge of the policy lies in one group, so what is lost on it is what the noise of that group loses; and the noise
of the groups is independent, so their errors add up. Both follow from policy and queries within a group. The bounds of
matrix mechanisms, which may add groups up before there is noise, are those of the whole problem.
"""

from __future__ import annotations

from dataclasses import replace

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise, Proof
from hdmm_bf.certificate.certificate import Bounds, Certificate, certify, check_noise
from hdmm_bf.certificate.exact import exact_sensitivity, grid_bits
from hdmm_bf.matrix import Identity
from hdmm_bf.problem.groups import policy_within, problem_within, workload_within
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import GroupedTree


@exact_sensitivity.register
def _(strategy: GroupedTree, problem: Problem, noise: Noise) -> int:
    """The longest policy edge in the tree: no edge leaves its group."""
    check_noise(noise, ("norm",))
    _check_domain(strategy, problem)
    own = policy_within(problem.policy, strategy.axes)
    return exact_sensitivity(strategy.tree, Problem(workload_within(Identity(own.num_cells), own.domain), own), noise)


@grid_bits.register
def _(strategy: GroupedTree) -> int:
    return strategy.tree.bits


@certify.register
def _(
    strategy: GroupedTree, problem: Problem, *, noise: Noise, proof: Proof | None, bounds: Bounds | None = None
) -> Certificate:
    """Derive the longest edge and the error from the tree; `bounds` of matrix mechanisms stand beside them.

    Guarantees:
        Attributes that tell groups apart have no edges, and the tree is over all values of the others. What holds for
        the certificate of a tree norm holds for `sensitivity_exact` and `unit_error`.
    """
    exact = exact_sensitivity(strategy, problem, noise)
    own = certify(strategy.tree, problem_within(problem, strategy.axes), noise=noise, proof=None)
    assert own.sensitivity_exact == exact, "the same tree under the same policy"
    svd, lower = (0.0, 0.0) if bounds is None else (bounds.svd or 0.0, bounds.lower or 0.0)
    return replace(own, svd_bound=svd, matrix_bound=lower, worst_variance=None)


def _check_domain(strategy: GroupedTree, problem: Problem) -> None:
    """Refuse groups of another domain: noise would be drawn for others than there are."""
    sizes = problem.policy.domain.sizes
    if tuple(strategy.sizes) != tuple(sizes):
        shown = f"groups of a domain of {'x'.join(map(str, strategy.sizes))}"
        raise fail("certificate", shown, f"the policy is on {problem.policy.domain}", "Fit again.")
