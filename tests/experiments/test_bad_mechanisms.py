"""Wrong calls of mechanisms: every one is an `InputError` in three parts."""

import math

import numpy as np

from experiments.mechanisms.dawa import dawa
from experiments.mechanisms.edges import slabs
from experiments.mechanisms.grids import cubes, rows_and_columns
from experiments.mechanisms.hierarchy import hierarchical
from experiments.mechanisms.hilbert import hilbert_order
from experiments.mechanisms.mechanism import laplace
from experiments.mechanisms.trees import approximated, run_on_tree, transformed
from experiments.mechanisms.wavelet import privelet
from hdmm_bf import policy, workload
from hdmm_bf.problem.transform import Problem
from tests.support.mistakes import _as_users_run_it, assert_refused, table  # noqa: F401
from tests.support.noises import Played


@table(
    (lambda: laplace()(np.ones((2, 2)), 1.0, Played([])), "(2, 2)", "Ravel the histogram"),
    (lambda: laplace()(np.array([]), 1.0, Played([])), "(0,)", "Ravel the histogram"),
    (lambda: laplace()([1, np.nan], 1.0, Played([])), "=nan", "Remove NaN"),
    (lambda: laplace()(["a"], 1.0, Played([])), "<U1", "Convert it"),
    (lambda: laplace()([1, 2], 0.0, Played([])), "epsilon=0.0", "Use for example 1.0."),
    (lambda: laplace()([1, 2], math.inf, Played([])), "epsilon=inf", "Use for example 1.0."),
    (lambda: laplace()([1, 2], True, Played([])), "epsilon=True", "Use for example 1.0."),
    (lambda: privelet("2x2")([1, 2], 1.0, Played([])), "(2,)", "Ravel the histogram"),
    (lambda: hierarchical(1), "branching=1", "Use at least 2."),
    (lambda: dawa(noise="publishd"), "'publishd'", "Did you mean 'published'?"),
    (lambda: dawa(share=1.0), "share=1.0", "Use for example 0.25."),
    (lambda: dawa(order=np.array([0, 0])), "order of shape (2,)", "Use hilbert_order(domain)."),
    (lambda: dawa(workload.identity(3), order=np.arange(2)), "3 cells and an order of 2", "Make both for one domain."),
    (lambda: hilbert_order(8), "8", "Use for example 64x64."),
    (lambda: transformed(laplace(), policy.cycle(4)), "cycle:4", "tree=policy.spanning_tree(policy)"),
    (lambda: transformed(laplace(), policy.star_tree(4), consistent=True), "star-tree:4", "Use policy.line(n)"),
    (lambda: approximated(laplace(), policy.line(4), tree=policy.empty(4)), "empty:4", "spanning_tree"),
    (lambda: rows_and_columns(policy.threshold("3x3", 2)), "threshold:3x3:2", "Use policy.threshold(domain, 1)."),
    (lambda: rows_and_columns(policy.cycle(4)), "cycle:4", "Use policy.threshold(domain, 1)."),
    (lambda: slabs(policy.cycle(4), [np.eye(4)]), "cycle:4", "Use policy.threshold(domain, 1)."),
    (lambda: slabs(policy.threshold("2x3", 1), [np.eye(2)]), "1 strategies for 2", "as many as the domain"),
    (lambda: slabs(policy.threshold("2x3", 1), [np.eye(2), np.eye(2)]), "(2, 2)", "Use identity."),
    (lambda: slabs(policy.threshold("2x2", 1), [np.eye(2), np.ones((2, 2))]), "(2, 2)", "Add the identity"),
    (lambda: cubes(policy.threshold("6x6", 6), side=3), "side=3", "Use 2."),
    (lambda: cubes(policy.threshold("6x6", 6), side=0), "side=0", "Use a power of two."),
    (
        lambda: run_on_tree(laplace(), Problem(workload.identity(4), policy.cycle(4)), [1, 2, 3, 4], 1.0, Played([])),
        "cycle:4",
        "tree=policy.spanning_tree(policy)",
    ),
    (
        lambda: run_on_tree(laplace(), Problem(workload.identity(4), policy.line(4)), [1, 2], 1.0, Played([])),
        "(2,)",
        "Ravel the histogram",
    ),
)
def test_a_wrong_call_is_refused(case):
    assert_refused(*case)
