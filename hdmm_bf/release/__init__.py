"""Release: the only code where data meet noise, and what is needed around it."""

from hdmm_bf.release import groups, matrices, noise_sums, norms, products  # noqa: F401  # they register their records
