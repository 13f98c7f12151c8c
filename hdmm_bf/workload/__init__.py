"""Workloads: the queries to be answered.

`parse` reads a spec string or a file, `from_matrix` takes any real matrix; the other names build and
combine workloads without writing them out.
"""

from hdmm_bf.workload.constructors import all_range, identity, marginals, prefix, random_range
from hdmm_bf.workload.files import read
from hdmm_bf.workload.queries import Workload, from_matrix, product, union, weighted
from hdmm_bf.workload.ranges import AllRange, Boxes, Prefix
from hdmm_bf.workload.spec import parse

__all__ = [
    "AllRange",
    "Boxes",
    "Prefix",
    "Workload",
    "all_range",
    "from_matrix",
    "identity",
    "marginals",
    "parse",
    "prefix",
    "product",
    "random_range",
    "read",
    "union",
    "weighted",
]
