"""Lower bounds on the unit error of any strategy: the paper's SVD bound and the dual bound, dense and by factors."""

from hdmm_bf.bounds.dense import Bounds, dual_bound, paper_factor, svd_bound

__all__ = ["Bounds", "dual_bound", "paper_factor", "svd_bound"]
