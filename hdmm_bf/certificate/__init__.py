"""The certificate: everything claimed about a strategy, derived again from what is shipped.

Privacy hangs on `exact`, which works in whole numbers. Nothing here imports the search.
"""

from hdmm_bf.certificate import (  # they register their records
    dense,  # noqa: F401
    groups,  # noqa: F401
    noise_sums,  # noqa: F401
    norms,  # noqa: F401
    products,  # noqa: F401
    tree_sums,  # noqa: F401
)
from hdmm_bf.certificate.certificate import Certificate, certify, disagreements
from hdmm_bf.certificate.exact import exact_sensitivity, grid_bits

__all__ = ["Certificate", "certify", "disagreements", "exact_sensitivity", "grid_bits"]
