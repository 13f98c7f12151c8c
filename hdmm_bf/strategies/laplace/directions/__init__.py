"""Laplace noise that is added up, one block for every kind of move: the paper's grid mechanism for any product.

An edge of G_1 x ... x G_d moves a record along one attribute i. Noise N_i that hides the moves along i alone knows the
totals over i for every cell of the others, and x + N_1 + ... + N_d is private: whatever the others add, N_i takes the
move up. With a factor A_i for the edges of i and star factors H_j (ordinary privacy) for the other attributes,

    unit error = sum_i sum_t w_t^2 tr(V_ti Y_i) prod_{j != i} tr(V_tj Z_j)

(Y, Z: see `factors`). Identity on the edges is Y_i = P_i P_i^T, H_j = I; rows and columns of wavelets has wavelets for
H_j. All attributes can also be hidden by one block, cell by cell: then only totals over all of them are public.
"""

from hdmm_bf.strategies.laplace.directions.candidates import Candidates
from hdmm_bf.strategies.laplace.directions.drafts import NAME, SumDraft
from hdmm_bf.strategies.laplace.directions.floors import (
    EACH,
    GRID,
    MOST_CELLS,
    STEPS,
    applies,
    floor_kind,
    floors,
    joint,
    joint_floors,
    sums,
)
from hdmm_bf.strategies.laplace.directions.search import FAMILY, search, searches, steps, steps_over_several

__all__ = [
    "EACH",
    "FAMILY",
    "GRID",
    "MOST_CELLS",
    "NAME",
    "STEPS",
    "Candidates",
    "SumDraft",
    "applies",
    "floor_kind",
    "floors",
    "joint",
    "joint_floors",
    "search",
    "searches",
    "steps",
    "steps_over_several",
    "sums",
]
