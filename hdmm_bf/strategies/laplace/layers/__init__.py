"""Rows in several tables that share what they tell: unions of products under Laplace noise, solved together.

One attribute, the *spine*, has rows of any kind; of the others a layer keeps some and sums over the rest. The layer
that keeps L measures rows T_L on the spine for every value of L, and every cell has noise of its own besides. All is
the same for all values of the others, so least squares fall apart into sectors, one for every set A of them:

    error = sum_A tr(V_A M_A^-1),    M_A = diag(w)^2 + sum_{L >= A} c_L T_L^T T_L,    c_L = prod of the sizes outside L

V_A being the queries' Gram on the spine, times tr(V_k (I - E)) for k in A and tr(V_k E) for the others, E = J / n. A
move along the spine loses what the rows of all layers differ by; one along another attribute twice the columns of the
layers that keep it. A layer has a weight for each value, for the sum of all, bumps, and, where it keeps nothing that
is hidden, for each edge of the spine's tree.
"""

from hdmm_bf.strategies.laplace.layers.error import NAME, Layers, Schedule
from hdmm_bf.strategies.laplace.layers.search import FAMILY, steps
from hdmm_bf.strategies.laplace.layers.tables import MOST_CELLS, applies, kept_by_layers, spines

__all__ = [
    "FAMILY",
    "MOST_CELLS",
    "NAME",
    "Layers",
    "Schedule",
    "applies",
    "kept_by_layers",
    "spines",
    "steps",
]
