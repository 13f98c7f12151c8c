"""The certificate: everything claimed about a strategy, derived again from what is shipped.

Privacy hangs on `exact`, which works in whole numbers. Nothing here imports the search.
"""

from hdmm_bf.certificate import dense, groups, noise_sums, norms, products  # noqa: F401  # they register their records
from hdmm_bf.certificate.certificate import Certificate, certify, disagreements
from hdmm_bf.certificate.exact import exact_sensitivity, grid_bits

__all__ = ["Certificate", "certify", "disagreements", "exact_sensitivity", "grid_bits"]
