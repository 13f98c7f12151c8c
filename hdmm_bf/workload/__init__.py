"""Workloads: the queries to be answered.

`parse` reads a spec string or a file, `from_matrix` takes any real matrix; the other names build and
combine workloads without writing them out. `table`, `ranges`, `prefixes` and `total` say what is to be
published in the words of the attributes, for whatever domain has them; `sql` reads the same from SQL.
"""

from hdmm_bf.workload.boxes import AllRange, Boxes, Prefix
from hdmm_bf.workload.constructors import all_range, identity, marginals, prefix, random_range
from hdmm_bf.workload.files import read
from hdmm_bf.workload.language import Tables, prefixes, ranges, table, total
from hdmm_bf.workload.queries import Workload, from_matrix, product, union, weighted
from hdmm_bf.workload.spec import parse
from hdmm_bf.workload.sql_text import sql

__all__ = [
    "AllRange",
    "Boxes",
    "Prefix",
    "Tables",
    "Workload",
    "all_range",
    "from_matrix",
    "identity",
    "marginals",
    "parse",
    "prefix",
    "prefixes",
    "product",
    "random_range",
    "ranges",
    "read",
    "sql",
    "table",
    "total",
    "union",
    "weighted",
]
